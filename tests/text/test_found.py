"""Which words of a question a text contains."""

from __future__ import annotations

import pytest

from meritory.text.found import READ_CHARS, WordFinder


@pytest.mark.parametrize(
    ("text", "term", "is_found"),
    [
        ("We deploy on Tuesdays", "deploys", True),
        ("We deployed it", "deploy", True),
        ("The party is over", "art", False),
        ("The cartography of Mars", "art", False),
        ("A db for tests", "db", True),
        ("The dbx file", "db", False),
        ("Die Datenbank heißt Reiher", "datenbank", True),
        ("Die Häuser sind grün", "häuser", True),
        ("Le café est fermé", "cafe", True),
        ("测试数据库叫苍鹭", "数据", True),
        ("测试数据库叫苍鹭", "天气", False),
        ("anything", "", False),
    ],
)
def test_a_term_is_found_by_the_beginning_of_a_word(text: str, term: str, is_found: bool) -> None:
    assert WordFinder([term]).find(text) == ([is_found], 0)


def test_parts_of_identifiers_are_found_on_request() -> None:
    text = "Use parseConfigFile"
    assert WordFinder(["config"]).find(text)[0] == [False]
    assert WordFinder(["config"]).find_parts(text) == [True]


def test_phrases_are_counted() -> None:
    text = "The support group meets in the town hall"
    assert WordFinder([], ["support group", "town hall", "group hall"]).find(text) == ([], 2)


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    assert WordFinder(["heron"]).find("x " * READ_CHARS + "heron")[0] == [False]
