"""Query words, full-text expressions and extra index words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meritory.text.terms import (
    MAX_TERMS,
    choose_terms,
    fts_query,
    index_words,
    query_terms,
    split_identifier,
)

SYNTAX = st.text(alphabet="\"*^:(){}+-_' \x00ab\n,.ANDORNEAT\ud800", max_size=60)


@pytest.fixture
def table() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE notes USING fts5 (content, words,"
        " tokenize = 'porter unicode61 remove_diacritics 2')"
    )
    yield connection
    connection.close()


def found(table: sqlite3.Connection, typed: str) -> int:
    row = table.execute(
        "SELECT count(*) FROM notes WHERE notes MATCH ?", (fts_query(query_terms(typed)),)
    ).fetchone()
    return int(row[0])


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("what is the deploy day", ("deploy", "day")),
        ("who are you", ("who", "are", "you")),
        ("", ()),
        ("+-*/", ()),
        ("tabs AND spaces OR NOT x", ("tabs", "spaces", "x")),
        ("NEAR(tabs spaces)", ("tabs", "spaces")),
        ("near the harbour", ("near", "harbour")),
        ("tabs tabs Tabs", ("tabs",)),
        ("openEmbedder", ("openembedder", "open", "embedder")),
        ("max_retry_count", ("max_retry_count", "max", "retry", "count")),
        ("HTTPServer", ("httpserver", "http", "server")),
        ("src/app.py", ("src/app.py", "src", "app", "py")),
        ("the user's dog", ("user", "dog")),
        ("I don't know", ("know",)),
        ("Straße café", ("straße", "café")),
        ("東京都", ("東京都", "東京", "京都")),
    ],
)
def test_content_words_of_what_was_typed(typed: str, expected: tuple[str, ...]) -> None:
    assert query_terms(typed) == expected


def test_ten_thousand_words_are_bounded() -> None:
    typed = " ".join(f"word{number}" for number in range(10_000))
    assert len(query_terms(typed)) == MAX_TERMS
    assert len(query_terms(typed, limit=5)) == 5
    assert fts_query(f"t{number}" for number in range(10_000)).count(" OR ") == MAX_TERMS - 1


@given(st.text())
def test_terms_are_distinct_and_never_raise(typed: str) -> None:
    terms = query_terms(typed)
    assert len(set(terms)) == len(terms) <= MAX_TERMS


@given(st.one_of(st.text(max_size=80), SYNTAX))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_typed_text_is_a_syntax_error(table: sqlite3.Connection, typed: str) -> None:
    assert found(table, typed) == 0


@given(st.lists(st.one_of(st.text(max_size=20), SYNTAX), max_size=100))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_list_of_terms_is_a_syntax_error(table: sqlite3.Connection, terms: list[str]) -> None:
    table.execute("SELECT count(*) FROM notes WHERE notes MATCH ?", (fts_query(terms),)).fetchone()


@pytest.mark.parametrize(
    ("content", "typed"),
    [
        ("call openEmbedder first", "embedder"),
        ("call openEmbedder first", "openEmbedder"),
        ("see max_retry_count", "retry"),
        ("see src/meritory/text/terms.py", "terms.py"),
        ("the HTTPServer class", "server"),
        ("encoded as utf8", "utf-8"),
        ("彼は東京都に住む", "東京"),
        ("Crème brûlée", "creme brulee"),
        ("deploys on Fridays", 'deploy*" OR col:x'),
    ],
)
def test_parts_of_names_are_found(table: sqlite3.Connection, content: str, typed: str) -> None:
    table.execute("INSERT INTO notes VALUES (?, ?)", (content, index_words(content)))
    assert found(table, typed) == 1


def test_index_words_holds_only_what_the_tokenizer_would_miss() -> None:
    assert index_words("plain snake_case a/b.py kebab-case") == ""
    assert index_words("openEmbedder and openEmbedder") == "open embedder"
    assert split_identifier("parseJSON5File") == ("parse", "JSON", "5", "File")


def test_rarest_terms_come_first_within_the_budget() -> None:
    rows = {"common": 900, "rare": 3, "unknown": 0, "middling": 40}
    assert choose_terms(rows, 1000, 100) == ("rare", "middling")
    assert choose_terms(rows, 1000, 5000) == ("rare", "middling", "common")
    assert choose_terms({"common": 900}, 1000, 10) == ("common",)
    assert choose_terms({"unknown": 0}, 1000, 10) == ()
    assert choose_terms({}, 0, 10) == ()


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 50)), st.integers(0, 100))
def test_chosen_terms_keep_the_budget(rows: dict[str, int], budget_rows: int) -> None:
    chosen = choose_terms(rows, 50, budget_rows)
    assert bool(chosen) == any(rows.values())
    assert all(rows[term] for term in chosen)
    assert len(chosen) <= 1 or sum(rows[term] for term in chosen) <= budget_rows
