"""The verbs about feedback at a daemon."""

from __future__ import annotations

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

import msgspec

from meritory.api.backend import Address
from meritory.api.remote_link import LONG_TIMEOUT_MS, REQUEST_TIMEOUT_MS, DaemonLink
from meritory.api.remote_values import plain, read, result_of, scores
from meritory.api.session import Session
from meritory.domain.codec import Greeting, WrittenReply
from meritory.domain.errors import InputError, MeritoryError, TooLarge
from meritory.domain.feedback import Contested, FeedbackEvent
from meritory.domain.memory import (
    Entity,
    EntityView,
    HistoryEntry,
    MemoryRecord,
    Recalled,
    Scope,
    WriteResult,
)
from meritory.engine.feedback.capture import Captured
from meritory.engine.feedback.summary import Summary
from meritory.engine.memories.validate import checked_name
from meritory.engine.sessions.context import StartRequest
from meritory.engine.sessions.packing import Served
from meritory.engine.sessions.ratings import RatingsTaken
from meritory.rank.feedback import Pair
from meritory.rank.risk import Risk
from meritory.settings import Settings, home_folder, load_settings
from meritory.text.transcript import read_turns, shorten


class RemoteFeedback(ABC):
    """What a person or an agent says about the work, told to a daemon."""

    @abstractmethod
    def _did(self, verb: str, kind: Any, /, **arguments: Any) -> Any:
        """Lets the daemon do something, and returns what it says as a value of a kind."""

    def capture_feedback(self, signal: str, context: str = "", **fields: Any) -> Captured:
        """Keeps a thumbs up or down; what says enough becomes a lesson, or strengthens one."""
        found: Captured = self._did(
            "capture-feedback", Captured, signal=signal, context=context, **fields
        )
        return found

    feedback = capture_feedback

    def complete_feedback(
        self, event_id: str, signal: str | None = None, **fields: Any
    ) -> Captured:
        """Adds to a report what it lacked; it is decided about anew."""
        found: Captured = self._did(
            "complete-feedback", Captured, event_id=event_id, signal=signal, **fields
        )
        return found

    def feedback_events(
        self,
        limit: int = 50,
        *,
        signal: str | None = None,
        status: str | None = None,
        before: str | None = None,
        **wanted: str | None,
    ) -> list[FeedbackEvent]:
        """A page of reports, latest first; also by domain, project, session_key, memory_id."""
        asked = {"limit": limit, "signal": signal, "status": status, "before": before, **wanted}
        found: list[FeedbackEvent] = self._did("feedback-events", list[FeedbackEvent], **asked)
        return found

    def feedback_event(self, event_id: str) -> FeedbackEvent:
        """The report with this id, or the only one whose id starts so."""
        found: FeedbackEvent = self._did("feedback-event", FeedbackEvent, event_id=event_id)
        return found

    def feedback_summary(self) -> Summary:
        """All reports in numbers: totals, domains, approval and its trend."""
        found: Summary = self._did("feedback-summary", Summary)
        return found

    def feedback_risk(self, days: int | None = None) -> list[Risk]:
        """Which tags, tools and domains fail more often than the rest, with intervals."""
        found: list[Risk] = self._did("feedback-risk", list[Risk], days=days)
        return found

    def feedback_pairs(self) -> list[Pair]:
        """Pairs of what to do and what not to do, for preference training."""
        found: list[Pair] = self._did("feedback-pairs", list[Pair])
        return found

    def contested(self) -> list[Contested]:
        """Memories with much for and much against them, for a person to review."""
        found: list[Contested] = self._did("contested", list[Contested])
        return found


# What a request may hold is counted in bytes, of which a character has up to four.
TRANSCRIPT_SENT_CHARS = 400_000
TEXT_SENT_CHARS = 400_000
Ask = Callable[[str, Scope, Mapping[str, Any]], bytes]


class RemoteSession(Session):
    """A running session whose verbs are the daemon's."""

    def __init__(self, ask: Ask, request: StartRequest) -> None:
        self._ask = ask
        self._request = request
        told = {
            "key": request.key,
            "context": whole(request.context),
            "project": request.scope.project,
            "harness": request.harness,
            "cwd": request.cwd,
        }
        self._served: Served = read(ask("session/start", request.scope, told), Served)
        self._scope = self._served.scope or request.scope
        self._memories = list(self._served.memories)
        self._ranking = list(self._served.ranking)
        self._is_over = False

    def _told(self, verb: str, arguments: Mapping[str, Any]) -> bytes:
        return self._ask(f"session/{verb}", self.scope, {"key": self.key, **arguments})

    def prompt(self, text: str, feedback: Mapping[str, float] | None = None) -> Served:
        """What a prompt of the user calls to mind, besides what was shown already."""
        if not isinstance(text, str):
            raise InputError(f"a prompt must be text, not {type(text).__name__}")
        told = {"text": whole(text), "feedback": scores(feedback)}
        return self._noted(read(self._told("prompt", told), Served))

    def reply(self, text: str) -> RatingsTaken:
        """Takes the ratings at the end of the agent's reply."""
        # They are at its end: of a very long one that is what must arrive.
        return self._taken("reply", {"text": (whole(text) or "")[-TEXT_SENT_CHARS:]})

    def rate(self, scores: Mapping[str, float]) -> RatingsTaken:
        """How useful memories were, by handle or id: -1 misled, 0 unused, 1 decisive."""
        return self._taken("rate", {"scores": _scores(scores)})

    def _taken(self, verb: str, arguments: Mapping[str, Any]) -> RatingsTaken:
        found: RatingsTaken = read(self._told(verb, arguments), RatingsTaken)
        return found

    def compact(self) -> None:
        """The agent forgets what it was shown: it may be shown again."""
        self._told("compact", {})

    def end(self, transcript: object = None, used: Mapping[str, float] | None = None) -> None:
        """Ends the session; again is fine. `used` says what helped, for programs that know it."""
        if self._is_over:
            return
        told: dict[str, Any] = {"used": plain(used)}
        if transcript is not None:
            turns = shorten(read_turns(transcript), TRANSCRIPT_SENT_CHARS)
            told["transcript"] = [{"role": one.role, "text": whole(one.text)} for one in turns]
        self._told("end", told)
        self._is_over = True


# Under another name where an argument is called like it.
_scores = scores


def whole(text: str | None) -> str | None:
    """A text without half characters, which cannot be sent and would not be stored."""
    return None if text is None else text.encode("utf-8", "ignore").decode()


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
        self._link = DaemonLink(self._daemon)
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
        found: list[WrittenReply] = []
        if batch:
            raw = self._ask("remember-many", self.scope, {"items": batch})
            found = read(raw, list[WrittenReply])
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
