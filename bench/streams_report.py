"""Print the figures of the streams, and return them for the JSON report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bench.streams_figures import LEADS, Figures
from bench.streams_outcome import Outcome
from bench.streams_rows import SERVED
from meritory.rank.metrics import Interval


def show(outcome: Outcome) -> None:
    """Print one run: its candidates, and every ranking by quarter."""
    pool = np.array(outcome.pool_recall)
    scored = int(np.isfinite(pool).sum())
    control = f" ({outcome.control})" if outcome.control else ""
    lines = [
        f"\n{outcome.name}, {outcome.regime}{control}, seed {outcome.seed}: {len(pool)} sessions, "
        f"{scored} scored, pool recall {np.nanmean(pool):.3f}",
        *_table(Figures([outcome])),
    ]
    lines.append(
        f"  active from session {outcome.first_influence}, win rate {outcome.win_rate:.2f}, "
        f"models {max(outcome.version)}, alpha at the end {outcome.alpha[-1]:.2f}"
    )
    lines.append(
        f"  helped labels: precision {outcome.label_precision:.3f}, "
        f"recall {outcome.label_recall:.3f}; harm of the model {outcome.harm:+.4f}"
    )
    print("\n".join(lines), flush=True)


def _table(figures: Figures) -> list[str]:
    """Return a line for each ranking: all sessions, the second half, and each quarter."""
    lines = [f"  {'NDCG@10':24s}{'all':>8s}{'later':>8s}   by quarter"]
    for method in figures.outcomes[0].ndcg:
        quarters = " ".join(f"{value:.3f}" for value in figures.quarters(method))
        whole, later = figures.mean(method), figures.later(method)
        lines.append(f"  {method:24s}{whole:8.3f}{later:8.3f}   {quarters}")
    return lines


def show_all(figures: Figures) -> None:
    """Print one stream over all seeds, with the intervals of its main differences."""
    print(f"\n{figures.line()}")
    if len(figures.outcomes) > 1:
        print("\n".join(_table(figures)))
    for ours, theirs in LEADS:
        found = figures.lead(ours, theirs)
        name = f"{ours} - {theirs}"
        print(f"  {name:24s}{found.mean:+8.4f}   95 % [{found.low:+.4f}, {found.high:+.4f}]")
    if figures.control is not None:
        margins = " ".join(f"{value:+.4f}" for value in figures.text_margins)
        harms = " ".join(f"{value:+.4f}" for value in figures.harms)
        print(f"  served - text by run: {margins}\n  harm of the model by run: {harms}")


def summary(figures: Figures) -> dict[str, object]:
    """Return the figures of a stream as plain values."""
    first = figures.outcomes[0]
    return {
        "name": figures.name,
        "regime": figures.regime,
        "control": figures.control,
        "seeds": [one.seed for one in figures.outcomes],
        "sessions": figures.session_count,
        "scored": int(np.isfinite(first.pool_recall).sum()),
        "pool_recall": _number(figures.pool_recall),
        "first_influence": [one.first_influence for one in figures.outcomes],
        "win_rate": [_number(one.win_rate) for one in figures.outcomes],
        "label_precision": [_number(one.label_precision) for one in figures.outcomes],
        "label_recall": [_number(one.label_recall) for one in figures.outcomes],
        "harm": [_number(value) for value in figures.harms],
        "served_minus_text": [_number(value) for value in figures.text_margins],
        "leads": {
            f"{ours} - {theirs}": _interval(figures.lead(ours, theirs)) for ours, theirs in LEADS
        },
        "methods": {method: _method(figures, method) for method in first.ndcg},
        "alpha": first.alpha,
    }


def _method(figures: Figures, method: str) -> dict[str, object]:
    _, low, high = _interval(figures.interval(method))
    return {
        "ndcg@10": _number(figures.mean(method)),
        "interval": [low, high],
        "second_half": _number(figures.later(method)),
        "quarters": [_number(value) for value in figures.quarters(method)],
        "ratio_second_half": _number(figures.ratio(method)),
    }


def _interval(found: Interval) -> list[float | None]:
    return [_number(value) for value in (found.mean, found.low, found.high)]


def _number(value: float) -> float | None:
    """Return a rounded number; None where there is none, which JSON can hold."""
    return round(value, 5) if np.isfinite(value) else None


def served_figures(path: Path) -> dict[str, float]:
    """Return by stream the served NDCG@10 of a result file of the regime `complete`."""
    streams = json.loads(path.read_text(encoding="utf-8"))["figures"]["streams"]
    return {
        one["name"]: float(one["methods"][SERVED]["ndcg@10"])
        for one in streams
        if one.get("regime", "complete") == "complete" and one.get("control") is None
    }
