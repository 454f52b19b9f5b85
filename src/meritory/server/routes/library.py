"""The methods of the Python class, for programs whose `Memory` talks to the daemon.

Arguments and results are exactly those of the class, so that a program sees no difference.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import msgspec

from meritory.api.embedded import EmbeddedBackend
from meritory.api.memory import require_text
from meritory.api.session import Session
from meritory.domain.codec import ErrorReply, Greeting, WrittenReply
from meritory.domain.errors import InputError
from meritory.engine.memories.validate import checked_name
from meritory.engine.sessions.context import StartRequest
from meritory.engine.sessions.packing import Served
from meritory.server.problems import Forbidden, Overloaded
from meritory.server.table import Access, Call, Handler, Reach, Route, Scoped

PREFIX = "/api/library/"
ACTOR = "library"


class Verb(Scoped, kw_only=True):
    """A scope, and the arguments of a method of the Python class."""

    # Whether ids may name memories of all the user's projects and agents.
    everywhere: bool = False
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


def _engine(call: Call) -> EmbeddedBackend:
    body: Verb = call.body
    return call.engine(body.user, body.agent, body.project, any_id=body.everywhere, actor=ACTOR)


def _run(verb: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a method, if the arguments are its own."""
    try:
        bound = inspect.signature(verb).bind(**arguments)
    except TypeError as error:
        raise InputError(f"these are not the verb's arguments: {error}") from error
    return verb(*bound.args, **bound.kwargs)


def _run_method(name: str, call: Call) -> object:
    """Call a method whose arguments and result need no translation."""
    memory = call.open(_engine(call))
    if not hasattr(memory, name):
        raise Forbidden(f"{name} needs a token for the whole user")
    return _run(getattr(memory, name), call.body.arguments)


def scope(call: Call) -> Greeting:
    """Check the scope that a program asks for."""
    memory = call.open(_engine(call))
    # The default user of a program with a token is the token's.
    return Greeting(memory.scope, call.grant.user or memory.settings.user)


def remember_many(call: Call) -> list[WrittenReply]:
    """Store many texts."""
    replies = []
    for result in _run(call.open(_engine(call)).remember_many, call.body.arguments):
        values = {field.name: getattr(result, field.name) for field in fields(result)}
        if (error := result.error) is not None:
            values["error"] = ErrorReply(error.code, error.status, error.message, error.hint)
        replies.append(WrittenReply(**values))
    return replies


def forget(call: Call) -> None:
    """Forget a memory."""
    forget = call.open(_engine(call)).forget
    _run(
        lambda memory_id, why="", origin="user": forget(
            memory_id, why=require_text("a reason", why), origin=origin
        ),
        call.body.arguments,
    )


def purge(call: Call) -> None:
    """Erase a memory for good."""
    forget = call.open(_engine(call)).forget
    _run(lambda memory_id: forget(memory_id, purge=True), call.body.arguments)


def backup(call: Call) -> None:
    """Write a verified copy on the daemon's machine; over TCP only inside its data folder."""
    memory = call.whole(_engine(call))
    home = call.server.settings.home.resolve()

    def write_copy(target: str) -> None:
        file = home / require_text("a target", target)
        if call.door != "socket" and not file.resolve().is_relative_to(home):
            raise InputError(
                f"a backup over TCP stays in the data folder: {target[:80]!r}",
                hint="name a file in it, or use the Unix socket or `meritory backup`",
            )
        memory.backup(file)

    _run(write_copy, call.body.arguments)


def drain(call: Call) -> int:
    """Run every job that is due.

    This may take minutes and worker threads are few, so one request at a time may do it.
    """
    lock = call.server.draining
    if not lock.acquire(blocking=False):
        raise Overloaded("another request runs the jobs already", hint="try again in a second")
    try:
        count: int = _run(call.whole(_engine(call)).drain, call.body.arguments)
        return count
    finally:
        lock.release()


# -- sessions ---------------------------------------------------------------------------------


def session_start(call: Call) -> Served:
    """Start or continue a session."""
    session: Session = _run(call.open(_engine(call)).session, call.body.arguments)
    return session._state()


