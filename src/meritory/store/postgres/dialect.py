"""Statements written for SQLite, said in PostgreSQL; each text is translated once.

What both databases understand passes unchanged. The rest is a short list: values' places, the
reserved word `user`, lists that come as JSON, comparison with `IS`, empty blobs, and conflicts,
whose keys have the tenant in front here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meritory.store.postgres.schema import TENANT_TABLES

STATEMENTS_KEPT = 4_096
_PARTS = re.compile(r"('(?:[^']|'')*')")
_BLOB = re.compile(r"\bx'([0-9a-fA-F]*)'")
_PLACE = re.compile(r"\?(\d*)|(?<![:\w]):([a-z_]\w*)")
_LIST = re.compile(
    r"(\bNOT\s+)?\bIN\s*\(SELECT value FROM json_each\((\?\d*|:[a-z_]\w*)\)\)", re.IGNORECASE
)
# Word by word, and what it becomes; strings are never looked into.
_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\+(?=\w+\.user\b)"), ""),
    (re.compile(r'(?<![:\w"])user(?![\w"])'), '"user"'),
    (re.compile(r"\bIS\s+(?=[?:])"), "IS NOT DISTINCT FROM "),
    # Asked first whether it is missing, PostgreSQL would not know what kind of value it is.
    (re.compile(r"(\?|:[a-z_]\w*)(?=\s+IS\s+(?:NOT\s+)?NULL\b)"), r"\1::text"),
    (re.compile(r"\bCROSS\s+JOIN(?=\s+\w+(?:\s+\w+)?\s+ON\b)"), "JOIN"),
)
_CONFLICT = re.compile(r"\bON\s+CONFLICT\s*\(([^)]*)\)")
_INTO = re.compile(r"\s*INSERT\s+INTO\s+(\w+)", re.IGNORECASE)
_CHANGES = re.compile(r"\s*(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+(\w+)", re.IGNORECASE)
_ANSWERS = re.compile(r"\bRETURNING\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement in the SQL of PostgreSQL, and the places of its values."""

    text: str
    # By place the name of its value; empty when values come in order.
    names: tuple[str, ...]
    # Places whose value is a JSON list.
    lists: frozenset[int]
    # The table it changes, empty where it only reads, and whether it brings rows all the same.
    changes: str
    is_answered: bool

    def values(self, given: Any) -> list[Any]:
        """The values by place."""
        if not self.names:
            return list(given)
        if not isinstance(given, Mapping):
            raise TypeError("a statement with named values wants them by name")
        return [given[name] for name in self.names]


class _Places:
    """Numbers the places of a statement in the order in which they are met."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.count = 0

    def number(self, numbered: str | None, name: str | None) -> int:
        """The number of one place, counted from one."""
        if name is not None:
            if name not in self.names:
                self.names.append(name)
            return self.names.index(name) + 1
        if numbered:
            self.count = max(self.count, int(numbered))
            return int(numbered)
        self.count += 1
        return self.count


@functools.lru_cache(maxsize=STATEMENTS_KEPT)
def translate(statement: str) -> Statement:
    """The statement as PostgreSQL takes it."""
    text = _outside_strings(_BLOB.sub(r"'\\x\1'::bytea", statement), _reworded)
    text = _CONFLICT.sub(functools.partial(_led, _table_of(text)), text)
    places, lists = _Places(), set[int]()

    def placed(code: str) -> str:
        def one(match: re.Match[str]) -> str:
            number = places.number(match[1], match[2])
            if match.string[match.end() :].startswith(")") and _is_list(match):
                lists.add(number - 1)
            return f"${number}"

        return _PLACE.sub(one, code)

    numbered = _outside_strings(text, placed)
    if places.names and places.count:
        raise ValueError("values come in order or by name, not both")
    return Statement(
        text=numbered,
        names=tuple(places.names),
        lists=frozenset(lists),
        changes=found[1] if (found := _CHANGES.match(numbered)) else "",
        is_answered=bool(_ANSWERS.search(numbered)),
    )


def _outside_strings(statement: str, change: Callable[[str], str]) -> str:
    parts = _PARTS.split(statement)
    # Every second part is a string.
    return "".join(part if at % 2 else change(part) for at, part in enumerate(parts))


def _reworded(code: str) -> str:
    code = _LIST.sub(lambda m: f"{'<> ALL' if m[1] else '= ANY'}({m[2]})", code)
    for pattern, becomes in _WORDS:
        code = pattern.sub(becomes, code)
    return code


def _is_list(match: re.Match[str]) -> bool:
    return match.string[: match.start()].endswith(("= ANY(", "<> ALL("))


def _table_of(text: str) -> str:
    found = _INTO.match(text)
    return found[1] if found else ""


def _led(table: str, match: re.Match[str]) -> str:
    """A conflict's key with the tenant in front, as every key of a tenant's table has it."""
    has_tenant = '"user"' in match[1] or table not in TENANT_TABLES
    return match[0] if has_tenant else f'ON CONFLICT ("user", {match[1]})'
