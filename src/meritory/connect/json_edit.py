"""Changing JSON text in place: what is put in looks like its surroundings, the rest stays as it is.

Taking out what was put in gives the text as it was, also when the rest was changed meanwhile.
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
    """A change: what stands between two places gives way to a text."""

    start: int
    end: int
    text: str = ""


def applied(text: str, cuts: Sequence[Cut]) -> str:
    """The text with all changes made; they must not overlap."""
    for cut in sorted(cuts, reverse=True):
        text = text[: cut.start] + cut.text + text[cut.end :]
    return text


def newline_of(text: str) -> str:
    """The line break that the text uses."""
    crlf = text.count("\r\n")
    return "\r\n" if crlf and crlf * 2 >= text.count("\n") else "\n"


def indent_of(text: str) -> str:
    """One step of the text's own indentation: that of its first indented line."""
    found = _INDENTED.search(text)
    return found[1] if found else DEFAULT_INDENT


def insertion(text: str, container: Node, name: str | None, value: Any) -> list[Cut]:
    """Puts a member or an item at the end of an object or array."""
    if not container.parts:
        return _first(text, container, name, value)
    last = container.parts[-1]
    margin = _margin(text, last.start)
    after = last.end if last.comma is None else last.comma + 1
    if margin is None:
        # All on one line: so is what comes to it.
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
    """The first part: on a line of its own, comments that are there stay before it."""
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
    """Takes a part out, with the comma that it no longer needs and the line it stood on."""
    place = container.parts.index(part)
    if part.comma is not None:
        after = part.comma + 1
        if _ends_line(text, after):
            return [Cut(_start(text, container, place, after), part.end), Cut(part.comma, after)]
        # Another part follows on the same line and moves up.
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
    """Where the blanks before a part begin, unless a remark needs the line break among them."""
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
    """What stands before a place on its line, None when it is more than blanks."""
    line = text.rfind("\n", 0, at) + 1
    before = text[line:at]
    return before if line and not before.strip() else None


def _line_end(text: str, at: int) -> int:
    """Behind the comments that stand on the same line."""
    for start, end in gaps(text, at):
        if "\n" in text[at:start]:
            break
        at = end
    return at


BOM = "\ufeff"
Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """What was put into a file besides commands, which are known again by themselves."""

    # Objects and lists that were not there before.
    created: tuple[Keys, ...] = ()
    # Plain texts and values that were not there before.
    added: tuple[Keys, ...] = ()
    # What was put at the end of a TOML file, to the letter.
    chunk: str = ""


NOTHING_MADE = Made()


def dialect_of(document: Document) -> Dialect:
    """How a document is read."""
    return "json5" if document.syntax == "json5" else "json"


def object_text(text: str) -> str:
    """The text; an empty file counts as an empty object."""
    if text.removeprefix(BOM).strip():
        return text
    return (BOM if text.startswith(BOM) else "") + "{}" + newline_of(text)


def root_of(text: str, document: Document) -> Node:
    """The object that a file holds; refuses anything else."""
    kind = "JSON5" if document.syntax == "json5" else "JSON"
    try:
        root = read(text, dialect_of(document), {wish.path[0] for wish in document.wishes})
    except JsonSyntaxError as error:
        raise InputError(
            f"{document.path} is not valid {kind}: {error}",
            hint="mend that line, or move the file away, and try again; nothing was changed",
        ) from error
    if root.kind != "object":
        raise wrong_kind(document, (), "an object")
    return root


def wrong_kind(document: Document, path: Keys, wanted: str) -> InputError:
    """The refusal of a value that is not what the client wants there."""
    where = f"`{'.'.join(path)}` in {document.path}" if path else f"{document.path}"
    return InputError(
        f"{where} is not {wanted}",
        hint="correct it, or take it out, and try again; nothing was changed",
    )


def walk(root: Node, path: Keys) -> Node | None:
    """What stands at a path, None when nothing does."""
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
    """Every hook of ours under any event: its path, the list it is in, and itself."""
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
    """Whether a value is the text that is wished for."""
    if not isinstance(value, str):
        return False
    return value.endswith(wish.ending) if wish.ending else value == wish.value


def is_frame(wish: Wish) -> bool:
    """Whether a wish is for what the file needs without us too."""
    return isinstance(wish, Mark) and wish.is_frame
