"""What a run found, as plain values: to be shown, saved and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from meritory.domain.errors import InputError
from meritory.engine.quality.saved_runs import FORMAT
from meritory.lab.measure import ProbeOutcome
from meritory.lab.probes import set_hash
from meritory.rank import bootstrap
from meritory.rank import metrics as probes
from meritory.rank.metrics import front

# -- two runs -------------------------------------------------------------------------------


# What a change must not lose; p@5 is told and not judged.
JUDGED = ("p@1", "p@3", "mrr", "in_prompt")


_TOLD_ONLY = "p@5"


_DECIMALS = 6


_SHORT_HASH_CHARS = 12


def result(outcomes: Sequence[ProbeOutcome], **about: Any) -> dict[str, Any]:
    """The figures of a run with one entry for each probe; `about` is what it was made under."""
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
        "figures": figures(hits),
        "latency_ms": {name: round(value, 3) for name, value in probes.latency_ms(hits).items()},
        "tags": {
            tag: {"scored": len(some), **means(some)} for tag, some in probes.by_tag(hits).items()
        },
        "results": [_entry(one) for one in outcomes],
    }


def figures(hits: Sequence[probes.ProbeHit]) -> dict[str, dict[str, float]]:
    """Every metric with its interval, as plain values."""
    return {
        name: {"mean": _cut(one.mean), "low": _cut(one.low), "high": _cut(one.high)}
        for name, one in probes.figures(hits).items()
    }


def means(hits: Sequence[probes.ProbeHit]) -> dict[str, float]:
    """Every metric's mean alone."""
    return {name: _cut(one.mean) for name, one in probes.figures(hits).items()}


def _cut(value: float) -> float:
    return round(value, _DECIMALS)


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


def compared(
    before: Mapping[str, Any], after: Mapping[str, Any], margin: float = bootstrap.MARGIN
) -> dict[str, Any]:
    """Two runs of the same probes, probe by probe, and whether the second lost anything."""
    if before["set_hash"] != after["set_hash"]:
        left, right = (one["set_hash"][:_SHORT_HASH_CHARS] for one in (before, after))
        raise InputError(
            f"the runs asked different probes (sets {left} and {right}), so they say nothing about "
            "each other",
            hint="run one of the files again for both",
        )
    hits = _hits(before), _hits(after)
    shared = [key for key in hits[0] if key in hits[1]]
    sides = [[side[key] for key in shared] for side in hits]
    told = {
        metric: _judged(metric, sides[0], sides[1], margin)
        for metric in probes.METRICS
        if all(metric in run["figures"] for run in (before, after))
    }
    verdict = bootstrap.overall([told[name]["verdict"] for name in JUDGED if name in told])
    return {
        "set_hash": before["set_hash"],
        "verdict": verdict,
        "margin": margin,
        "pairs": len(shared),
        "left_out": before["probes"] - len(shared),
        "statement": statement(verdict, told, len(shared)),
        "metrics": told,
    }


def _hits(run: Mapping[str, Any]) -> dict[str, probes.ProbeHit]:
    return {
        one["key"]: probes.ProbeHit(rank=one["rank"], in_prompt=one.get("in_prompt"))
        for one in run["results"]
        if "rank" in one
    }


def _judged(
    metric: str,
    before: Sequence[probes.ProbeHit],
    after: Sequence[probes.ProbeHit],
    margin: float,
) -> dict[str, Any]:
    left, right = probes.values(before, metric), probes.values(after, metric)
    return plain_pair(left, right, margin)


def plain_pair(left: probes.Floats, right: probes.Floats, margin: float) -> dict[str, Any]:
    """A paired comparison as plain values, with the means of both sides."""
    found = bootstrap.compare(left, right, margin)
    if not found.count:
        return {"pairs": 0, "verdict": found.verdict}
    return {
        "before": _cut(float(np.nanmean(left))),
        "after": _cut(float(np.nanmean(right))),
        "mean": _cut(found.mean),
        "low": _cut(found.low),
        "high": _cut(found.high),
        "won": int((right > left).sum()),
        "lost": int((right < left).sum()),
        "pairs": found.count,
        "verdict": found.verdict,
    }


