"""The verbs of the Python class, for programs whose `Memory` talks to the daemon.

Arguments and results are exactly those of the class, so that a program cannot tell the difference.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from tenure.codec import Fault, Greeting, Written
from tenure.errors import InputError, TenureError
from tenure.flow import ending, prompt, ratings
from tenure.flow.drafts import checked_name
from tenure.flow.ratings import RatingsTaken
from tenure.flow.showing import Served
from tenure.memory import Memory
from tenure.types import WriteResult
from tenure.web.table import Access, Call, Handler, Route

PREFIX = "/api/library/"
ACTOR = "library"


class Verb(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Whose memories it is about, and the arguments as the Python class takes them."""

    user: str | None = None
    agent: str | None = None
    project: str | None = None
    # Whether ids may name memories of all the user's projects and agents.
    everywhere: bool = False
    arguments: dict[str, Any] = {}


def _memory(call: Call) -> Memory:
    body: Verb = call.body
    return call.engine.view(None, None, None).view(
        body.user, body.agent, body.project, everywhere=body.everywhere, actor=ACTOR
    )


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
    return Greeting(memory.scope, memory.settings.user)


def remember_many(call: Call) -> list[Written]:
    """Stores many texts at once."""
    results = _called(_memory(call).remember_many, call.body.arguments)
    return [_written(result) for result in results]


def _written(result: WriteResult) -> Written:
    told = result.error
    fault = None
    if isinstance(told, TenureError):
        fault = Fault(told.code, told.status, told.message, told.hint)
    return Written(
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
    ending.compact(memory.services, ending.EndRequest(key, memory.scope.user))


def session_end(call: Call) -> None:
    """Ends a session; what a program knows to have helped is learned at once."""
    memory, key, told = _running(call)

    def verb(transcript: object = None, used: Any = None) -> None:
        request = ending.EndRequest(
            key,
            memory.scope.user,
            transcript,
            used,
            request_id=call.request_id,
            learns_at_once=used is not None,
        )
        ending.end(memory.services, request)
        memory._session_ended(key, used is not None)

    _called(verb, told)


def _running(call: Call) -> tuple[Memory, str, dict[str, Any]]:
    """The memory, the session's key and the other arguments."""
    told = dict(call.body.arguments)
    return _memory(call), str(checked_name("session key", told.pop("key", None))), told


# -- the table --------------------------------------------------------------------------------

_OWN: tuple[tuple[str, Access, str, Handler], ...] = (
    ("scope", "read", "Check a scope.", scope),
    ("remember-many", "write", "Store many texts.", remember_many),
    ("forget", "write", "Hide a memory.", forget),
    ("purge", "admin", "Erase a memory for good.", purge),
    ("backup", "admin", "Write a verified copy.", backup),
    ("session/start", "hooks", "Begin a session.", session_start),
    ("session/prompt", "hooks", "What a prompt calls to mind.", session_prompt),
    ("session/reply", "hooks", "Take ratings out of a reply.", session_reply),
    ("session/rate", "hooks", "Take ratings from a program.", session_rate),
    ("session/compact", "hooks", "The agent forgets what it saw.", session_compact),
    ("session/end", "hooks", "End a session.", session_end),
)
# Verbs of the class that go over the wire as they are.
_PLAIN: tuple[tuple[str, Access, str], ...] = (
    ("update", "write", "Change fields of a memory."),
    ("confirm", "admin", "Vouch for a memory."),
    ("undo", "write", "Take back the last change."),
    ("split", "write", "Take a merge apart."),
    ("recall", "read", "Find memories."),
    ("get", "read", "One memory."),
    ("page", "read", "A page of memories."),
    ("history", "read", "Every change of a memory."),
    ("merges", "read", "The latest merges."),
    ("stats", "read", "Counts of everything."),
    ("drain", "admin", "Run every job that is due."),
    ("work_meanwhile", "hooks", "Let jobs run meanwhile."),
    ("predictor_status", "read", "Everything about the predictor."),
    ("why", "read", "Why a session has a memory, or not."),
    ("capture_feedback", "hooks", "Keep a thumbs up or down."),
    ("complete_feedback", "hooks", "Add to a report what it lacked."),
    ("feedback_events", "read", "A page of reports."),
    ("feedback_event", "read", "One report."),
    ("feedback_summary", "read", "All reports in numbers."),
    ("feedback_risk", "read", "What fails more often than the rest."),
    ("feedback_pairs", "read", "Pairs for preference training."),
    ("contested", "read", "Memories to review."),
    ("entities", "read", "What memories are about."),
    ("describe", "read", "All about an entity."),
    ("related", "read", "Memories about what a context names."),
    ("required", "read", "Memories that must be shown."),
    ("reembed", "admin", "Make all missing vectors."),
)
_ALL: tuple[tuple[str, Access, str, Handler], ...] = (
    *_OWN,
    *((name.replace("_", "-"), who, told, partial(_plain, name)) for name, who, told in _PLAIN),
)
ROUTES = tuple(
    Route(
        method="POST",
        path=PREFIX + name,
        handler=handler,
        access=access,
        summary=f"Library: {summary}",
        body=Verb,
        # What the verb of the Python class returns, field by field.
        reply=Any,
    )
    for name, access, summary, handler in _ALL
)
