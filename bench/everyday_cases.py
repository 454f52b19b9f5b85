"""The hand-written cases of bench.everyday: pairs of stored texts, and questions about them.

Two files per kind in bench/labels/everyday, one for each half. The tune half may be read while
rules are written; the report half is only counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Half = Literal["tune", "report"]
# first: the labels before the audit of mined pairs. audited: those after it.
Labelling = Literal["first", "audited"]
LABELS = Path(__file__).resolve().parent / "labels" / "everyday"
HALVES: tuple[Half, ...] = ("tune", "report")
LABELLINGS: tuple[Labelling, ...] = ("first", "audited")
LANGUAGES = ("en", "de", "fr", "es", "zh")
# same: one claim in other words. update: the second text says that the first is no longer true.
# newer: another value of the same claim, without saying so. other: two claims that must both stay.
EXPECTED = ("same", "update", "newer", "other")
# Overlapping claims, each text with a detail of its own: counted, but in no bar.
NEAR = "near"
# current: asks for the present value. past: asks what the value was before. event: asks about
# something that happened, which the older text tells. list: asks for what both texts hold.
QUESTION_KINDS = ("current", "past", "event", "list")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two stored texts, and what the second should do to the first."""

    language: str
    kind: str
    expected: str
    first: str
    second: str
    source: str = "hand"


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the older stored text about its subject, and the newer one."""

    language: str
    kind: str
    text: str
    old: str
    new: str
    source: str = "hand"


def read_pairs(half: Half, folder: Path = LABELS) -> list[Pair]:
    """Return the hand-written pairs of one half."""
    return [Pair(*row) for row in _rows(folder / f"{half}_pairs.tsv", 5)]


def read_questions(half: Half, folder: Path = LABELS) -> list[Question]:
    """Return the hand-written questions of one half."""
    return [Question(*row) for row in _rows(folder / f"{half}_questions.tsv", 5)]


def _rows(path: Path, columns: int) -> list[list[str]]:
    rows = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        row = line.split("\t")
        if len(row) != columns or not all(part == part.strip() != "" for part in row):
            raise ValueError(f"{path.name} line {number}: expected {columns} columns with a text")
        rows.append(row)
    return rows
