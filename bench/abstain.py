"""When recall knows nothing: python -m bench.abstain [--fit] [--json FILE].

Asks the questions of RealMem people, LoCoMo conversations and BEAM chats, and as many questions of
other people to the same stores. Reports on people and halves that the weights were not fitted on:

- how many off-topic questions get no result, against the share of R@10 that own questions lose;
- how far the scores are from the share of results that answer (expected calibration error).

`--fit` fits the weights on the other half and prints them as `meritory.rank.relevance` has them. A
control gives every question the scores of another one. Exits with 1 when a bar is missed or the
control meets them.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from bench import report
from bench.abstain_data import SEED, SETS, Asked, ask_all
from bench.datasets import MissingData
from meritory.domain.policy import KNOWN_SCORE
from meritory.rank.relevance import NAMES, WORD_NAMES, ScoreWeights, numbers_of, places

QUIET_BAR = 0.75
LOSS_BAR = 0.05
ERROR_BAR = 0.05
BINS = 10
CUTS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.10, 0.12, 0.15, 0.20, 0.25, 0.30, 0.40)
# These speak against an answer, all others for it; a weight of the other sign is left out.
_AGAINST = frozenset({"unknown", "memory_count"})
_RIDGE = 3e-3
_STEPS = 50

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point:
    """What one cut does."""

    cut: float
    # The share of off-topic questions without a result, and of R@10 that own questions lose.
    quiet: float
    loss: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of one half of a data set."""

    data: str
    own_count: int
    curve: tuple[Point, ...]
    # At the cut that is shipped, and the best at the loss that is allowed.
    shipped: Point
    best: Point
    # Expected calibration error over all results, those of own questions, and first results.
    error: float
    own_error: float
    first_error: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and return 0, or 1 when a bar is missed or the control meets all of them."""
    options = _options(arguments)
    asked: list[Asked] = []
    for name in options.only.split(","):
        try:
            asked += ask_all(name)
        except MissingData as missing:
            print(missing)
    if not asked:
        return 0
    if options.fit:
        tuning = [one for one in asked if one.is_tuning]
        for label, names in (("WEIGHTS", NAMES), ("WORD_WEIGHTS", WORD_NAMES)):
            print(written(label, fit(tuning, names)))
        return 0
    halves = {
        half: [
            outcome(name, part)
            for name in SETS
            if (part := [o for o in asked if o.data == name and o.is_tuning == (half == "tuning")])
        ]
        for half in ("tuning", "reported")
    }
    shuffled = [outcome(one.data, control(asked, one.data)) for one in halves["reported"]]
    for half, outcomes in halves.items():
        _print(half, outcomes)
    _print("control: reported, with the scores of other questions", shuffled)
    misses = missed(halves["reported"])
    for miss in misses:
        print("MISSED", miss)
    is_blind = not missed(shuffled)
    if is_blind:
        print("BLIND: the control meets every bar")
    if options.json is not None:
        figures = {half: [_plain(one) for one in outcomes] for half, outcomes in halves.items()}
        control_figures = [_plain(one) for one in shuffled]
        report.write({**figures, "control": control_figures, "missed": misses}, options.json)
    return int(bool(misses) or is_blind)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.abstain", description=__doc__)
    parser.add_argument("--only", default=",".join(SETS), help="data sets, separated by commas")
    parser.add_argument("--fit", action="store_true", help="print weights fitted on one half")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args(arguments)


# -- figures --------------------------------------------------------------------------------


def outcome(data: str, asked: Sequence[Asked]) -> Outcome:
    """Return the figures of the questions of one half."""
    own = [one for one in asked if one.answer_count is not None]
    tops = np.sort([_top(one) for one in asked if one.answer_count is None])
    found = np.array([sum(one.served) / (one.answer_count or 1) for one in own])
    own_tops = np.array([_top(one) for one in own])

    def point(cut: float) -> Point:
        quiet = float(np.searchsorted(tops, cut)) / max(len(tops), 1)
        return Point(cut, quiet, float(found[own_tops < cut].sum() / found.sum()))

    allowed = [one for one in map(point, np.unique(tops)) if one.loss <= LOSS_BAR]
    return Outcome(
        data,
        len(own),
        tuple(map(point, CUTS)),
        point(KNOWN_SCORE),
        max(allowed, key=lambda one: one.quiet),
        calibration_error([pair for one in asked for pair in _pairs(one)]),
        calibration_error([pair for one in own for pair in _pairs(one)]),
        calibration_error([pair for one in own for pair in _pairs(one)[:1]]),
    )


def _top(one: Asked) -> float:
    return one.scores[0] if one.scores else 0.0


def _pairs(one: Asked) -> list[tuple[float, bool]]:
    return list(zip(one.scores, one.served, strict=True))


def calibration_error(pairs: Sequence[tuple[float, bool]]) -> float:
    """Return the mean distance, over ten bins, of the scores from the share that answers."""
    scores, answers = np.array(pairs, np.float64).reshape(-1, 2).T
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    gaps = [
        abs(scores[bins == one].mean() - answers[bins == one].mean()) * np.mean(bins == one)
        for one in np.unique(bins)
    ]
    return float(sum(gaps))


def control(asked: Sequence[Asked], data: str) -> list[Asked]:
    """Return the reported questions of a data set, each with the scores of another one."""
    part = [one for one in asked if one.data == data and not one.is_tuning]
    given = list(part)
    random.Random(SEED).shuffle(given)
    return [
        replace(one, scores=(other.scores + (0.0,) * len(one.served))[: len(one.served)])
        for one, other in zip(part, given, strict=True)
    ]


def missed(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the bars that these figures miss, one line each."""
    found = []
    for one in outcomes:
        if one.best.quiet < QUIET_BAR:
            found.append(
                f"{one.data}: {one.best.quiet:.1%} of the off-topic questions get no result at a"
                f" loss of {one.best.loss:.1%} (bar {QUIET_BAR:.0%})"
            )
        if one.shipped.loss > LOSS_BAR:
            found.append(f"{one.data}: the shipped cut loses {one.shipped.loss:.1%} of R@10")
        if max(one.error, one.own_error) > ERROR_BAR:
            found.append(f"{one.data}: calibration error {max(one.error, one.own_error):.3f}")
    return found


