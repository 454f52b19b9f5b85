"""What a text names for certain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.domain.errors import InputError
from meritory.text.entities import MAX_MENTIONS, About, Mention, entity_key, mentions, parse_about


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see src/meritory/a.py:12.", [("path", "src/meritory/a.py")]),
        ("open ./notes/todo.md", [("path", "notes/todo.md")]),
        ("in /etc/hosts", [("path", "/etc/hosts")]),
        ("on C:\\notes\\a.txt", [("path", "C:/notes/a.txt")]),
        ("README.md and pyproject.toml", [("path", "README.md"), ("path", "pyproject.toml")]),
        ("run `open_embedder()` now", [("identifier", "open_embedder")]),
        ("`src/a.py` changed", [("path", "src/a.py")]),
        ("ask @Anna about #Billing", [("name", "anna"), ("tag", "billing")]),
        ("fixed in #123", [("issue", "#123")]),
        ("`a` then `a` again", [("identifier", "a")]),
    ],
)
def test_certain_mentions(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(found.kind, found.name) for found in mentions(text)] == expected


@pytest.mark.parametrize(
    "text",
    [
        "write to anna@example.com",
        "see https://example.com/a/b.py#part",
        "tea and/or coffee, he/she, 1/2, km/h",
        "Node.js and Vue.js",
        "colour #fff, #a1b2c3 and #123456",
        "# Heading",
        "@property def x, @pytest.fixture, @types/node",
        "`git push --force` and `--flag` and `123` and `true`",
        "type /help",
        "e.g. this, i.e. that",
        "C# and F#",
    ],
)
def test_what_is_not_certain_is_left_alone(text: str) -> None:
    assert mentions(text) == ()


def test_mentions_are_bounded() -> None:
    assert len(mentions(" ".join(f"`name{number}`" for number in range(500)))) == MAX_MENTIONS


@given(st.text())
def test_mentions_never_raise(text: str) -> None:
    assert all(found.name for found in mentions(text))


def test_keys_fold_case_only_where_case_says_nothing() -> None:
    assert entity_key("tag", "Billing") == entity_key("tag", "billing")
    assert entity_key("path", "README.md") != entity_key("path", "readme.md")
    assert entity_key("tag", "x") != entity_key("name", "x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auth/tokens", About(Mention("topic", "auth"), "tokens")),
        ("Billing  Team", About(Mention("topic", "billing team"), None)),
        ("src/a.py", About(Mention("path", "src/a.py"), None)),
        ("src/a.py/timeouts", About(Mention("path", "src/a.py"), "timeouts")),
        ("@Anna/food", About(Mention("name", "anna"), "food")),
        ("#123", About(Mention("issue", "#123"), None)),
        ("`Reader`/limits", About(Mention("identifier", "Reader"), "limits")),
    ],
)
def test_about(text: str, expected: About) -> None:
    assert parse_about(text) == expected


@pytest.mark.parametrize("text", ["", "  ", "/x", "auth/", "a" * 121, "a\nb", "a\x1b/b"])
def test_about_that_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="about"):
        parse_about(text)
