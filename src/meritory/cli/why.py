"""Commands that explain a ranking: why, backtest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from meritory.cli.command import command, limit_option, note
from meritory.cli.context import opened
from meritory.cli.output import Answer, Block, Field, Fields, Lines, RecordView, bar, number, text
from meritory.cli.sessions import find_session

SESSIONS_MAX = 1_000
# The table shows the features with the largest effect; `--json` has all of them.
_FEATURES_SHOWN = 12
Explained = Mapping[str, Any]
_decimal = number(".3f")
_PARTS: RecordView[Explained] = RecordView(
    Field("name", "composite", style="cyan"),
    Field("value", "value", show=_decimal),
    Field("weight", "weight", show=number(".2f")),
    Field("adds", "adds", show=_decimal),
)
_FEATURES: RecordView[Explained] = RecordView(
    Field("name", "feature", style="cyan"),
    Field("value", "value", show=_decimal),
    Field("within_session", "within session", show=number("+.2f")),
    Field("weight", "weight", show=number("+.3f")),
    Field("adds", "adds", show=number("+.3f")),
)
_METHODS: RecordView[Explained] = RecordView(
    Field("id", "ranking", style="cyan"),
    Field("", "NDCG@10", lambda method: method["ndcg"]["mean"], _decimal),
    Field(
        "",
        "95 %",
        lambda method: method["ndcg"],
        lambda ndcg: f"{_decimal(ndcg['low'])} .. {_decimal(ndcg['high'])}",
    ),
    Field("quarters", "by quarter", show=lambda values: " ".join(map(number(".2f"), values))),
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
    return Answer(explained, why_blocks(explained))


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
    if not explained["was_candidate"]:
        return [Fields(pairs)]
    blocks: list[Block] = [Fields([*pairs, *_numbers(explained)])]
    blocks += _PARTS.blocks(explained["baseline"]["parts"], "")
    weighed = [one for one in explained["predictor"]["features"] if "adds" in one]
    if weighed:
        largest = weighed[:_FEATURES_SHOWN]
        note(
            f"the {len(largest)} of {len(weighed)} features with the largest effect;"
            " --json has all of them"
        )
        blocks += _FEATURES.blocks(largest, "")
    return blocks


def _numbers(explained: Explained) -> list[tuple[str, str]]:
    predictor, baseline = explained["predictor"], explained["baseline"]
    fusion, diversity = explained["fusion"], explained["diversity"]
    history = baseline.get("history")
    trust = ""
    if history is not None:
        trust = (
            f" (recency counts {history['recency']:.0%}, usefulness {history['usefulness']:.0%})"
        )
    model = f"v{predictor['model_version']} {predictor['scorer']}: " if predictor["scorer"] else ""
    pairs = [
        ("found by", ", ".join(explained["origins"]) or explained["source"]),
        ("rank", text(explained["rank"])),
        (
            "baseline",
            f"rank {text(explained['baseline_rank'])},"
            f" composite {_decimal(baseline['composite'])}{trust}",
        ),
        (
            "predictor",
            f"{model}rank {text(explained['predictor_rank'])}, score {_decimal(predictor['score'])}"
            + (f" ({predictor['note']})" if predictor["note"] else ""),
        ),
    ]
    if fusion is not None:
        lowered = f", times {diversity['factor']:.2f} for repeating others"
        pairs.append(
            (
                "fused",
                f"{fusion['score']:.5f} (alpha {fusion['alpha']:g}, k {fusion['k']})"
                + (lowered if diversity["was_lowered"] else ""),
            )
        )
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
    return Answer(result, [Lines([head]), _METHODS.table(result["results"])])
