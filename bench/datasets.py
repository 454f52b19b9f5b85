"""Load the public retrieval data sets into one common shape, with their hashes checked."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

DATA_ENV = "MERITORY_BENCH_DATA"
DEFAULT_ROOT = Path(__file__).resolve().parents[1].parent / "shared" / "data"
# Digest over the sorted BEAM files (relative name, newline, file digest, newline for each).
BEAM_100K_DIGEST = "a0f576936c52822b3fd7f2e0f1e998f53814887a842af76a9e560e611ac2cec4"
# The data set's own name for each number, in the order its authors print them.
LOCOMO_CATEGORIES = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
    5: "adversarial",
}
ADVERSARIAL = "adversarial"
MAX_MEMORY_CHARS = 8192
_DIA_ID = re.compile(r"D:?(\d+):(\d+)")
# BEAM's generator left its plan position at the end of many user messages.
_BEAM_MARK = re.compile(r"\s*->->[^\n]{0,12}$")


class MissingData(RuntimeError):
    """A data set is not on this machine."""


class WrongData(RuntimeError):
    """A data set is here, but its bytes are not the expected ones."""


@dataclass(frozen=True, slots=True)
class Doc:
    """One memory: a turn of a conversation."""

    id: str
    text: str
    session_key: str
    turn: int
    role: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Query:
    """One question with the ids that answer it."""

    text: str
    relevant: frozenset[str]
    category: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents that are searched together and the questions asked of them."""

    name: str
    docs: list[Doc]
    queries: list[Query]
    # "session": Query.relevant holds session keys, and a ranking of turns is folded into sessions.
    judged: Literal["doc", "session"] = "doc"


def data_root() -> Path:
    """Return the folder that holds the data sets."""
    named = os.environ.get(DATA_ENV)
    return Path(named) if named else DEFAULT_ROOT


def load(name: str, root: Path | None = None) -> list[Corpus]:
    """Load one data set by name."""
    if name not in LOADERS:
        raise ValueError(f"unknown data set {name!r}: use one of {', '.join(LOADERS)}")
    return LOADERS[name](root or data_root())


def load_locomo(root: Path) -> list[Corpus]:
    """Load LoCoMo: one corpus per conversation, a document per turn, evidence by dia_id."""
    data = json.loads(_checked(root / "locomo" / "locomo10.json"))
    return [_locomo_conversation(sample) for sample in data]


def load_longmemeval(root: Path) -> list[Corpus]:
    """Load the LongMemEval oracle file as one pool of turns, judged by session."""
    data = json.loads(_checked(root / "longmemeval" / "longmemeval_oracle.json"))
    docs: list[Doc] = []
    seen: set[str] = set()
    queries: list[Query] = []
    for item in data:
        columns = (item["haystack_session_ids"], item["haystack_sessions"], item["haystack_dates"])
        for key, turns, date in zip(*columns, strict=True):
            if key not in seen:
                seen.add(key)
                docs.extend(_longmemeval_turns(key, turns, date))
        if not item["question_id"].endswith("_abs"):
            relevant = frozenset(item["answer_session_ids"])
            queries.append(Query(item["question"], relevant, item["question_type"]))
    return [Corpus("longmemeval", docs, queries, judged="session")]


def load_beam(root: Path) -> list[Corpus]:
    """Load BEAM 100K: one corpus per conversation, a document per user message.

    A question is usable when at least one message named in its source_chat_ids is a user
    message (336 of 400); its relevant documents are exactly those user messages.
    """
    folder = root / "beam" / "100K"
    if not folder.is_dir():
        raise MissingData(_missing("BEAM 100K", folder))
    digest = folder_digest(folder)
    if digest != BEAM_100K_DIGEST:
        raise WrongData(f"{folder}: digest {digest} is not the expected {BEAM_100K_DIGEST}")
    return [_beam_conversation(folder / number) for number in map(str, range(1, 21))]


def folder_digest(folder: Path) -> str:
    """Return one digest over all files under a folder, names included."""
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{name}\n{digest}\n".encode())
    return total.hexdigest()


def _missing(name: str, path: Path) -> str:
    return f"SKIP {name}: {path} is missing (set {DATA_ENV} to the folder that holds it)"


