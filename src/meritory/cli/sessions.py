"""Commands about sessions: list, show, forget, pipeline, why, backtest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.command import (
    command,
    current_home,
    group,
    limit_option,
    opened,
    opened_services,
    require_yes,
    yes_option,
)
from meritory.cli.output import (
    Answer,
    Block,
    Field,
    Fields,
    RecordView,
    age,
    bar,
    note,
    number,
    text,
    to_json,
)
from meritory.domain.errors import InputError, MeritoryError, NotFound
from meritory.domain.session import SessionRecord

if TYPE_CHECKING:
    from meritory.api.memory import Memory

SESSIONS_LIMIT, SESSIONS_LIMIT_MAX = 20, 1_000
_CONTEXT_CHARS = 80
_short = number(".2f")
_decimal = number(".3f")
# Pairs of a session and its score.
_SESSIONS = RecordView(
    Field("id", "session", "0.key", style="cyan"),
    Field("0.project", "project"),
    "0.agent 0.harness",
    Field("0.state", "state"),
    Field("0.started_at", "age", show=age, style="dim"),
    "0.ended_at",
    Field("prompts", read="0.prompt_count"),
    Field("shown", "shown", "0.handle_count"),
    "1.judge",
    Field("1.memories_used", "helped"),
    Field("continuity", "continuity", "1.score", _short),
    "1.confidence 1.excluded",
    Field("0.context", "context", show=lambda text: text[:_CONTEXT_CHARS], wraps=True),
)


_STAGES = RecordView(
    Field("", "flow", "flow", style="cyan"),
    Field("", "stage", "name"),
    Field("id", read=lambda row: f"{row['flow']}.{row['name']}"),
    Field("", "budget ms", "budget_ms", number("g")),
    Field("", "p50 ms", "p50_ms", number(".1f")),
    Field("", "p95 ms", "p95_ms", number(".1f")),
    Field("about", "what it does", wraps=True),
    Field("location", "code"),
    "budget_ms p50_ms p95_ms",
)


@group("sessions", "meritory sessions --project shop")
@click.option("--project", metavar="NAME", help="Only sessions of this project.")
@limit_option(SESSIONS_LIMIT, SESSIONS_LIMIT_MAX)
def sessions(project: str | None, limit: int) -> Answer:
    """List sessions with their results, latest first."""
    with opened_services(project) as (services, user):
        listed = services.store.sessions(user, limit, project=project)
        scored = [(one, services.store.session_score(user, one.key)) for one in listed]
    where = "" if project is None else f" in project {project}"
    empty = f"no sessions{where} yet: hooks of agents start them, programs with Memory.session"
    return _SESSIONS.answer(scored, empty)


@command("show", "meritory sessions show 7f3c2a --all", parent=sessions)
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
    if more := len(records) - len(chosen):
        note(f"{more} more were considered; --all shows them")
    view = RecordView(
        Field("id", read="memory_id"),
        Field("candidate.rank", "rank", show=lambda rank: str(rank or "-")),
        Field("handle", "shown", show=lambda handle: handle or "-", style="cyan"),
        "candidate.source candidate.origins candidate.baseline_rank candidate.predictor_rank",
        Field("candidate.composite_score", "composite", show=_short),
        "candidate.was_injected",
        Field("fts_hit_count", "hits"),
        Field("agent_relevance_score", "rated", show=_short),
        Field("relevance_score", "judged", show=_short),
        Field("label", "label", show=_short),
        "label_parts",
        Field("content", "memory", lambda one: texts[one.memory_id], wraps=True),
    )
    pairs = [
        ("session", session.key),
        ("state", session.state),
        ("project", session.project or "-"),
        ("started", to_json(session.started_at)),
        ("context", session.context or "-"),
        ("prompts", str(session.prompt_count)),
    ]
    if score is not None:
        continuity = f"continuity {_short(score.score)}, confidence {score.confidence:.2f}"
        pairs += [
            ("judge", f"{score.judge}: {continuity}"),
            ("reasoning", score.continuity_reasoning or "-"),
            *([("excluded", score.excluded)] if score.excluded else []),
            *([("missing", ", ".join(score.missing_topics))] if score.missing_topics else []),
        ]
    plain = {**_SESSIONS.json((session, score)), "results": [view.json(one) for one in chosen]}
    return Answer(plain, Fields(pairs), *view.blocks(chosen))


@command("forget", "meritory sessions forget 7f3c2a", parent=sessions)
@click.argument("key")
@click.option("--memories", is_flag=True, help="Also erase memories learned only in this session.")
@yes_option
def forget(key: str, memories: bool, yes: bool) -> Answer:
    """Erase a session permanently, with its transcript and ratings.

    KEY is the session's key as `meritory sessions` prints it, or the beginning of one. Erased are
    its transcript, digest, prompts, candidates, labels, ratings, events, actions, reports, rejected
    proposals and jobs. Memories that were learned in it stay, unless --memories is given.
    """
    from meritory.engine.sessions.erasure import erase_session, memories_only_from

    with opened() as memory:
        services, user = memory.services, memory.scope.user
        session = find_session(memory, key)
        only, _ = memories_only_from(services, user, session.key)
        learned = f"{len(only)} memories learned only in it {'go too' if memories else 'stay'}"
        what = f"session {session.key} of {session.started_at:%Y-%m-%d}; {learned}"
        require_yes(f"{what}\nErase permanently? This cannot be undone.", yes=yes)
        erased = erase_session(services, user, session.key, with_memories=memories)
    rows = ", ".join(f"{count} {table}" for table, count in erased.rows.items())
    note("earlier backups are not changed and may still contain it")
    return Answer(
        {
            "id": erased.key,
            "rows": erased.rows,
            "memories": list(erased.memory_ids),
            "kept_memory_count": erased.kept_memory_count,
        },
        f"erased session {erased.key}: {rows}",
        f"{len(erased.memory_ids)} memories erased, {erased.kept_memory_count} kept",
    )


def find_session(memory: Memory, key: str) -> SessionRecord:
    """Return the session with this key, or the only one whose key starts with it."""
    store, user = memory.services.store, memory.scope.user
    try:
        return store.session(user, key)
    except NotFound:
        recent = store.sessions(user, SESSIONS_LIMIT_MAX)
        matches = [session for session in recent if session.key.startswith(key)]
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
    rows = [
        {
            "flow": flow,
            **RecordView("name budget_ms about location").json(stage),
            **{ms: took.get((flow, stage.name), {}).get(ms) for ms in ("p50_ms", "p95_ms")},
        }
        for flow, stages in FLOWS.items()
        for stage in stages
    ]
    return _STAGES.answer(rows)


# -- why and backtest -------------------------------------------------------------------------

SESSIONS_MAX = 1_000
# The table shows the features with the largest effect; `--json` has all of them.
_FEATURES_SHOWN = 12
Explained = Mapping[str, Any]
_PARTS = RecordView(
    Field("name", "composite", style="cyan"),
    Field("value", "value", show=_decimal),
    Field("weight", "weight", show=_short),
    Field("adds", "adds", show=_decimal),
)
_FEATURES = RecordView(
    Field("name", "feature", style="cyan"),
    Field("value", "value", show=_decimal),
    Field("within_session", "within session", show=number("+.2f")),
    Field("weight", "weight", show=number("+.3f")),
    Field("adds", "adds", show=number("+.3f")),
)
_SEARCHES = RecordView(
    Field("", "search", lambda one: f"{one['surface']} {one['number']}", style="cyan"),
    Field("formula_rank", "formula"),
    Field("", "learned", lambda one: f"{one['learned_rank']} (v{one['model_version']})"),
    Field("candidates", "of"),
    Field("alpha", "alpha", show=number("g")),
    Field("was_shown", "returned"),
    Field("label", "label", show=_decimal),
)
_METHODS = RecordView(
    Field("id", "ranking", style="cyan"),
    Field("", "NDCG@10", "ndcg.mean", _decimal),
    Field("", "95 %", "ndcg", lambda ndcg: f"{_decimal(ndcg['low'])} .. {_decimal(ndcg['high'])}"),
    Field("quarters", "by quarter", show=lambda values: " ".join(map(_short, values))),
    Field("statement", "against the baseline", wraps=True),
)


@command("why", "meritory why 01JCA2 --session 7f3c2a")
@click.argument("memory_name", metavar="MEMORY")
@click.option("--session", "session", required=True, metavar="KEY", help="The session.")
def why(memory_name: str, session: str) -> Answer:
    """Show every number that ranked a memory in a session, shown or not.

    MEMORY is an id, the beginning of one, or its handle in the session (m1).
    """
    with opened(quiet=True) as memory:
        explained = memory.why(memory_name, find_session(memory, session).key)
    return Answer(explained, *why_blocks(explained))


def why_blocks(explained: Explained) -> list[Block]:
    """Return the output of `meritory why` for people."""
    verdict = "shown" if explained["was_injected"] else "not shown"
    if not explained["was_candidate"]:
        verdict = "not a candidate"
    pairs = [
        ("memory", explained["id"]),
        ("content", explained["content"] or "(erased)"),
        ("session", explained["session"]),
        ("verdict", verdict),
        ("because", "\n".join(explained["reasons"])),
    ]
    searches = _SEARCHES.blocks(explained["searches"], "")
    if not explained["was_candidate"]:
        return [Fields(pairs), *searches]
    blocks: list[Block] = [Fields([*pairs, *_numbers(explained)]), *searches]
    blocks += _PARTS.blocks(explained["baseline"]["parts"], "")
    weighed = [one for one in explained["predictor"]["features"] if "adds" in one]
    if weighed:
        largest = weighed[:_FEATURES_SHOWN]
        amount = f"{len(largest)} of {len(weighed)} features"
        note(f"the {amount} with the largest effect; --json has all of them")
        blocks += _FEATURES.blocks(largest, "")
    return blocks


def _numbers(explained: Explained) -> list[tuple[str, str]]:
    predictor, baseline = explained["predictor"], explained["baseline"]
    fusion, diversity = explained["fusion"], explained["diversity"]
    first = f"rank {text(explained['baseline_rank'])}, composite {_decimal(baseline['composite'])}"
    if past := baseline.get("history"):
        first += f" (recency counts {past['recency']:.0%}, usefulness {past['usefulness']:.0%})"
    model = f"v{predictor['model_version']} {predictor['scorer']}: " if predictor["scorer"] else ""
    learned = f"rank {text(explained['predictor_rank'])}, score {_decimal(predictor['score'])}"
    remark = f" ({predictor['note']})" if predictor["note"] else ""
    pairs = [
        ("found by", ", ".join(explained["origins"]) or explained["source"]),
        ("rank", text(explained["rank"])),
        ("baseline", first),
        ("predictor", f"{model}{learned}{remark}"),
    ]
    if fusion is not None:
        fused = f"{fusion['score']:.5f} (alpha {fusion['alpha']:g}, k {fusion['k']})"
        if diversity["was_lowered"]:
            fused += f", times {diversity['factor']:.2f} for repeating others"
        pairs.append(("fused", fused))
    rule = explained["label_parts"].get("rule")
    evidence = (
        f"judge {_decimal(explained['relevance_score'])}, agent "
        f"{_decimal(explained['agent_relevance_score'])}, {explained['fts_hit_count']} hits"
    )
    label = _decimal(explained["label"]) + (f" ({rule})" if rule else "")
    return [*pairs, ("label", label), ("evidence", evidence)]


@command("backtest", "meritory backtest --limit 200")
@limit_option(SESSIONS_MAX, SESSIONS_MAX, "How many of the latest sessions.")
def backtest(limit: int) -> Answer:
    """Rank your own past sessions again with every ranking method.

    Each method is compared with the memories that helped, as NDCG@10. A difference whose interval
    includes 0 may be chance.
    """
    from meritory.engine.predictor.backtest import backtest as replay

    with opened(quiet=True) as memory, bar("replaying"):
        result = replay(memory.services, memory.scope.user, limit)
    note(result["note"])
    head = f"{result['sessions']} sessions, {result['since'][:10]} to {result['until'][:10]}"
    return Answer(result, head, _METHODS.table(result["results"]))
