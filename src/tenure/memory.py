"""The library's front door: `Memory`, embedded in the program that uses it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tenure.errors import Busy, InputError, StorageError, TenureError
from tenure.flow import change, graph
from tenure.flow import recall as recalling
from tenure.flow import write as writing
from tenure.flow.drafts import checked_field, checked_name, make_draft
from tenure.flow.embedding import Embedding
from tenure.flow.services import Policy, Services
from tenure.ports.embedder import EmbedderSpec
from tenure.rank.hybrid import HybridWeights
from tenure.rank.scores import SourceWeights
from tenure.settings import Settings, home_folder, load_settings, prepare_home
from tenure.store.base import Listing, Transaction
from tenure.store.sqlite import SqliteStore
from tenure.text.entities import entity_key, parse_about
from tenure.types import (
    Entity,
    EntityView,
    HistoryEntry,
    MemoryRecord,
    Recalled,
    Scope,
    WriteResult,
)
from tenure.world import Clock, World

LISTING_LIMIT_MAX = 10_000


class Memory:
    """Memories of one user, kept in one file; safe to share between threads."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        clock: Clock | None = None,
        settings: Settings | None = None,
        actor: str = "library",
        everywhere: bool = False,
        background: bool = True,
    ) -> None:
        """Opens the store, or makes it.

        `everywhere` lets ids name memories of all the user's projects and agents, for people's
        tools; searches keep to their scope all the same. `background` lets a changed embedder's
        vectors be made meanwhile.
        """
        home = home_folder(os.environ)
        self.settings = settings or load_settings(home, os.environ)
        self.scope = Scope(
            str(checked_name("user", self.settings.user if user is None else user)),
            checked_name("agent", agent),
            checked_name("project", project),
        )
        store, world = SqliteStore(_store_file(path, self.settings)), World(clock)
        self._services = Services(
            store,
            Embedding(store, _embedder_spec(self.settings), world),
            world,
            _policy(self.settings),
            actor,
            self.scope.user,
        )
        self._everywhere = everywhere
        self._background: threading.Thread | None = None
        self._stopping = threading.Event()
        if background and self._services.embedding.is_changed():
            self.reembed_in_background()

    # -- writing --------------------------------------------------------------------------

    def remember(self, content: str, **fields: Any) -> MemoryRecord:
        """Stores a text and returns the memory it lives on in, which may be an older one."""
        result = self.remember_many([{"content": content, **fields}])[0]
        if result.memory is None:
            raise result.error or InputError(result.reason)
        return result.memory

    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]:
        """Stores many texts at once; one bad item never keeps the others out."""
        if isinstance(items, str | Mapping):
            raise InputError("expected a list of memories", hint="for one, call remember")
        return writing.write(self._services, [self._draft(item) for item in items])

    def _draft(self, item: object) -> Any:
        try:
            if isinstance(item, str):
                return make_draft(item, self.scope, {})
            if not isinstance(item, Mapping):
                raise InputError(f"a memory is a text or its fields, not {type(item).__name__}")
            fields = dict(item)
            content = fields.pop("content", None)
            if fields.get("supersedes") is not None:
                fields["supersedes"] = self.get(fields["supersedes"]).id
            return make_draft(content, self.scope, fields)
        except TenureError as error:
            return error

    def update(self, memory_id: str, **fields: Any) -> MemoryRecord:
        """Changes fields of a memory; what it was stays in its history."""
        by_person = checked_field("origin", fields.pop("origin", "user")) == "user"
        return change.update(self._services, self.get(memory_id), fields, by_person=by_person)

    def confirm(self, memory_id: str) -> MemoryRecord:
        """A person vouches for a memory: it becomes trusted, and what was proposed takes effect."""
        return change.confirm(self._services, self.get(memory_id))

    def forget(self, memory_id: str, *, purge: bool = False, why: str = "") -> None:
        """Hides a memory; with `purge` it is erased for good, history and all."""
        record = self.get(memory_id)
        if purge:
            change.purge(self._services, record)
        else:
            change.forget(self._services, record, why)

    def undo(self, memory_id: str) -> list[MemoryRecord]:
        """Takes back the last change of a memory and returns all that changed by it."""
        return change.undo(self._services, self.get(memory_id))

    def split(self, memory_id: str, entry: int | None = None) -> list[MemoryRecord]:
        """Takes a merge apart again."""
        return change.split(self._services, self.get(memory_id), entry)

    # -- reading --------------------------------------------------------------------------

    def recall(self, query: str, limit: int | None = None, explain: bool = False) -> list[Recalled]:
        """The memories that answer a query best; `explain` adds every number behind the score."""
        wanted = self.settings.recall.limit if limit is None else limit
        return recalling.recall(self._services, self.scope, query, wanted, explain=explain)

    def get(self, memory_id: str) -> MemoryRecord:
        """The memory with this id, or the only one whose id starts so."""
        if not isinstance(memory_id, str):
            raise InputError(f"an id is text, not {type(memory_id).__name__}")
        within = None if self._everywhere else self.scope
        return self._services.store.get(self.scope.user, memory_id, within)

    def page(
        self,
        limit: int = 100,
        *,
        kind: str | None = None,
        tag: str | None = None,
        after: str | None = None,
        everywhere: bool = False,
        include_gone: bool = False,
    ) -> list[MemoryRecord]:
        """A page of memories, newest first; `after` is the last id of the page before."""
        checked_limit(limit)
        return self._services.store.listing(
            Listing(self.scope, everywhere, kind, tag, include_gone, after, limit)
        )

    def history(self, memory_id: str) -> list[HistoryEntry]:
        """Every change of a memory, oldest first."""
        return self._services.store.history(self.scope.user, self.get(memory_id).id)

    def merges(self, limit: int = 100) -> list[HistoryEntry]:
        """The latest merges, newest first; each can be split again."""
        return self._services.store.merges(self.scope, checked_limit(limit))

    def stats(self) -> dict[str, int]:
        """Counts of memories, of every write outcome and of every fallback."""
        store = self._services.store
        counted = Counter(store.counters(self.scope.user))
        counted.update(self._services.embedding.failures)
        return {**store.totals(self.scope.user), **counted}

    # -- structure ------------------------------------------------------------------------

    def entities(self, limit: int = 100) -> list[Entity]:
        """What memories are about, most often first."""
        return self._services.store.entities(self.scope, checked_limit(limit))

    def describe(self, entity: str) -> EntityView:
        """All that is known about an entity: aspects, constraints, dependencies."""
        named = parse_about(_checked_text("an entity", entity)).entity
        return self._services.store.describe(self.scope, entity_key(named.kind, named.name))

    def related(self, context: str) -> list[str]:
        """Ids of memories about what a context names and what that depends on."""
        return graph.traversal(self._services, self.scope, _checked_text("a context", context))

    def required(self, context: str = "") -> list[str]:
        """Ids of memories that must always be shown: pins, and constraints on what is in play."""
        return graph.required(self._services, self.scope, _checked_text("a context", context))

    # -- care -----------------------------------------------------------------------------

    @property
    def services(self) -> Services:
        """The parts, for the command line and other surfaces of ours."""
        return self._services

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Writes a verified copy while the store stays in use."""
        self._services.store.backup(Path(target))

    def reembed(self, progress: Callable[[int, int], None] = lambda done, total: None) -> bool:
        """Makes all missing vectors now; says whether the configured embedder serves."""
        return self._services.embedding.reembed(progress, self._stopping.is_set)

    def reembed_in_background(
        self, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> threading.Thread:
        """Makes missing vectors while the store stays in use; searches stay correct meanwhile."""

        def run() -> None:
            # What fails is counted where it fails; the next start tries again.
            with contextlib.suppress(TenureError):
                self.reembed(progress)

        self._background = threading.Thread(target=run, name="tenure-reembed", daemon=True)
        self._background.start()
        return self._background

    def close(self) -> None:
        """Finishes what is under way and lets go of the file; safe to call twice."""
        self._stopping.set()
        if self._background is not None:
            self._background.join()
        self._keep_failures()
        self._services.store.close()

    def _keep_failures(self) -> None:
        """Adds what went wrong in this process to the store's counters."""
        failures = self._services.embedding.failures

        def work(transaction: Transaction) -> None:
            for name, amount in failures.items():
                transaction.count(self.scope.user, name, amount)

        if failures:
            # Counting must not be what fails a program that is done.
            with contextlib.suppress(StorageError, Busy):
                self._services.store.write(work)
            failures.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def checked_limit(limit: object) -> int:
    """How many of something are wanted."""
    if isinstance(limit, int) and 1 <= limit <= LISTING_LIMIT_MAX:
        return limit
    raise InputError(f"limit must be a whole number from 1 to {LISTING_LIMIT_MAX}, not {limit!r}")