def _print(title: str, outcomes: Sequence[Outcome]) -> None:
    print(f"\n{title}\n")
    print(
        "| data | questions | shipped cut: off-topic quiet, R@10 lost | best at 5% lost |"
        " calibration error: all, own, first |"
    )
    print("|---|---|---|---|---|")
    for one in outcomes:
        print(
            f"| {one.data} | {one.own_count} | {one.shipped.quiet:.1%}, {one.shipped.loss:.1%} |"
            f" {one.best.quiet:.1%} at {one.best.cut:.3f} |"
            f" {one.error:.3f}, {one.own_error:.3f}, {one.first_error:.3f} |"
        )
    print("\n| cut | " + " | ".join(f"{one.data}: quiet, lost" for one in outcomes) + " |")
    print("|---" * (len(outcomes) + 1) + "|")
    for at, cut in enumerate(CUTS):
        points = (one.curve[at] for one in outcomes)
        cells = " | ".join(f"{point.quiet:.1%}, {point.loss:.1%}" for point in points)
        print(f"| {cut:.2f} | {cells} |")


def _plain(one: Outcome) -> dict[str, object]:
    def plain(point: Point) -> dict[str, float]:
        return {"cut": point.cut, "quiet": round(point.quiet, 4), "loss": round(point.loss, 4)}

    return {
        "data": one.data,
        "questions": one.own_count,
        "curve": [plain(point) for point in one.curve],
        "shipped": plain(one.shipped),
        "best": plain(one.best),
        "error": round(one.error, 4),
        "own_error": round(one.own_error, 4),
        "first_error": round(one.first_error, 4),
    }


# -- weights --------------------------------------------------------------------------------


def fit(asked: Sequence[Asked], names: Sequence[str]) -> ScoreWeights:
    """Return the weights of both logistic models; every data set counts the same."""
    read = [one for one in asked if len(one.answers)]
    sizes = {name: sum(len(o.answers) for o in read if o.data == name) for name in SETS}
    share = np.concatenate([np.full(len(o.answers), 1.0 / sizes[o.data]) for o in read])
    share /= share.mean()
    answers = np.concatenate([np.array(o.answers, np.float64) for o in read])
    numbers = [numbers_of(one.match) for one in read]
    used = list(names)
    while True:
        columns = np.stack([np.concatenate([n[name] for n in numbers]) for name in used], axis=1)
        intercept, found = _logistic(columns, answers, share)
        signs = [-1.0 if name in _AGAINST else 1.0 for name in used]
        signed = found * np.array(signs) * columns.std(axis=0)
        if signed.min() >= 0.0:
            break
        # The worst first: the others may then get the sign that they should have.
        del used[int(np.argmin(signed))]
    weights = ScoreWeights(intercept, dict(zip(used, found.tolist(), strict=True)))
    # The place is apart: it must not change which first results are likely.
    total = np.concatenate([weights.sums(one) for one in numbers])
    place = np.concatenate([places(len(one.answers)) for one in read])
    intercept, found = _logistic(np.stack([total, place, total * place], axis=1), answers, share)
    return replace(weights, by_place=(intercept, *found.tolist()))


def _logistic(columns: Floats, answers: Floats, share: Floats) -> tuple[float, Floats]:
    """Return intercept and weights of a logistic regression, by Newton's method."""
    mean, spread = columns.mean(axis=0), columns.std(axis=0) + 1e-9
    scaled = np.column_stack([np.ones(len(columns)), (columns - mean) / spread])
    ridge = _RIDGE * np.diag([0.0, *np.ones(columns.shape[1])])
    beta = np.zeros(scaled.shape[1])
    for _ in range(_STEPS):
        likely = 1.0 / (1.0 + np.exp(-scaled @ beta))
        slope = scaled.T @ (share * (likely - answers)) / share.sum() + ridge @ beta
        bend = (scaled * (share * likely * (1.0 - likely))[:, None]).T @ scaled / share.sum()
        beta -= np.linalg.solve(bend + ridge, slope)
    weights = beta[1:] / spread
    return float(beta[0] - weights @ mean), weights


def written(label: str, weights: ScoreWeights) -> str:
    """Return weights as Python code."""
    lines = [f'        "{name}": {weight:.3f},' for name, weight in weights.by_name.items()]
    return "\n".join(
        (
            f"{label}: Final = ScoreWeights(",
            f"    intercept={weights.intercept:.3f},",
            "    by_name={",
            *lines,
            "    },",
            f"    by_place=({', '.join(f'{one:.3f}' for one in weights.by_place)}),",
            ")",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
