"""PostgreSQL 15 refuses a subquery in FROM that has no name; newer ones and SQLite do not care."""

import re
from collections.abc import Iterator
from pathlib import Path

import meritory

SOURCES = Path(meritory.__file__).parent
_OPENING = re.compile(r"\b(?:FROM|JOIN)[\s\"]*\((?=[\s\"]*(?:SELECT\b|VALUES\b|\{))")
# After the closing bracket, over the quotes of a literal that goes on in the next line.
_NAME = re.compile(r"[\s\"f]*(?:AS\s+)?[a-z_{]")


def nameless(text: str) -> Iterator[int]:
    """Where a subquery begins that has no name, by line."""
    for opening in _OPENING.finditer(text):
        depth = 0
        for at in range(opening.end() - 1, len(text)):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            if depth == 0:
                if not _NAME.match(text, at + 1):
                    yield text.count("\n", 0, opening.start()) + 1
                break


def test_a_nameless_subquery_is_noticed() -> None:
    told = ['"SELECT 1 FROM (SELECT 2)"', '"SELECT count(*) FROM ({_ALL}), 3"']
    named = ['"SELECT 1 FROM (SELECT max(2)) AS a"', '"SELECT 1 FROM (SELECT 2)"\n    " s WHERE 1"']
    assert [list(nameless(text)) for text in told] == [[1], [1]]
    assert [list(nameless(text)) for text in named] == [[], []]


def test_every_subquery_has_a_name() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{line}"
        for path in sorted(SOURCES.rglob("*.py"))
        for line in nameless(path.read_text(encoding="utf-8"))
    ]
    assert found == []
