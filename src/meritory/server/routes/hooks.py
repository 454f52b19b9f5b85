"""The hooks that harnesses call: start, prompt, receipt, reply, compaction and end of a session."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from meritory.api.embedded import EmbeddedBackend
from meritory.connect.transcripts import without_context
from meritory.domain import harness
from meritory.domain.session import (
    SessionRecord,
)
from meritory.engine import pipeline
from meritory.engine.memories.validate import checked_name
from meritory.engine.rules.learn import learn_from_prompt
from meritory.engine.sessions import end, ratings
from meritory.engine.sessions.context import StartRequest, find_known_session, storable
from meritory.engine.sessions.delivery import is_offered_again
from meritory.engine.sessions.keeping import question_after_compaction, question_at_reply
from meritory.engine.sessions.packing import Served
from meritory.engine.sessions.prompt import PromptRequest, put_typed
from meritory.engine.sessions.ratings import RatingsTaken
from meritory.server.dedupe import is_duplicate, is_late
from meritory.server.hook_transcripts import latest_turns, open_transcript
from meritory.server.table import (
    Call,
    Route,
    Scoped,
    SessionKey,
)
from meritory.text.embedded import is_inserted
from meritory.text.extract.attribution import typed_words
from meritory.text.render import BLOCK_LIMIT_CHARS, units

# Before a compaction only late ratings matter.
TAIL_LIMIT_BYTES = 1 << 20
# How long a prompt waits for the receipt of a block that was sent as short a time ago.
RECEIPT_GRACE = timedelta(milliseconds=150)
RECEIPT_PAUSE_S = 0.005
KEPT_LIMIT_MS = 100 * 365 * 86_400_000

RatingScores = Annotated[
    dict[str, Any],
    Meta(description="Full memory ids, or handles beside the code `injection`; scores -1 to 1"),
]
Transcript = Annotated[
    Any, Meta(description="A list of {role, text}, or one text; no role is guessed for a text")
]

# -- requests ---------------------------------------------------------------------------------


class Hook(Scoped, kw_only=True):
    """The fields of every hook."""

    session_key: SessionKey
    harness: str | None = None
    # Gives the project when none is named.
    cwd: str | None = None
    relayed: Annotated[
        bool,
        Meta(
            description="Sent by a hook that cannot correct anything: a repeat within 2 s is "
            "ignored, an ended session continues, a bad transcript_path is ignored"
        ),
    ] = False
    client_home: Annotated[
        str | None, Meta(description="The harness's data folder, if it is not the usual one")
    ] = None
    waits_until_ms: Annotated[
        int | None,
        Meta(
            description="Unix time in ms until which the caller waits, on the Unix socket only: "
            "a start or a prompt that is taken later changes nothing"
        ),
    ] = None
    receipts: Annotated[
        bool,
        Meta(
            description="The caller sends the receipt of a reply to /api/hooks/delivered once the "
            "agent has its text; without it no memory of the reply counts as shown"
        ),
    ] = False


AsksToKeep = Annotated[
    bool,
    Meta(description="The agent may be asked whether anything of the session is worth keeping"),
]


class SessionStart(Hook, kw_only=True):
    """A session starts; `context` is its first prompt or task, if known.

    `source` is how it starts: after "compact" and "clear" every memory may be shown again.
    """

    context: str | None = None
    source: str | None = None
    asks_to_keep: AsksToKeep = False


class RatedHook(Hook, kw_only=True):
    """A hook that may carry ratings."""

    memory_feedback: RatingScores | None = None


class PromptSubmit(RatedHook, kw_only=True):
    """The user sent a prompt; `silent` if the harness cannot show the agent anything with it."""

    prompt: str
    silent: bool = False
    transcript: Transcript | None = None
    transcript_path: str | None = None


class Delivered(Hook, kw_only=True):
    """The agent has got the text of a reply."""

    receipt: Annotated[str, Meta(max_length=200, description="As it came with the reply")]


class Stop(RatedHook, kw_only=True):
    """The agent has replied."""

    last_assistant_message: str | None = None
    transcript_path: str | None = None
    asks_to_keep: AsksToKeep = False


class Compact(RatedHook, kw_only=True):
    """The agent's context is about to be compacted."""

    transcript: Transcript | None = None
    transcript_path: str | None = None


