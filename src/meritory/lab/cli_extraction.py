"""`meritory eval extraction`: one extractor, or prompt, against another."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_settings
from meritory.cli.options import command
from meritory.cli.output import Answer, Block, Column, Lines, Table
from meritory.cli.render import bar
from meritory.domain.errors import InputError
from meritory.lab.cli_context import ACTOR, MARGIN_OPTION, opened_copy, read_lines
from meritory.lab.cli_views import compare_blocks

if TYPE_CHECKING:
    from meritory.lab.extraction import Arm, ExpectedClaim, Extracted, Transcript
    from meritory.ports.extractor import Extractor


TRANSCRIPT_LIMIT_BYTES = 16 * 1024 * 1024
SESSIONS_READ = 1_000
_ENDINGS = (".json", ".jsonl")
_ARMS = (
    Column("extractor", "cyan"),
    Column("proposed"),
    Column("right"),
    Column("precision"),
    Column("recall"),
)


@command(
    "extraction",
    """meritory eval extraction --a rules --b llm --transcripts talks/ --labels labels.jsonl
    meritory eval extraction --a llm --b my-prompt.txt --sessions --labels labels.jsonl""",
)
@click.option("--a", "before", required=True, metavar="WHAT", help="rules, llm or a prompt's file.")
@click.option("--b", "after", required=True, metavar="WHAT", help="What is held against it.")
@click.option(
    "--transcripts", "place", metavar="PATH", help="A transcript, or a folder of transcripts."
)
@click.option("--sessions", "with_sessions", is_flag=True, help="Your own recorded sessions.")
@click.option("--labels", required=True, metavar="FILE", help="What should be found, by line.")
@MARGIN_OPTION
def extraction(
    before: str, after: str, place: str | None, with_sessions: bool, labels: str, margin: float
) -> Answer:
    """Hold one extractor, or prompt, against another on the same transcripts.

    Each reads them into a throw-away store of its own. Compared are the labels found, what the
    labels' questions find in the store (p@1, p@3, MRR), and the share of right proposals. Ends
    with 0 when the second passes, with 1 when it fails or there is not enough data.
    """
    from meritory.lab.extraction import compared, read_labels
    from meritory.rank.bootstrap import PASS

    if (place is None) != with_sessions:
        raise InputError(
            "either --transcripts or --sessions", hint="name a folder, or take your own sessions"
        )
    wanted = read_labels(read_lines(labels), labels)
    told = _own_transcripts() if place is None else _transcripts(Path(os.path.expanduser(place)))
    sides = tuple(_extracted(kind, told, wanted) for kind in (before, after))
    (first, left), (second, right) = sides
    names = (first, second) if first != second else (f"{first} (a)", f"{second} (b)")
    found = compared(names, (left, right), margin)
    return Answer(found, _blocks(found), 0 if found["verdict"] == PASS else 1)


def _blocks(found: dict[str, Any]) -> list[Block]:
    rows = [
        (
            one["id"],
            str(one["proposed"]),
            str(one["right"]),
            "-" if one["precision"] is None else f"{one['precision']:.3f}",
            f"{one['recall']:.3f}",
        )
        for one in found["results"]
    ]
    return [Table(_ARMS, rows), Lines([""]), *compare_blocks(found)]


# -- the arms -------------------------------------------------------------------------------


def _extracted(
    kind: str, told: list[Transcript], labels: tuple[ExpectedClaim, ...]
) -> tuple[str, Extracted]:
    from meritory.lab.extraction import extraction_run

    with _arm(kind) as arm, bar(f"reading ({arm.name})") as report:
        return arm.name, extraction_run(arm, told, labels, report)


@contextlib.contextmanager
def _arm(kind: str) -> Iterator[Arm]:
    """An extractor with an empty store in a folder that is gone afterwards."""
    from meritory.api.memory import Memory
    from meritory.api.opening import metered_llm
    from meritory.lab.extraction import Arm
    from meritory.lab.measure import COPY_NAME, Sandbox, folder
    from meritory.ports.extractor import open_extractor

    settings = current_settings({"extraction.kind": "none", "judge.kind": "none"})
    with (
        folder() as place,
        Memory(place / COPY_NAME, settings=settings, actor=ACTOR, background=False) as memory,
    ):
        if kind not in ("rules", "llm") and not Path(os.path.expanduser(kind)).is_file():
            raise InputError(
                f"{kind[:80]!r} is no extractor", hint="rules, llm, or the file of a prompt"
            )
        services = memory.services
        llm = (
            None
            if kind == "rules"
            else metered_llm(services.store, settings, services.world, "extract")
        )
        named = kind if kind in ("rules", "llm") else str(Path(os.path.expanduser(kind)))
        made: Extractor = open_extractor(named, llm, memory.services.world)
        sandbox = Sandbox(memory.services)
        yield Arm(made.name, lambda turns, known: made.extract(turns, known).candidates, sandbox)


# -- transcripts ----------------------------------------------------------------------------


def _own_transcripts() -> list[Transcript]:
    from meritory.lab.extraction import Transcript

    with opened_copy() as (memory, _):
        store, user = memory.services.store, memory.scope.user
        keys = [session.key for session in store.sessions(user, SESSIONS_READ)]
        found = [Transcript(key, store.transcript(user, key)) for key in reversed(keys)]
    told = [one for one in found if one.turns]
    if not told:
        raise InputError("no session has a transcript", hint="name files with --transcripts")
    return told


def _transcripts(place: Path) -> list[Transcript]:
    """The transcript of a file, or those of a folder in the order of their names."""
    if place.is_dir():
        files = sorted(one for one in place.iterdir() if one.suffix in _ENDINGS and one.is_file())
    else:
        files = [place] if place.is_file() else []
    if not files:
        raise InputError(
            f"there is no transcript in {place}", hint="files that end in .json or .jsonl"
        )
    found = [_read(file) for file in files]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two transcripts are called {name}", hint="rename one of them")
    return found


def _read(file: Path) -> Transcript:
    from meritory.lab.extraction import Transcript
    from meritory.text.transcript import read_transcript, redacted

    if file.stat().st_size > TRANSCRIPT_LIMIT_BYTES:
        raise InputError(f"{file} is too large for a transcript", hint="split it")
    try:
        text = file.read_text("utf-8-sig")
        if file.suffix == ".jsonl":
            value: object = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            value = json.loads(text)
        turns = redacted(read_transcript(value))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON", hint='a list of {"role", "text"}') from error
    except InputError as error:
        raise InputError(f"{file}: {error.message}", hint=error.hint) from error
    return Transcript(file.stem, turns)
