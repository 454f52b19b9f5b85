"""`meritory eval`: how well memories are found and shown, measured on a throw-away copy."""

from __future__ import annotations

import os
from pathlib import Path

import click

from meritory.cli.answer import Answer, Lines
from meritory.cli.eval_compare import compare, sweep
from meritory.cli.eval_extraction import extraction
from meritory.cli.eval_frame import Trial, laboratory, opened_copy, probes_of
from meritory.cli.eval_views import list_blocks, run_blocks
from meritory.cli.frame import current_home, note
from meritory.cli.options import HELP_NAMES, command, global_options
from meritory.cli.progress import bar
from meritory.errors import InputError

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
    from meritory.flow.evaluate import shelf

    probes = probes_of(file)
    if name is not None:
        shelf.checked_run_name(name)
    with laboratory(Trial(probes, with_session)) as place, bar("asking") as report:
        found = place.run({}, report)
    if name is not None:
        saved = shelf.save(current_home(), name, found)
        found["saved"] = str(saved)
        note(f"saved; `meritory eval compare {name} OTHER` holds another run against it")
    if found["drifted"]:
        note(f"{found['drifted']} probes drifted: their memory is gone, --json says which and why")
    return Answer(found, run_blocks(found))


@command("list", "meritory eval list")
def list_runs() -> Answer:
    """List the runs that were saved, latest first."""
    from meritory.flow.evaluate import shelf

    runs = shelf.saved(current_home())
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
    from meritory.flow.evaluate.anchor import Anchors
    from meritory.flow.evaluate.generate import generate as made
    from meritory.flow.evaluate.probes import probe_line

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
