"""Files are read as a stream: the same messages as in one go, in bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meritory.connect import transcripts
from meritory.connect.desired import Message
from meritory.connect.transcripts import TranscriptFile, read_messages

MEGABYTE = 1_000_000


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "s.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def streamed(path: Path, limit_bytes: int = 100 * MEGABYTE) -> tuple[list[Message], int]:
    """The messages of a file, and how many lines were skipped."""
    with path.open("rb") as opened:
        file = TranscriptFile(opened, limit_bytes)
        return list(file.messages()), file.skipped_count


def lines(entries: Iterable[Any]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, **more}


def contents(messages: Iterable[Message]) -> list[Any]:
    return [message["content"] for message in messages]


# -- the same as in one go --------------------------------------------------------------------

_ENTRIES = st.one_of(
    st.builds(said, st.text(max_size=10)),
    st.builds(
        lambda kind, name, text: {"type": kind, "id": name, "content": text},
        st.sampled_from(["user", "gemini"]),
        st.sampled_from("abcd"),
        st.text(max_size=10),
    ),
    st.builds(lambda name: {"$rewindTo": name}, st.sampled_from("abcdx")),
    st.sampled_from([5, None, [], {}, {"payload": {"role": "user", "content": "codex"}}]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_ENTRIES, max_size=20), st.booleans())
def test_a_stream_says_what_the_whole_text_says(
    tmp_path: Path, entries: list[Any], is_document: bool
) -> None:
    text = lines([{"sessionId": "s", "projectHash": "h"}, *entries])
    if is_document:
        text = json.dumps({"sessionId": "s", "list": [[1], {}], "messages": entries}, indent=2)
    assert streamed(written(tmp_path, text))[0] == read_messages(text)


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_gemini_rewrites_and_takes_back(tmp_path: Path, start: str, end: str) -> None:
    def entry(name: str, kind: str, content: str) -> dict[str, Any]:
        return {"id": name, "type": kind, "content": content}

    entries = [
        {"sessionId": "s", "projectHash": "h"},
        entry("1", "user", "one"),
        entry("2", "gemini", "two, cut of"),
        entry("3", "user", "three"),
        # Written again behind a later one, it keeps its place.
        entry("2", "gemini", "two"),
        entry("4", "gemini", "never mind"),
        {"$rewindTo": "4"},
        entry("5", "gemini", "five"),
    ]
    text = start + "".join(json.dumps(one) + end for one in entries)
    found, skipped = streamed(written(tmp_path, text))
    assert (contents(found), skipped) == (["one", "two", "three", "five"], 0)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_document_is_read_up_to_where_it_is_cut(tmp_path: Path, end: str) -> None:
    entries = [{"type": "user", "id": str(number), "content": str(number)} for number in range(9)]
    text = json.dumps({"sessionId": "s", "messages": entries}, indent=2).replace("\n", end)
    assert contents(streamed(written(tmp_path, text))[0]) == [str(n) for n in range(9)]
    cut = text[: text.index('"content": "5"')]
    assert contents(streamed(written(tmp_path, cut))[0]) == [str(n) for n in range(5)]
    assert contents(read_messages(cut)) == [str(n) for n in range(5)]


def test_a_document_that_is_too_long_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({"messages": [{"role": "user", "content": "x"}]}, indent=2)
    monkeypatch.setattr(transcripts, "DOCUMENT_LIMIT_BYTES", len(text))
    assert len(streamed(written(tmp_path, text))[0]) == 1
    monkeypatch.setattr(transcripts, "DOCUMENT_LIMIT_BYTES", len(text) - 1)
    assert streamed(written(tmp_path, text)) == ([], 1)


# -- what is left out -------------------------------------------------------------------------


def test_broken_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    text = lines([said("one")]) + '{"cut\n\n[1]\n\x00\n' + lines([said("two")]) + '{"type": "us'
    found, skipped = streamed(written(tmp_path, text))
    assert contents(found) == ["one", "two"]
    assert skipped == 3


@pytest.mark.parametrize("is_gemini", [False, True])
def test_a_line_that_is_too_long_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gemini: bool
) -> None:
    monkeypatch.setattr(transcripts, "LINE_LIMIT_BYTES", 2_000)
    monkeypatch.setattr(transcripts, "_CHUNK_BYTES", 64)
    mark = [{"projectHash": "h"}] if is_gemini else []
    long = said("x" * 9_000)
    entries = [*mark, said("one"), long, said("two"), long, long, said("three"), long]
    found, skipped = streamed(written(tmp_path, lines(entries)))
    assert (contents(found), skipped) == (["one", "two", "three"], 4)


@pytest.mark.parametrize("kind", ["claude", "gemini"])
def test_of_a_file_over_the_limit_the_end_is_read(tmp_path: Path, kind: str) -> None:
    made = {"claude": said, "gemini": lambda text: {"type": "gemini", "id": text, "content": text}}
    entries = [made[kind](str(number)) for number in range(1_000)]
    path = written(tmp_path, lines(entries))
    found, skipped = streamed(path, path.stat().st_size // 3)
    numbers = [int(one) for one in contents(found)]
    assert numbers == list(range(numbers[0], 1_000))
    assert 600 < numbers[0] < 700
    # The first line is cut, not broken.
    assert skipped == 0


def test_a_file_without_end_gives_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, lines([said("one")]))
    with path.open("ab") as sparse:
        sparse.truncate(1 << 40)
    assert streamed(path, 3 * MEGABYTE)[0] == []


def test_what_is_appended_meanwhile_is_left_to_the_next_end(tmp_path: Path) -> None:
    path = written(tmp_path, lines([said("one"), said("two")]))
    with path.open("rb") as opened:
        file = TranscriptFile(opened).messages()
        first = next(file)
        with path.open("a") as more:
            more.write(lines([said("three")]))
        assert contents([first, *file]) == ["one", "two"]


# -- bounded memory ---------------------------------------------------------------------------


def five_megabytes(kind: str) -> Iterator[str]:
    for number in range(500):
        text = f"{number} " + "heron " * 1_600
        if kind == "gemini":
            yield lines([{"type": "gemini", "id": str(number // 2), "content": text}])
        else:
            yield lines([said(text)])


@pytest.mark.parametrize("kind", ["claude", "gemini"])
def test_a_long_file_takes_little_memory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s.jsonl"
    with path.open("w") as file:
        file.writelines(five_megabytes(kind))
    assert path.stat().st_size > 4.8 * MEGABYTE
    with path.open("rb") as opened:
        tracemalloc.start()
        try:
            count = sum(1 for _ in TranscriptFile(opened).messages())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert count == (250 if kind == "gemini" else 500)
    # Pieces of a megabyte are looked through first; nothing else is held.
    assert peak < 3 * MEGABYTE
