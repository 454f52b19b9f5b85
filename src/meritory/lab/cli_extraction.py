"""`meritory eval extraction`: compare one extractor, or prompt, with another."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from meritory.cli.command import command, current_settings
from meritory.cli.output import Answer, Field, RecordView, bar, number
from meritory.domain.errors import InputError
from meritory.lab.laboratory import ACTOR, compare_blocks, margin_option, opened_copy, read_lines

if TYPE_CHECKING:
    from meritory.lab.extraction import Arm, Transcript

TRANSCRIPT_LIMIT_BYTES = 16 * 1024 * 1024
SESSIONS_READ = 1_000
_ENDINGS = (".json", ".jsonl")
_KINDS = ("rules", "llm")
_ARMS = RecordView(
    Field("id", "extractor", style="cyan"),
    Field("proposed", "proposed"),
    Field("right", "right"),
    Field("precision", "precision", show=number(".3f")),
    Field("recall", "recall", show=number(".3f")),
)


@command(
    "extraction",
    "meritory eval extraction --a rules --b llm --transcripts talks/ --labels labels.jsonl",
    "meritory eval extraction --a llm --b my-prompt.txt --sessions --labels labels.jsonl",
)
@click.option("--a", "before", required=True, metavar="WHAT", help="rules, llm or a prompt file.")
@click.option("--b", "after", required=True, metavar="WHAT", help="The one to compare with it.")
@click.option(
    "--transcripts", "place", metavar="PATH", help="A transcript, or a folder of transcripts."
)
@click.option("--sessions", "with_sessions", is_flag=True, help="Your own recorded sessions.")
@click.option("--labels", required=True, metavar="FILE", help="The expected claims, one per line.")
@margin_option
def extraction(
    before: str, after: str, place: str | None, with_sessions: bool, labels: str, margin: float
) -> Answer:
    """Compare one extractor, or prompt, with another on the same transcripts.

    Each extracts into its own temporary store. Compared are the share of labels found, the answers
    of the store to the labels' questions (p@1, p@3, MRR), and the share of right proposals. Exits
    with 0 when the second passes, with 1 when it fails or there is not enough data.
    """
    from meritory.lab.extraction import compared, extraction_run, read_labels
    from meritory.rank.metrics import PASS

    if (place is None) != with_sessions:
        raise InputError(
            "give either --transcripts or --sessions", hint="name a folder, or use your sessions"
        )
    wanted = read_labels(read_lines(labels), labels)
    transcripts = (
        _own_transcripts() if place is None else _transcripts(Path(os.path.expanduser(place)))
    )
    names, sides = [], []
    for kind in (before, after):
        with _arm(kind) as arm, bar(f"reading ({arm.name})") as report:
            names.append(arm.name)
            sides.append(extraction_run(arm, transcripts, wanted, report))
    if names[0] == names[1]:
        names = [f"{names[0]} (a)", f"{names[1]} (b)"]
    comparison = compared((names[0], names[1]), (sides[0], sides[1]), margin)
    blocks = [_ARMS.table(comparison["results"]), "", *compare_blocks(comparison)]
    return Answer(comparison, *blocks, code=0 if comparison["verdict"] == PASS else 1)


@contextlib.contextmanager
def _arm(kind: str) -> Iterator[Arm]:
    """Open an extractor with an empty store in a temporary folder."""
    from meritory.api.embedded import metered_llm
    from meritory.api.memory import Memory
    from meritory.lab.extraction import Arm
    from meritory.lab.measure import COPY_NAME, Sandbox, folder
    from meritory.ports.extractor import open_extractor

    settings = current_settings({"extraction.kind": "none", "judge.kind": "none"})
    name = kind if kind in _KINDS else os.path.expanduser(kind)
    with (
        folder() as home,
        Memory(home / COPY_NAME, settings=settings, actor=ACTOR, background=False) as memory,
    ):
        if kind not in _KINDS and not Path(name).is_file():
            raise InputError(
                f"{kind[:80]!r} is not an extractor", hint="use rules, llm, or a prompt file"
            )
        services, llm = memory.services, None
        if kind != "rules":
            llm = metered_llm(services.store, settings, services.world, "extract")
        extractor = open_extractor(name, llm, services.world)
        yield Arm(
            extractor.name,
            lambda turns, known: extractor.extract(turns, known).candidates,
            Sandbox(services),
        )


def _own_transcripts() -> list[Transcript]:
    from meritory.lab.extraction import Transcript

    with opened_copy() as (memory, _):
        store, user = memory.services.store, memory.scope.user
        keys = [session.key for session in store.sessions(user, SESSIONS_READ)]
        recorded = [Transcript(key, store.transcript(user, key)) for key in reversed(keys)]
    transcripts = [transcript for transcript in recorded if transcript.turns]
    if not transcripts:
        raise InputError("no session has a transcript", hint="name files with --transcripts")
    return transcripts


def _transcripts(place: Path) -> list[Transcript]:
    """Read the transcript of a file, or those of a folder in the order of their names."""
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix in _ENDINGS)
        files = [file for file in files if file.is_file()]
    else:
        files = [place] if place.is_file() else []
    if not files:
        raise InputError(
            f"there is no transcript in {place}", hint="transcripts end in .json or .jsonl"
        )
    transcripts = [_read_transcript(file) for file in files]
    names = [transcript.name for transcript in transcripts]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two transcripts have the name {name}", hint="rename one of them")
    return transcripts


def _read_transcript(file: Path) -> Transcript:
    from meritory.lab.extraction import Transcript
    from meritory.text.transcript import read_transcript, redacted

    if file.stat().st_size > TRANSCRIPT_LIMIT_BYTES:
        raise InputError(f"{file} has more than {TRANSCRIPT_LIMIT_BYTES:,} bytes", hint="split it")
    try:
        text = file.read_text("utf-8-sig")
        if file.suffix == ".jsonl":
            value: object = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            value = json.loads(text)
        turns = redacted(read_transcript(value))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON", hint='write a list of {"role", "text"}') from error
    except InputError as error:
        raise InputError(f"{file}: {error.message}", hint=error.hint) from error
    return Transcript(file.stem, turns)
