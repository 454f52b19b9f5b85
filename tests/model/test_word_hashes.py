"""Hashed words: the same everywhere, identifiers by whole and parts, never too many."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory.model.base import BUCKETS, MAX_CHARS, MAX_WORDS, by_table, pooled, words_of


def bucket(word: str) -> int:
    return zlib.crc32(word.encode()) % BUCKETS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" ... !? ", []),
        ("Deploy the deploy", ["deploy", "the"]),
        ("getUserName", ["getusername", "get", "user", "name"]),
        ("HTTPServer_v2", ["httpserver_v2", "http", "server", "v", "2"]),
        ("__init__", ["init"]),
        ("src/app.py", ["src", "app", "py"]),
        ("Čeština naïve", ["čeština", "naïve"]),
        ("ﬁle", ["file"]),
        ("STRASSE Straße", ["strasse"]),
        ("日本語", ["日本語", "日", "本", "語"]),
    ],
)
def test_the_words_of_a_text(text: str, words: list[str]) -> None:
    assert words_of(text).tolist() == [bucket(word) for word in words]


def test_another_process_with_other_hashes_agrees() -> None:
    text = "Straße getUserName 日本 42 foo_bar"
    code = f"from meritory.model.base import words_of; print(words_of({text!r}).tolist())"
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.strip() == str(words_of(text).tolist())


def test_the_hash_is_the_published_one_so_that_checkpoints_keep_their_meaning() -> None:
    assert words_of("123456789").tolist() == [0xCBF43926 % 16_384]


def test_no_more_than_the_stated_number_of_words_and_letters_is_read() -> None:
    many = words_of(" ".join(f"word{letter}" for letter in map(chr, range(0x4E00, 0x4E00 + 500))))
    assert len(many) == MAX_WORDS
    assert len(words_of("?" * MAX_CHARS + " late")) == 0


def test_words_spread_over_the_buckets_as_by_chance() -> None:
    names = [f"{first}{second}" for first in "abcdefghij" for second in range(2000)]
    counts = np.bincount([bucket(name) for name in names], minlength=BUCKETS)
    assert counts.var() / counts.mean() < 1.2


@settings(max_examples=100)
@given(st.text(max_size=300))
def test_any_text_has_words_within_the_table(text: str) -> None:
    found = words_of(text)
    assert found.dtype == np.int64
    assert len(found) <= MAX_WORDS
    assert ((found >= 0) & (found < BUCKETS)).all()


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 5) | st.just(BUCKETS - 1), min_size=1), max_size=150))
def test_a_text_is_the_mean_of_its_words_rows_and_shares_its_gradient(
    texts: list[list[int]],
) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((BUCKETS, 2))
    words = np.array([word for text in texts for word in text], np.int64)
    counts = np.array([len(text) for text in texts], np.int64)
    means = [table[text].mean(0) for text in texts]
    found = pooled(table, words, counts, np.float64)
    np.testing.assert_allclose(found, np.reshape(means, (len(texts), 2)))
    slopes = rng.standard_normal((len(texts), 2))
    expected = np.zeros((BUCKETS, 2))
    for text, slope in zip(texts, slopes, strict=True):
        np.add.at(expected, text, slope / len(text))
    gradient = by_table(slopes, words, counts)
    assert gradient.rows.tolist() == sorted(set(words.tolist()))
    np.testing.assert_allclose(gradient.values, expected[gradient.rows], atol=1e-12)