class SessionEnd(RatedHook, kw_only=True):
    """A session ends; `used` is for programs that know which memories helped."""

    transcript: Transcript | None = None
    transcript_path: str | None = None
    last_assistant_message: str | None = None
    used: RatingScores | None = None
    kept_ms: Annotated[
        Annotated[int, Meta(ge=0, le=KEPT_LIMIT_MS)] | None,
        Meta(
            description="For how long a hook kept this end because no daemon took it: it does "
            "not count if the session got a prompt in that time"
        ),
    ] = None


# -- replies ----------------------------------------------------------------------------------


class ShownOut(msgspec.Struct):
    """A memory in the agent's context; of its record only id and text."""

    handle: str
    id: str
    content: str
    source: str
    rank: int


class Injected(msgspec.Struct):
    """The text for the agent and its memories; `recording` is off if the store was not writable."""

    inject: str
    injection: str | None
    memories: list[ShownOut]
    status_line: str
    recording: str = "on"
    # To be sent back when the agent has the text; empty if that is not awaited.
    receipt: str = ""

    @classmethod
    def nothing(cls) -> Injected:
        """Return a reply without any text."""
        return cls("", None, [], "")


class DeliveredOut(msgspec.Struct):
    """How many blocks of memories count as shown by this receipt."""

    counted: int


class RatingRefusal(msgspec.Struct):
    """A rating that was rejected, and the reason."""

    name: str
    reason: str


class RatingsOut(msgspec.Struct):
    """The number of ratings that were accepted, and those that were rejected."""

    taken: int
    refused: list[RatingRefusal]

    @classmethod
    def of(cls, result: RatingsTaken) -> RatingsOut:
        """Return the result of some ratings; the public shape counts the accepted ones."""
        return cls(len(result.taken), [RatingRefusal(*pair) for pair in result.refused])


class ReplyOut(RatingsOut):
    """The same, and a text with which the agent goes on; empty where it ends."""

    inject: str = ""


class EndedOut(msgspec.Struct):
    """The end of a session, and the job that learns from it."""

    job: str
    queued: bool
    feedback: RatingsOut


# -- hooks ------------------------------------------------------------------------------------


def hook_engine(call: Call) -> EmbeddedBackend:
    """Return the engine for a hook's scope; refuse a session that the caller must not use."""
    body: Hook = call.body
    project = call.project(body.project, body.cwd, body.user)
    engine = call.engine(body.user, body.agent, project)
    checked_name("session_key", body.session_key)
    if call.grant.caller == "token":
        call.grant.require_session(engine.services, body.session_key)
    return engine


def _open(call: Call) -> tuple[EmbeddedBackend, SessionRecord | None]:
    """Return the engine for a hook's scope and its session, None for a new one.

    An agent must not continue another agent's session.
    """
    engine = hook_engine(call)
    key = call.body.session_key
    call.server.deliveries.take(engine.scope.user, key)
    return engine, find_known_session(engine.services.store, engine.scope, key)


def _start(
    call: Call,
    engine: EmbeddedBackend,
    known: SessionRecord | None,
    context: str | None = None,
    *,
    is_in_context: bool = False,
) -> Injected:
    """Open a session; a block that the agent still has in its context needs no receipt."""
    body: Hook = call.body
    request = StartRequest(
        body.session_key,
        engine.scope,
        context,
        body.harness,
        body.cwd,
        call.request_id,
        body.receipts and not is_in_context,
        call.server.deliveries.unrecorded(engine.scope.user, body.session_key),
    )
    return _injected(call, engine, pipeline.open_session(engine.services, request, known))


def _injected(call: Call, engine: EmbeddedBackend, served: Served) -> Injected:
    call.server.deliveries.note(engine.scope.user, served, call.body.receipts)
    return Injected(
        served.inject,
        served.injection,
        [
            ShownOut(each.handle, each.memory.id, each.memory.content, each.source, each.rank)
            for each in served.memories
        ],
        served.status_line,
        "on" if served.is_recorded else "off",
        served.injection or "" if call.body.receipts else "",
    )


