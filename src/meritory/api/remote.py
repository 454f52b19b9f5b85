"""The backend of a `Memory` whose store a daemon holds: each method is one request."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cache
from inspect import Signature, signature
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_type_hints

import msgspec

from meritory.api.address import Address
from meritory.api.client import LONG_TIMEOUT_MS, REQUEST_TIMEOUT_MS, DaemonLink, refusal
from meritory.api.embedded import checked_scope
from meritory.api.memory import LISTING_LIMIT_MAX, Progress, require_text
from meritory.api.session import Session
from meritory.domain.codec import Greeting, WrittenReply, prepared, source_to_dict
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
from meritory.domain.quality import KeptText, ReviewPage
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
    {"remember-many", "update", "merge", "decide", "undo", "split", "purge", "backup"}
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
    """A daemon that runs the methods of `Memory`, seen from one scope."""

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

    def send(
        self, method: Callable[..., Any], args: tuple[Any, ...], fields: dict[str, Any]
    ) -> Any:
        """Let the daemon run a method of `Memory`, with the arguments and result it declares."""
        own = getattr(self, method.__name__, None)
        if own is not None:
            return own(*args, **fields)
        parameters, kind = _signature(method)
        bound = parameters.bind(None, *args, **fields)
        bound.apply_defaults()
        _, *named = bound.arguments.items()
        arguments = dict(named)
        arguments |= arguments.pop("fields", {})
        return self.ask(method.__name__.replace("_", "-"), kind, to_json(arguments))

    def view(
        self, user: object, agent: object, project: object, *, everywhere: bool, actor: str | None
    ) -> RemoteBackend:
        """Return the same daemon for another scope."""
        scope = checked_scope(self.settings, user, agent, project)
        return replace(self, scope=scope, everywhere=everywhere)

    def start(self, request: StartRequest) -> Session:
        """Begin a session, or resume it."""
        backend = replace(self, scope=request.scope)
        arguments = {
            "key": request.key,
            "context": _whole(request.context),
            "project": request.scope.project,
            "harness": request.harness,
            "cwd": request.cwd,
        }
        served = backend.ask("session/start", Served, arguments)
        backend.scope = served.scope or request.scope
        return RemoteSession(backend, request, served)

    @property
    def services(self) -> NoReturn:
        """Raise an error: the engine is not in this process."""
        raise InputError(
            "the parts of this memory are in a daemon",
            hint="open the store in this process: Memory(path)",
        )

    works = services

    def session_ended(self, key: str, is_known: bool) -> None:
        """Do nothing: the daemon learns from its sessions."""

    def close(self) -> None:
        """Close the connections."""
        self.link.close()

    # -- methods of `Memory` that take more than one request as they are ------------------

    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]:
        """Send the items in batches."""
        if isinstance(items, str | Mapping):
            raise InputError("expected a list of memories", hint="for one, call remember")
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
                if not isinstance(item, str | Mapping):
                    raise InputError(f"a memory is a text or its fields, not {type(item).__name__}")
                sent = to_json(item)
                length = len(encode(sent))
                if length > BATCH_LIMIT_BYTES:
                    hint = "split it into several"
                    raise TooLarge(f"a memory with {length} bytes cannot be sent", hint=hint)
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

    def forget(
        self, memory_id: str, *, purge: bool = False, why: str = "", origin: str = "user"
    ) -> None:
        """Forget or erase a memory, which are two verbs: only an administrator may erase."""
        if purge:
            self.ask("purge", object, to_json({"memory_id": memory_id}))
        else:
            arguments = {"memory_id": memory_id, "why": why, "origin": origin}
            self.ask("forget", object, to_json(arguments))

    def page(self, limit: int = 100, **options: Any) -> list[MemoryRecord]:
        """Ask for a long page in parts."""
        memories: list[MemoryRecord] = []
        # The daemon rejects any other limit.
        is_long = isinstance(limit, int) and PAGE_LIMIT < limit <= LISTING_LIMIT_MAX
        while True:
            wanted = min(PAGE_LIMIT, limit - len(memories)) if is_long else limit
            part = self.ask("page", list[MemoryRecord], to_json({"limit": wanted, **options}))
            memories += part
            if len(part) < wanted or len(memories) >= limit:
                return memories
            options["after"] = part[-1].id

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Write a copy; the path is one of the daemon's machine."""
        self.ask("backup", object, {"target": str(Path(target).absolute())})

    def reembed(self, progress: Progress | None = None) -> bool:
        """Make all missing vectors; the daemon reports no progress."""
        return self.ask("reembed", bool, {})

    def reembed_in_background(self, progress: Progress | None = None) -> threading.Thread:
        """Let the daemon make missing vectors while the program goes on."""

        def run() -> None:
            # The daemon counts its failures, and its next start tries again.
            with contextlib.suppress(MeritoryError):
                self.reembed()

        thread = threading.Thread(target=run, name="meritory-reembed", daemon=True)
        thread.start()
        return thread