def _checked_text(what: str, text: object) -> str:
    if isinstance(text, str):
        return text
    raise InputError(f"{what} must be text, not {type(text).__name__}")


def _store_file(path: str | os.PathLike[str] | None, settings: Settings) -> Path:
    if path is None:
        prepare_home(settings.home)
        return settings.store_file
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise InputError("the path of a store must be text without a NUL character")
    try:
        file = Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(f"{path}: {error}", hint="give the whole path") from error
    if file.is_dir():
        raise InputError(f"{file} is a folder", hint="name a file in it, e.g. tenure.db")
    if not file.parent.is_dir():
        raise InputError(f"there is no folder {file.parent}", hint="create it first")
    return file


def _embedder_spec(settings: Settings) -> EmbedderSpec:
    chosen = settings.embedder
    return EmbedderSpec(
        kind=chosen.kind,
        model=chosen.model,
        url=chosen.url,
        api_key=chosen.api_key,
        dimension=chosen.dimension,
        timeout_ms=chosen.timeout_ms,
        query_prefix=chosen.query_prefix,
        document_prefix=chosen.document_prefix,
    )


def _policy(settings: Settings) -> Policy:
    ranking = settings.ranking
    return Policy(
        gate_enabled=settings.gate.enabled,
        gate_threshold=settings.gate.threshold,
        secrets=settings.secrets.policy,
        relevance_floor=settings.recall.relevance_floor,
        hybrid=HybridWeights(cosine=settings.recall.vector_weight),
        sources=SourceWeights(
            ranking.weight_user_stated,
            ranking.weight_episode_summary,
            ranking.weight_assistant_derived,
            ranking.confidence_slope,
        ),
    )