def session_start(call: Call) -> Injected:
    """Start or continue a session, and return the text to show the agent."""
    body: SessionStart = call.body
    engine, known = _open(call)
    if is_late(call) or is_duplicate(call, engine.scope, body.source, body.context):
        return Injected.nothing()
    # After these sources the agent's context is empty; after "resume" it is complete.
    if body.source in ("compact", "clear"):
        call.server.deliveries.forget(engine.scope.user, body.session_key)
        if known is not None:
            end.compact(engine.services, end.EndRequest(known.key, known.user))
    has_context = False
    traits = harness.BY_NAME.get(body.harness or "", harness.UNLISTED)
    is_resumed = body.source == "resume" and not traits.loses_start_on_resume
    if known is not None and is_resumed:
        store = engine.services.store
        rows = store.shown(known.user, known.key)
        waiting = store.undelivered(known.user, known.key)
        has_context = any(row.in_context for row in rows)
        has_context &= all(one.kind != "start" for one in waiting)
    injected = _start(call, engine, known, body.context, is_in_context=has_context)
    if body.source == "compact" and body.asks_to_keep:
        question = question_after_compaction(engine.services, known)
        both = "\n".join(text for text in (injected.inject, question) if text)
        if units(both) <= BLOCK_LIMIT_CHARS:
            injected.inject = both
    # The session is open again, and the agent still has its memories in context.
    return Injected.nothing() if has_context else injected


def user_prompt_submit(call: Call) -> Injected:
    """Report a prompt, and return the memories that it calls for."""
    body: PromptSubmit = call.body
    engine, known = _open(call)
    prompt = without_context(body.prompt)
    if is_inserted(prompt):
        # A client reports, for example, that a background agent has finished.
        return Injected.nothing()
    learn_from_prompt(engine.services, engine.scope.user, body.session_key, prompt)
    typed = typed_words(prompt) if body.relayed else None
    if is_late(call):
        if known is not None and typed is not None:
            # The agent went on without an answer, but these are the user's words.
            put_typed(engine.services, known, typed)
        return Injected.nothing()
    is_repeated = is_duplicate(call, engine.scope, body.prompt)
    if is_repeated or (body.silent and known is None):
        # A session must not start with memories that the agent never sees.
        return Injected.nothing()
    opening = Injected.nothing()
    unrecorded = call.server.deliveries.unrecorded(engine.scope.user, body.session_key)
    if body.relayed and known is not None and _lacks_start(call, engine, known, unrecorded):
        opening = _start(call, engine, known)
    request = PromptRequest(
        body.session_key,
        engine.scope,
        prompt,
        body.harness,
        body.cwd,
        body.memory_feedback,
        latest_turns(call, body.transcript, body.transcript_path),
        call.request_id,
        body.silent,
        body.receipts,
        unrecorded.union(one.id for one in opening.memories),
        typed,
    )
    injected = _injected(call, engine, pipeline.prompt(engine.services, request))
    if not opening.inject:
        return injected
    both = "\n".join(text for text in (opening.inject, injected.inject) if text)
    if units(both) > BLOCK_LIMIT_CHARS:
        return opening
    injected.inject, injected.injection = both, injected.injection or opening.injection
    injected.memories = [*opening.memories, *injected.memories]
    injected.receipt = f"{opening.receipt} {injected.receipt}".strip()
    return injected


def _lacks_start(
    call: Call, engine: EmbeddedBackend, known: SessionRecord, unrecorded: frozenset[str]
) -> bool:
    """Return whether the agent needs the block that the session begins with."""
    if known.state != "open":
        # The session continues, but its harness did not send a start.
        return True
    if not call.body.receipts or call.body.silent:
        return False
    store, now = engine.services.store, call.server.world.now
    undelivered = store.undelivered(known.user, known.key)
    asked_at = now()
    while undelivered and now() - asked_at < RECEIPT_GRACE > asked_at - undelivered[-1].at:
        # The receipt of a moment ago may still be on its way.
        time.sleep(RECEIPT_PAUSE_S)
        undelivered = store.undelivered(known.user, known.key)
    has_shown = bool(store.shown(known.user, known.key))
    if not is_offered_again(known.prompt_count + 1, has_shown=has_shown):
        return False
    starts = (one.memories for one in undelivered if one.kind == "start")
    return any(memory_id not in unrecorded for memories in starts for _, memory_id in memories)


