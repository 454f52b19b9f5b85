"""`meritory eval compare` and `meritory eval sweep`: one configuration against others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import click

from meritory.cli.answer import Answer
from meritory.cli.eval_frame import (
    Trial,
    changed,
    laboratory,
    parsed_values,
    probes_of,
    rebuilding,
)
from meritory.cli.eval_views import compare_blocks, sweep_blocks
from meritory.cli.frame import current_home, note
from meritory.cli.options import command
from meritory.cli.progress import Report, bar
from meritory.errors import InputError

POINTS_MAX = 200
MARGIN, MARGIN_MAX = 0.02, 0.5
MARGIN_OPTION = click.option(
    "--margin",
    type=click.FloatRange(0.0, MARGIN_MAX),
    default=MARGIN,
    show_default=True,
    help="How much of a mean may be lost.",
)


@command(
    "compare",
    """meritory eval compare before after
    meritory eval compare probes.jsonl --before gate.threshold=0.9 --after gate.threshold=0.85""",
)
@click.argument("runs", nargs=-1, metavar="BEFORE AFTER | FILE")
@click.option("--before", multiple=True, metavar="NAME=VALUE", help="A setting of the first run.")
@click.option("--after", multiple=True, metavar="NAME=VALUE", help="A setting of the second run.")
@click.option("--session", "with_session", is_flag=True, help="Also what an agent is shown.")
@MARGIN_OPTION
def compare(
    runs: tuple[str, ...],
    before: tuple[str, ...],
    after: tuple[str, ...],
    with_session: bool,
    margin: float,
) -> Answer:
    """Hold a run against another, probe by probe, and say whether anything was lost.

    Either two saved runs, or one file of probes that is asked under two settings. Ends with 0 when
    it passes, and with 1 when it fails or when there is not enough data to say.
    """
    from meritory.flow.evaluate import shelf
    from meritory.flow.evaluate.results import compared
    from meritory.rank.paired import PASS

    sides = parsed_values(before), parsed_values(after)
    if not any(sides):
        if len(runs) != 2:
            raise InputError(
                "two saved runs are needed",
                hint="or one file of probes with --before and --after name=value",
            )
        if with_session:
            raise InputError("--session is for probes that are asked", hint="leave it out")
        pair = [shelf.load(current_home(), name) for name in runs]
    else:
        if len(runs) != 1:
            raise InputError(
                "--before and --after need one file of probes, and no saved runs",
                hint="meritory eval compare probes.jsonl --after recall.vector_weight=0.5",
            )
        if sides[0] == sides[1]:
            raise InputError("both sides are the same", hint="change one of them")
        pair = _asked(Trial(probes_of(runs[0]), with_session), sides)
    found = compared(pair[0], pair[1], margin)
    return Answer(found, compare_blocks(found), 0 if found["verdict"] == PASS else 1)


def _asked(trial: Trial, points: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """A run for each point, on the same copy."""
    for point in points:
        changed(point)
    with laboratory(rebuilding(trial, points)) as place, bar("asking") as report:
        return [
            place.run(point, _part(report, number, len(points)))
            for number, point in enumerate(points)
        ]


def _part(report: Report, number: int, count: int) -> Report:
    """The progress of one of many runs, as that of all."""
    return lambda done, total: report(number * total + done, count * total)


@command(
    "sweep",
    """meritory eval sweep probes.jsonl
    meritory eval sweep probes.jsonl --set ranking.weight_assistant_derived=0.6,0.7,0.85""",
)
@click.argument("file")
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="NAME=VALUE,VALUE",
    help="Values to try; several settings are tried in all combinations.",
)
@click.option("--no-session", is_flag=True, help="Leave out what an agent is shown; faster.")
@MARGIN_OPTION
def sweep(file: str, given: tuple[str, ...], no_session: bool, margin: float) -> Answer:
    """Try many settings on the same probes.

    Without --set, weights, slope, floor and the share of the vectors are tried one at a time. A
    value of gate.threshold writes the copy's memories anew, each time.
    """
    from meritory.flow.evaluate.sweep import sweep as swept

    points = _points(given)
    for point in points:
        changed(point)
    trial = rebuilding(Trial(probes_of(file), not no_session), points)
    with laboratory(trial) as place, bar("asking") as report:
        steps = {_key(point): number for number, point in enumerate(points)}

        def measured(point: Mapping[str, str]) -> dict[str, Any]:
            return place.run(point, _part(report, steps[_key(point)], len(points)))

        found = swept(points, measured, margin)
    if trial.rebuilds:
        note("every store was written anew from the copy, also for the first line")
    return Answer(found, sweep_blocks(found))


def _key(point: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(point.items())


def _points(given: Sequence[str]) -> list[dict[str, str]]:
    """What is tried: first what serves today, then the rest."""
    if not given:
        from meritory.flow.evaluate.sweep import DEFAULT_GRID

        today = changed({}).shown()
        single = [
            {name: value}
            for name, values in DEFAULT_GRID.items()
            for value in values
            if float(value) != float(today[name])
        ]
        return [{}, *single]
    axes = {
        name: [value.strip() for value in values.split(",") if value.strip()]
        for name, values in parsed_values(given).items()
    }
    count = 1
    for name, values in axes.items():
        if not values or len(set(values)) != len(values):
            raise InputError(f"{name} needs values, each of them once", hint="NAME=0.6,0.7")
        count *= len(values)
    if count > POINTS_MAX:
        raise InputError(
            f"that makes {count:,} combinations", hint=f"at most {POINTS_MAX} at a time"
        )
    combined = product(*axes.values())
    return [{}, *(dict(zip(axes, values, strict=True)) for values in combined)]