def _checked(path: Path) -> bytes:
    """Read a file and hold it against the SHA256SUMS beside it."""
    if not path.is_file():
        raise MissingData(_missing(path.parent.name, path))
    sums = path.parent / "SHA256SUMS"
    if not sums.is_file():
        raise WrongData(f"{sums} is missing: {path.name} cannot be checked")
    expected = dict(line.split()[::-1] for line in sums.read_text().splitlines() if line.strip())
    body = path.read_bytes()
    digest = hashlib.sha256(body).hexdigest()
    if digest != expected.get(path.name):
        raise WrongData(f"{path}: sha256 {digest} is not the expected {expected.get(path.name)}")
    return body


def _locomo_conversation(sample: dict[str, Any]) -> Corpus:
    name = sample["sample_id"]
    talk = sample["conversation"]
    docs: list[Doc] = []
    number = 1
    while f"session_{number}_date_time" in talk:
        at = datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
        for turn, entry in enumerate(talk.get(f"session_{number}", [])):
            docs.append(
                Doc(
                    id=f"{name}/{entry['dia_id']}",
                    text=_locomo_text(entry),
                    session_key=f"{name}/session_{number}",
                    turn=turn,
                    role="user" if entry["speaker"] == talk["speaker_a"] else "assistant",
                    at=at.replace(tzinfo=UTC),
                )
            )
        number += 1
    known = {doc.id for doc in docs}
    queries = []
    for item in sample["qa"]:
        relevant = frozenset(_dia_ids(name, item.get("evidence", []))) & known
        if relevant:
            queries.append(Query(item["question"], relevant, LOCOMO_CATEGORIES[item["category"]]))
    return Corpus(f"locomo/{name}", docs, queries)


def _locomo_text(entry: dict[str, Any]) -> str:
    text = f"{entry['speaker']}: {entry['text']}"
    caption = entry.get("blip_caption")
    return f"{text} [image: {caption}]" if caption else text


def _dia_ids(name: str, evidence: list[str]) -> Iterator[str]:
    """Read dia ids out of labels such as "D8:6; D9:17" and "D:11:26"."""
    for label in evidence:
        for session, turn in _DIA_ID.findall(label):
            yield f"{name}/D{int(session)}:{int(turn)}"


def _longmemeval_turns(key: str, turns: list[dict[str, Any]], date: str) -> Iterator[Doc]:
    at = datetime.strptime(re.sub(r"\s*\(\w+\)\s*", " ", date), "%Y/%m/%d %H:%M")
    for turn, entry in enumerate(turns):
        yield Doc(
            id=f"{key}/{turn}",
            text=entry["content"],
            session_key=key,
            turn=turn,
            role=entry["role"],
            at=at.replace(tzinfo=UTC),
        )


def _beam_conversation(folder: Path) -> Corpus:
    name = f"beam/{folder.name}"
    docs: list[Doc] = []
    for batch in json.loads((folder / "chat.json").read_text(encoding="utf-8")):
        session_key = f"{name}/{batch['batch_number']}"
        at: datetime | None = None
        messages = [m for group in batch["turns"] for m in group if m["role"] == "user"]
        for turn, message in enumerate(messages):
            if message.get("time_anchor"):
                at = datetime.strptime(message["time_anchor"], "%B-%d-%Y").replace(tzinfo=UTC)
            text = _BEAM_MARK.sub("", message["content"])
            docs.append(Doc(f"{name}/{message['id']}", text, session_key, turn, "user", at))
    known = {doc.id for doc in docs}
    path = folder / "probing_questions" / "probing_questions.json"
    queries = []
    for category, items in json.loads(path.read_text(encoding="utf-8")).items():
        for item in items:
            sources = _numbers(item.get("source_chat_ids"))
            relevant = frozenset(f"{name}/{number}" for number in sources) & known
            if relevant:
                queries.append(Query(item["question"], relevant, category))
    return Corpus(name, docs, queries)


def _numbers(value: Any) -> Iterator[int]:
    """Walk the lists and dictionaries that BEAM uses for evidence and yield the message ids."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int):
        yield value


LOADERS: dict[str, Callable[[Path], list[Corpus]]] = {
    "locomo": load_locomo,
    "longmemeval": load_longmemeval,
    "beam": load_beam,
}