def delivered(call: Call) -> DeliveredOut:
    """Report that the agent has got the text of a reply: its memories count as shown."""
    body: Delivered = call.body
    engine, _ = _open(call)
    deliveries, user = call.server.deliveries, engine.scope.user
    return DeliveredOut(deliveries.take(user, body.session_key, body.receipt.split()))


def stop(call: Call) -> ReplyOut:
    """Report the agent's reply, and take the ratings in it."""
    body: Stop = call.body
    engine, known = _open(call)
    reply, path = body.last_assistant_message, body.transcript_path
    if reply and is_duplicate(call, engine.scope, reply):
        return ReplyOut(0, [])
    # The transcript is only read for a reply that the hook does not carry.
    turns = latest_turns(call, None, path if reply is None else None)
    key, given = body.session_key, body.memory_feedback
    taken = ratings.stop(engine.services, engine.scope.user, key, reply, given, turns)
    rated = RatingsOut.of(taken)
    question = question_at_reply(engine.services, known) if body.asks_to_keep else ""
    return ReplyOut(rated.taken, rated.refused, question)


def pre_compact(call: Call) -> RatingsOut:
    """Report that the agent's context is about to be compacted: memories may be shown again."""
    body: Compact = call.body
    engine, _ = _open(call)
    path = body.transcript_path
    with open_transcript(call, body.transcript, path, TAIL_LIMIT_BYTES) as transcript:
        request = end.EndRequest(
            body.session_key, engine.scope.user, transcript, feedback=body.memory_feedback
        )
        return RatingsOut.of(end.compact(engine.services, request))


def _has_gone_on(call: Call, session: SessionRecord, kept_ms: int) -> bool:
    """Return whether a session got another prompt after its end was kept."""
    kept_at = call.server.world.now() - timedelta(milliseconds=kept_ms)
    events = call.server.engine.services.store.events(session.user, session_key=session.key)
    return any(one.name == "session.prompt" and one.at > kept_at for one in events)


def session_end(call: Call) -> EndedOut:
    """End a session; a job learns from it."""
    body: SessionEnd = call.body
    engine, known = _open(call)
    scope, unknown = engine.scope, None
    if known is not None and body.kept_ms is not None and _has_gone_on(call, known, body.kept_ms):
        return EndedOut("", False, RatingsOut(0, []))
    if known is None and (body.transcript is not None or body.transcript_path is not None):
        unknown = SessionRecord(
            user=scope.user,
            key=body.session_key,
            agent=scope.agent,
            project=scope.project,
            harness=storable(body.harness) or None,
            cwd=storable(body.cwd) or None,
            started_at=call.server.world.now(),
        )
    with open_transcript(call, body.transcript, body.transcript_path) as transcript:
        ended = pipeline.end(
            engine.services,
            end.EndRequest(
                body.session_key,
                scope.user,
                transcript,
                body.used,
                body.memory_feedback,
                body.last_assistant_message,
                call.request_id,
                unknown=unknown,
            ),
        )
    engine.works.nudge()
    return EndedOut(ended.job, ended.is_queued, RatingsOut.of(ended.ratings))


_HOOKS = "/api/hooks"
_PROMPT = f"{_HOOKS}/user-prompt-submit"
ROUTES = (
    Route("POST", f"{_HOOKS}/session-start", session_start, "hooks", "scope", body=SessionStart),
    Route("POST", _PROMPT, user_prompt_submit, "hooks", "scope", body=PromptSubmit),
    Route("POST", f"{_HOOKS}/delivered", delivered, "hooks", "scope", body=Delivered),
    Route("POST", f"{_HOOKS}/stop", stop, "hooks", "scope", body=Stop),
    Route("POST", f"{_HOOKS}/pre-compact", pre_compact, "hooks", "scope", body=Compact),
    Route("POST", f"{_HOOKS}/session-end", session_end, "hooks", "scope", body=SessionEnd),
)
