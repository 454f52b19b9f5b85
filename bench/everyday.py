"""What a person meets when things are said twice, change, and are asked for.

`python -m bench.everyday` stores pairs of everyday texts and asks questions about them, in five
languages. Rules may be tuned on the tune half; the exit status is 1 when the report half misses a
bar. `--control` judges planted labels and answers instead, which must miss every bar. `--linked`
measures only how chains are served: the texts of every question are linked, as if each pair was
recognised. `--labels first` measures the pairs with the labels they had before the mined ones were
audited.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TypeVar

from bench import everyday_extraction, everyday_mined, everyday_pairs, everyday_questions
from bench.authority import Report
from bench.datasets import MissingData
from bench.everyday_cases import (
    HALVES,
    LABELLINGS,
    Half,
    Labelling,
    Pair,
    Question,
    read_pairs,
    read_questions,
)
from bench.everyday_pairs import PairOutcome

Case = TypeVar("Case", Pair, Question)
SECTIONS = ("pairs", "questions", "extraction")


@dataclass(slots=True)
class Result:
    """The checks of one section and half, its table, and the misses that may be read."""

    half: str
    report: Report
    table: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)


def pairs_of(half: Half, labelling: Labelling = "audited") -> list[Pair]:
    """Return the hand-written and the mined pairs of one half."""
    return read_pairs(half) + _mined(partial(everyday_mined.pairs, labelling=labelling), half)


def questions_of(half: Half) -> list[Question]:
    """Return the hand-written and the mined questions of one half."""
    return read_questions(half) + _mined(everyday_mined.questions, half)


def _mined(read: Callable[[str], list[Case]], half: Half) -> list[Case]:
    """Return mined cases, or none where their data sets are not on this machine."""
    try:
        return read(half)
    except MissingData as missing:
        print(f"{missing}; only the hand-written cases are used", file=sys.stderr)
        return []


def measure_pairs(
    halves: Sequence[Half], is_control: bool, labelling: Labelling = "audited"
) -> list[Result]:
    """Return the results of the pairs by half and, of two halves, of both together."""
    results = []
    total: list[PairOutcome] = []
    mark = " first" if labelling == "first" else ""
    for half in halves:
        made = everyday_pairs.outcomes(pairs_of(half, labelling))
        total += made
        name = f"pairs {half}{mark}"
        if is_control:
            results.append(Result(half, everyday_pairs.control(made, name)))
        else:
            table, misses = everyday_pairs.table(made), list(everyday_pairs.misses(made))
            report = everyday_pairs.report_of(made, name)
            report.checks.extend(everyday_pairs.chains_of(made, name).checks)
            results.append(Result(half, report, table, misses))
    if len(halves) > 1 and not is_control:
        results.append(Result("both", everyday_pairs.report_of_all(total, f"pairs both{mark}")))
    return results


def measure_questions(
    halves: Sequence[Half], is_control: bool, is_linked: bool = False
) -> list[Result]:
    """Return the results of the questions by half."""
    results = []
    for half in halves:
        made = everyday_questions.answers(questions_of(half), pairs_of(half), is_linked=is_linked)
        name = f"questions {half}"
        if is_control:
            results.append(Result(half, everyday_questions.control(made, name)))
        else:
            table, misses = everyday_questions.table(made), list(everyday_questions.misses(made))
            results.append(Result(half, everyday_questions.report_of(made, name), table, misses))
    return results


def measure_extraction(halves: Sequence[Half], is_control: bool) -> list[Result]:
    """Return the results of the extraction by half; its control is one of its checks."""
    if is_control:
        return []
    return [Result(half, everyday_extraction.measure(half)) for half in halves]


MEASURES = {
    "pairs": measure_pairs,
    "questions": measure_questions,
    "extraction": measure_extraction,
}


def main(arguments: list[str]) -> int:
    """Print the tables and the checks; return 1 if the report half or the control is missed."""
    options = _options(arguments)
    halves = [half for half in HALVES if options.half in (half, "both")]
    sections = options.section or SECTIONS
    if options.linked:
        results = measure_questions(halves, options.control, is_linked=True)
    else:
        measures = MEASURES | {"pairs": partial(measure_pairs, labelling=options.labels)}
        results = [one for name in sections for one in measures[name](halves, options.control)]
    if options.json:
        shown = [{"half": one.half, **asdict(one.report), "table": one.table} for one in results]
        print(json.dumps(shown, indent=1))
    else:
        for one in results:
            _print(one, options.list_misses)
    judged = results if options.control else [one for one in results if one.half != "tune"]
    return int(not all(check.is_met for one in judged for check in one.report.checks))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.everyday", description=__doc__)
    parser.add_argument("--half", choices=[*HALVES, "both"], default="both")
    parser.add_argument("--section", action="append", choices=SECTIONS, help="may be repeated")
    parser.add_argument(
        "--labels",
        choices=LABELLINGS,
        default="audited",
        help="of mined pairs; first: as they were",
    )
    parser.add_argument("--list-misses", action="store_true", help="print those of the tune half")
    parser.add_argument("--control", action="store_true", help="judge planted labels and answers")
    parser.add_argument(
        "--linked", action="store_true", help="questions only, with links planted for all of them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.list_misses and options.half == "report":
        parser.error("the report half is only counted; --list-misses is for the tune half")
    return options


def _print(result: Result, lists_misses: bool) -> None:
    if result.table:
        print(f"{result.report.section}\n" + "\n".join(result.table) + "\n")
    for check in result.report.checks:
        mark = "ok  " if check.is_met else "MISS"
        row = f"{mark} {result.half:7}{result.report.section:18} {check.name:50}"
        print(f"{row} {check.figure:>8g} {check.bar:>9}  {check.note}".rstrip())
    print()
    if lists_misses and result.half == "tune" and result.misses:
        print("\n".join(result.misses) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
