"""Commands about sessions: sessions, sessions show, pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import command, group, limit_option, note
from meritory.cli.context import current_home, opened
from meritory.cli.output import (
    Answer,
    Column,
    Field,
    Fields,
    Lines,
    RecordView,
    Table,
    age,
    number,
    to_json,
)
from meritory.domain.errors import InputError, MeritoryError, NotFound
from meritory.domain.session import SessionMemory, SessionRecord, SessionScore

if TYPE_CHECKING:
    from meritory.api.memory import Memory

SESSIONS_LIMIT, SESSIONS_LIMIT_MAX = 20, 1_000
_CONTEXT_CHARS = 80
Scored = tuple[SessionRecord, SessionScore | None]
_SESSIONS: RecordView[Scored] = RecordView(
    Field("id", "session", lambda pair: pair[0].key, style="cyan"),
    Field("project", "project", lambda pair: pair[0].project),
    Field("agent", read=lambda pair: pair[0].agent),
    Field("harness", read=lambda pair: pair[0].harness),
    Field("state", "state", lambda pair: pair[0].state),
    Field("started_at", "age", lambda pair: pair[0].started_at, age, style="dim"),
    Field("ended_at", read=lambda pair: pair[0].ended_at),
    Field("prompts", read=lambda pair: pair[0].prompt_count),
    Field("shown", "shown", lambda pair: pair[0].handle_count),
    Field("judge", read=lambda pair: pair[1] and pair[1].judge),
    Field("memories_used", "helped", lambda pair: pair[1] and pair[1].memories_used),
    Field("continuity", "continuity", lambda pair: pair[1] and pair[1].score, number(".2f")),
    Field("confidence", read=lambda pair: pair[1] and pair[1].confidence),
    Field("excluded", read=lambda pair: pair[1] and pair[1].excluded),
    Field(
        "context",
        "context",
        lambda pair: pair[0].context,
        lambda text: text[:_CONTEXT_CHARS],
        wraps=True,
    ),
)


_STAGES = (
    Column("flow", "cyan"),
    Column("stage"),
    Column("budget ms"),
    Column("p50 ms"),
    Column("p95 ms"),
    Column("what it does", wraps=True),
    Column("code"),
)


@group("sessions", "meritory sessions --project shop")
@click.option("--project", metavar="NAME", help="Only sessions of this project.")
@limit_option(SESSIONS_LIMIT, SESSIONS_LIMIT_MAX)
def sessions(project: str | None, limit: int) -> Answer:
    """List sessions with their results, latest first."""
    with opened(project, quiet=True) as memory:
        store, user = memory.services.store, memory.scope.user
        scored = [
            (session, store.session_score(user, session.key))
            for session in store.sessions(user, limit, project=project)
        ]
    if not scored:
        where = "" if project is None else f" in project {project}"
        note(f"no sessions{where} yet: hooks of agents start them, programs with Memory.session")
    return _SESSIONS.answer(scored)


@command("show", "meritory sessions show 7f3c2a --all", sessions)
@click.argument("key")
@click.option("--all", "everything", is_flag=True, help="Also candidates that were not shown.")
def show(key: str, everything: bool) -> Answer:
    """Show the memories in a session, and how they were rated.

    KEY is the session's key as `meritory sessions` prints it, or the beginning of one.
    """
    with opened(quiet=True) as memory:
        store, user = memory.services.store, memory.scope.user
        session = find_session(memory, key)
        score = store.session_score(user, session.key)
        records = store.session_memories(user, session.key)
        chosen = [one for one in records if everything or one.candidate.was_injected]
        texts = {one.memory_id: content_of(memory, one.memory_id) for one in chosen}
    if len(chosen) < len(records):
        note(f"{len(records) - len(chosen)} more were considered; --all shows them")
    view: RecordView[SessionMemory] = RecordView(
        Field("id", read=lambda one: one.memory_id),
        Field("rank", "rank", lambda one: one.candidate.rank, lambda rank: str(rank or "-")),
        Field("handle", "shown", show=lambda handle: handle or "-", style="cyan"),
        Field("source", read=lambda one: one.candidate.source),
        Field("origins", read=lambda one: one.candidate.origins),
        Field("baseline_rank", read=lambda one: one.candidate.baseline_rank),
        Field("predictor_rank", read=lambda one: one.candidate.predictor_rank),
        Field(
            "composite_score",
            "composite",
            lambda one: one.candidate.composite_score,
            number(".2f"),
        ),
        Field("was_injected", read=lambda one: one.candidate.was_injected),
        Field("fts_hit_count", "hits"),
        Field("agent_relevance_score", "rated", show=number(".2f")),
        Field("relevance_score", "judged", show=number(".2f")),
        Field("label", "label", show=number(".2f")),
        Field("label_parts"),
        Field("content", "memory", lambda one: texts[one.memory_id], wraps=True),
    )
    plain = {
        **_SESSIONS.json((session, score)),
        "results": [view.json(candidate) for candidate in chosen],
    }
    return Answer(plain, [Fields(_summary(session, score)), *view.blocks(chosen)])


def find_session(memory: Memory, key: str) -> SessionRecord:
    """Return the session with this key, or the only one whose key starts with it."""
    store, user = memory.services.store, memory.scope.user
    try:
        return store.session(user, key)
    except NotFound:
        matches = [
            session
            for session in store.sessions(user, SESSIONS_LIMIT_MAX)
            if session.key.startswith(key)
        ]
        if len(matches) > 1:
            raise InputError(
                f"several sessions start with {key[:80]!r}", hint="give more of its characters"
            ) from None
        if not matches:
            raise NotFound(
                f"unknown session: {key[:80]!r}", hint="`meritory sessions` lists them"
            ) from None
        return matches[0]


def content_of(memory: Memory, memory_id: str) -> str:
    """Return the text of a memory that may have been erased."""
    try:
        return memory.get(memory_id).content
    except MeritoryError:
        return "(erased)"


def _summary(session: SessionRecord, score: SessionScore | None) -> list[tuple[str, str]]:
    pairs = [
        ("session", session.key),
        ("state", session.state),
        ("project", session.project or "-"),
        ("started", to_json(session.started_at)),
        ("context", session.context or "-"),
        ("prompts", str(session.prompt_count)),
    ]
    if score is not None:
        continuity = number(".2f")(score.score)
        pairs += [
            ("judge", f"{score.judge}: continuity {continuity}, confidence {score.confidence:.2f}"),
            ("reasoning", score.continuity_reasoning or "-"),
        ]
        if score.excluded:
            pairs.append(("excluded", score.excluded))
        if score.missing_topics:
            pairs.append(("missing", ", ".join(score.missing_topics)))
    return pairs


@command("pipeline", "meritory pipeline")
def pipeline() -> Answer:
    """Show every stage of a session, in order, with its budget and how long it takes.

    The timings are the running daemon's; without one only the stages are shown.
    """
    from meritory.api import client
    from meritory.engine.pipeline import FLOWS

    daemon = client.find(current_home())
    took: dict[tuple[str, str], dict[str, Any]] = {}
    if daemon is None:
        note("the daemon does not run, so there are no timings")
    else:
        answered = daemon.request("GET", "/api/pipeline/status")
        took = {(one["flow"], one["stage"]): one for one in answered["stages"]}
    rows, plain = [], []
    for flow, stages in FLOWS.items():
        for stage in stages:
            found = took.get((flow, stage.name), {})
            timings = [found.get("p50_ms"), found.get("p95_ms")]
            shown = ["-" if ms is None else f"{ms:.1f}" for ms in timings]
            budget = f"{stage.budget_ms:g}"
            rows.append((flow, stage.name, budget, *shown, stage.about, stage.location))
            plain.append(
                {
                    "id": f"{flow}.{stage.name}",
                    "about": stage.about,
                    "location": stage.location,
                    "budget_ms": stage.budget_ms,
                    "p50_ms": timings[0],
                    "p95_ms": timings[1],
                }
            )
    return Answer({"results": plain}, [Table(_STAGES, rows), Lines([])])