def _session(name: str) -> Handler:
    """Return the handler that calls a method of a running session."""

    def run(call: Call) -> object:
        arguments, engine = dict(call.body.arguments), _engine(call)
        key = str(checked_name("session key", arguments.pop("key", None)))
        call.grant.require_session(engine.services, key)
        require_text(f"a {name}", arguments.get("text", ""))
        request = StartRequest(key, engine.scope, request_id=call.request_id)
        session = Session(engine, request, Served(key, "", None, (), ""))
        return _run(getattr(session, name), arguments)

    run.__name__ = f"session_{name}"
    return run


# -- the table --------------------------------------------------------------------------------


def _row(
    name: str, access: Access, reach: Reach, summary: str, handler: Handler | None = None
) -> Route:
    """Return the route of a method; without a handler its arguments and result go as they are."""
    return Route(
        "POST",
        PREFIX + name.replace("_", "-"),
        handler or partial(_run_method, name),
        access,
        reach,
        body=Verb,
        summary=f"Library: {summary}",
        # The result of the method, field by field; its client reads the times of msgspec.
        reply=Any,
        encode=msgspec.json.encode,
    )


ROUTES = (
    _row("scope", "read", "scope", "Check a scope.", scope),
    _row("remember-many", "write", "scope", "Store many texts.", remember_many),
    _row("forget", "write", "scope", "Forget a memory.", forget),
    _row("purge", "admin", "scope", "Erase a memory for good.", purge),
    _row("backup", "admin", "daemon", "Write a verified copy.", backup),
    _row("drain", "admin", "daemon", "Run every job that is due.", drain),
    _row("session/start", "hooks", "scope", "Start a session.", session_start),
    _row("session/prompt", "hooks", "scope", "Return memories for a prompt.", _session("prompt")),
    _row("session/reply", "hooks", "scope", "Take ratings out of a reply.", _session("reply")),
    _row("session/rate", "hooks", "scope", "Take ratings from a program.", _session("rate")),
    _row("session/compact", "hooks", "scope", "Mark the context as empty.", _session("compact")),
    _row("session/end", "hooks", "scope", "End a session.", _session("end")),
    _row("update", "write", "scope", "Change fields of a memory."),
    _row("confirm", "admin", "scope", "Confirm a memory."),
    _row("reject", "admin", "scope", "Reject a proposal."),
    _row("proposals", "read", "scope", "Return proposed pins and constraints."),
    _row("undo", "write", "scope", "Undo the last change."),
    _row("split", "write", "scope", "Split a merge."),
    _row("merge", "write", "scope", "Merge two memories."),
    _row("review", "read", "scope", "Return questions about memories for a person."),
    _row("decide", "write", "scope", "Answer a question of the review list."),
    _row("recall", "read", "scope", "Find memories."),
    _row("get", "read", "scope", "Return one memory."),
    _row("page", "read", "scope", "Return a page of memories."),
    _row("history", "read", "scope", "Return every change of a memory."),
    _row("merges", "read", "scope", "Return the latest merges."),
    _row("stats", "read", "user", "Count memories, writes and fallbacks."),
    _row("work_meanwhile", "hooks", "scope", "Run due jobs in the background."),
    _row("predictor_status", "read", "user", "Return the predictor's status."),
    _row("why", "read", "user", "Explain why a session has a memory, or not."),
    _row("capture_feedback", "hooks", "scope", "Store a thumbs up or down."),
    _row("complete_feedback", "hooks", "scope", "Add missing fields to a report."),
    _row("feedback_events", "read", "user", "Return a page of reports."),
    _row("feedback_event", "read", "user", "Return one report."),
    _row("feedback_summary", "read", "user", "Return totals of all reports."),
    _row("feedback_risk", "read", "user", "Return failure rates above average."),
    _row("feedback_pairs", "read", "user", "Return pairs for preference training."),
    _row("contested", "read", "user", "Return memories to review."),
    _row("entities", "read", "scope", "Return entities."),
    _row("describe", "read", "scope", "Describe an entity."),
    _row("related", "read", "scope", "Return memories about the entities of a context."),
    _row("required", "read", "scope", "Return memories that must be shown."),
    _row("reembed", "admin", "daemon", "Compute all missing vectors."),
)
