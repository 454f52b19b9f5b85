"""The verbs of the Python class, for programs whose `Memory` talks to the daemon.

Arguments and results are exactly those of the class, so that a program cannot tell the difference.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from meritory.api.memory import Memory
from meritory.domain.codec import ErrorReply, Greeting, WrittenReply
from meritory.domain.errors import InputError, MeritoryError
from meritory.domain.memory import WriteResult
from meritory.engine.memories.validate import checked_name
from meritory.engine.sessions import end, prompt, ratings
from meritory.engine.sessions.packing import Served
from meritory.engine.sessions.ratings import RatingsTaken
from meritory.server.problems import Overloaded
from meritory.server.scoped_memory import demand_session
from meritory.server.table import Access, Call, Handler, Reach, Route, Scoped

PREFIX = "/api/library/"
ACTOR = "library"


class Verb(Scoped, kw_only=True):
    """Whose memories it is about, and the arguments as the Python class takes them."""

    # Whether ids may name memories of all the user's projects and agents.
    everywhere: bool = False
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


def _memory(call: Call) -> Memory:
    body: Verb = call.body
    return call.engine.agents_view(call.grant, body, actor=ACTOR, any_id=body.everywhere)


def _called(verb: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Calls a verb, unless the arguments are not its own."""
    try:
        bound = inspect.signature(verb).bind(**arguments)
    except TypeError as error:
        raise InputError(f"these are not the verb's arguments: {error}") from error
    return verb(*bound.args, **bound.kwargs)


def _plain(name: str, call: Call) -> object:
    """A verb whose arguments and result need no translation."""
    return _called(getattr(_memory(call), name), call.body.arguments)


def scope(call: Call) -> Greeting:
    """The scope that a program asked for, checked."""
    memory = _memory(call)
    # Whoever names no user later means the one they have a token of.
    return Greeting(memory.scope, call.grant.user or memory.settings.user)


def remember_many(call: Call) -> list[WrittenReply]:
    """Stores many texts at once."""
    results = _called(_memory(call).remember_many, call.body.arguments)
    return [_written(result) for result in results]


def _written(result: WriteResult) -> WrittenReply:
    told = result.error
    fault = None
    if isinstance(told, MeritoryError):
        fault = ErrorReply(told.code, told.status, told.message, told.hint)
    return WrittenReply(
        result.outcome, result.memory, result.reason, result.other_id, result.cosine, fault
    )


def forget(call: Call) -> None:
    """Hides a memory."""
    memory = _memory(call)

    def verb(memory_id: str, why: str = "") -> None:
        memory.forget(memory_id, why=_text("a reason", why))

    _called(verb, call.body.arguments)


def purge(call: Call) -> None:
    """Erases a memory for good."""
    memory = _memory(call)

    def verb(memory_id: str) -> None:
        memory.forget(memory_id, purge=True)

    _called(verb, call.body.arguments)


def backup(call: Call) -> None:
    """Writes a verified copy to a place on the daemon's machine."""
    memory = _memory(call)

    def verb(target: str) -> None:
        memory.backup(_text("a target", target))

    _called(verb, call.body.arguments)


def drain(call: Call) -> int:
    """Runs every job that is due.

    That may take minutes, and threads are few: one request at a time does, others come again.
    """
    turn = call.engine.draining
    if not turn.acquire(blocking=False):
        raise Overloaded("jobs are worked through already", hint="try again in a second")
    try:
        found: int = _called(_memory(call).drain, call.body.arguments)
        return found
    finally:
        turn.release()


