"""The archive of transcripts: checked, unpacked once, and read as the daemon reads it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from bench.datasets import MissingData, WrongData
from bench.streams_data import load
from bench.streams_transcripts import TranscriptArchive

from bench import streams_transcripts

ENTRIES = [
    {"type": "user", "message": {"role": "user", "content": "clean the store"}},
    {"type": "summary", "summary": "bookkeeping of the client"},
    {
        "type": "assistant",
        "message": {
            "role": "assistant",
            "content": [{"type": "tool_use", "name": "Read", "input": {"file_path": "store.py"}}],
        },
    },
]


def pack(files: Mapping[str, str]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:xz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return whole.getvalue()


def write(folder: Path, **files: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sums = []
    for key, body in files.items():
        name = {"sessions": "sessions.jsonl", "memories": "memories.jsonl"}.get(
            key, "transcripts.tar.xz"
        )
        (folder / name).write_bytes(body)
        sums.append(f"{hashlib.sha256(body).hexdigest()}  {name}\n")
    (folder / "SHA256SUMS").write_text("".join(sums))


@pytest.fixture
def archive(tmp_path: Path) -> TranscriptArchive:
    lines = "\n".join(json.dumps(entry) for entry in ENTRIES)
    write(tmp_path / "data", archive=pack({"transcripts/s1.jsonl": lines}))
    return TranscriptArchive(tmp_path / "data" / "transcripts.tar.xz", tmp_path / "cache")


def test_a_transcript_is_read_without_the_bookkeeping(archive: TranscriptArchive) -> None:
    found = archive.messages("transcripts/s1.jsonl")
    assert [one["role"] for one in found] == ["user", "assistant"]
    assert found[0]["content"] == "clean the store"
    with pytest.raises(WrongData, match=r"holds no transcripts/s2\.jsonl"):
        archive.messages("transcripts/s2.jsonl")


def test_an_archive_is_unpacked_once(
    archive: TranscriptArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = archive.messages("transcripts/s1.jsonl")

    def no_more(*_: object) -> None:
        raise AssertionError("unpacked again")

    monkeypatch.setattr(TranscriptArchive, "_unpack", no_more)
    again = TranscriptArchive(tmp_path / "data" / "transcripts.tar.xz", tmp_path / "cache")
    assert again.messages("transcripts/s1.jsonl") == first
    # Another content has another folder.
    write(tmp_path / "data", archive=pack({"transcripts/s1.jsonl": "{}"}))
    changed = TranscriptArchive(tmp_path / "data" / "transcripts.tar.xz", tmp_path / "cache")
    with pytest.raises(AssertionError, match="unpacked again"):
        changed.messages("transcripts/s1.jsonl")


def test_two_processes_may_unpack_at_once(archive: TranscriptArchive, tmp_path: Path) -> None:
    archive.messages("transcripts/s1.jsonl")
    (target,) = (tmp_path / "cache").iterdir()
    archive._unpack((tmp_path / "data" / "transcripts.tar.xz").read_bytes(), target)
    assert list((tmp_path / "cache").iterdir()) == [target]


def test_a_wrong_or_missing_archive_is_refused(archive: TranscriptArchive, tmp_path: Path) -> None:
    path = tmp_path / "data" / "transcripts.tar.xz"
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(WrongData):
        archive.messages("transcripts/s1.jsonl")
    path.unlink()
    with pytest.raises(MissingData):
        TranscriptArchive(path, tmp_path / "cache").messages("transcripts/s1.jsonl")


def test_a_session_names_its_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_transcripts, "CACHE", tmp_path / "cache")
    session = {"sid": "s1", "ts": 50, "project": "p", "query": "q", "rel": ["a"]}
    rows = [{**session, "transcript": "transcripts/s1.jsonl"}, {**session, "sid": "s2"}]
    memory = {"mid": "a", "project": "p", "created": 1, "deleted": None, "texts": [[1, "text"]]}
    write(
        tmp_path / "streams" / "tiny",
        sessions="\n".join(map(json.dumps, rows)).encode(),
        memories=json.dumps(memory).encode(),
        archive=pack({"transcripts/s1.jsonl": json.dumps(ENTRIES[0])}),
    )
    stream = load("tiny", tmp_path)
    first, second = stream.sessions
    # Nothing is unpacked before the first read.
    assert not (tmp_path / "cache").exists()
    assert first.transcript is not None
    assert first.transcript() == [{"role": "user", "content": "clean the store"}]
    assert second.transcript is None
    assert not stream.has_transcripts
