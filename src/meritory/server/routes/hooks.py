"""What harnesses call: a session begins, a prompt comes, the agent replies, it is over."""

from __future__ import annotations

import contextlib

from meritory.api.memory import Memory
from meritory.connect.transcript_entry import without_context
from meritory.domain.errors import NotFound
from meritory.domain.harness import traits_of
from meritory.domain.memory import Scope
from meritory.domain.session import SessionRecord
from meritory.engine.memories.validate import checked_name
from meritory.engine.sessions import end, ratings
from meritory.engine.sessions.context import StartRequest, known_session
from meritory.engine.sessions.prompt import PromptRequest, prompt
from meritory.engine.sessions.start import start
from meritory.server.schemas import sessions as wire
from meritory.server.scoped_memory import demand_session
from meritory.server.table import Call, Route
from meritory.server.transcripts import NEAR_LIMIT_BYTES, told, whole
from meritory.text.render import BLOCK_LIMIT_CHARS, units
from meritory.text.transcript import read_turns

# Ways to begin after which the agent has nothing before its eyes any more.
FORGETFUL = ("compact", "clear")
# The way to begin after which it still has all that it had.
RESUMED = "resume"


def _opened(call: Call) -> tuple[Memory, SessionRecord | None]:
    """The memory for a hook's scope, and its session where it is known.

    One agent does not go on with another's session.
    """
    body: wire.Hook = call.body
    checked_name("session_key", body.session_key)
    memory = call.view(body.user, body.agent, call.project(body.project, body.cwd))
    demand_session(memory, body.session_key)
    with contextlib.suppress(NotFound):
        return memory, known_session(memory.services, memory.scope, body.session_key)
    return memory, None


def is_echo(call: Call, scope: Scope, *said: str | None) -> bool:
    """Whether a client told the same a moment ago, from another of its files."""
    body: wire.Hook = call.body
    # Not by the names in the body: a token says whose session it is without them.
    parts = (type(body).__name__, scope.user, scope.agent, body.session_key, *said)
    return body.relayed and call.engine.echoes.is_echo(*(part or "" for part in parts))


def session_start(call: Call) -> wire.Injected:
    """A session begins: what it should be shown."""
    body: wire.SessionStart = call.body
    memory, known = _opened(call)
    if is_echo(call, memory.scope, body.source, body.context):
        return wire.Injected.nothing()
    if known is not None and body.source in FORGETFUL:
        end.compact(memory.services, end.EndRequest(known.key, known.user))
    is_kept = body.source == RESUMED and not traits_of(body.harness).loses_start_on_resume
    is_told = known is not None and is_kept and _has_before_its_eyes(memory, known)
    served = wire.Injected.of(start(memory.services, _beginning(call, memory, body.context)))
    # The session is open again; what the agent has before its eyes is not told twice.
    return wire.Injected.nothing() if is_told else served


def _has_before_its_eyes(memory: Memory, session: SessionRecord) -> bool:
    shown = memory.services.store.shown(session.user, session.key)
    return any(one.in_context for one in shown)


def _beginning(call: Call, memory: Memory, context: str | None = None) -> StartRequest:
    body: wire.Hook = call.body
    return StartRequest(
        body.session_key,
        memory.scope,
        context,
        body.harness,
        body.cwd,
        call.request_id,
        call.grant.caller == "token",
    )


def user_prompt_submit(call: Call) -> wire.Injected:
    """A prompt: what it calls to mind."""
    body: wire.PromptSubmit = call.body
    memory, known = _opened(call)
    if is_echo(call, memory.scope, body.prompt) or (body.silent and known is None):
        # A session must not begin with memories that nobody sees.
        return wire.Injected.nothing()
    before = wire.Injected.nothing()
    if body.relayed and known is not None and known.state != "open":
        # It goes on, and its client did not say so.
        before = wire.Injected.of(start(memory.services, _beginning(call, memory)))
    found = told(call, body.transcript, body.transcript_path, NEAR_LIMIT_BYTES)
    request = PromptRequest(
        body.session_key,
        memory.scope,
        without_context(body.prompt),
        body.harness,
        body.cwd,
        body.memory_feedback,
        () if found is None else read_turns(found),
        call.request_id,
        body.silent,
        call.grant.caller == "token",
    )
    return _joined(before, wire.Injected.of(prompt(memory.services, request)))