def statement(verdict: str, told: Mapping[str, Mapping[str, Any]], count: int) -> str:
    """What a comparison comes to, in one sentence."""
    judged = {name: one for name, one in told.items() if name != _TOLD_ONLY}
    if verdict == bootstrap.PASS:
        if all(not one["won"] and not one["lost"] for one in judged.values()):
            return f"every one of {count} probes was answered as before"
        return "nothing was lost beyond the margin"
    if verdict == bootstrap.FAIL:
        lost = [name for name, one in judged.items() if one["verdict"] == bootstrap.FAIL]
        return f"{', '.join(lost)} lost more than the margin, beyond doubt"
    if count < bootstrap.MIN_PAIRS:
        return f"{count} pairs; it takes {bootstrap.MIN_PAIRS} to say anything"
    open_ = [name for name, one in judged.items() if one["verdict"] == bootstrap.UNDECIDED]
    return f"{', '.join(open_)} may or may not have lost more than the margin: add probes"


Values = Mapping[str, str]
Measured = Callable[[Values], dict[str, Any]]
# One setting at a time: what is asked of it first is whether it matters at all.
DEFAULT_GRID: Mapping[str, tuple[str, ...]] = {
    "ranking.assistant_derived": ("0.5", "0.6", "0.7", "0.85", "1"),
    "ranking.episode_summary": ("0.7", "0.85", "1"),
    "ranking.confidence_slope": ("0", "0.15", "0.3", "0.5"),
    "recall.relevance_floor": ("0.05", "0.15", "0.25"),
    "recall.vector_weight": ("0.2", "0.35", "0.5"),
}


def sweep(points: Sequence[Values], measured: Measured, margin: float) -> dict[str, Any]:
    """Every point held against the first one, which is what serves today."""
    runs = [measured(point) for point in points]
    base = runs[0]
    rows = []
    for point, run in zip(points, runs, strict=True):
        against = compared(base, run, margin)
        rows.append(
            {
                "id": label(point),
                "settings": dict(point),
                "scored": run["scored"],
                "figures": run["figures"],
                "latency_ms": run["latency_ms"],
                "against": None if run is base else against,
                "differs": run is not base and differs(against),
            }
        )
    metrics = [name for name in JUDGED if name in base["figures"]]
    best = front(
        [{name: row["figures"][name]["mean"] for name in metrics} for row in rows], metrics
    )
    for place, row in enumerate(rows):
        row["on_front"] = place in best
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


def label(point: Values) -> str:
    """A configuration in a few words."""
    return ", ".join(f"{name}={value}" for name, value in point.items()) or "as it is"


def differs(against: Mapping[str, Any]) -> bool:
    """Whether any metric moved by more than its interval."""
    told = [one for name, one in against["metrics"].items() if name in JUDGED and one["pairs"]]
    return any(one["low"] > 0.0 or one["high"] < 0.0 for one in told)


def _statement(rows: Sequence[Mapping[str, Any]]) -> str:
    others = rows[1:]
    count = rows[0]["scored"]
    if count < bootstrap.MIN_PAIRS:
        return (
            f"only {count} probes were scored; choosing a configuration takes at least"
            f" {bootstrap.MIN_PAIRS}"
        )
    clear = [row for row in others if row["differs"]]
    if not clear:
        return (
            "nothing here differs from what serves today by more than its interval: "
            "there is no reason to change anything"
        )
    good = [row for row in clear if row["against"]["verdict"] == bootstrap.PASS]
    told = f"{len(clear)} of {len(others)} differ from what serves today by more than chance"
    if not good:
        return f"{told}, and none of them without a loss"
    return (
        f"{told}, {len(good)} without a loss; the best of many is a little lucky, so check it on "
        "probes that were not used here"
    )
