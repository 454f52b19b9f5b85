"""JSON as people write it: parse it with offsets, and edit the text in place.

Comments and trailing commas are accepted everywhere, as clients do; names without quotes and texts
in single quotes only where the client reads JSON5. An addition follows the surrounding style, the
rest stays. Removing it restores the text, even if the rest was edited in between.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, NoReturn

Dialect = Literal["json", "json5"]
Kind = Literal["object", "array", "scalar"]

DEPTH_LIMIT: Final = 100
# Longer whole numbers Python does not read; a client takes them for the nearest it knows.
DIGITS_LIMIT: Final = 4_000
_TOKENS: Final = frozenset('{}[]",:')
_BOUNDED: Final = frozenset('{["')
_INDENTED = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_BLANKS = re.compile(r"[ \t]*")
_BLANK = re.compile(r"[\s\ufeff]*")
_SKIPPED = re.compile(r"(?:[\s\ufeff]+|//[^\n\r]*|/\*[\s\S]*?\*/)*")
_COMMENT = re.compile(r"//[^\n\r]*|/\*.*?\*/", re.DOTALL)
_LOOSE_SIGN = re.compile(
    r'"(?:[^"\\]|\\.)*"|(?P<comment>//[^\n\r]*|/\*.*?\*/)'
    r"|(?P<comma>,)(?=(?:\s|//[^\n\r]*|/\*.*?\*/)*[}\]])",
    re.DOTALL,
)
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
_ESCAPES: Final = {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
    "\n": "", "\r": "", "\r\n": "", "\u2028": "", "\u2029": "",
}  # fmt: skip


class JsonSyntaxError(ValueError):
    """The text is not valid; the message has the line and the column."""

    def __init__(self, text: str, at: int, what: str) -> None:
        before = text[:at]
        self.line = before.count("\n") + 1
        self.column = at - (before.rfind("\n") + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {what}")


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its offsets; the parts of an object have names."""

    kind: Kind
    start: int
    end: int
    value: Any = None
    parts: tuple[JsonPart, ...] = field(default=())

    def member(self, name: str) -> JsonPart | None:
        """Return the part of this name; the last one counts, as clients read it."""
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
        """Return the offset behind its value."""
        return self.node.end


def plain(node: Node) -> Any:
    """Return the value that a client would read."""
    if node.kind == "object":
        return {part.name: plain(part.node) for part in node.parts}
    if node.kind == "array":
        return [plain(part.node) for part in node.parts]
    return node.value


def read(text: str, dialect: Dialect = "json", opened: Container[str] | None = None) -> Node:
    """Return the whole text as one value; raise JsonSyntaxError if it is not one.

    Of the outer object only the members in `opened` are parsed into parts; None means all.
    """
    reader = _JsonReader(text, dialect, opened)
    node = reader.value(reader.skip(0), 0)
    rest = reader.skip(node.end)
    if rest != len(text):
        raise JsonSyntaxError(text, rest, "something follows the end")
    return node


def first_loose(text: str, kinds: Container[str]) -> JsonSyntaxError | None:
    """Return where JSON has a comment or a trailing comma; `kinds` has "comment" and "comma"."""
    for found in _LOOSE_SIGN.finditer(text):
        if found.lastgroup in kinds:
            what = "a comment" if found.lastgroup == "comment" else "a comma before the end"
            return JsonSyntaxError(text, found.start(), what)
    return None


