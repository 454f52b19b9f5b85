"""Sessions over the wire: what hooks send and are answered, and sessions as they can be read."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from meritory.domain.codec import moment_text
from meritory.domain.memory import NAME_LIMIT_CHARS
from meritory.domain.session import (
    Event,
    SessionMemory,
    SessionOutcome,
    SessionScore,
    SessionSummary,
)
from meritory.engine.sessions.packing import Served
from meritory.engine.sessions.ratings import RatingsTaken
from meritory.server.schemas.memories import Moment
from meritory.server.table import QueryParams, Scoped

# As the library has it: something that can be shown, and that is not empty to the eye.
_PRINTABLE = r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$"
SessionKey = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT_CHARS, pattern=_PRINTABLE)]
Rated = Annotated[
    dict[str, Any], Meta(description="Handles or memory ids with scores from -1 to 1")
]
Told = Annotated[
    Any, Meta(description="A list of {role, text}, or one text; no role is guessed for a text")
]


class Hook(Scoped, kw_only=True):
    """What every hook says: which session, of which harness."""

    session_key: SessionKey
    harness: str | None = None
    # Without a project it says which one it is.
    cwd: str | None = None
    relayed: Annotated[
        bool,
        Meta(
            description="From a hook that cannot mend anything: what comes twice within 2 s is "
            "answered once, an ended session goes on, a bad transcript_path is passed over"
        ),
    ] = False
    client_home: Annotated[
        str | None, Meta(description="The harness's own data folder, where it is not the usual one")
    ] = None


class SessionStart(Hook, kw_only=True):
    """A session begins; `context` is its first prompt or task, when that is known already.

    `source` is how it begins: after "compact" and "clear" everything may be shown again.
    """

    context: str | None = None
    source: str | None = None


class RatedHook(Hook, kw_only=True):
    """A hook that may bring ratings along."""

    memory_feedback: Rated | None = None


class PromptSubmit(RatedHook, kw_only=True):
    """The user typed something; `silent` when the harness shows the agent nothing with it."""

    prompt: str
    silent: bool = False
    transcript: Told | None = None
    transcript_path: str | None = None


class Stop(RatedHook, kw_only=True):
    """The agent has replied."""

    last_assistant_message: str | None = None
    transcript_path: str | None = None


class Compact(RatedHook, kw_only=True):
    """The agent is about to forget what it was shown."""

    transcript: Told | None = None
    transcript_path: str | None = None


class SessionEnd(RatedHook, kw_only=True):
    """A session is over; `used` is for programs that know what helped."""

    transcript: Told | None = None
    transcript_path: str | None = None
    last_assistant_message: str | None = None
    used: Rated | None = None


class ShownOut(msgspec.Struct):
    """A memory in front of the agent."""

    handle: str
    id: str
    content: str
    source: str
    rank: int


class Injected(msgspec.Struct):
    """The text for the agent and what is in it; `recording` is off when nothing could be noted."""

    inject: str
    injection: str | None
    memories: list[ShownOut]
    status_line: str
    recording: str = "on"

    @classmethod
    def nothing(cls) -> Injected:
        """Nothing to show."""
        return cls("", None, [], "")

    @classmethod
    def of(cls, served: Served) -> Injected:
        """What was served, for the wire."""
        return cls(
            served.inject,
            served.injection,
            [
                ShownOut(one.handle, one.id, one.content, one.source, one.rank)
                for one in served.memories
            ],
            served.status_line,
            "on" if served.is_recorded else "off",
        )


class RatingRefusalOut(msgspec.Struct):
    """A rating that was not taken, and why."""

    name: str
    reason: str


class RatingsOut(msgspec.Struct):
    """What became of ratings."""

    taken: int
    refused: list[RatingRefusalOut]

    @classmethod
    def of(cls, found: RatingsTaken) -> RatingsOut:
        """What was taken, for the wire."""
        return cls(len(found.taken), [RatingRefusalOut(*pair) for pair in found.refused])


class EndedOut(msgspec.Struct):
    """The end of a session: the job that learns from it."""

    job: str
    queued: bool
    feedback: RatingsOut


class SessionsQuery(QueryParams, kw_only=True):
    """Which sessions to list, latest first; `before` is the last key of the page before."""

    user: str | None = None
    project: str | None = None
    outcome: SessionOutcome | None = None
    since: Moment | None = None
    until: Moment | None = None
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50


class UserQuery(QueryParams, kw_only=True):
    """Whose it is."""

    user: str | None = None


class ScoreOut(msgspec.Struct):
    """What the judge said about a session."""

    judge: str
    score: float | None
    confidence: float
    memories_recalled: int
    memories_used: int
    novel_context_count: int
    missing_topics: list[str]
    reasoning: str
    excluded: str | None
    at: str

    @classmethod
    def of(cls, score: SessionScore) -> ScoreOut:
        """A verdict for the wire."""
        return cls(
            score.judge,
            score.score,
            score.confidence,
            score.memories_recalled,
            score.memories_used,
            score.novel_context_count,
            list(score.missing_topics),
            score.continuity_reasoning,
            score.excluded,
            moment_text(score.at),
        )


class SessionOut(msgspec.Struct, kw_only=True):
    """A session."""

    id: str
    state: str
    agent: str | None
    project: str | None
    harness: str | None
    context: str
    started_at: str
    ended_at: str | None
    prompts: int
    injections: int
    shown: int
    alpha: float
    # How the predictor did; None while nobody has judged it.
    outcome: SessionOutcome | None = None
    margin: float | None = None
    score: ScoreOut | None = None

    @classmethod
    def of(cls, summary: SessionSummary, score: SessionScore | None) -> SessionOut:
        """A session for the wire."""
        session = summary.session
        return cls(
            id=session.key,
            state=session.state,
            agent=session.agent,
            project=session.project,
            harness=session.harness,
            context=session.context,
            started_at=moment_text(session.started_at),
            ended_at=None if session.ended_at is None else moment_text(session.ended_at),
            prompts=session.prompt_count,
            injections=session.injection_count,
            shown=session.handle_count,
            alpha=session.alpha,
            outcome=summary.outcome,
            margin=summary.margin,
            score=None if score is None else ScoreOut.of(score),
        )


class SessionsOut(msgspec.Struct):
    """A page of sessions; `before` continues it."""

    results: list[SessionOut]
    before: str | None


class CandidateOut(msgspec.Struct, kw_only=True):
    """A memory that was considered in a session, with every number as served and what followed."""

    id: str
    source: str
    origins: list[str]
    rank: int
    baseline_rank: int | None
    predictor_rank: int | None
    effective_score: float | None
    composite_score: float | None
    predictor_score: float | None
    final_score: float
    was_injected: bool
    handle: str | None
    propensity: float
    features: dict[str, float]
    feature_version: int
    relevance_score: float | None
    fts_hit_count: int
    agent_relevance_score: float | None
    agent_feedback_count: int
    label: float | None
    label_parts: dict[str, Any]


class CandidatesOut(msgspec.Struct):
    """Every candidate of a session, by rank."""

    results: list[CandidateOut]


def candidate_out(one: SessionMemory, names: tuple[str, ...]) -> CandidateOut:
    """A candidate for the wire; `names` are those of its features."""
    served = one.candidate
    return CandidateOut(
        id=one.memory_id,
        source=served.source,
        origins=list(served.origins),
        rank=served.rank,
        baseline_rank=served.baseline_rank,
        predictor_rank=served.predictor_rank,
        effective_score=served.effective_score,
        composite_score=served.composite_score,
        predictor_score=served.predictor_score,
        final_score=served.final_score,
        was_injected=served.was_injected,
        handle=one.handle,
        propensity=served.propensity,
        features=dict(zip(names, served.features, strict=False)),
        feature_version=served.feature_version,
        relevance_score=one.relevance_score,
        fts_hit_count=one.fts_hit_count,
        agent_relevance_score=one.agent_relevance_score,
        agent_feedback_count=one.agent_feedback_count,
        label=one.label,
        label_parts=dict(one.label_parts),
    )


class EventOut(msgspec.Struct):
    """Something that happened."""

    at: str
    category: str
    event: str
    session_key: str | None
    memory_id: str | None
    request_id: str | None
    details: dict[str, Any]

    @classmethod
    def of(cls, event: Event) -> EventOut:
        """An event for the wire."""
        return cls(
            moment_text(event.at),
            event.category,
            event.name,
            event.session_key,
            event.memory_id,
            event.request_id,
            dict(event.details),
        )


class Timeline(msgspec.Struct):
    """Everything that happened to a session, a memory or in a request, in order."""

    id: str
    results: list[EventOut]