def _text(what: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise InputError(f"{what} must be text, not {type(value).__name__}")


# -- sessions ---------------------------------------------------------------------------------


def session_start(call: Call) -> Served:
    """Begins a session, or goes on with it."""
    begun = _called(_memory(call).session, call.body.arguments)
    return Served(
        key=begun.key,
        inject=begun.inject,
        injection=begun.injection,
        memories=tuple(begun.memories),
        status_line=begun.status_line,
        ranking=tuple(begun.ranking),
        scope=begun.scope,
    )


def session_prompt(call: Call) -> Served:
    """What a prompt calls to mind."""
    memory, key, told = _running(call)

    def verb(text: str, feedback: object = None) -> Served:
        asked = prompt.PromptRequest(
            key, memory.scope, text, feedback=feedback, request_id=call.request_id
        )
        return prompt.prompt(memory.services, asked)

    found: Served = _called(verb, told)
    return found


def session_reply(call: Call) -> RatingsTaken:
    """Takes the ratings at the end of a reply."""
    memory, key, told = _running(call)

    def verb(text: str) -> RatingsTaken:
        reply = ratings.ReplyCall(memory.scope.user, key, _text("a reply", text))
        return ratings.stop(memory.services, reply)

    found: RatingsTaken = _called(verb, told)
    return found


def session_rate(call: Call) -> RatingsTaken:
    """Takes ratings from a program."""
    memory, key, told = _running(call)

    def verb(scores: object) -> RatingsTaken:
        rated = ratings.RatingCall(memory.scope.user, key, scores, "program")
        return ratings.rate(memory.services, rated)

    found: RatingsTaken = _called(verb, told)
    return found


def session_compact(call: Call) -> None:
    """The agent forgets what it was shown."""
    memory, key, _ = _running(call)
    end.compact(memory.services, end.EndRequest(key, memory.scope.user))


def session_end(call: Call) -> None:
    """Ends a session; what a program knows to have helped is learned at once."""
    memory, key, told = _running(call)

    def verb(transcript: object = None, used: Any = None) -> None:
        request = end.EndRequest(
            key,
            memory.scope.user,
            transcript,
            used,
            request_id=call.request_id,
            learns_at_once=used is not None,
        )
        end.end(memory.services, request)
        memory._session_ended(key, used is not None)

    _called(verb, told)


def _running(call: Call) -> tuple[Memory, str, dict[str, Any]]:
    """The memory, the session's key and the other arguments."""
    told, memory = dict(call.body.arguments), _memory(call)
    key = str(checked_name("session key", told.pop("key", None)))
    demand_session(memory, key)
    return memory, key, told


# -- the table --------------------------------------------------------------------------------

_OWN: tuple[tuple[str, Access, Reach, str, Handler], ...] = (
    ("scope", "read", "scope", "Check a scope.", scope),
    ("remember-many", "write", "scope", "Store many texts.", remember_many),
    ("forget", "write", "scope", "Hide a memory.", forget),
    ("purge", "admin", "scope", "Erase a memory for good.", purge),
    ("backup", "admin", "daemon", "Write a verified copy.", backup),
    ("drain", "admin", "daemon", "Run every job that is due.", drain),
    ("session/start", "hooks", "scope", "Begin a session.", session_start),
    ("session/prompt", "hooks", "scope", "What a prompt calls to mind.", session_prompt),
    ("session/reply", "hooks", "scope", "Take ratings out of a reply.", session_reply),
    ("session/rate", "hooks", "scope", "Take ratings from a program.", session_rate),
    ("session/compact", "hooks", "scope", "The agent forgets what it saw.", session_compact),
    ("session/end", "hooks", "scope", "End a session.", session_end),
)
# Verbs of the class that go over the wire as they are.
_PLAIN: tuple[tuple[str, Access, Reach, str], ...] = (
    ("update", "write", "scope", "Change fields of a memory."),
    ("confirm", "admin", "scope", "Vouch for a memory."),
    ("undo", "write", "scope", "Take back the last change."),
    ("split", "write", "scope", "Take a merge apart."),
    ("recall", "read", "scope", "Find memories."),
    ("get", "read", "scope", "One memory."),
    ("page", "read", "scope", "A page of memories."),
    ("history", "read", "scope", "Every change of a memory."),
    ("merges", "read", "scope", "The latest merges."),
    ("stats", "read", "user", "Counts of everything."),
    ("work_meanwhile", "hooks", "scope", "Let jobs run meanwhile."),
    ("predictor_status", "read", "user", "Everything about the predictor."),
    ("why", "read", "user", "Why a session has a memory, or not."),
    ("capture_feedback", "hooks", "scope", "Keep a thumbs up or down."),
    ("complete_feedback", "hooks", "scope", "Add to a report what it lacked."),
    ("feedback_events", "read", "user", "A page of reports."),
    ("feedback_event", "read", "user", "One report."),
    ("feedback_summary", "read", "user", "All reports in numbers."),
    ("feedback_risk", "read", "user", "What fails more often than the rest."),
    ("feedback_pairs", "read", "user", "Pairs for preference training."),
    ("contested", "read", "user", "Memories to review."),
    ("entities", "read", "scope", "What memories are about."),
    ("describe", "read", "scope", "All about an entity."),
    ("related", "read", "scope", "Memories about what a context names."),
    ("required", "read", "scope", "Memories that must be shown."),
    ("reembed", "admin", "daemon", "Make all missing vectors."),
)
_ALL: tuple[tuple[str, Access, Reach, str, Handler], ...] = (
    *_OWN,
    *(
        (name.replace("_", "-"), who, far, told, partial(_plain, name))
        for name, who, far, told in _PLAIN
    ),
)
ROUTES = tuple(
    Route(
        method="POST",
        path=PREFIX + name,
        handler=handler,
        access=access,
        reach=reach,
        summary=f"Library: {summary}",
        body=Verb,
        # What the verb of the Python class returns, field by field.
        reply=Any,
    )
    for name, access, reach, summary, handler in _ALL
)
