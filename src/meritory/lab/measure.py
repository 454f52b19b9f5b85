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
from meritory.domain.memory import Draft, MemoryRecord, Recalled, Scope
from meritory.domain.place import Place
from meritory.domain.policy import Policy
from meritory.domain.session import SessionRecord, ShownRow
from meritory.engine import pipeline
from meritory.engine.memories.recall import recall
from meritory.engine.memories.write import write
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
    """A private folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as made:
        yield Path(made)


@contextlib.contextmanager
def copied(source: Place, user: str | None = None) -> Iterator[Path]:
    """The file of a copy of a store and its models, for the length of the block.

    Of a database that many share only what is this user's.
    """
    with folder() as made:
        copy = made / COPY_NAME
        if source.file is None:
            _moved_out(source, copy, user)
        else:
            snapshot(source.file, copy)
            # Models lie beside the file itself, whatever link leads to it.
            keep_models(source.file.resolve(), copy)
        yield copy


def _moved_out(source: Place, copy: Path, user: str | None) -> None:
    # Here, because few measure on a database, and its driver takes time to load.
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
            f"a row of {first.table} in {source.name} cannot be copied as it is",
            hint="`meritory migrate --to FILE` names all that come out otherwise",
        )


class FrozenStore:
    """A store that can be read and never written; nothing that is served leaves a trace.

    What is measured first must not change what is measured next. A session may be made known to
    it, so that a prompt can be served in it as in one that was recorded.
    """

    def __init__(self, store: Store, session: SessionRecord | None = None) -> None:
        self._store = store
        self._session = session
        self._shown: tuple[ShownRow, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def with_session(self, session: SessionRecord, shown: Sequence[ShownRow]) -> FrozenStore:
        """The same store, in which this session has begun and was shown these memories."""
        other = FrozenStore(self._store, session)
        other._shown = tuple(shown)
        return other

    def session(self, user: str, key: str) -> SessionRecord:
        """The session that was made known, or one of the copy."""
        made = self._session
        if made is not None and (made.user, made.key) == (user, key):
            return made
        return self._store.session(user, key)

    def shown(self, user: str, key: str) -> list[ShownRow]:
        """What that session was shown."""
        made = self._session
        if made is not None and (made.user, made.key) == (user, key):
            return list(self._shown)
        return self._store.shown(user, key)

    def write(self, user: str | None, work: Callable[[Any], Any]) -> NoReturn:
        """Refuses."""
        raise ReadOnlyStore("nothing is written while something is measured")

    def register_embedder(self, embedder: object) -> NoReturn:
        """Refuses."""
        raise ReadOnlyStore("nothing is written while something is measured")

    def serve_embedder(self, embedder: str) -> NoReturn:
        """Refuses."""
        raise ReadOnlyStore("nothing is written while something is measured")

    def erase_traces(self) -> NoReturn:
        """Refuses."""
        raise ReadOnlyStore("nothing is written while something is measured")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """An engine whose store lies in a throw-away folder; on anything else none can be made."""

    services: Services

    def __post_init__(self) -> None:
        place = self.services.store.place
        inside = Path() if place.file is None else place.file.resolve().parent
        is_ours = inside.name.startswith(_PREFIX)
        if not is_ours or inside.parent != Path(tempfile.gettempdir()).resolve():
            raise Conflict(
                f"{place.name} is no throw-away copy, so nothing is measured on it",
                hint="make one with meritory.lab.measure.copied",
            )

    def frozen(self, policy: Policy | None = None) -> tuple[Services, FrozenStore]:
        """The engine with a store that cannot be written, under other choices if given."""
        store = FrozenStore(self.services.store)
        return self.serving(store, policy), store

    def serving(self, store: FrozenStore, policy: Policy | None = None) -> Services:
        """The engine around a frozen store."""
        services = self.services
        chosen = policy or services.policy
        # Chance has no place in a measurement: nothing is shown on trial.
        predictor = replace(chosen.predictor, exploration_rate=0.0)
        return replace(
            services,
            store=cast(Store, store),
            policy=replace(chosen, predictor=predictor),
            observer=Observer(services.world),
            counter=None,
        )


MERGES_READ = 10_000


def rebuild(source: Services, target: Services) -> dict[str, int]:
    """Writes what is live, and what was merged away, in the order it was learned; counts outcomes.

    What was merged stands on its own again, so that another gate may decide otherwise.
    """
    found = {one.id: one for one in source.store.walk(source.user) if one.is_live}
    for scope in {one.scope for one in found.values()}:
        for entry in source.store.merges(scope, MERGES_READ):
            for part in (entry.before, entry.other):
                if part is not None and entry.memory_id in found:
                    found.setdefault(f"{part.id}/{part.content}", part)
    learned = sorted(found.values(), key=lambda one: (one.created_at, one.id))
    results = write(target, source.user, [_draft(one) for one in learned])
    return dict(Counter(result.outcome for result in results))


def _draft(record: MemoryRecord) -> Draft:
    return Draft(
        content=record.content,
        user=record.user,
        agent=record.agent,
        project=record.project,
        kind=record.kind,
        provenance=record.provenance,
        origin=record.origin,
        confidence=record.confidence,
        importance=record.importance,
        pinned=record.pinned,
        tags=record.tags,
        source=record.source,
        valid_from=record.valid_from,
        valid_until=record.valid_until,
        created_at=record.created_at,
    )


SESSION_KEY = "eval"
Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """One probe, what it is anchored on, and what was found; no hit when it drifted."""

    probe: Probe
    anchor: Anchor
    hit: ProbeHit | None = None
    # What stood first instead, where the target did not.
    instead: str = ""


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """What is to be measured: under which choices, and whether sessions are served as well."""

    policy: Policy | None = None
    with_session: bool = False


def anchored(sandbox: Sandbox, probes: Sequence[Probe], *, follows: bool = True) -> list[Anchor]:
    """What every probe is about, in their order."""
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
    """Asks every probe whose target is there; nothing is written, not even to the copy."""
    asker = _Asker(sandbox, plan)
    outcomes = []
    for done, (probe, anchor) in enumerate(zip(probes, anchors, strict=True), start=1):
        is_there = bool(anchor.memory_ids)
        outcomes.append(asker.ask(probe, anchor) if is_there else ProbeOutcome(probe, anchor))
        report(done, len(probes))
    return outcomes


def measure_rebuilt(
    sandbox: Sandbox,
    known: Sequence[ProbeOutcome],
    plan: MeasurePlan,
    report: Report = lambda done, total: None,
) -> list[ProbeOutcome]:
    """Asks a store that was written anew; what was there before and is not any more was lost.

    `known` is what was found in the store it was made from.
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
    """One way to be served, asked question by question."""

    def __init__(self, sandbox: Sandbox, plan: MeasurePlan) -> None:
        self._sandbox = sandbox
        self._plan = plan
        # A model that is lost gives way to an earlier one, which is noted: before all is frozen.
        state_of(sandbox.services, sandbox.services.user)
        self._services, self._store = sandbox.frozen(plan.policy)
        self._now: datetime = sandbox.services.world.now()
        self._opened: dict[Scope, tuple[FrozenStore, frozenset[str]]] = {}
        # The first question loads the embedder and the index, for all that come after it.
        self._is_warm = False

    def ask(self, probe: Probe, anchor: Anchor) -> ProbeOutcome:
        """What became of one probe."""
        scope = Scope(self._services.user, None, probe.project)
        if not self._is_warm:
            recall(self._services, scope, probe.question, DEPTH)
            self._is_warm = True
        clock = self._services.world.monotonic_ms
        started_ms = clock()
        found = recall(self._services, scope, probe.question, DEPTH)
        took_ms = clock() - started_ms
        rank = _rank(found, anchor.memory_ids)
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
        """What an agent has before its eyes when the question is the first prompt of a session."""
        store, before = self._opening(scope)
        services = self._sandbox.serving(store, self._services.policy)
        request = PromptRequest(SESSION_KEY, scope, question)
        return before | _ids(pipeline.prompt(services, request))

    def _opening(self, scope: Scope) -> tuple[FrozenStore, frozenset[str]]:
        """A session that began without a context; the same for every question of a scope."""
        if scope not in self._opened:
            served = pipeline.begin(self._services, StartRequest(SESSION_KEY, scope))
            if served is None:
                raise Conflict("the session that is measured began twice")
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
            self._opened[scope] = (self._store.with_session(session, rows), _ids(served))
        return self._opened[scope]


def _ids(served: Served) -> frozenset[str]:
    return frozenset(one.id for one in served.memories)


def _rank(found: Sequence[Recalled], wanted: frozenset[str]) -> int | None:
    places = (place for place, one in enumerate(found, start=1) if one.id in wanted)
    return next(places, None)
