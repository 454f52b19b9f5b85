"""JSON as people write it: read with the place of every part, so that text can be changed in place.

Comments and trailing commas are let through everywhere, because clients do; names without quotes
and texts in single quotes only where the client reads JSON5.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn

Dialect = Literal["json", "json5"]
Kind = Literal["object", "array", "scalar"]

DEPTH_LIMIT: Final = 100
# Longer whole numbers Python does not read; a client takes them for the nearest it knows.
DIGITS_LIMIT: Final = 4_000
_TOKENS: Final = frozenset('{}[]",:')
_BOUNDED: Final = frozenset('{["')
_BLANK = re.compile(r"[\s\ufeff]*")
_SKIPPED = re.compile(r"(?:[\s\ufeff]+|//[^\n\r]*|/\*[\s\S]*?\*/)*")
_COMMENT = re.compile(r"//[^\n\r]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_STRING5 = re.compile(
    r"'(?:[^'\\\n\r]|\\(?:\r\n|.))*'|\"(?:[^\"\\\n\r]|\\(?:\r\n|.))*\"", re.DOTALL
)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.+-])")
_NUMBER5 = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|Infinity|NaN)(?![\w.+-])"
)
_WORD = re.compile(r"(?:true|false|null)(?![\w$])")
_NAME5 = re.compile(r"[A-Za-z_$\u00aa-\uffff][\w$]*")
_ESCAPE5 = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|[\s\S]))")
_WORDS: Final = {"true": True, "false": False, "null": None}
_ESCAPES: Final = {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
    "\n": "", "\r": "", "\r\n": "", "\u2028": "", "\u2029": "",
}  # fmt: skip


class JsonSyntaxError(ValueError):
    """The text is not what it should be; says where."""

    def __init__(self, text: str, at: int, what: str) -> None:
        before = text[:at]
        self.line = before.count("\n") + 1
        self.column = at - (before.rfind("\n") + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {what}")


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands; the parts of an object have their names."""

    kind: Kind
    start: int
    end: int
    value: Any = None
    parts: tuple[JsonPart, ...] = field(default=())

    def member(self, name: str) -> JsonPart | None:
        """The part of this name; the last one counts, as clients read it."""
        return next((part for part in reversed(self.parts) if part.name == name), None)


@dataclass(frozen=True, slots=True)
class JsonPart:
    """A member of an object or an item of an array, from its name to the end of its value."""

    start: int
    node: Node
    name: str | None = None
    comma: int | None = None

    @property
    def end(self) -> int:
        """Where its value ends."""
        return self.node.end


def plain(node: Node) -> Any:
    """The value that a client would read."""
    if node.kind == "object":
        return {part.name: plain(part.node) for part in node.parts}
    if node.kind == "array":
        return [plain(part.node) for part in node.parts]
    return node.value


def read(text: str, dialect: Dialect = "json", opened: Container[str] | None = None) -> Node:
    """The whole text as one value; raises Unreadable.

    Of an object only the members in `opened` are taken apart, all of them when it is None.
    """
    reader = _JsonReader(text, dialect, opened)
    node = reader.value(reader.skip(0), 0)
    rest = reader.skip(node.end)
    if rest != len(text):
        raise JsonSyntaxError(text, rest, "something follows the end")
    return node


def gaps(text: str, at: int) -> Iterator[tuple[int, int]]:
    """The comments that follow a place, with nothing but blanks around them."""
    while True:
        start = _end(_BLANK, text, at)
        found = _COMMENT.match(text, start)
        if found is None:
            return
        yield start, found.end()
        at = found.end()


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