def gaps(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the comments that follow, with nothing but blanks around them."""
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
    """A parser that reads a text once, from its start to its end."""

    def __init__(self, text: str, dialect: Dialect, opened: Container[str] | None) -> None:
        self._text = text
        self._loose = dialect == "json5"
        self._opened = opened

    def skip(self, at: int) -> int:
        """Return the next offset that is neither blank nor comment."""
        if self._text[at : at + 1] in _TOKENS:
            return at
        at = _end(_SKIPPED, self._text, at)
        if self._text.startswith("/*", at):
            raise JsonSyntaxError(self._text, at, "a comment that is never closed")
        return at

    def value(self, at: int, depth: int) -> Node:
        """Return the value that starts here."""
        if depth > DEPTH_LIMIT:
            raise JsonSyntaxError(self._text, at, "nested too deeply")
        first = self._text[at : at + 1]
        if first == "{":
            return self._container("object", "}", at, depth)
        if first == "[":
            return self._container("array", "]", at, depth)
        string = self._string(at)
        if string is not None:
            return Node("scalar", at, *string)
        word = _WORD.match(self._text, at)
        if word is not None:
            return Node("scalar", at, word.end(), json.loads(word[0]))
        number = (_NUMBER5 if self._loose else _NUMBER).match(self._text, at)
        if number is None:
            raise JsonSyntaxError(self._text, at, "a value is missing or malformed")
        digits = number[0].lstrip("+-")
        value: int | float
        if digits[:2].lower() == "0x":
            value = int(number[0], 16)
        elif digits.isdigit() and len(digits) <= DIGITS_LIMIT:
            value = int(number[0])
        else:
            value = float(number[0].replace("Infinity", "inf"))
        return Node("scalar", at, number.end(), value)

    def _container(self, kind: Kind, closing: str, at: int, depth: int) -> Node:
        parts: list[JsonPart] = []
        here = self.skip(at + 1)
        while self._text[here : here + 1] != closing:
            start, name = here, None
            if kind == "object":
                bare = _NAME5.match(self._text, here) if self._loose else None
                string = self._string(here) or (bare and (bare.end(), bare[0]))
                if not string:
                    raise JsonSyntaxError(self._text, here, "a name in double quotes is missing")
                here, name = self.skip(string[0]), string[1]
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
            # It has comments or an error; the parser finds out.
            return None
        return Node("scalar", at, end, value)

    def _string(self, at: int) -> tuple[int, str] | None:
        found = (_STRING5 if self._loose else _STRING).match(self._text, at)
        if found is None:
            return None
        inner = found[0][1:-1]
        if self._loose:
            inner = _ESCAPE5.sub(_unescaped, inner)
        elif "\\" in inner:
            try:
                inner = json.loads(found[0])
            except ValueError as error:
                raise JsonSyntaxError(self._text, at, "a text with a malformed escape") from error
        return found.end(), inner


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else _ESCAPES.get(found[3], found[3])


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_QUICK: Final = json.JSONDecoder(parse_constant=_no_constant)


# -- editing --------------------------------------------------------------------------------


class Cut(NamedTuple):
    """A replacement of the text between two offsets."""

    start: int
    end: int
    text: str = ""


def applied(text: str, cuts: Sequence[Cut]) -> str:
    """Return the text with all replacements made; they must not overlap."""
    for cut in sorted(cuts, reverse=True):
        text = text[: cut.start] + cut.text + text[cut.end :]
    return text


def newline_of(text: str) -> str:
    """Return the line break that the text uses."""
    crlf = text.count("\r\n")
    return "\r\n" if crlf and crlf * 2 >= text.count("\n") else "\n"


def indent_of(text: str) -> str:
    """Return one step of the text's indentation: that of its first indented line."""
    found = _INDENTED.search(text)
    return found[1] if found else "  "


def insertion(text: str, container: Node, name: str | None, value: Any) -> list[Cut]:
    """Return the replacements that append a member or an item."""
    newline, outer = newline_of(text), _line_start(text, container.start)
    if not container.parts:
        # The first part is on its own line, after any comments.
        outer = outer[: len(outer) - len(outer.lstrip(" \t"))]
        inner = outer + indent_of(text)
        at = container.start + 1
        for _, end in gaps(text, at):
            at = end
        written = newline + inner + _written(text, name, value, inner) + newline + outer
        return [Cut(at, container.end - 1, written)]
    last = container.parts[-1]
    after = last.end if last.comma is None else last.comma + 1
    margin = _line_start(text, last.start)
    if margin.strip() or "\n" not in text[: last.start]:
        # The container is on one line, so the addition is, too.
        written = " " + _written(text, name, value, None)
    else:
        written = newline + margin + _written(text, name, value, margin)
        # Behind the comments on the same line.
        for start, end in gaps(text, after):
            if "\n" in text[after:start]:
                break
            after = end
    if last.comma is not None:
        return [Cut(after, after, written + ",")]
    if after == last.end:
        return [Cut(after, after, "," + written)]
    return [Cut(last.end, last.end, ","), Cut(after, after, written)]


def _line_start(text: str, at: int) -> str:
    """Return the text before an offset on its line."""
    return text[text.rfind("\n", 0, at) + 1 : at]


def _written(text: str, name: str | None, value: Any, margin: str | None) -> str:
    """Return a part in the style of the text; without a margin on one line."""
    made = json.dumps(value, ensure_ascii=False, indent=None if margin is None else indent_of(text))
    made = made.replace("\n", newline_of(text) + (margin or ""))
    return made if name is None else f"{json.dumps(name, ensure_ascii=False)}: {made}"


def removal(text: str, container: Node, part: JsonPart) -> list[Cut]:
    """Return the replacements that remove a part with its comma and its line."""
    place = container.parts.index(part)
    if part.comma is not None:
        after = part.comma + 1
        if _ends_line(text, after):
            return [Cut(_start(text, container, place, after), part.end), Cut(part.comma, after)]
        # The next part is on the same line and moves up.
        return [Cut(part.start, part.end), Cut(part.comma, _end(_BLANKS, text, after))]
    start = _start(text, container, place, part.end)
    before = container.parts[place - 1].comma if place else None
    if before is not None:
        if start <= before + 1:
            return [Cut(before, part.end)]
        return [Cut(start, part.end), Cut(before, before + 1)]
    rest = text[container.start + 1 : start] + text[part.end : container.end - 1]
    return [Cut(start, part.end if rest.strip() else container.end - 1)]


def _start(text: str, container: Node, place: int, after: int) -> int:
    """Return where the blanks before a part begin, unless a comment needs the line break."""
    part = container.parts[place]
    before = container.parts[place - 1].comma if place else None
    inside = container.start + 1 if before is None else before + 1
    remarks = [text[start:end] for start, end in gaps(text, inside) if end <= part.start]
    if remarks and remarks[-1].startswith("//") and not _ends_line(text, after):
        return part.start
    return len(text[: part.start].rstrip())


def _ends_line(text: str, at: int) -> bool:
    return text[_end(_BLANKS, text, at) :][:1] in ("", "\n", "\r")
