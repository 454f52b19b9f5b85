"""Copy a store into a throw-away folder and ask probes of the copy, which is read-only."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, cast

from meritory.domain.errors import Conflict, Corrupt, ReadOnlyStore
from meritory.domain.memory import Draft, Scope
from meritory.domain.place import Place
from meritory.domain.policy import Policy
from meritory.domain.session import SessionRecord, ShownRow
from meritory.engine import pipeline
from meritory.engine.memories.recall import recall
from meritory.engine.memories.write import SHARED_FIELDS, write
from meritory.engine.observe.observer import Observer
from meritory.engine.predictor.state import state_of
from meritory.engine.services import Services
from meritory.engine.sessions.context import StartRequest
from meritory.engine.sessions.packing import Served
from meritory.engine.sessions.prompt import PromptRequest
from meritory.engine.transfer.backup import ModelFiles, keep_models
from meritory.lab.probes import Anchor, Anchors, Probe
from meritory.rank.metrics import DEPTH, ProbeHit
from meritory.store.contract.store import Store
from meritory.store.sqlite.backup import snapshot

COPY_NAME = "copy.db"
_PREFIX = "meritory-eval-"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Make a private temporary folder."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as made:
        yield Path(made)


@contextlib.contextmanager
def copied(source: Place, user: str | None = None) -> Iterator[Path]:
    """Copy a store and its models to a temporary file and yield its path.

    From a shared database only the rows of this user are copied.
    """
    with folder() as made:
        copy = made / COPY_NAME
        if source.file is None:
            _copy_database(source, copy, user)
        else:
            snapshot(source.file, copy)
            # Models are next to the file itself, even if a link leads to it.
            keep_models(source.file.resolve(), copy)
        yield copy


def _copy_database(source: Place, copy: Path, user: str | None) -> None:
    # Imported here, because the driver of the database takes time to load.
    from meritory.engine.transfer.migrate import MigrationRequest, move
    from meritory.store.migrate.postgres_endpoint import PostgresEndpoint
    from meritory.store.migrate.sqlite_endpoint import SqliteEndpoint

    with (
        contextlib.closing(PostgresEndpoint(source)) as database,
        contextlib.closing(SqliteEndpoint(copy, ModelFiles(copy), is_target=True)) as file,
    ):
        report = move(database, file, MigrationRequest(user=user), lambda done, total: None)
    if not report.is_equal:
        first = report.differences[0]
        raise Corrupt(
            f"a row of {first.table} in {source.name} cannot be copied exactly",
            hint="`meritory migrate --to FILE` lists all such rows",
        )


class FrozenStore:
    """A read-only store, so that one measurement cannot change the next.

    A session can be added in memory, so that a prompt is served as in a recorded session.
    """

    def __init__(
        self, store: Store, session: SessionRecord | None = None, shown: Sequence[ShownRow] = ()
    ) -> None:
        self._store = store
        self._added = {} if session is None else {(session.user, session.key): (session, shown)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def session(self, user: str, key: str) -> SessionRecord:
        """Return the added session, or one of the copy."""
        added = self._added.get((user, key))
        return added[0] if added else self._store.session(user, key)

    def shown(self, user: str, key: str) -> list[ShownRow]:
        """Return the memories that a session was shown."""
        added = self._added.get((user, key))
        return list(added[1]) if added else self._store.shown(user, key)

    def write(self, *given: object) -> NoReturn:
        """Refuse the write."""
        raise ReadOnlyStore("the store is read-only during evaluation")

    register_embedder = serve_embedder = erase_traces = write


@dataclass(frozen=True, slots=True)
class Sandbox:
    """An engine on a throw-away copy; any other store is refused."""

    services: Services

    def __post_init__(self) -> None:
        place = self.services.store.place
        inside = Path() if place.file is None else place.file.resolve().parent
        is_copy = inside.name.startswith(_PREFIX)
        if not is_copy or inside.parent != Path(tempfile.gettempdir()).resolve():
            raise Conflict(
                f"{place.name} is not a throw-away copy",
                hint="copy it with meritory.lab.measure.copied",
            )

    def frozen(self, policy: Policy | None = None) -> Services:
        """Return the engine with a read-only store, under another policy if given."""
        chosen = policy or self.services.policy
        # No exploration: a measurement must not depend on chance.
        predictor = replace(chosen.predictor, exploration_rate=0.0)
        return replace(
            self.services,
            store=cast(Store, FrozenStore(self.services.store)),
            policy=replace(chosen, predictor=predictor),
            observer=Observer(self.services.world),
            counter=None,
        )


MERGES_READ = 10_000


def rebuild(source: Services, target: Services) -> dict[str, int]:
    """Write live and merged memories again, in their order, and return the outcome counts.

    Merged texts are written one by one, so that another gate can decide differently.
    """
    records = {one.id: one for one in source.store.walk(source.user) if one.is_live}
    for scope in {one.scope for one in records.values()}:
        for entry in source.store.merges(scope, MERGES_READ):
            for part in (entry.before, entry.other):
                if part is not None and entry.memory_id in records:
                    records.setdefault(f"{part.id}/{part.content}", part)
    ordered = sorted(records.values(), key=lambda one: (one.created_at, one.id))
    drafts = [
        Draft(**{name: getattr(record, name) for name in _COPIED_FIELDS}) for record in ordered
    ]
    return dict(Counter(result.outcome for result in write(target, source.user, drafts)))


# Fields of a record that a rebuilt store keeps; the rest follows from writing it again.
_COPIED_FIELDS = (*SHARED_FIELDS, "source", "created_at")


SESSION_KEY = "eval"
Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """One probe, its anchor, and the result; there is no hit when it drifted."""

    probe: Probe
    anchor: Anchor
    hit: ProbeHit | None = None
    # The first memory, where it is not the expected one.
    instead: str = ""


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """The policy of a measurement, and whether session prompts are measured too."""

    policy: Policy | None = None
    with_session: bool = False


def anchored(sandbox: Sandbox, probes: Sequence[Probe], *, follows: bool = True) -> list[Anchor]:
    """Find the memories that the probes mean, in their order."""
    services = sandbox.services
    anchors = Anchors(services.store, services.user, services.world.now())
    return [anchors.find(probe, follows=follows) for probe in probes]


def measure(
    sandbox: Sandbox,
    probes: Sequence[Probe],
    anchors: Sequence[Anchor],
    plan: MeasurePlan,
    report: Report = lambda done, total: None,
) -> list[ProbeOutcome]:
    """Ask every probe whose memory exists; nothing is written, not even to the copy."""
    asker = _Asker(sandbox, plan)
    outcomes = []
    for done, (probe, anchor) in enumerate(zip(probes, anchors, strict=True), start=1):
        is_found = bool(anchor.memory_ids)
        outcomes.append(asker.ask(probe, anchor) if is_found else ProbeOutcome(probe, anchor))
        report(done, len(probes))
    return outcomes


def measure_rebuilt(
    sandbox: Sandbox,
    known: Sequence[ProbeOutcome],
    plan: MeasurePlan,
    report: Report = lambda done, total: None,
) -> list[ProbeOutcome]:
    """Ask a rebuilt store; a memory that it no longer has counts as not found.

    `known` are the outcomes in the store from which it was rebuilt.
    """
    probes = [one.probe for one in known]
    anchors = anchored(sandbox, probes, follows=False)
    lost = ProbeHit(rank=None, in_prompt=False if plan.with_session else None)
    return [
        replace(new, anchor=old.anchor, hit=replace(lost, tags=new.probe.tags))
        if old.hit is not None and new.hit is None
        else new
        for old, new in zip(known, measure(sandbox, probes, anchors, plan, report), strict=True)
    ]


class _Asker:
    """Asks probes of one configuration, question by question."""

    def __init__(self, sandbox: Sandbox, plan: MeasurePlan) -> None:
        self._plan = plan
        # A missing model falls back to an earlier one, which is written: do it before the freeze.
        state_of(sandbox.services, sandbox.services.user)
        self._store = sandbox.services.store
        self._services = sandbox.frozen(plan.policy)
        self._now: datetime = sandbox.services.world.now()
        self._opened: dict[Scope, tuple[FrozenStore, frozenset[str]]] = {}
        # The first question loads the embedder and the index, so its time does not count.
        self._is_warm = False

    def ask(self, probe: Probe, anchor: Anchor) -> ProbeOutcome:
        """Ask one probe."""
        scope = Scope(self._services.user, None, probe.project)
        if not self._is_warm:
            recall(self._services, scope, probe.question, DEPTH)
            self._is_warm = True
        clock = self._services.world.monotonic_ms
        started_ms = clock()
        found = recall(self._services, scope, probe.question, DEPTH)
        took_ms = clock() - started_ms
        ranks = (rank for rank, one in enumerate(found, start=1) if one.id in anchor.memory_ids)
        rank = next(ranks, None)
        shown = self._shown(scope, probe.question) if self._plan.with_session else None
        hit = ProbeHit(
            rank=rank,
            in_prompt=None if shown is None else bool(shown & anchor.memory_ids),
            took_ms=took_ms,
            tags=probe.tags,
        )
        instead = found[0].content if found and rank != 1 else ""
        return ProbeOutcome(probe, anchor, hit, instead)

    def _shown(self, scope: Scope, question: str) -> frozenset[str]:
        """Return the memories in context when the question is the first prompt of a session."""
        if scope not in self._opened:
            # Started without a context, once for all questions of a scope.
            served = pipeline.begin(self._services, StartRequest(SESSION_KEY, scope))
            if served is None:
                raise Conflict("the measured session was started twice")
            session = SessionRecord(
                user=scope.user,
                key=SESSION_KEY,
                started_at=self._now,
                project=scope.project,
                injection_count=1 if served.inject else 0,
                handle_count=len(served.memories),
                is_explained=bool(served.inject),
            )
            rows = [
                ShownRow(one.id, one.handle, 1, True, False, one.source, one.rank)
                for one in served.memories
            ]
            self._opened[scope] = (FrozenStore(self._store, session, rows), _ids(served))
        store, before = self._opened[scope]
        services = replace(self._services, store=cast(Store, store))
        request = PromptRequest(SESSION_KEY, scope, question)
        return before | _ids(pipeline.prompt(services, request))


def _ids(served: Served) -> frozenset[str]:
    return frozenset(one.id for one in served.memories)
