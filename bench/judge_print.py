"""Print the figures of the judge, and of fits of its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.judge_figures import MIN_BIN_COUNT, Figures, SetFigures, set_figures
from bench.judge_fit import SHIPPED, log_loss
from bench.judge_verdicts import Trace, joined
from meritory.text.judge.evidence import Weights


def show(name: str, found: SetFigures, before: SetFigures | None = None) -> None:
    """Print the figures of one part of a set, with those of version 0.1 for comparison."""
    print(f"\n{name}: {found.sessions} sessions, {found.candidates} candidates, {found.used} used")
    recalls = [f"P@{recall:.3f}" for recall in found.chances.precision_at]
    titles = ["scores", "helped", "P", "R", *recalls]
    print(f"  {'':22s}" + "".join(f"{title:>9s}" for title in titles))
    rows = {"chances": found.chances, "labels": found.labels}
    if before is not None:
        rows |= {"version 0.1, chances": before.chances, "version 0.1, labels": before.labels}
    for title, one in rows.items():
        at = [one.precision_at.get(recall, float("nan")) for recall in found.chances.precision_at]
        shares = "".join(f"{value:9.3f}" for value in (one.precision, one.recall, *at))
        print(f"  {title:22s}{one.count:9d}{one.helped_count:9d}{shares}")
    print("  mean score > share that helped (count), by tenths:")
    for title, one in rows.items():
        print(f"  {title:22s}{bins_line(one)}")
        gap = f"largest gap of a tenth with {MIN_BIN_COUNT} scores: {one.largest_gap:.3f}"
        print(f"  {'':22s}{gap}")
    old = "" if before is None else f", version 0.1 {before.teaching:.3f}"
    print(f"  sessions that teach something: {found.teaching:.3f}{old}")


def bins_line(found: Figures) -> str:
    """Return the tenths of the scale in one line."""
    return "  ".join(f"{one.mean:.2f}>{one.share:.2f} ({one.count})" for one in found.bins)


def show_fit(
    name: str, fitted: Weights, tuning: Sequence[Trace], reported: Sequence[Trace]
) -> None:
    """Print fitted weights beside the shipped ones, with the figures of both."""
    shipped = SHIPPED[name]
    print(f"\n{name}: {'shipped':>20s}{'fitted':>10s}")
    print(f"  {'bias':24s}{shipped.bias:10.2f}{fitted.bias:10.2f}")
    print(f"  {'limit':24s}{shipped.limit:10.2f}{fitted.limit:10.2f}")
    for signal, weight in shipped.by_signal.items():
        print(f"  {signal:24s}{weight:10.2f}{fitted.by_signal[signal]:10.2f}")
    both = {"shipped": shipped, "fitted": fitted}
    for title, part in (("tuning", tuning), ("reported", reported)):
        sample = joined(part, name)
        losses = "".join(f"{log_loss(weights, sample):10.2f}" for weights in both.values())
        print(f"  {f'log loss x 1000, {title}':24s}{losses}")
    print("  reported part, labels without what the user corrected:")
    for title, weights in both.items():
        changed = {**SHIPPED, name: weights}
        found = set_figures([trace.rejudged(changed) for trace in reported])
        print(f"  {title:10s}{_line(found)}")
        print(f"  {'':10s}{bins_line(found.chances)}")


def show_limits(losses: Mapping[float, float]) -> None:
    """Print the loss of each limit of a claim's chance."""
    pairs = "  ".join(f"{limit:g}: {loss:.2f}" for limit, loss in losses.items())
    print(f"\nlimit: log loss x 1000, one person under the weights of the other:  {pairs}")


def _line(found: SetFigures) -> str:
    parts = [
        f"{title} P {one.precision:.3f} R {one.recall:.3f} gap {one.largest_gap:.3f}"
        for title, one in (("chances", found.chances), ("labels", found.labels))
    ]
    return "; ".join([*parts, f"teaching {found.teaching:.3f}"])
