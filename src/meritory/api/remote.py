"""The backend of a `Memory` whose store a daemon holds: each verb is one request."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn, TypeVar

import msgspec

from meritory.api.address import Address
from meritory.api.client import LONG_TIMEOUT_MS, REQUEST_TIMEOUT_MS, DaemonLink, refusal
from meritory.api.embedded import LISTING_LIMIT_MAX, checked_scope, session_request
from meritory.api.memory import Progress, Session
from meritory.domain.codec import Greeting, WrittenReply, source_to_dict
from meritory.domain.errors import BadReply, InputError, MeritoryError, TooLarge
from meritory.domain.feedback import Contested, FeedbackEvent
from meritory.domain.memory import (
    Entity,
    EntityView,
    HistoryEntry,
    MemoryRecord,
    Recalled,
    Scope,
    Source,
    WriteResult,
)
from meritory.domain.session import Turn
from meritory.engine.feedback.capture import Captured
from meritory.engine.feedback.summary import Summary
from meritory.engine.sessions.context import StartRequest
from meritory.engine.sessions.packing import Served
from meritory.engine.sessions.ratings import RatingsTaken
from meritory.rank.feedback import Pair, Risk
from meritory.settings import Settings, home_folder, load_settings
from meritory.text.transcript import read_turns, shorten

T = TypeVar("T")

PREFIX = "/api/library/"
BATCH_LIMIT_COUNT = 200
BATCH_LIMIT_BYTES = 1_000_000
PAGE_LIMIT = 1_000
# A request is limited in bytes, and a character has up to four.
TRANSCRIPT_SENT_CHARS = 400_000
TEXT_SENT_CHARS = 400_000
# Doing these twice is not the same as doing them once.
_NOT_REPEATABLE = frozenset(
    {"remember-many", "update", "undo", "split", "purge", "backup"}
    | {"session/prompt", "session/rate", "capture-feedback", "complete-feedback"}
)
_LONG = frozenset({"drain", "reembed", "backup"})
_INT_LIMIT = 2**63


def open_remote(
    daemon: Address, settings: Settings | None, *, everywhere: bool, **names: str | None
) -> RemoteBackend:
    """Connect to a daemon, which checks the names: user, agent and project."""
    settings = settings or load_settings(home_folder(os.environ), os.environ)
    backend = RemoteBackend(DaemonLink(daemon), settings, Scope(""), everywhere)
    greeting = backend.ask("scope", Greeting, {}, scope=to_json(names))
    # A user that is not named is the daemon's default, also in later views.
    backend.settings = replace(settings, user=greeting.default_user)
    backend.scope = greeting.scope
    return backend


@dataclass
class RemoteBackend:
    """The verbs of `Memory` at a daemon, for one scope."""

    link: DaemonLink
    settings: Settings
    scope: Scope
    everywhere: bool = False

    def ask(
        self,
        verb: str,
        kind: type[T],
        arguments: Mapping[str, Any],
        *,
        scope: Mapping[str, Any] | None = None,
    ) -> T:
        """Send a verb with its arguments and return the reply as a value of a type."""
        own = {"user": self.scope.user, "agent": self.scope.agent, "project": self.scope.project}
        body = {**(scope or own), "everywhere": self.everywhere, "arguments": arguments}
        raw = self.link.ask(
            PREFIX + verb,
            encode(body),
            is_repeatable=verb not in _NOT_REPEATABLE,
            timeout_ms=LONG_TIMEOUT_MS if verb in _LONG else REQUEST_TIMEOUT_MS,
        )
        return decode(raw, kind)

    def _call(self, verb: str, kind: type[T], /, **arguments: Any) -> T:
        return self.ask(verb, kind, to_json(arguments))

    def _do(self, verb: str, /, **arguments: Any) -> None:
        self.ask(verb, object, to_json(arguments))

    def view(
        self, user: object, agent: object, project: object, *, everywhere: bool, actor: str | None
    ) -> RemoteBackend:
        scope = checked_scope(self.settings, user, agent, project)
        return replace(self, scope=scope, everywhere=everywhere)

    # -- writing --------------------------------------------------------------------------

    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]:
        results: list[WriteResult] = []
        batch: list[Any] = []
        # Items that cannot be sent are rejected here, at their position among the others.
        rejected: dict[int, MeritoryError] = {}
        size = 0

        def flush() -> None:
            written: list[WriteResult] = []
            if batch:
                replies = self.ask("remember-many", list[WrittenReply], {"items": batch})
                written = [result_of(reply) for reply in replies]
            for index, error in sorted(rejected.items()):
                written.insert(index, WriteResult("refused", None, error.message, error=error))
            results.extend(written)

        for item in items:
            try:
                sent, length = _sendable(item)
            except MeritoryError as error:
                rejected[len(batch) + len(rejected)] = error
                continue
            if len(batch) == BATCH_LIMIT_COUNT or size + length > BATCH_LIMIT_BYTES:
                flush()
                batch, rejected, size = [], {}, 0
            batch.append(sent)
            size += length
        flush()
        return results

    def update(self, memory_id: str, **fields: Any) -> MemoryRecord:
        return self._call("update", MemoryRecord, memory_id=memory_id, **fields)

    def confirm(self, memory_id: str) -> MemoryRecord:
        return self._call("confirm", MemoryRecord, memory_id=memory_id)

    def forget(self, memory_id: str, *, purge: bool, why: str) -> None:
        if purge:
            self._do("purge", memory_id=memory_id)
        else:
            self._do("forget", memory_id=memory_id, why=why)

    def undo(self, memory_id: str) -> list[MemoryRecord]:
        return self._call("undo", list[MemoryRecord], memory_id=memory_id)

    def split(self, memory_id: str, entry: int | None) -> list[MemoryRecord]:
        return self._call("split", list[MemoryRecord], memory_id=memory_id, entry=entry)

    # -- reading --------------------------------------------------------------------------

    def recall(self, query: str, limit: int | None, explain: bool) -> list[Recalled]:
        return self._call("recall", list[Recalled], query=query, limit=limit, explain=explain)

    def get(self, memory_id: str) -> MemoryRecord:
        return self._call("get", MemoryRecord, memory_id=memory_id)

    def page(self, limit: int, **options: Any) -> list[MemoryRecord]:
        memories: list[MemoryRecord] = []
        # The daemon rejects any other limit.
        is_long = isinstance(limit, int) and PAGE_LIMIT < limit <= LISTING_LIMIT_MAX
        while True:
            wanted = min(PAGE_LIMIT, limit - len(memories)) if is_long else limit
            part = self._call("page", list[MemoryRecord], limit=wanted, **options)
            memories += part
            if len(part) < wanted or len(memories) >= limit:
                return memories
            options["after"] = part[-1].id

    def history(self, memory_id: str) -> list[HistoryEntry]:
        return self._call("history", list[HistoryEntry], memory_id=memory_id)

    def merges(self, limit: int) -> list[HistoryEntry]:
        return self._call("merges", list[HistoryEntry], limit=limit)

    def stats(self) -> dict[str, int]:
        return self._call("stats", dict[str, int])

    def entities(self, limit: int) -> list[Entity]:
        return self._call("entities", list[Entity], limit=limit)

    def describe(self, entity: str) -> EntityView:
        return self._call("describe", EntityView, entity=entity)

    def related(self, context: str) -> list[str]:
        return self._call("related", list[str], context=context)

    def required(self, context: str) -> list[str]:
        return self._call("required", list[str], context=context)

    # -- sessions and learning ------------------------------------------------------------

    def session(self, key: str, **options: str | None) -> Session:
        request = session_request(self.scope, key, options)
        return Session(request.key, request.scope, RemoteSession(self, request))

    def drain(self) -> int:
        return self._call("drain", int)

    def work_meanwhile(self) -> None:
        self._do("work-meanwhile")

    def predictor_status(self) -> dict[str, Any]:
        return self._call("predictor-status", dict[str, Any])

    def why(self, memory_id: str, session_key: str) -> dict[str, Any]:
        return self._call("why", dict[str, Any], memory_id=memory_id, session_key=session_key)

    # -- feedback -------------------------------------------------------------------------

    def capture_feedback(self, signal: str, context: str, **fields: Any) -> Captured:
        return self._call("capture-feedback", Captured, signal=signal, context=context, **fields)

    def complete_feedback(self, event_id: str, signal: str | None, **fields: Any) -> Captured:
        return self._call("complete-feedback", Captured, event_id=event_id, signal=signal, **fields)

    def feedback_events(self, limit: int, **wanted: str | None) -> list[FeedbackEvent]:
        return self._call("feedback-events", list[FeedbackEvent], limit=limit, **wanted)

    def feedback_event(self, event_id: str) -> FeedbackEvent:
        return self._call("feedback-event", FeedbackEvent, event_id=event_id)

    def feedback_summary(self) -> Summary:
        return self._call("feedback-summary", Summary)

    def feedback_risk(self, days: int | None) -> list[Risk]:
        return self._call("feedback-risk", list[Risk], days=days)

    def feedback_pairs(self) -> list[Pair]:
        return self._call("feedback-pairs", list[Pair])

    def contested(self) -> list[Contested]:
        return self._call("contested", list[Contested])

    # -- maintenance ----------------------------------------------------------------------

    @property
    def services(self) -> NoReturn:
        raise InputError(
            "the parts of this memory are in a daemon",
            hint="open the store in this process: Memory(path)",
        )

    works = services

    def session_ended(self, key: str, is_known: bool) -> None:
        """Do nothing: the daemon learns from its sessions."""

    def backup(self, target: str | os.PathLike[str]) -> None:
        # The path is one of the daemon's machine.
        self._do("backup", target=str(Path(target).absolute()))

    def reembed(self, progress: Progress) -> bool:
        # The daemon reports no progress.
        return self._call("reembed", bool)

    def reembed_in_background(self, progress: Progress) -> threading.Thread:
        def run() -> None:
            # The daemon counts its failures, and its next start tries again.
            with contextlib.suppress(MeritoryError):
                self.reembed(progress)

        thread = threading.Thread(target=run, name="meritory-reembed", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        self.link.close()


class RemoteSession:
    """A running session of a daemon."""

    def __init__(self, backend: RemoteBackend, request: StartRequest) -> None:
        self._key = request.key
        self._backend = replace(backend, scope=request.scope)
        self.served = self._call(
            "start",
            Served,
            context=_whole(request.context),
            project=request.scope.project,
            harness=request.harness,
            cwd=request.cwd,
        )
        self._backend.scope = self.served.scope or request.scope

    def _call(self, verb: str, kind: type[T], **arguments: Any) -> T:
        return self._backend.ask(f"session/{verb}", kind, {"key": self._key, **arguments})

    def prompt(self, text: str, feedback: Mapping[str, float] | None) -> Served:
        if not isinstance(text, str):
            raise InputError(f"a prompt must be text, not {type(text).__name__}")
        return self._call("prompt", Served, text=_whole(text), feedback=_ratings(feedback))

    def reply(self, text: str) -> RatingsTaken:
        # Ratings are at the end of a reply, so the end of a very long one must arrive.
        return self._call("reply", RatingsTaken, text=(_whole(text) or "")[-TEXT_SENT_CHARS:])

    def rate(self, scores: Mapping[str, float]) -> RatingsTaken:
        return self._call("rate", RatingsTaken, scores=_ratings(scores))

    def compact(self) -> None:
        self._call("compact", object)

    def end(self, transcript: object, used: Mapping[str, float] | None) -> None:
        arguments: dict[str, Any] = {"used": to_json(used)}
        if transcript is not None:
            turns = shorten(read_turns(transcript), TRANSCRIPT_SENT_CHARS)
            arguments["transcript"] = [
                {"role": turn.role, "text": _whole(turn.text)} for turn in turns
            ]
        self._call("end", object, **arguments)


# -- values on the wire ---------------------------------------------------------------------


def to_json(value: object) -> Any:
    """Return a value as JSON has it; reject one that JSON would only approximate."""
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise InputError(f"a name must be text, not {type(name).__name__}")
        return {str(name): to_json(inner) for name, inner in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((to_json(inner) for inner in value), key=str)
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)
    for kind, convert in _CONVERTERS.items():
        if isinstance(value, kind):
            return convert(value)
    raise InputError(f"a {type(value).__name__} cannot be sent to a daemon")


_CONVERTERS: Mapping[type, Callable[[Any], Any]] = {
    NoneType: lambda value: value,
    bool: lambda value: value,
    str: str,
    datetime: datetime.isoformat,
    Source: source_to_dict,
    Turn: lambda turn: {"role": turn.role, "text": turn.text},
}


def _number(value: float) -> float:
    if isinstance(value, int):
        if abs(value) >= _INT_LIMIT:
            raise InputError("a whole number is too large")
        return int(value)
    if not math.isfinite(value):
        raise InputError(f"{value} is not a number that can be sent")
    return float(value)


def _ratings(scores: object) -> Any:
    """Return ratings for the wire; one that is not finite is sent as a word and rejected there."""
    if not isinstance(scores, Mapping):
        return to_json(scores)
    return {
        str(name): str(score) if isinstance(score, float) and not math.isfinite(score) else score
        for name, score in scores.items()
    }


def _whole(text: str | None) -> str | None:
    """Return a text without lone surrogates, which cannot be sent or stored."""
    return None if text is None else text.encode("utf-8", "ignore").decode()


def _sendable(item: object) -> tuple[Any, int]:
    """Return one memory for the wire and its length in bytes."""
    if not isinstance(item, str | Mapping):
        raise InputError(f"a memory is a text or its fields, not {type(item).__name__}")
    sent = to_json(item)
    length = len(encode(sent))
    if length > BATCH_LIMIT_BYTES:
        raise TooLarge(f"a memory with {length} bytes cannot be sent", hint="split it into several")
    return sent, length


def result_of(written: WrittenReply) -> WriteResult:
    """Return the result of one write, with an error that can be raised."""
    fault, error = written.error, None
    if fault is not None:
        problem = {"code": fault.code, "detail": fault.message, "hint": fault.hint}
        error = refusal(fault.status, problem)
    return WriteResult(
        written.outcome, written.memory, written.reason, written.other_id, written.cosine, error
    )


def encode(value: object) -> bytes:
    """Return a JSON value as bytes."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except UnicodeEncodeError as error:
        raise InputError("the text holds half a character (a lone surrogate)") from error
    except RecursionError as error:
        raise InputError("the value is nested too deeply") from error


def decode(raw: bytes, kind: type[T]) -> T:
    """Return a daemon's reply as the type it must have."""
    try:
        wanted: Any = kind
        value: T = _decoder(wanted).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReply(
            "the daemon's reply has an unexpected form",
            hint="the daemon may be of another version: restart it",
        ) from error
    return value


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
