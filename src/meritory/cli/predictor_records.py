"""Commands that list the predictor's records: comparisons, audit, training, drift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import note, opened
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Column, Fields, Lines, Table
from meritory.cli.sessions import found_session
from meritory.domain.codec import moment_text, parse_moment

if TYPE_CHECKING:
    from datetime import datetime

    from meritory.domain.predictor import Comparison, TrainingRun
    from meritory.engine.predictor.status import SessionAudit

LIST_LIMIT, LIST_LIMIT_MAX = 20, 1_000
OFFSET_MAX = 1_000_000
_ORDERS = {"predictor": "better", "baseline": "worse", "tie": "equal", None: "not counted"}
_COMPARISONS = (
    Column("session", "cyan"),
    Column("when", "dim"),
    Column("project"),
    Column("model"),
    Column("learned"),
    Column("baseline"),
    Column("margin"),
    Column("learned order"),
    Column("success"),
    Column("alpha"),
    Column("not counted because", wraps=True),
)
_CANDIDATES = (
    Column("rank"),
    Column("baseline"),
    Column("learned"),
    Column("shown", "cyan"),
    Column("found by"),
    Column("final"),
    Column("judged"),
    Column("label"),
    Column("memory", wraps=True),
)
_EVENTS = (Column("when", "dim"), Column("event", "cyan"), Column("details", wraps=True))
_RUNS = (
    Column("when", "dim"),
    Column("model", "cyan"),
    Column("because of"),
    Column("sessions"),
    Column("loss"),
    Column("seconds"),
    Column("NDCG@10"),
    Column("difference"),
    Column("accepted"),
    Column("refused by", wraps=True),
)
_WINDOWS = (
    Column("since"),
    Column("until"),
    Column("sessions"),
    Column("new"),
    Column("old"),
    Column("signal"),
)

_limit = click.option(
    "--limit",
    default=LIST_LIMIT,
    show_default=True,
    type=click.IntRange(1, LIST_LIMIT_MAX),
    help="At most so many.",
)


# -- comparisons ------------------------------------------------------------------------------


@command("comparisons", "meritory predictor comparisons --winner baseline --min-margin 0.1")
@click.option(
    "--winner",
    type=click.Choice(["predictor", "baseline", "tie"]),
    help="Only sessions in which this order was the better one.",
)
@click.option(
    "--counted/--not-counted",
    "is_counted",
    default=None,
    help="Only sessions that moved the success rate, or only the others.",
)
@click.option(
    "--min-margin",
    type=click.FloatRange(0.0, 1.0),
    help="Only differences in NDCG@10 of at least this, in either direction.",
)
@click.option("--since", metavar="TIME", help="Only from this date or time on.")
@click.option("--until", metavar="TIME", help="Only up to this date or time.")
@_limit
@click.option(
    "--offset", default=0, type=click.IntRange(0, OFFSET_MAX), help="Skip so many of the latest."
)
def comparisons(
    winner: Any,
    is_counted: bool | None,
    min_margin: float | None,
    since: str | None,
    until: str | None,
    limit: int,
    offset: int,
) -> Answer:
    """List how the learned order and the baseline compared in each session, latest first.

    Both are measured by NDCG@10 against the labels of the session.
    """
    from meritory.domain.predictor import ComparisonQuery
    from meritory.server.payload import to_json
    from meritory.server.routes.predictor import ComparisonOut

    query = ComparisonQuery(
        winner=winner,
        ema_updated=is_counted,
        min_margin=min_margin,
        since=None if since is None else parse_moment(since, "since"),
        until=None if until is None else parse_moment(until, "until"),
        limit=limit,
        offset=offset,
    )
    with opened(quiet=True) as memory:
        found = memory.services.store.comparisons(memory.scope.user, query)
    more = offset + limit if len(found) == limit else None
    if not found:
        note("no such comparisons; a session is compared when it has ended and was judged")
    plain = {"results": [to_json(ComparisonOut.keyed(one)) for one in found], "next": more}
    rows = [_comparison_row(one) for one in found]
    return Answer(plain, [Table(_COMPARISONS, rows)] if rows else [])


def _comparison_row(one: Comparison) -> tuple[str, ...]:
    return (
        one.session_key,
        _when(one.at),
        one.project or "-",
        "-" if one.model_version is None else f"v{one.model_version}",
        _number(one.predictor_ndcg),
        _number(one.baseline_ndcg),
        "-" if one.margin is None else f"{one.margin:+.3f}",
        _ORDERS[one.winner],
        f"{one.success_rate:.2f}",
        f"{one.alpha:g}",
        one.reason or "",
    )


# -- audit ------------------------------------------------------------------------------------


@command("audit", "meritory predictor audit 7f3c2a")
@click.argument("key")
@_limit
def audit(key: str, limit: int) -> Answer:
    """Show how a session was ranked: both orders, labels, the comparison and every event.

    KEY is the session's key as `meritory sessions` prints it, or the beginning of one. --limit is
    the number of candidates.
    """
    from msgspec import structs

    from meritory.engine.predictor import status as records
    from meritory.server.payload import to_json
    from meritory.server.routes.predictor import Audit

    with opened(quiet=True) as memory:
        services, user = memory.services, memory.scope.user
        found = records.audit(services, user, found_session(memory, key).key)
        shown = found.candidates[:limit]
        texts = {
            name: one.content
            for name, one in services.store.memories(user, [c.memory_id for c in shown]).items()
        }
    if len(shown) < len(found.candidates):
        note(f"{len(found.candidates) - len(shown)} more candidates; --limit shows them")
    whole = Audit.of(found)
    plain: dict[str, Any] = to_json(structs.replace(whole, results=whole.results[:limit]))
    return Answer(plain, _audit_blocks(found, limit, texts))


def _audit_blocks(found: SessionAudit, limit: int, texts: dict[str, str]) -> list[Block]:
    blocks: list[Block] = [Fields(_audit_pairs(found))]
    candidates = [
        (
            str(one.candidate.rank or "-"),
            _whole(one.candidate.baseline_rank),
            _whole(one.candidate.predictor_rank),
            one.handle or "-",
            ", ".join(one.candidate.origins) or one.candidate.source,
            f"{one.candidate.final_score:.4f}",
            _number(one.relevance_score),
            _number(one.label),
            texts.get(one.memory_id, "(erased)"),
        )
        for one in found.candidates[:limit]
    ]
    if candidates:
        blocks += [Lines([""]), Table(_CANDIDATES, candidates)]
    events = [
        (
            f"{event.at:%H:%M:%S}",
            event.name,
            ", ".join(f"{name} {_value(value)}" for name, value in event.details.items()),
        )
        for event in found.events
    ]
    return [*blocks, Lines([""]), Table(_EVENTS, events)] if events else blocks


def _audit_pairs(found: SessionAudit) -> list[tuple[str, str]]:
    session, compared = found.session.session, found.comparison
    pairs = [
        ("session", session.key),
        ("state", session.state),
        ("project", session.project or "-"),
        ("started", f"{_when(session.started_at)} UTC"),
        ("alpha", f"{session.alpha:g}"),
    ]
    if compared is None:
        return [*pairs, ("learned order", "not compared yet")]
    why = f": {compared.reason}" if compared.reason else ""
    return [
        *pairs,
        ("learned order", _ORDERS[compared.winner] + why),
        (
            "NDCG@10",
            f"learned {_number(compared.predictor_ndcg)},"
            f" baseline {_number(compared.baseline_ndcg)}",
        ),
        ("success rate", f"{compared.success_rate:.2f} after it"),
    ]


# -- training and drift -----------------------------------------------------------------------


@command("training", "meritory predictor training --limit 5")
@_limit
def training(limit: int) -> Answer:
    """List trainings and rollbacks with their gates, latest first.

    NDCG@10 and the difference to the model before are measured on sessions kept out of training.
    """
    from meritory.server.payload import to_json

    with opened(quiet=True) as memory:
        found = memory.services.store.training_runs(memory.scope.user, limit)
    if not found:
        note("no model was trained yet; `meritory predictor status` says what is missing")
    plain = [{"id": moment_text(one.at), **to_json(one)} for one in found]
    rows = [_run_row(one) for one in found]
    return Answer({"results": plain}, [Table(_RUNS, rows)] if rows else [])


def _run_row(run: TrainingRun) -> tuple[str, ...]:
    delta = run.canary_ndcg_delta
    refused = ", ".join(str(one["name"]) for one in run.gates if not one["passed"])
    return (
        _when(run.at),
        f"v{run.model_version} {run.scorer}",
        run.reason,
        str(run.sample_count),
        _number(run.loss),
        f"{run.duration_ms / 1000:.1f}",
        _number(run.canary_ndcg),
        "-" if delta is None else f"{delta:+.3f}",
        "yes" if run.is_accepted else "no",
        run.error or refused,
    )


@command("drift", "meritory predictor drift")
@_limit
def drift(limit: int) -> Answer:
    """Show whether the predictor or the judge changed over time.

    The signal is how much more the judge liked memories of under 7 days than those of over 30,
    in windows of sessions, oldest first. --limit is the number of the latest windows.
    """
    from meritory.engine.predictor import status

    with opened(quiet=True) as memory:
        found = status.drift(memory.services, memory.scope.user)
    windows = found["results"][-limit:]
    pairs = [
        ("success rate", f"{found['success_rate']:.2f}"),
        ("low in a row", f"{found['low_streak']} of {found['drift_reset_window']} sessions"),
        ("resets", ", ".join(one["at"][:10] for one in found["resets"]) or "none"),
        ("judge", _number(found["scorer_drift_signal"])),
    ]
    rows = [
        (
            one["since"][:10],
            one["until"][:10],
            str(one["sessions"]),
            str(one["young_labels"]),
            str(one["old_labels"]),
            _number(one["signal"]),
        )
        for one in windows
    ]
    blocks: list[Block] = [Fields(pairs)]
    if rows:
        blocks += [Lines([""]), Table(_WINDOWS, rows)]
    return Answer({**found, "results": windows}, blocks)


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