# `Memory` names these types of results, but imports them for type checkers only.
_RESULTS = (
    *(Captured, Contested, Entity, EntityView, FeedbackEvent, HistoryEntry, MemoryRecord),
    *(Pair, Recalled, ReviewPage, Risk, Summary),
)


@cache
def _signature(method: Callable[..., Any]) -> tuple[Signature, Any]:
    """Return the parameters of a method of `Memory` and the type of its result."""
    names: dict[str, Any] = {kind.__name__: kind for kind in _RESULTS}
    # Types of arguments, which every hint is read with.
    names |= {"KeptText": KeptText, "datetime": datetime}
    return signature(method), get_type_hints(method, localns=names)["return"]


class RemoteSession(Session):
    """A running session of a daemon."""

    _backend: RemoteBackend

    def _ask(self, verb: str, kind: type[T], **arguments: Any) -> T:
        return self._backend.ask(f"session/{verb}", kind, {"key": self.key, **arguments})

    def prompt(self, text: str, feedback: Mapping[str, float | str] | None = None) -> Served:
        arguments = {"text": _whole(require_text("a prompt", text)), "feedback": _ratings(feedback)}
        return self._note(self._ask("prompt", Served, **arguments))

    def recall(self, query: str, limit: int | None = None) -> list[Recalled]:
        arguments = {"query": query, "limit": limit, "session": self.key}
        return self._backend.ask("recall", list[Recalled], arguments)

    def reply(self, text: str) -> RatingsTaken:
        # Ratings are at the end of a reply, so the end of a very long one must arrive.
        return self._ask("reply", RatingsTaken, text=(_whole(text) or "")[-TEXT_SENT_CHARS:])

    def rate(self, scores: Mapping[str, float]) -> RatingsTaken:
        return self._ask("rate", RatingsTaken, scores=_ratings(scores))

    def compact(self) -> None:
        self._ask("compact", object)

    def _end(self, transcript: object, used: Mapping[str, float] | None) -> None:
        arguments: dict[str, Any] = {"used": to_json(used)}
        if transcript is not None:
            turns = shorten(read_turns(transcript), TRANSCRIPT_SENT_CHARS)
            arguments["transcript"] = [
                {"role": turn.role, "text": _whole(turn.text)} for turn in turns
            ]
        self._ask("end", object, **arguments)


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
    if isinstance(value, bool | str | None):
        return value
    if isinstance(value, int) and abs(value) >= _INT_LIMIT:
        raise InputError("a whole number is too large")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{value} is not a number that can be sent")
    for kind, convert in _CONVERTERS.items():
        if isinstance(value, kind):
            return convert(value)
    raise InputError(f"a {type(value).__name__} cannot be sent to a daemon")


_CONVERTERS: Mapping[type, Callable[[Any], Any]] = {
    int: int,
    float: float,
    datetime: datetime.isoformat,
    Source: source_to_dict,
    Turn: lambda turn: {"role": turn.role, "text": turn.text},
}


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


def result_of(written: WrittenReply) -> WriteResult:
    """Return the result of one write, with an error that can be raised."""
    fault, error = written.error, None
    if fault is not None:
        problem = {"code": fault.code, "detail": fault.message, "hint": fault.hint}
        error = refusal(fault.status, problem)
    values = {field.name: getattr(written, field.name) for field in fields(WrittenReply)}
    return WriteResult(**{**values, "error": error})


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
        return msgspec.json.decode(raw, type=prepared(kind))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReply(
            "the daemon's reply has an unexpected form",
            hint="the daemon may be of another version: restart it",
        ) from error
