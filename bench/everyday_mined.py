"""The cases of bench.everyday from public data sets: labels here, texts in the data folder.

No text of a data set is in the repository. A label names its texts by data set, file, record and
span of characters, with a short hash: a text that is no longer the labelled one is an error.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.datasets import (
    BEAM_100K_DIGEST,
    MissingData,
    WrongData,
    _checked,
    _missing,
    data_root,
    folder_digest,
)
from bench.everyday_cases import (
    EXPECTED,
    LABELS,
    NEAR,
    QUESTION_KINDS,
    Labelling,
    Pair,
    Question,
)

# A memory of this length is still read at a glance.
MAX_CHARS = 400
HASH_DIGITS = 10
LANGUAGE = "en"
# The last column of a pair that the audit changed holds this and the label it had before.
_FORMER = "was-"
_REF = re.compile(r"(\w+) (\S+) (\S+) (\d+):(\d+) ([0-9a-f]{10})")

Records = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ref:
    """Where a text is: a span of a record in a file of a data set, with its hash."""

    data_set: str
    file: str
    record: str
    start: int
    end: int
    digest: str

    @property
    def conversation(self) -> str:
        """The conversation, person or project that the text belongs to."""
        if self.data_set in ("longmemeval", "locomo"):
            return f"{self.data_set}/{self.record.partition('.')[0]}"
        name = self.file if self.data_set == "realmem" else self.file.rpartition("/")[0]
        return f"{self.data_set}/{name.removesuffix('/probing_questions')}"

    def __str__(self) -> str:
        return f"{self.data_set}/{self.file}/{self.record}/{self.start}:{self.end}"


@dataclass(frozen=True, slots=True)
class Label:
    """One line of a label file: a pair with two refs, or a question with three."""

    form: str
    kind: str
    expected: str
    refs: tuple[Ref, ...]
    former: str = ""


def pairs(
    half: str,
    root: Path | None = None,
    folder: Path = LABELS,
    labelling: Labelling = "audited",
) -> list[Pair]:
    """Return the pairs of one half; MissingData when a data set is not on this machine."""
    found = []
    for label in read_labels(half, folder):
        if label.form == "pair":
            first, second = (resolve(ref, root or data_root()) for ref in label.refs)
            source = label.refs[0].data_set
            expected = label.expected
            if labelling == "first" and label.former:
                expected = label.former
            found.append(Pair(LANGUAGE, label.kind, expected, first, second, source))
    return found


def questions(half: str, root: Path | None = None, folder: Path = LABELS) -> list[Question]:
    """Return the questions of one half; MissingData when a data set is not on this machine."""
    found = []
    for label in read_labels(half, folder):
        if label.form == "question":
            text, old, new = (resolve(ref, root or data_root()) for ref in label.refs)
            source = label.refs[0].data_set
            found.append(Question(LANGUAGE, label.kind, text, old, new, source))
    return found


def read_labels(half: str, folder: Path = LABELS) -> list[Label]:
    """Return the labels of one half, lines with # left out."""
    path = folder / f"mined_{half}.tsv"
    labels = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if line and not line.startswith("#"):
            try:
                labels.append(_label(line.split("\t")))
            except ValueError as wrong:
                raise ValueError(f"{path.name} line {number}: {wrong}") from wrong
    return labels


def _label(row: list[str]) -> Label:
    form, kind, *rest = row
    if form == "pair" and len(rest) in (3, 4) and rest[0] in (*EXPECTED, NEAR):
        refs = tuple(map(read_ref, rest[1:3]))
        return Label(form, kind, rest[0], refs, _former(rest[0], rest[3:]))
    if form == "question" and len(rest) == 3 and kind in QUESTION_KINDS:
        return Label(form, kind, "", tuple(map(read_ref, rest)))
    raise ValueError(f"not a pair or a question: {row}")


def _former(expected: str, cells: list[str]) -> str:
    """Return the label before the audit, or "" for a pair that the audit left alone."""
    if not cells:
        return ""
    former = cells[0].removeprefix(_FORMER)
    if not cells[0].startswith(_FORMER) or former not in EXPECTED or former == expected:
        raise ValueError(f"not the former label of a pair that is now {expected}: {cells[0]!r}")
    return former


