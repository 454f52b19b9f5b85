"""Measure the judge that uses no model: python -m bench.judge [--fit] [--json P] [--only SETS].

Real sessions with known truth are judged as the library judges them. Choices are made on the
tuning part of each set, figures come from the reported part: the second half of the coding
sessions, three of RealMem's people. Exits with 1 when a bar is missed:

- agent_entire_s: labels have a precision of .8 at a recall of .6.
- agent_entire_s masked (no paths, no file names): .5 at .3.
- realmem: 1.5 times the precision of version 0.1 at version 0.1's recall, and within .1 of the
  truth in every tenth of the scale with at least 50 scores.
- Stuffed memories gain nothing over honest ones.

`--fit` fits the weights of meritory/text/judge/evidence.py on the tuning parts, and prints them
beside the shipped ones.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from bench import report
from bench.datasets import MissingData
from bench.judge_cases import CODING, MASKED, REALMEM, SETS, CaseSet, load_sets
from bench.judge_figures import RECALLS, SetFigures, rounded, set_figures
from bench.judge_fit import (
    CLAIM,
    DOCUMENT_PENALTY,
    SHIPPED,
    TITLED,
    UNTITLED,
    fit,
    fit_claims,
)
from bench.judge_print import show, show_fit, show_limits
from bench.judge_reference import read_reference
from bench.judge_stuffed import gains, stuffed
from bench.judge_verdicts import Trace, joined, judge_case
from meritory.text.judge.evidence import Weights

# The precision and the recall that labels must have.
MIN_LABELS = {CODING: (0.8, 0.6), MASKED: (0.5, 0.3)}
# The precision over that of version 0.1, at its recall.
MIN_RATIO = {REALMEM: 1.5}
# The largest gap between the mean score and the share that helped.
MAX_GAP = {REALMEM: 0.1}
# Masked memories have no first lines to stuff with, and are the same sessions.
STUFFED_SETS = (CODING, REALMEM)
FITS = {TITLED: CODING, UNTITLED: MASKED, CLAIM: REALMEM}
RESULT = Path("judge.json")

Traces = dict[str, tuple[list[Trace], list[Trace]]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and return 0, or 1 when a bar is missed."""
    options = _options(arguments)
    names = options.only.split(",")
    unknown = set(names) - set(SETS)
    if unknown:
        raise SystemExit(f"unknown sets: {', '.join(sorted(unknown))}. Use {', '.join(SETS)}")
    reference = read_reference()
    found: dict[str, SetFigures] = {}
    means: dict[str, dict[str, float]] = {}
    traces: Traces = {}
    try:
        for one in load_sets(names):
            traces[one.name] = _traces(one, with_tuning=options.fit)
            before, own_recall = reference[one.name]
            judged = [trace.judged for trace in traces[one.name][1]]
            found[one.name] = set_figures(judged, (*RECALLS, own_recall))
            show(f"{one.name}, reported part", found[one.name], before)
            if one.name in STUFFED_SETS:
                means[one.name] = stuffed(one.reported)
                print("  mean label of a stuffed memory:", _line(means[one.name]))
    except MissingData as missing:
        print(missing)
        return 0
    if options.fit:
        show_fits(traces)
    misses = missed_bars(found, reference) + [
        f"{name}: {gain}" for name, each in means.items() for gain in gains(each)
    ]
    for note in gaps_without_bar(found):
        print("NO BAR", note)
    for miss in misses:
        print("MISSED", miss)
    if not misses:
        print("All bars are met.")
    path = options.json or (RESULT if set(names) == set(SETS) else None)
    if path is not None:
        report.write(_result(found, reference, means, misses), path)
    return 1 if misses else 0


def _traces(one: CaseSet, *, with_tuning: bool) -> tuple[list[Trace], list[Trace]]:
    tuning = [judge_case(case) for case in one.tuning] if with_tuning else []
    return tuning, [judge_case(case) for case in one.reported]


def missed_bars(
    found: Mapping[str, SetFigures], reference: Mapping[str, tuple[SetFigures, float]]
) -> list[str]:
    """Return a line for each bar that is missed. A figure that is missing misses its bar."""
    misses = []
    for name, each in found.items():
        labels = each.labels
        precision, recall = MIN_LABELS.get(name, (0.0, 0.0))
        if name in MIN_LABELS and not (labels.precision >= precision and labels.recall >= recall):
            misses.append(
                f"{name}: labels have precision {labels.precision:.3f} at recall"
                f" {labels.recall:.3f}, wanted {precision} at {recall}"
            )
        if name in MIN_RATIO and not ratio(each, *reference[name]) >= MIN_RATIO[name]:
            misses.append(
                f"{name}: precision is {ratio(each, *reference[name]):.2f} times that of version"
                f" 0.1 at recall {reference[name][1]:.3f}, wanted {MIN_RATIO[name]}"
            )
        for kind, gap in _gaps(each).items():
            if name in MAX_GAP and gap > MAX_GAP[name]:
                misses.append(f"{name}: {kind} are off by {gap:.3f}, wanted {MAX_GAP[name]}")
    return misses


def gaps_without_bar(found: Mapping[str, SetFigures]) -> list[str]:
    """Return a line for each gap that would miss the bar, on a set that has none."""
    limit = max(MAX_GAP.values())
    return [
        f"{name}: {kind} are off by {gap:.3f}"
        for name, each in found.items()
        for kind, gap in _gaps(each).items()
        if name not in MAX_GAP and gap > limit
    ]


def _gaps(each: SetFigures) -> dict[str, float]:
    return {"chances": each.chances.largest_gap, "labels": each.labels.largest_gap}


def ratio(each: SetFigures, before: SetFigures, recall: float) -> float:
    """Return the precision of the chances over that of version 0.1, at one recall."""
    return each.chances.precision_at[recall] / before.chances.precision_at[recall]


def show_fits(traces: Traces) -> None:
    """Fit every kind of weights whose set was judged, and print them beside the shipped ones."""
    for name, where in FITS.items():
        if where in traces:
            tuning, reported = traces[where]
            show_fit(name, _fitted(name, tuning), tuning, reported)


def _fitted(name: str, tuning: Sequence[Trace]) -> Weights:
    if name != CLAIM:
        return fit(joined(tuning, name), SHIPPED[name], DOCUMENT_PENALTY)
    people = sorted({trace.judged.stream for trace in tuning})
    folds = [
        joined([trace for trace in tuning if trace.judged.stream == one], name) for one in people
    ]
    fitted, losses = fit_claims(folds)
    show_limits(losses)
    return fitted


def _result(
    found: Mapping[str, SetFigures],
    reference: Mapping[str, tuple[SetFigures, float]],
    means: Mapping[str, Mapping[str, float]],
    misses: Sequence[str],
) -> dict[str, object]:
    sets = {
        name: each.plain() | {"ratio_to_version_0.1": rounded(ratio(each, *reference[name]))}
        for name, each in found.items()
    }
    labels = {
        name: {recipe: round(mean, 4) for recipe, mean in each.items()}
        for name, each in means.items()
    }
    return {"sets": sets, "stuffed": labels, "missed": list(misses)}


def _line(values: Mapping[str, float]) -> str:
    return "; ".join(f"{name} {value:.3f}" for name, value in values.items())


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.judge",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fit", action="store_true", help="fit the weights on the tuning parts")
    parser.add_argument("--json", type=Path, help=f"result file; all sets write {RESULT}")
    parser.add_argument("--only", default=",".join(SETS), help="sets, separated by commas")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
