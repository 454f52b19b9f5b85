"""The verbs of `Memory` at a daemon: each is one request, with the same result and errors."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

import msgspec

from meritory.codec import Greeting, Written
from meritory.errors import InputError, MeritoryError, TooLarge
from meritory.flow.context import StartRequest
from meritory.flow.drafts import checked_name
from meritory.remote.choice import Address
from meritory.remote.feedback import RemoteFeedback
from meritory.remote.link import LONG_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Link
from meritory.remote.session import RemoteSession
from meritory.remote.values import plain, read, result_of
from meritory.session import Session
from meritory.settings import Settings, home_folder, load_settings
from meritory.types import (
    Entity,
    EntityView,
    HistoryEntry,
    MemoryRecord,
    Recalled,
    Scope,
    WriteResult,
)

PREFIX = "/api/library/"
BATCH_LIMIT_COUNT = 200
BATCH_LIMIT_BYTES = 1_000_000
PAGE_LIMIT = 1_000
LISTING_LIMIT_MAX = 10_000
# Doing these twice is not the same as doing them once.
_NOT_REPEATABLE = frozenset(
    {"remember-many", "update", "undo", "split", "purge", "backup"}
    | {"session/prompt", "session/rate", "capture-feedback", "complete-feedback"}
)
_LONG = frozenset({"drain", "reembed", "backup"})
Progress = Callable[[int, int], None]


class _Names(NamedTuple):
    user: Any
    agent: Any
    project: Any


class RemoteVerbs(RemoteFeedback):
    """What a `Memory` does otherwise when a daemon holds the store."""

    settings: Settings
    scope: Scope
    # Known before the object is made.
    _daemon: Address

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        user: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        clock: object = None,
        settings: Settings | None = None,
        actor: str = "library",
        everywhere: bool = False,
        background: bool = True,
        apart: bool = False,
    ) -> None:
        """Greets the daemon, which checks the names; all else is done there."""
        loaded = settings or load_settings(home_folder(os.environ), os.environ)
        self._link = Link(self._daemon)
        self._everywhere = everywhere
        named = _Names(*(plain(name) for name in (user, agent, project)))
        met: Greeting = read(self._ask("scope", named, {}), Greeting)
        self.scope = met.scope
        # Whoever names no user means the daemon's, also in later views.
        self.settings = replace(loaded, user=met.default_user)

    def _ask(self, verb: str, scope: Scope | _Names, arguments: Mapping[str, Any]) -> bytes:
        body = {
            "user": scope.user,
            "agent": scope.agent,
            "project": scope.project,
            "everywhere": self._everywhere,
            "arguments": arguments,
        }
        return self._link.ask(
            PREFIX + verb,
            body,
            is_repeatable=verb not in _NOT_REPEATABLE,
            timeout_ms=LONG_TIMEOUT_MS if verb in _LONG else REQUEST_TIMEOUT_MS,
        )

    def _did(self, verb: str, kind: Any, /, **arguments: Any) -> Any:
        return read(self._ask(verb, self.scope, plain(arguments)), kind)

    def view(
        self,
        user: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        *,
        everywhere: bool = False,
        actor: str | None = None,
    ) -> Self:
        """The same daemon for another scope; only the first of them is to be closed."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other.scope = Scope(
            str(checked_name("user", self.settings.user if user is None else user)),
            checked_name("agent", agent),
            checked_name("project", project),
        )
        other._everywhere = everywhere
        return other

    # -- writing --------------------------------------------------------------------------

    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]:
        """Stores many texts at once; one bad item never keeps the others out."""
        if isinstance(items, str | Mapping):
            raise InputError("expected a list of memories", hint="for one, call remember")
        results: list[WriteResult] = []
        batch: list[Any] = []
        # What cannot even be sent is refused here, in its place among the others.
        refused: dict[int, MeritoryError] = {}
        size = 0
        for item in items:
            try:
                sent, length = _sendable(item)
            except MeritoryError as error:
                refused[len(batch) + len(refused)] = error
                continue
            if len(batch) == BATCH_LIMIT_COUNT or size + length > BATCH_LIMIT_BYTES:
                results += self._remembered(batch, refused)
                batch, refused, size = [], {}, 0
            batch.append(sent)
            size += length
        return results + self._remembered(batch, refused)

    def _remembered(
        self, batch: Sequence[Any], refused: Mapping[int, MeritoryError]
    ) -> list[WriteResult]:
        found: list[Written] = []
        if batch:
            raw = self._ask("remember-many", self.scope, {"items": batch})
            found = read(raw, list[Written])
        results = [result_of(one) for one in found]
        for place, error in sorted(refused.items()):
            results.insert(place, WriteResult("refused", None, error.message, error=error))
        return results

    def update(self, memory_id: str, **fields: Any) -> MemoryRecord:
        """Changes fields of a memory; what it was stays in its history."""
        found: MemoryRecord = self._did("update", MemoryRecord, memory_id=memory_id, **fields)
        return found

    def confirm(self, memory_id: str) -> MemoryRecord:
        """A person vouches for a memory: it becomes trusted, and what was proposed takes effect."""
        found: MemoryRecord = self._did("confirm", MemoryRecord, memory_id=memory_id)
        return found

    def forget(self, memory_id: str, *, purge: bool = False, why: str = "") -> None:
        """Hides a memory; with `purge` it is erased for good, history and all."""
        if purge:
            self._did("purge", None, memory_id=memory_id)
        else:
            self._did("forget", None, memory_id=memory_id, why=why)

    def undo(self, memory_id: str) -> list[MemoryRecord]:
        """Takes back the last change of a memory and returns all that changed by it."""
        found: list[MemoryRecord] = self._did("undo", list[MemoryRecord], memory_id=memory_id)
        return found

    def split(self, memory_id: str, entry: int | None = None) -> list[MemoryRecord]:
        """Takes a merge apart again."""
        kind = list[MemoryRecord]
        found: list[MemoryRecord] = self._did("split", kind, memory_id=memory_id, entry=entry)
        return found

    # -- reading --------------------------------------------------------------------------

    def recall(self, query: str, limit: int | None = None, explain: bool = False) -> list[Recalled]:
        """The memories that answer a query best; `explain` adds every number behind the score."""
        kind = list[Recalled]
        found: list[Recalled] = self._did("recall", kind, query=query, limit=limit, explain=explain)
        return found

    def get(self, memory_id: str) -> MemoryRecord:
        """The memory with this id, or the only one whose id starts so."""
        found: MemoryRecord = self._did("get", MemoryRecord, memory_id=memory_id)
        return found

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
        asked = {"kind": kind, "tag": tag, "everywhere": everywhere, "include_gone": include_gone}
        found: list[MemoryRecord] = []
        # What is no sensible number is the daemon's to refuse.
        is_long = isinstance(limit, int) and PAGE_LIMIT < limit <= LISTING_LIMIT_MAX
        while True:
            wanted = min(PAGE_LIMIT, limit - len(found)) if is_long else limit
            part = self._did("page", list[MemoryRecord], limit=wanted, after=after, **asked)
            found += part
            if len(part) < wanted or len(found) >= limit:
                return found
            after = part[-1].id

    def history(self, memory_id: str) -> list[HistoryEntry]:
        """Every change of a memory, oldest first."""
        found: list[HistoryEntry] = self._did("history", list[HistoryEntry], memory_id=memory_id)
        return found

    def merges(self, limit: int = 100) -> list[HistoryEntry]:
        """The latest merges, newest first; each can be split again."""
        found: list[HistoryEntry] = self._did("merges", list[HistoryEntry], limit=limit)
        return found

    def stats(self) -> dict[str, int]:
        """Counts of memories, of sessions, of every write outcome and of every fallback."""
        found: dict[str, int] = self._did("stats", dict[str, int])
        return found

    # -- sessions and learning ------------------------------------------------------------

    def session(
        self,
        key: str,
        project: str | None = None,
        context: str | None = None,
        *,
        harness: str | None = None,
        cwd: str | None = None,
    ) -> Session:
        """Begins a session, or goes on with it: what it should be shown is on the result."""
        name = str(checked_name("session key", key))
        scope = self.scope
        if project is not None:
            scope = replace(scope, project=checked_name("project", project))
        for what, given in (("a context", context), ("a harness", harness), ("a folder", cwd)):
            if given is not None and not isinstance(given, str):
                raise InputError(f"{what} must be text, not {type(given).__name__}")
        return RemoteSession(self._ask, StartRequest(name, scope, context, harness, cwd))

    def drain(self) -> int:
        """Lets the daemon run every job that is due now; returns how many it did for this call."""
        found: int = self._did("drain", int)
        return found

    def work_meanwhile(self) -> None:
        """Lets the daemon run the jobs that are due."""
        self._did("work-meanwhile", None)

    def predictor_status(self) -> dict[str, Any]:
        """Everything about this user's predictor: its phase, its influence and why, its models."""
        found: dict[str, Any] = self._did("predictor-status", dict[str, Any])
        return found

    def why(self, memory_id: str, session_key: str) -> dict[str, Any]:
        """Every number that put a memory into a session, or kept it out."""
        found: dict[str, Any] = self._did(
            "why", dict[str, Any], memory_id=memory_id, session_key=session_key
        )
        return found

    # -- structure ------------------------------------------------------------------------

    def entities(self, limit: int = 100) -> list[Entity]:
        """What memories are about, most often first."""
        found: list[Entity] = self._did("entities", list[Entity], limit=limit)
        return found

    def describe(self, entity: str) -> EntityView:
        """All that is known about an entity: aspects, constraints, dependencies."""
        found: EntityView = self._did("describe", EntityView, entity=entity)
        return found

    def related(self, context: str) -> list[str]:
        """Ids of memories about what a context names and what that depends on."""
        found: list[str] = self._did("related", list[str], context=context)
        return found

    def required(self, context: str = "") -> list[str]:
        """Ids of memories that must always be shown: pins, and constraints on what is in play."""
        found: list[str] = self._did("required", list[str], context=context)
        return found

    # -- care -----------------------------------------------------------------------------

    @property
    def works(self) -> NoReturn:
        """Not here: what runs beside the calls runs in the daemon."""
        raise _elsewhere()

    @property
    def services(self) -> NoReturn:
        """Not here: the parts are in the daemon."""
        raise _elsewhere()

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Lets the daemon write a verified copy, to a place on its own machine."""
        self._did("backup", None, target=str(Path(target).absolute()))

    def reembed(self, progress: Progress = lambda done, total: None) -> bool:
        """Lets the daemon make all missing vectors; how far it is is not told meanwhile."""
        found: bool = self._did("reembed", bool)
        return found

    def reembed_in_background(
        self, progress: Progress = lambda done, total: None
    ) -> threading.Thread:
        """Lets the daemon make missing vectors, and waits for it on a thread."""

        def run() -> None:
            # What fails is counted where it fails; the next start tries again.
            with contextlib.suppress(MeritoryError):
                self.reembed(progress)

        thread = threading.Thread(target=run, name="meritory-reembed", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Lets go of the daemon; safe to call twice."""
        self._link.close()


def _sendable(item: object) -> tuple[Any, int]:
    """One memory to be stored, and how long it is on the wire."""
    if not isinstance(item, str | Mapping):
        raise InputError(f"a memory is a text or its fields, not {type(item).__name__}")
    sent = plain(item)
    try:
        length = len(msgspec.json.encode(sent))
    except UnicodeEncodeError as error:
        raise InputError("the text holds half a character (a lone surrogate)") from error
    if length > BATCH_LIMIT_BYTES:
        raise TooLarge(f"a memory with {length} bytes cannot be sent", hint="split it into several")
    return sent, length


def _elsewhere() -> InputError:
    return InputError(
        "this memory is a daemon's, and its parts are there",
        hint="open the store in this process: Memory(path)",
    )