def read_ref(cell: str, longest: int = MAX_CHARS) -> Ref:
    """Return the ref that a cell of a label file holds."""
    match = _REF.fullmatch(cell)
    if match is None:
        raise ValueError(f"not a ref: {cell!r}")
    data_set, file, record, start, end, digest = match.groups()
    if not 0 < int(end) - int(start) <= longest:
        raise ValueError(f"a span has 1 to {longest} characters: {cell!r}")
    return Ref(data_set, file, record, int(start), int(end), digest)


def resolve(ref: Ref, root: Path) -> str:
    """Return the text of a ref; WrongData when it is not the text that was labelled."""
    if ref.data_set not in READERS:
        raise WrongData(f"{ref}: unknown data set, use one of {', '.join(READERS)}")
    record = _records(ref.data_set, ref.file, root).get(ref.record)
    if record is None:
        raise WrongData(f"{ref}: there is no such record")
    text = record[ref.start : ref.end]
    if hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS] != ref.digest:
        raise WrongData(f"{ref} is not the text that was labelled")
    return text


@cache
def _records(data_set: str, file: str, root: Path) -> Records:
    return dict(READERS[data_set](root, file))


def _realmem(root: Path, file: str) -> Iterator[tuple[str, str]]:
    """Yield turns as d3.t2 and extracted memories as d3.m0."""
    for number, one in enumerate(json.loads(_checked(root / "realmem" / file))["dialogues"]):
        for place, turn in enumerate(one["dialogue_turns"]):
            yield f"d{number}.t{place}", turn["content"]
        for place, memory in enumerate(one["extracted_memory"]):
            yield f"d{number}.m{place}", memory["content"]


def _beam(root: Path, file: str) -> Iterator[tuple[str, str]]:
    """Yield messages as m12, or probing questions as knowledge_update.0."""
    body = json.loads(_beam_file(root, file).read_text("utf-8"))
    if isinstance(body, dict):
        for category, items in body.items():
            for place, item in enumerate(items):
                yield f"{category}.{place}", item["question"]
    else:
        for message in (m for batch in body for group in batch["turns"] for m in group):
            yield f"m{message['id']}", message["content"]


def _beam_file(root: Path, file: str) -> Path:
    folder = root / "beam" / "100K"
    if not folder.is_dir():
        raise MissingData(_missing("BEAM 100K", folder))
    digest = _beam_digest(folder)
    if digest != BEAM_100K_DIGEST:
        raise WrongData(f"{folder}: digest {digest} is not the expected {BEAM_100K_DIGEST}")
    return root / "beam" / file


@cache
def _beam_digest(folder: Path) -> str:
    return folder_digest(folder)


def _longmemeval(root: Path, file: str) -> Iterator[tuple[str, str]]:
    """Yield questions as ID.q and turns of their sessions as ID.s0.t4."""
    for item in json.loads(_checked(root / "longmemeval" / file)):
        name = item["question_id"]
        yield f"{name}.q", item["question"]
        for number, session in enumerate(item["haystack_sessions"]):
            for place, turn in enumerate(session):
                yield f"{name}.s{number}.t{place}", turn["content"]


def _locomo(root: Path, file: str) -> Iterator[tuple[str, str]]:
    """Yield the observations as CONVERSATION.o3.Speaker.0 (session 3, the first about Speaker)."""
    for sample in json.loads(_checked(root / "locomo" / file)):
        for session, about in sample["observation"].items():
            for speaker, observations in about.items():
                for place, (text, *_) in enumerate(observations):
                    number = session.split("_")[1]
                    yield f"{sample['sample_id']}.o{number}.{speaker}.{place}", text


def _streams(root: Path, file: str) -> Iterator[tuple[str, str]]:
    """Yield the prompts of a session as SESSION.p0."""
    for line in _checked(root / "streams" / file).decode("utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        for place, prompt in enumerate(row["all_prompts"]):
            yield f"{row['sid']}.p{place}", prompt


READERS: dict[str, Callable[[Path, str], Iterator[tuple[str, str]]]] = {
    "realmem": _realmem,
    "beam": _beam,
    "longmemeval": _longmemeval,
    "locomo": _locomo,
    "streams": _streams,
}
