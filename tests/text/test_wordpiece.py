"""The tokenizer gives the reference's ids, on every text, whatever was cached before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.text import tokens
from meritory.text.tokens import WordPiece

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = (ROOT / "src/meritory/data/vocab.txt").read_text(encoding="utf-8").split("\n")
GOLDEN = json.loads((Path(__file__).parent / "wordpiece_golden.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pieces() -> WordPiece:
    return WordPiece(VOCABULARY)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: ascii(row["text"])[1:30])
def test_ids_are_those_of_the_reference(pieces: WordPiece, row: dict[str, object]) -> None:
    assert pieces.encode(str(row["text"])) == row["ids"]


def test_the_golden_file_is_not_trivial(pieces: WordPiece) -> None:
    ids = [found for row in GOLDEN for found in row["ids"]]
    assert len(GOLDEN) >= 60
    assert len(set(ids)) > 400
    assert pieces.unknown_id in ids


def test_a_second_reading_from_the_cache_is_the_same(pieces: WordPiece) -> None:
    fresh = WordPiece(VOCABULARY)
    for row in GOLDEN:
        assert fresh.encode(row["text"]) == fresh.encode(row["text"]) == row["ids"]


def test_a_full_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_CACHED_CHUNKS", 3)
    small = WordPiece(VOCABULARY)
    for row in GOLDEN:
        assert small.encode(row["text"]) == row["ids"]
    assert len(small._cache) <= 3


def test_long_chunks_are_not_kept(pieces: WordPiece) -> None:
    pieces.encode("z" * 90)
    assert "z" * 90 not in pieces._cache


@given(st.text(max_size=200))
def test_any_text_gives_known_ids(text: str) -> None:
    found = _PIECES.encode(text)
    assert all(0 <= item < len(VOCABULARY) for item in found)


@given(st.text(max_size=60), st.text(max_size=60))
def test_texts_side_by_side_are_their_parts(left: str, right: str) -> None:
    assert _PIECES.encode(f"{left} {right}") == _PIECES.encode(left) + _PIECES.encode(right)


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=100))
def test_case_does_not_matter_in_ascii(text: str) -> None:
    assert _PIECES.encode(text.upper()) == _PIECES.encode(text.lower())


_PIECES = WordPiece(VOCABULARY)
