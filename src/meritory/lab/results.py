"""What a run found, as plain values: to be shown, saved and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meritory.domain.errors import InputError
from meritory.engine.quality.saved_runs import FORMAT
from meritory.lab.measure import ProbeOutcome
from meritory.lab.probes import set_hash
from meritory.rank import metrics as probes
from meritory.rank.metrics import front

# The metrics that a change must not lose; p@5 is reported and not judged.
JUDGED = ("p@1", "p@3", "mrr", "in_prompt")

Json = Mapping[str, Any]


def result(outcomes: Sequence[ProbeOutcome], **about: Any) -> dict[str, Any]:
    """Return a run as JSON: its figures and one entry per probe; `about` describes the run."""
    hits = [one.hit for one in outcomes if one.hit is not None]
    ways = Counter(one.anchor.how for one in outcomes)
    return {
        "format": FORMAT,
        "set_hash": set_hash([one.probe for one in outcomes]),
        **about,
        "probes": len(outcomes),
        "scored": len(hits),
        "drifted": ways["drifted"],
        "moved": ways["moved"],
        "anchors": dict(sorted(ways.items())),
        "figures": {
            name: {part: round(getattr(one, part), 6) for part in ("mean", "low", "high")}
            for name, one in probes.figures(hits).items()
        },
        "latency_ms": {name: round(value, 3) for name, value in probes.latency_ms(hits).items()},
        "tags": {
            tag: {
                "scored": len(some),
                **{name: round(one.mean, 6) for name, one in probes.figures(some).items()},
            }
            for tag, some in probes.by_tag(hits).items()
        },
        "results": [_entry(one) for one in outcomes],
    }


def _entry(outcome: ProbeOutcome) -> dict[str, Any]:
    probe, hit = outcome.probe, outcome.hit
    plain: dict[str, Any] = {
        "key": probe.key,
        "question": probe.question,
        "project": probe.project,
        "tags": list(probe.tags),
        "anchor": outcome.anchor.how,
    }
    if hit is None:
        return {**plain, "why": outcome.anchor.why}
    seen = {} if hit.in_prompt is None else {"in_prompt": hit.in_prompt}
    instead = {"instead": outcome.instead} if outcome.instead else {}
    return {**plain, "rank": hit.rank, **seen, **instead}


def compared(before: Json, after: Json, margin: float = probes.MARGIN) -> dict[str, Any]:
    """Compare two runs of the same probes, probe by probe."""
    if before["set_hash"] != after["set_hash"]:
        left, right = (one["set_hash"][:12] for one in (before, after))
        raise InputError(
            f"the runs asked different probes (sets {left} and {right})",
            hint="run the same file for both",
        )
    hits = _hits(before), _hits(after)
    shared = [key for key in hits[0] if key in hits[1]]
    sides = [[side[key] for key in shared] for side in hits]
    metrics = {
        metric: plain_pair(probes.values(sides[0], metric), probes.values(sides[1], metric), margin)
        for metric in probes.METRICS
        if all(metric in run["figures"] for run in (before, after))
    }
    verdict = probes.overall([metrics[name]["verdict"] for name in JUDGED if name in metrics])
    return {
        "set_hash": before["set_hash"],
        "verdict": verdict,
        "margin": margin,
        "pairs": len(shared),
        "left_out": before["probes"] - len(shared),
        "statement": statement(verdict, metrics, len(shared)),
        "metrics": metrics,
    }


def _hits(run: Json) -> dict[str, probes.ProbeHit]:
    return {
        one["key"]: probes.ProbeHit(rank=one["rank"], in_prompt=one.get("in_prompt"))
        for one in run["results"]
        if "rank" in one
    }


def plain_pair(left: probes.Floats, right: probes.Floats, margin: float) -> dict[str, Any]:
    """Return a paired comparison as JSON, with the means of both sides."""
    found = probes.compare(left, right, margin)
    if not found.count:
        return {"pairs": 0, "verdict": found.verdict}
    return {
        "before": round(float(np.nanmean(left)), 6),
        "after": round(float(np.nanmean(right)), 6),
        "mean": round(found.mean, 6),
        "low": round(found.low, 6),
        "high": round(found.high, 6),
        "won": int((right > left).sum()),
        "lost": int((right < left).sum()),
        "pairs": found.count,
        "verdict": found.verdict,
    }


def statement(verdict: str, metrics: Mapping[str, Json], count: int) -> str:
    """Return the result of a comparison in one sentence."""
    judged = {name: one for name, one in metrics.items() if name != "p@5"}
    if verdict == probes.PASS:
        if all(not one["won"] and not one["lost"] for one in judged.values()):
            return f"all {count} probes were answered as before"
        return "nothing was lost beyond the margin"
    if verdict == probes.FAIL:
        lost = [name for name, one in judged.items() if one["verdict"] == probes.FAIL]
        return f"{', '.join(lost)} lost more than the margin"
    if count < probes.MIN_PAIRS:
        return f"{count} pairs; at least {probes.MIN_PAIRS} are needed"
    open_ = [name for name, one in judged.items() if one["verdict"] == probes.UNDECIDED]
    return f"{', '.join(open_)} may or may not have lost more than the margin: add probes"


Values = Mapping[str, str]
# One setting at a time, to see first whether it matters at all.
DEFAULT_GRID: Mapping[str, tuple[str, ...]] = {
    "ranking.assistant_derived": ("0.5", "0.6", "0.7", "0.85", "1"),
    "ranking.episode_summary": ("0.7", "0.85", "1"),
    "ranking.confidence_slope": ("0", "0.15", "0.3", "0.5"),
    "recall.relevance_floor": ("0.05", "0.15", "0.25"),
    "recall.vector_weight": ("0.2", "0.35", "0.5"),
}


def sweep(points: Sequence[Values], runs: Sequence[Json], margin: float) -> dict[str, Any]:
    """Compare the run of every configuration with the first one, which is the current one."""
    base = runs[0]
    rows = []
    for point, run in zip(points, runs, strict=True):
        against = compared(base, run, margin)
        judged = [against["metrics"][name] for name in JUDGED if name in against["metrics"]]
        # Whether any metric moved by more than its interval.
        differs = any(one["pairs"] and (one["low"] > 0 or one["high"] < 0) for one in judged)
        rows.append(
            {
                "id": ", ".join(f"{name}={value}" for name, value in point.items()) or "as it is",
                "settings": dict(point),
                "scored": run["scored"],
                "figures": run["figures"],
                "latency_ms": run["latency_ms"],
                "against": None if run is base else against,
                "differs": run is not base and differs,
            }
        )
    metrics = [name for name in JUDGED if name in base["figures"]]
    best = front(
        [{name: row["figures"][name]["mean"] for name in metrics} for row in rows], metrics
    )
    for index, row in enumerate(rows):
        row["on_front"] = index in best
    return {
        "set_hash": base["set_hash"],
        "probes": base["probes"],
        "scored": base["scored"],
        "drifted": base["drifted"],
        "metrics": metrics,
        "margin": margin,
        "statement": _statement(rows),
        "results": rows,
    }


def _statement(rows: Sequence[Mapping[str, Any]]) -> str:
    others = rows[1:]
    count = rows[0]["scored"]
    if count < probes.MIN_PAIRS:
        return (
            f"only {count} probes were scored; choosing a configuration takes at least"
            f" {probes.MIN_PAIRS}"
        )
    clear = [row for row in others if row["differs"]]
    if not clear:
        return (
            "no configuration differs from the current one by more than its interval: "
            "keep the current one"
        )
    good = [row for row in clear if row["against"]["verdict"] == probes.PASS]
    summary = f"{len(clear)} of {len(others)} differ from the current one by more than chance"
    if not good:
        return f"{summary}, none of them without a loss"
    return (
        f"{summary}, {len(good)} without a loss; the best of many is partly luck, so check it on "
        "other probes"
    )
