"""`meritory eval compare` and `meritory eval sweep`: one configuration against others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_home, note
from meritory.cli.options import HELP_NAMES, command, global_options
from meritory.cli.output import Answer, Lines
from meritory.cli.render import Report, bar
from meritory.domain.errors import InputError
from meritory.lab.cli_context import (
    MARGIN_OPTION,
    EvalTrial,
    changed,
    laboratory,
    opened_copy,
    parsed_values,
    probes_of,
    rebuilding,
)
from meritory.lab.cli_extraction import extraction
from meritory.lab.cli_views import compare_blocks, list_blocks, run_blocks, sweep_blocks

if TYPE_CHECKING:
    from meritory.cli.render import Report


POINTS_MAX = 200


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
    from meritory.engine.quality import saved_runs
    from meritory.lab.results import compared
    from meritory.rank.bootstrap import PASS

    sides = parsed_values(before), parsed_values(after)
    if not any(sides):
        if len(runs) != 2:
            raise InputError(
                "two saved runs are needed",
                hint="or one file of probes with --before and --after name=value",
            )
        if with_session:
            raise InputError("--session is for probes that are asked", hint="leave it out")
        pair = [saved_runs.load(current_home(), name) for name in runs]
    else:
        if len(runs) != 1:
            raise InputError(
                "--before and --after need one file of probes, and no saved runs",
                hint="meritory eval compare probes.jsonl --after recall.vector_weight=0.5",
            )
        if sides[0] == sides[1]:
            raise InputError("both sides are the same", hint="change one of them")
        pair = _asked(EvalTrial(probes_of(runs[0]), with_session), sides)
    found = compared(pair[0], pair[1], margin)
    return Answer(found, compare_blocks(found), 0 if found["verdict"] == PASS else 1)


def _asked(trial: EvalTrial, points: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
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
    meritory eval sweep probes.jsonl --set ranking.assistant_derived=0.6,0.7,0.85""",
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
    from meritory.lab.results import sweep as swept

    points = _points(given)
    for point in points:
        changed(point)
    trial = rebuilding(EvalTrial(probes_of(file), not no_session), points)
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
        from meritory.lab.results import DEFAULT_GRID

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


GENERATED_COUNT, GENERATED_MAX = 50, 1_000
_BETTER = (
    "made questions share their words with the memory they ask for, so they are easy; "
    "questions that you really asked tell more"
)


@click.group(
    "eval",
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    epilog="\b\nExample:\n  meritory eval run probes.jsonl --save before\n",
)
def evaluate() -> None:
    """Measure how well memories are found, on a copy.

    The store itself is only ever read: every command works on a copy of its own, which is gone
    afterwards, also while the daemon runs.
    """


# A group has no answer of its own, so it is no `Command`, but it takes the same options.
evaluate.params += global_options(hidden=True)


@command("run", "meritory eval run probes.jsonl --session --save before")
@click.argument("file")
@click.option("--session", "with_session", is_flag=True, help="Also what an agent is shown.")
@click.option("--save", "name", metavar="NAME", help="Keep the result under this name.")
def run(file: str, with_session: bool, name: str | None) -> Answer:
    """Ask every probe of a file and count how often its memory is found.

    FILE has one JSON object a line: a question, and what the memory that answers it says. Probes
    whose memory is gone are counted apart.
    """
    from meritory.engine.quality import saved_runs

    probes = probes_of(file)
    if name is not None:
        saved_runs.checked_run_name(name)
    with laboratory(EvalTrial(probes, with_session)) as place, bar("asking") as report:
        found = place.run({}, report)
    if name is not None:
        saved = saved_runs.save(current_home(), name, found)
        found["saved"] = str(saved)
        note(f"saved; `meritory eval compare {name} OTHER` holds another run against it")
    if found["drifted"]:
        note(f"{found['drifted']} probes drifted: their memory is gone, --json says which and why")
    return Answer(found, run_blocks(found))


@command("list", "meritory eval list")
def list_runs() -> Answer:
    """List the runs that were saved, latest first."""
    from meritory.engine.quality import saved_runs

    runs = saved_runs.saved(current_home())
    if not runs:
        note("none were saved yet; `meritory eval run FILE --save NAME` keeps one")
    return Answer({"results": runs}, list_blocks(runs))


@command("generate", "meritory eval generate probes.jsonl --count 50")
@click.argument("file")
@click.option(
    "--count",
    type=click.IntRange(1, GENERATED_MAX),
    default=GENERATED_COUNT,
    show_default=True,
    help="How many at most.",
)
def generate(file: str, count: int) -> Answer:
    """Make probes from your own memories, for a beginning.

    FILE must not exist yet. No model is asked: the questions are made of rare words of the
    memories, from all kinds, sources and projects. They are marked as generated.
    """
    from meritory.lab.probes import Anchors, probe_line
    from meritory.lab.probes import generate as made

    target = Path(os.path.expanduser(file))
    if os.path.lexists(target):
        raise InputError(f"{target} exists already", hint="choose another name")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}", hint="create it first")
    with opened_copy() as (memory, _):
        services = memory.services
        live = Anchors(services.store, services.user, services.world.now()).live
        probes = made(live, count)
    if not probes:
        raise InputError(
            f"none of {len(live)} memories has enough words to ask by",
            hint="write some probes by hand; docs/operations/evaluation.md shows how",
        )
    lines = [f"# {_BETTER}.", *map(probe_line, probes)]
    with open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
        out.write("\n".join(lines) + "\n")
    note(_BETTER)
    told = f"{len(probes)} probes of {len(live)} memories in {target}"
    plain = {"file": str(target.absolute()), "count": len(probes), "memories": len(live)}
    return Answer(plain, [Lines([told])])


for _command in (run, list_runs, generate, sweep, compare, extraction):
    evaluate.add_command(_command)
