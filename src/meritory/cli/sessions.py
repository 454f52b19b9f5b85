"""Commands about sessions: sessions, sessions show, pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_flags, current_home, note, opened, taken_notes
from meritory.cli.options import HELP_NAMES, command, global_options
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.records import age
from meritory.cli.render import show_answer
from meritory.domain.codec import moment_text
from meritory.domain.errors import InputError, MeritoryError, NotFound

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.domain.session import SessionMemory, SessionRecord, SessionScore

SESSIONS_LIMIT, SESSIONS_LIMIT_MAX = 20, 1_000
_CONTEXT_CHARS = 80
_SESSIONS = (
    Column("session", "cyan"),
    Column("project"),
    Column("state"),
    Column("age", "dim"),
    Column("shown"),
    Column("helped"),
    Column("continuity"),
    Column("context", wraps=True),
)
_CANDIDATES = (
    Column("rank"),
    Column("shown", "cyan"),
    Column("composite"),
    Column("hits"),
    Column("rated"),
    Column("judged"),
    Column("label"),
    Column("memory", wraps=True),
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


@click.group(
    "sessions",
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    epilog="\b\nExample:\n  meritory sessions --project shop\n",
)
@click.option("--project", metavar="NAME", help="Only sessions of this project.")
@click.option(
    "--limit",
    type=click.IntRange(1, SESSIONS_LIMIT_MAX),
    default=SESSIONS_LIMIT,
    show_default=True,
    help="How many at most.",
)
@click.pass_context
def sessions(ctx: click.Context, project: str | None, limit: int) -> None:
    """List sessions and what came of them, latest first."""
    if ctx.invoked_subcommand is None:
        show_answer(_listing(project, limit), current_flags(), taken_notes())


sessions.params += global_options(hidden=True)


def _listing(project: str | None, limit: int) -> Answer:
    with opened(project, quiet=True) as memory:
        store, user = memory.services.store, memory.scope.user
        found = [
            (one, store.session_score(user, one.key))
            for one in store.sessions(user, limit, project=project)
        ]
        now = memory.services.world.now()
    if not found:
        where = "" if project is None else f" in project {project}"
        note(f"no sessions{where} yet: hooks of agents start them, programs with Memory.session")
    rows = [
        (
            session.key,
            session.project or "-",
            session.state,
            age(now, session.started_at),
            str(session.handle_count),
            "-" if score is None else str(score.memories_used),
            "-" if score is None or score.score is None else f"{score.score:.2f}",
            session.context[:_CONTEXT_CHARS],
        )
        for session, score in found
    ]
    plain = {"results": [_plain(session, score) for session, score in found]}
    return Answer(plain, [Table(_SESSIONS, rows)] if rows else [])


def _plain(session: SessionRecord, score: SessionScore | None) -> dict[str, Any]:
    return {
        "id": session.key,
        "project": session.project,
        "agent": session.agent,
        "harness": session.harness,
        "state": session.state,
        "started_at": moment_text(session.started_at),
        "ended_at": None if session.ended_at is None else moment_text(session.ended_at),
        "context": session.context,
        "prompts": session.prompt_count,
        "shown": session.handle_count,
        "judge": None if score is None else score.judge,
        "continuity": None if score is None else score.score,
        "confidence": None if score is None else score.confidence,
        "excluded": None if score is None else score.excluded,
        "memories_used": None if score is None else score.memories_used,
    }


@command("show", "meritory sessions show 7f3c2a --all")
@click.argument("key")
@click.option("--all", "everything", is_flag=True, help="Also what was considered and not shown.")
def show(key: str, everything: bool) -> Answer:
    """Show what a session was shown, and what became of it.

    KEY is the session's key as `meritory sessions` prints it, or the beginning of one.
    """
    with opened(quiet=True) as memory:
        store, user = memory.services.store, memory.scope.user
        session = found_session(memory, key)
        score = store.session_score(user, session.key)
        records = store.session_memories(user, session.key)
        kept = [one for one in records if everything or one.candidate.was_injected]
        texts = {one.memory_id: _text(memory, one) for one in kept}
    if not everything and len(kept) < len(records):
        note(f"{len(records) - len(kept)} more were considered; --all shows them")
    plain = {
        **_plain(session, score),
        "results": [_candidate_plain(one, texts[one.memory_id]) for one in kept],
    }
    return Answer(plain, _blocks(session, score, kept, texts))


def found_session(memory: Memory, key: str) -> SessionRecord:
    """The session with this key, or the only one whose key starts so."""
    store, user = memory.services.store, memory.scope.user
    try:
        return store.session(user, key)
    except NotFound:
        fitting = [
            one for one in store.sessions(user, SESSIONS_LIMIT_MAX) if one.key.startswith(key)
        ]
        if len(fitting) > 1:
            raise InputError(
                f"{key[:80]!r} is the start of several keys", hint="give more of its characters"
            ) from None
        if not fitting:
            raise NotFound(
                f"no session {key[:80]!r}", hint="`meritory sessions` lists them"
            ) from None
        return fitting[0]


def _text(memory: Memory, one: SessionMemory) -> str:
    try:
        return memory.get(one.memory_id).content
    except MeritoryError:
        return "(erased)"


def _blocks(
    session: SessionRecord,
    score: SessionScore | None,
    kept: list[SessionMemory],
    texts: dict[str, str],
) -> list[Block]:
    pairs = [
        ("session", session.key),
        ("state", session.state),
        ("project", session.project or "-"),
        ("started", moment_text(session.started_at)),
        ("context", session.context or "-"),
        ("prompts", str(session.prompt_count)),
    ]
    if score is not None:
        continuity = "-" if score.score is None else f"{score.score:.2f}"
        pairs += [
            ("judge", f"{score.judge}: continuity {continuity}, confidence {score.confidence:.2f}"),
            ("reasoning", score.continuity_reasoning or "-"),
        ]
        if score.excluded:
            pairs.append(("excluded", score.excluded))
        if score.missing_topics:
            pairs.append(("missing", ", ".join(score.missing_topics)))
    rows = [
        (
            str(one.candidate.rank or "-"),
            one.handle or "-",
            _number(one.candidate.composite_score),
            str(one.fts_hit_count),
            _number(one.agent_relevance_score),
            _number(one.relevance_score),
            _number(one.label),
            texts[one.memory_id],
        )
        for one in kept
    ]
    return [Fields(pairs), Table(_CANDIDATES, rows)] if rows else [Fields(pairs)]


def _candidate_plain(one: SessionMemory, text: str) -> dict[str, Any]:
    served = one.candidate
    return {
        "id": one.memory_id,
        "content": text,
        "handle": one.handle,
        "source": served.source,
        "origins": list(served.origins),
        "rank": served.rank,
        "baseline_rank": served.baseline_rank,
        "predictor_rank": served.predictor_rank,
        "composite_score": served.composite_score,
        "was_injected": served.was_injected,
        "fts_hit_count": one.fts_hit_count,
        "agent_relevance_score": one.agent_relevance_score,
        "relevance_score": one.relevance_score,
        "label": one.label,
        "label_parts": dict(one.label_parts),
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


sessions.add_command(show)


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
