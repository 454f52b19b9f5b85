"""The words of a title: how they are split, which memories have one, and how a context matches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.text.terms import split_words, title_scores, title_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        ("the of and", ()),
        ("a b c", ()),
        ("src/upload/RetryLimits.py", ("src", "upload", "retry", "limit", "py")),
        ("HTTPServer", ("http", "server")),
        ("parse_url-fast", ("pars", "url", "fast")),
        ("__init__", ("init",)),
        ("port 8080", ("port", "8080")),
        ("Uploads uploading", ("upload", "upload")),
        ("日本語", ("日本語",)),
    ],
)
def test_identifiers_and_paths_are_split_into_stems(text: str, words: tuple[str, ...]) -> None:
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("opening", "words"),
    [
        # Several lines: the first one is the title.
        ("docs/deploy_guide.md\nUse flyctl for Caddy", ("doc", "deploy", "guid", "md")),
        ("Deploy notes\n", ("deploy", "note")),
        ("\nbody", ()),
        # One sentence: names, values, paths and quoted words.
        ("The API server listens on port 8080 behind Caddy.", ("8080", "api", "caddy")),
        ("Read `retry_limit` from src/conf.toml", ("retry", "limit", "src", "conf", "toml")),
        ("Anna reviews every migration before it is merged.", ()),
        ("", ()),
    ],
)
def test_a_document_has_its_first_line_and_a_claim_its_names(
    opening: str, words: tuple[str, ...]
) -> None:
    assert sorted(title_words(opening)) == sorted(words)


def test_a_claim_names_each_word_once() -> None:
    found = title_words("Set port_8080 and `port` in conf/port.toml behind Port")
    assert len(set(found)) == len(found)
    assert "port" in found


def scored(context: str, *titles: str) -> list[float]:
    return [float(score) for score in title_scores(context, [split_words(one) for one in titles])]


def test_titles_score_by_the_words_they_share() -> None:
    found = scored("deploy the api server", "deploy notes", "api server", "zebra", "")
    assert found[1] > found[0] > 0.0
    assert found[2:] == [0.0, 0.0]


def test_a_score_by_hand() -> None:
    found = scored("deploy", "deploy notes", "api server")
    # One of two titles of equal length holds the word: BM25 with a length factor of 1.
    assert found == pytest.approx([math.log1p(1.5 / 1.5) * 2.2 / 2.2, 0.0])
    found = scored("deploy", "deploy notes", "deploy plan", "api server")
    assert found == pytest.approx([math.log1p(1.5 / 2.5)] * 2 + [0.0])


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    titles = ("deploy guide", "deploy notes", "deploy plan", "deploy api")
    found = scored("deploy api", *titles)
    assert found[3] > 2.0 * found[0]
    assert found[0] == found[1] == found[2] > 0.0


def test_a_short_title_scores_more_than_a_long_one() -> None:
    found = scored("deploy", "deploy", "deploy notes of many other kinds of work", "zebra")
    assert found[0] > found[1] > 0.0


def test_a_repeated_word_counts_more_but_not_in_proportion() -> None:
    once, twice, _ = scored("retry", "retry upload", "retry retry", "zebra gnu")
    assert once < twice < 2.0 * once


def test_repeating_a_word_in_the_context_changes_nothing() -> None:
    titles = ("deploy notes", "api server")
    assert scored("deploy deploy deploy api", *titles) == scored("api deploy", *titles)


def test_without_titles_or_words_there_is_no_score() -> None:
    assert title_scores("deploy", []).tolist() == []
    assert scored("", "deploy notes") == [0.0]
    assert title_scores("deploy", [(), ()]).tolist() == [0.0, 0.0]


@given(st.text(max_size=60), st.lists(st.text(max_size=30), max_size=6))
def test_scores_are_finite_and_never_negative(context: str, openings: list[str]) -> None:
    found = title_scores(context, [title_words(opening) for opening in openings])
    assert found.shape == (len(openings),)
    assert np.isfinite(found).all()
    assert (found >= 0.0).all()
