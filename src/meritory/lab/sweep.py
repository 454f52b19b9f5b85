"""Many configurations on the same probes: what each is worth, and which no other beats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meritory.lab.results import JUDGED, compared
from meritory.rank import bootstrap
from meritory.rank.probes import front

Values = Mapping[str, str]
Measured = Callable[[Values], dict[str, Any]]
# One setting at a time: what is asked of it first is whether it matters at all.
DEFAULT_GRID: Mapping[str, tuple[str, ...]] = {
    "ranking.weight_assistant_derived": ("0.5", "0.6", "0.7", "0.85", "1"),
    "ranking.weight_episode_summary": ("0.7", "0.85", "1"),
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
