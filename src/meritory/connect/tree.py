"""A user's JSON file as a tree, and where in it our parts are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from meritory.connect.ours import our_argv
from meritory.connect.surgery import newline_of
from meritory.connect.syntax import Dialect, Node, Part, Unreadable, plain, read
from meritory.connect.wishes import Document, Item, Mark, Wish, Word
from meritory.errors import InputError

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
    except Unreadable as error:
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


def our_items(root: Node, document: Document, harness: str) -> Iterator[tuple[Keys, Node, Part]]:
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