def _joined(before: wire.Injected, now: wire.Injected) -> wire.Injected:
    """Two texts as one, if a client takes that much."""
    if not before.inject:
        return now
    whole = "\n".join(text for text in (before.inject, now.inject) if text)
    if units(whole) > BLOCK_LIMIT_CHARS:
        return before
    now.inject, now.injection = whole, now.injection or before.injection
    now.memories = [*before.memories, *now.memories]
    return now


def stop(call: Call) -> wire.RatingsOut:
    """The agent has replied: the ratings at the end of its text."""
    body: wire.Stop = call.body
    memory, _ = _opened(call)
    reply, path = body.last_assistant_message, body.transcript_path
    if reply and is_echo(call, memory.scope, reply):
        return wire.RatingsOut(0, [])
    # A reply that was handed over need not be looked for.
    found = told(call, None, path if reply is None else None, NEAR_LIMIT_BYTES)
    request = ratings.ReplyCall(
        memory.scope.user,
        body.session_key,
        reply,
        body.memory_feedback,
        () if found is None else read_turns(found),
    )
    return wire.RatingsOut.of(ratings.stop(memory.services, request))


def pre_compact(call: Call) -> wire.RatingsOut:
    """The agent is about to forget: late ratings, then everything may be shown again."""
    body: wire.Compact = call.body
    memory, _ = _opened(call)
    request = end.EndRequest(
        body.session_key,
        memory.scope.user,
        told(call, body.transcript, body.transcript_path),
        feedback=body.memory_feedback,
    )
    return wire.RatingsOut.of(end.compact(memory.services, request))


def session_end(call: Call) -> wire.EndedOut:
    """A session is over: how it went, and one job to learn from it."""
    body: wire.SessionEnd = call.body
    memory, _ = _opened(call)
    with whole(call, body.transcript, body.transcript_path) as transcript:
        ended = end.end(
            memory.services,
            end.EndRequest(
                body.session_key,
                memory.scope.user,
                transcript,
                body.used,
                body.memory_feedback,
                body.last_assistant_message,
                call.request_id,
            ),
        )
    memory.work_meanwhile()
    return wire.EndedOut(ended.job, ended.is_queued, wire.RatingsOut.of(ended.ratings))


ROUTES = (
    Route(
        method="POST",
        path="/api/hooks/session-start",
        handler=session_start,
        access="hooks",
        reach="scope",
        summary="Begin a session, or go on with it, and learn what to show the agent.",
        body=wire.SessionStart,
        reply=wire.Injected,
    ),
    Route(
        method="POST",
        path="/api/hooks/user-prompt-submit",
        handler=user_prompt_submit,
        access="hooks",
        reach="scope",
        summary="Tell a prompt, and learn what it calls to mind.",
        body=wire.PromptSubmit,
        reply=wire.Injected,
    ),
    Route(
        method="POST",
        path="/api/hooks/stop",
        handler=stop,
        access="hooks",
        reach="scope",
        summary="Tell the agent's reply; the ratings in it are taken.",
        body=wire.Stop,
        reply=wire.RatingsOut,
    ),
    Route(
        method="POST",
        path="/api/hooks/pre-compact",
        handler=pre_compact,
        access="hooks",
        reach="scope",
        summary="Tell that the agent is about to forget what it was shown.",
        body=wire.Compact,
        reply=wire.RatingsOut,
    ),
    Route(
        method="POST",
        path="/api/hooks/session-end",
        handler=session_end,
        access="hooks",
        reach="scope",
        summary="End a session; a job learns from it.",
        body=wire.SessionEnd,
        reply=wire.EndedOut,
    ),
)