class _JsonReader:
    """Goes through a text once, from its beginning to its end."""

    def __init__(self, text: str, dialect: Dialect, opened: Container[str] | None) -> None:
        self._text = text
        self._loose = dialect == "json5"
        self._opened = opened

    def skip(self, at: int) -> int:
        """The next place that is neither blank nor comment."""
        if self._text[at : at + 1] in _TOKENS:
            return at
        at = _end(_SKIPPED, self._text, at)
        if self._text.startswith("/*", at):
            raise JsonSyntaxError(self._text, at, "a comment that is never closed")
        return at

    def value(self, at: int, depth: int) -> Node:
        """The value that begins here."""
        if depth > DEPTH_LIMIT:
            raise JsonSyntaxError(self._text, at, "nested too deeply")
        first = self._text[at : at + 1]
        if first == "{":
            return self._container("object", "}", at, depth)
        if first == "[":
            return self._container("array", "]", at, depth)
        end, value = self._scalar(at)
        return Node("scalar", at, end, value)

    def _container(self, kind: Kind, closing: str, at: int, depth: int) -> Node:
        parts: list[JsonPart] = []
        here = self.skip(at + 1)
        while self._text[here : here + 1] != closing:
            start, name = here, None
            if kind == "object":
                here, name = self._name(here)
                here = self.skip(here)
                if self._text[here : here + 1] != ":":
                    raise JsonSyntaxError(self._text, here, "a colon is missing")
                here = self.skip(here + 1)
            node = (None if depth else self._closed(name, here)) or self.value(here, depth + 1)
            here = self.skip(node.end)
            comma = here if self._text[here : here + 1] == "," else None
            parts.append(JsonPart(start, node, name, comma))
            if comma is None:
                break
            here = self.skip(here + 1)
        if self._text[here : here + 1] != closing:
            raise JsonSyntaxError(self._text, here, f"{closing} or a comma is missing")
        return Node(kind, at, here + 1, parts=tuple(parts))

    def _closed(self, name: str | None, at: int) -> Node | None:
        """Skip a member that is not needed: some files hold megabytes of such."""
        is_opened = self._opened is None or name is None or name in self._opened
        # Numbers are left out: a 0 may be the beginning of 0x10.
        if is_opened or self._text[at : at + 1] not in _BOUNDED:
            return None
        try:
            value, end = _QUICK.raw_decode(self._text, at)
        except (ValueError, RecursionError):
            # With remarks and the like, or wrong, which is found out step by step.
            return None
        return Node("scalar", at, end, value)

    def _name(self, at: int) -> tuple[int, str]:
        found = self._string(at)
        if found is not None:
            return found
        bare = _NAME5.match(self._text, at) if self._loose else None
        if bare is None:
            raise JsonSyntaxError(self._text, at, "a name in double quotes is missing")
        return bare.end(), bare[0]

    def _scalar(self, at: int) -> tuple[int, Any]:
        found = self._string(at)
        if found is not None:
            return found
        word = _WORD.match(self._text, at)
        if word is not None:
            return word.end(), _WORDS[word[0]]
        number = (_NUMBER5 if self._loose else _NUMBER).match(self._text, at)
        if number is None:
            raise JsonSyntaxError(self._text, at, "a value is missing or malformed")
        return number.end(), _number(number[0])

    def _string(self, at: int) -> tuple[int, str] | None:
        found = (_STRING5 if self._loose else _STRING).match(self._text, at)
        if found is None:
            return None
        if "\\" not in found[0]:
            return found.end(), found[0][1:-1]
        if self._loose:
            return found.end(), _ESCAPE5.sub(_unescaped, found[0][1:-1])
        try:
            return found.end(), json.loads(found[0])
        except ValueError as error:
            raise JsonSyntaxError(self._text, at, "a text with a malformed escape") from error


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else _ESCAPES.get(found[3], found[3])


def _number(text: str) -> int | float:
    digits = text.lstrip("+-")
    if digits[:2].lower() == "0x":
        return int(text, 16)
    is_whole = digits.isdigit() and len(digits) <= DIGITS_LIMIT
    return int(text) if is_whole else float(text.replace("Infinity", "inf"))


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


_QUICK: Final = json.JSONDecoder(parse_constant=_no_constant)
