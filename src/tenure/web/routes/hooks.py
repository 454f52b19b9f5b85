"""What harnesses call: a session begins, a prompt comes, the agent replies, it is over."""

from __future__ import annotations

import contextlib

from tenure.errors import NotFound
from tenure.flow import ending, ratings
from tenure.flow.context import StartRequest, known_session
from tenure.flow.drafts import checked_name
from tenure.flow.prompt import PromptRequest, prompt
from tenure.flow.start import start
from tenure.memory import Memory
from tenure.text.transcript import read_turns
from tenure.web import session_wire as wire
from tenure.web.table import Call, Route
from tenure.web.transcripts import told


def _memory(call: Call) -> Memory:
    """The memory for a hook's scope; one agent does not go on with another's session."""
    memory, key = call.memory(), call.body.session_key
    checked_name("session_key", key)
    with contextlib.suppress(NotFound):
        known_session(memory.services, memory.scope, key)
    return memory


def session_start(call: Call) -> wire.Injected:
    """A session begins: what it should be shown."""
    body: wire.SessionStart = call.body
    memory = _memory(call)
    request = StartRequest(
        body.session_key, memory.scope, body.context, body.harness, body.cwd, call.request_id
    )
    return wire.Injected.of(start(memory.services, request))


def user_prompt_submit(call: Call) -> wire.Injected:
    """A prompt: what it calls to mind."""
    body: wire.PromptSubmit = call.body
    memory = _memory(call)
    found = told(call, body.transcript, body.transcript_path)
    request = PromptRequest(
        body.session_key,
        memory.scope,
        body.prompt,
        body.harness,
        body.cwd,
        body.memory_feedback,
        () if found is None else read_turns(found),
        call.request_id,
    )
    return wire.Injected.of(prompt(memory.services, request))


def stop(call: Call) -> wire.Taken:
    """The agent has replied: the ratings at the end of its text."""
    body: wire.Stop = call.body
    memory = _memory(call)
    reply, path = body.last_assistant_message, body.transcript_path
    # A reply that was handed over need not be looked for.
    found = told(call, None, path if reply is None else None)
    request = ratings.ReplyCall(
        memory.scope.user,
        body.session_key,
        reply,
        body.memory_feedback,
        () if found is None else read_turns(found),
    )
    return wire.Taken.of(ratings.stop(memory.services, request))


def pre_compact(call: Call) -> wire.Taken:
    """The agent is about to forget: late ratings, then everything may be shown again."""
    body: wire.Compact = call.body
    memory = _memory(call)
    request = ending.EndRequest(
        body.session_key,
        memory.scope.user,
        told(call, body.transcript, body.transcript_path),
        feedback=body.memory_feedback,
    )
    return wire.Taken.of(ending.compact(memory.services, request))


def session_end(call: Call) -> wire.EndedOut:
    """A session is over: how it went, and one job to learn from it."""
    body: wire.SessionEnd = call.body
    memory = _memory(call)
    ended = ending.end(
        memory.services,
        ending.EndRequest(
            body.session_key,
            memory.scope.user,
            told(call, body.transcript, body.transcript_path),
            body.used,
            body.memory_feedback,
            body.last_assistant_message,
            call.request_id,
        ),
    )
    memory.work_meanwhile()
    return wire.EndedOut(ended.job, ended.is_queued, wire.Taken.of(ended.ratings))


def feedback(call: Call) -> wire.Taken:
    """Ratings of what a session was shown, from the agent's tool."""
    body: wire.Feedback = call.body
    memory = _memory(call)
    request = ratings.RatingCall(
        memory.scope.user, body.session_key, body.ratings, "tool", body.injection
    )
    return wire.Taken.of(ratings.rate(memory.services, request))


ROUTES = (
    Route(
        method="POST",
        path="/api/hooks/session-start",
        handler=session_start,
        access="hooks",
        summary="Begin a session, or go on with it, and learn what to show the agent.",
        body=wire.SessionStart,
        reply=wire.Injected,
    ),
    Route(
        method="POST",
        path="/api/hooks/user-prompt-submit",
        handler=user_prompt_submit,
        access="hooks",
        summary="Tell a prompt, and learn what it calls to mind.",
        body=wire.PromptSubmit,
        reply=wire.Injected,
    ),
    Route(
        method="POST",
        path="/api/hooks/stop",
        handler=stop,
        access="hooks",
        summary="Tell the agent's reply; the ratings in it are taken.",
        body=wire.Stop,
        reply=wire.Taken,
    ),
    Route(
        method="POST",
        path="/api/hooks/pre-compact",
        handler=pre_compact,
        access="hooks",
        summary="Tell that the agent is about to forget what it was shown.",
        body=wire.Compact,
        reply=wire.Taken,
    ),
    Route(
        method="POST",
        path="/api/hooks/session-end",
        handler=session_end,
        access="hooks",
        summary="End a session; a job learns from it.",
        body=wire.SessionEnd,
        reply=wire.EndedOut,
    ),
    Route(
        method="POST",
        path="/api/feedback",
        handler=feedback,
        access="hooks",
        summary="Rate what a session was shown.",
        body=wire.Feedback,
        reply=wire.Taken,
    ),
)
