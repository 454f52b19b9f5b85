"""Edit JSON text in place: an addition follows the surrounding style, the rest stays.

Removing an addition restores the text, even if the rest was edited in between.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from meritory.connect.desired import Document, Item, Mark, Wish, Word
from meritory.connect.json_syntax import Dialect, JsonPart, JsonSyntaxError, Node, gaps, plain, read
from meritory.connect.managed import our_argv
from meritory.domain.errors import InputError

DEFAULT_INDENT: Final = "  "
_INDENTED = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_BLANKS = re.compile(r"[ \t]*")


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
    return found[1] if found else DEFAULT_INDENT


def insertion(text: str, container: Node, name: str | None, value: Any) -> list[Cut]:
    """Return the replacements that append a member or an item."""
    if not container.parts:
        return _first(text, container, name, value)
    last = container.parts[-1]
    margin = _margin(text, last.start)
    after = last.end if last.comma is None else last.comma + 1
    if margin is None:
        # The container is on one line, so the addition is, too.
        written = " " + _written(name, json.dumps(value, ensure_ascii=False))
    else:
        block = _block(text, value, margin)
        written = newline_of(text) + margin + _written(name, block)
        after = _line_end(text, after)
    if last.comma is not None:
        return [Cut(after, after, written + ",")]
    if after == last.end:
        return [Cut(after, after, "," + written)]
    return [Cut(last.end, last.end, ","), Cut(after, after, written)]


def _first(text: str, container: Node, name: str | None, value: Any) -> list[Cut]:
    """Return the replacement that adds the first part, on its own line, after any comments."""
    line = text.rfind("\n", 0, container.start) + 1
    outer = text[line : container.start]
    outer = outer[: len(outer) - len(outer.lstrip(" \t"))]
    inner = outer + indent_of(text)
    newline = newline_of(text)
    at = container.start + 1
    for _, end in gaps(text, at):
        at = end
    written = newline + inner + _written(name, _block(text, value, inner)) + newline + outer
    return [Cut(at, container.end - 1, written)]


def removal(text: str, container: Node, part: JsonPart) -> list[Cut]:
    """Return the replacements that remove a part with its comma and its line."""
    place = container.parts.index(part)
    if part.comma is not None:
        after = part.comma + 1
        if _ends_line(text, after):
            return [Cut(_start(text, container, place, after), part.end), Cut(part.comma, after)]
        # The next part is on the same line and moves up.
        return [Cut(part.start, part.end), Cut(part.comma, _past_blanks(text, after))]
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
    return text[_past_blanks(text, at) :][:1] in ("", "\n", "\r")


def _past_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _written(name: str | None, value: str) -> str:
    return value if name is None else f"{json.dumps(name, ensure_ascii=False)}: {value}"


def _block(text: str, value: Any, margin: str) -> str:
    made = json.dumps(value, ensure_ascii=False, indent=indent_of(text))
    return made.replace("\n", newline_of(text) + margin)


def _margin(text: str, at: int) -> str | None:
    """Return the blanks before an offset on its line, None if there is more than blanks."""
    line = text.rfind("\n", 0, at) + 1
    before = text[line:at]
    return before if line and not before.strip() else None


def _line_end(text: str, at: int) -> int:
    """Return the offset behind the comments on the same line."""
    for start, end in gaps(text, at):
        if "\n" in text[at:start]:
            break
        at = end
    return at


BOM = "\ufeff"
Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """Additions to a file other than commands, which are recognised by themselves."""

    # New objects and lists.
    created: tuple[Keys, ...] = ()
    # New plain texts and values.
    added: tuple[Keys, ...] = ()
    # The text that was added to a TOML file.
    chunk: str = ""


NOTHING_MADE = Made()


def dialect_of(document: Document) -> Dialect:
    """Return the dialect of a document."""
    return "json5" if document.syntax == "json5" else "json"


def object_text(text: str) -> str:
    """Return the text; an empty object for an empty file."""
    if text.removeprefix(BOM).strip():
        return text
    return (BOM if text.startswith(BOM) else "") + "{}" + newline_of(text)


def root_of(text: str, document: Document) -> Node:
    """Return the object in a file; raise an error for anything else."""
    kind = "JSON5" if document.syntax == "json5" else "JSON"
    try:
        root = read(text, dialect_of(document), {wish.path[0] for wish in document.wishes})
    except JsonSyntaxError as error:
        raise InputError(
            f"{document.path} is not valid {kind}: {error}",
            hint="fix that line, or move the file away, and try again; nothing was changed",
        ) from error
    if root.kind != "object":
        raise wrong_kind(document, (), "an object")
    return root


def wrong_kind(document: Document, path: Keys, wanted: str) -> InputError:
    """Return the error about a value of the wrong kind."""
    where = f"`{'.'.join(path)}` in {document.path}" if path else f"{document.path}"
    return InputError(
        f"{where} is not {wanted}",
        hint="correct or remove it, and try again; nothing was changed",
    )


def walk(root: Node, path: Keys) -> Node | None:
    """Return the node at a path, None without one."""
    node = root
    for name in path:
        part = node.member(name) if node.kind == "object" else None
        if part is None:
            return None
        node = part.node
    return node


def our_items(
    root: Node, document: Document, harness: str
) -> Iterator[tuple[Keys, Node, JsonPart]]:
    """Yield Meritory's hooks under any event: path, containing list, and part."""
    parents = {wish.path[:-1] for wish in document.wishes if isinstance(wish, Item)}
    for parent in sorted(parents):
        node = walk(root, parent)
        for event in node.parts if node is not None and node.kind == "object" else ():
            for part in event.node.parts if event.node.kind == "array" else ():
                path = (*parent, str(event.name))
                if our_argv(plain(part.node), harness):
                    yield path, event.node, part
                    continue
                group = walk(part.node, ("hooks",))
                if group is not None and group.kind == "array":
                    for inner in group.parts:
                        if our_argv(plain(inner.node), harness):
                            yield path, group, inner


def is_word(value: Any, wish: Word) -> bool:
    """Return whether a value is the desired text."""
    if not isinstance(value, str):
        return False
    return value.endswith(wish.ending) if wish.ending else value == wish.value


def is_frame(wish: Wish) -> bool:
    """Return whether the file needs an entry in any case."""
    return isinstance(wish, Mark) and wish.is_frame
