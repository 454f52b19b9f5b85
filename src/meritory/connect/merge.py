"""Add Meritory's entries to a user's file, or remove them; everything else stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meritory.connect import toml_edit
from meritory.connect.desired import Document, Item, Mark, Member, Wish, Word
from meritory.connect.json_edit import (
    BOM,
    NOTHING_MADE,
    Cut,
    Keys,
    Made,
    applied,
    dialect_of,
    insertion,
    is_frame,
    is_word,
    object_text,
    our_items,
    removal,
    root_of,
    walk,
    wrong_kind,
)
from meritory.connect.json_syntax import JsonPart, Node, plain, read
from meritory.connect.managed import our_argv
from meritory.domain.errors import InputError


@dataclass(frozen=True, slots=True)
class Merged:
    """The text with the entries added, a record of the additions, and conflicts."""

    text: str
    made: Made = NOTHING_MADE
    conflicts: tuple[str, ...] = ()


def merged(text: str, document: Document, harness: str) -> Merged:
    """Return the text with all desired entries."""
    if document.syntax == "toml":
        new, chunk, conflicts = toml_edit.merged(text, _table(document), harness)
        return Merged(new, Made(chunk=chunk), conflicts)
    if document.syntax == "text":
        if text and not is_our_text(text, document):
            return Merged(text, conflicts=("Meritory did not write it, so it stays",))
        return Merged(document.text)
    merger = _Merger(object_text(text), document, harness)
    for wish in document.wishes:
        merger.add(wish)
    made = Made(tuple(merger.created), tuple(merger.added))
    return Merged(merger.text, made, tuple(merger.conflicts))


def unmerged(text: str, document: Document, harness: str, made: Made | None) -> str:
    """Return the text without Meritory's entries; `made` is the record of additions, if any."""
    if document.syntax == "toml":
        return toml_edit.unmerged(text, _table(document), harness, made.chunk if made else "")
    if document.syntax == "text":
        return "" if is_our_text(text, document) else text
    if not text.removeprefix(BOM).strip():
        return text
    return Remover(text, document, harness, made).run()


def is_merged(text: str, document: Document, harness: str) -> bool:
    """Return whether all desired entries exist and none is outdated."""
    if document.syntax == "text":
        return text == document.text or (bool(text) and not is_our_text(text, document))
    if document.syntax == "toml":
        return toml_edit.is_merged(text, _table(document), harness)
    root = root_of(object_text(text), document)
    wanted = []
    for wish in document.wishes:
        if isinstance(wish, Item):
            # A hook may be inside a group of hooks.
            hooks = wish.value.get("hooks")
            handler = hooks[0] if isinstance(hooks, list) and hooks else wish.value
            wanted.append((wish.path, our_argv(handler, harness)))
    present = [
        (path, our_argv(plain(part.node), harness))
        for path, _, part in our_items(root, document, harness)
    ]
    if sorted(wanted, key=str) != sorted(present, key=str):
        return False
    return all(_is_there(root, wish, harness) for wish in document.wishes)


def our_commands(text: str, document: Document, harness: str) -> list[list[str]]:
    """Return every command in a file that Meritory wrote."""
    if document.syntax == "text":
        return []
    if document.syntax == "toml":
        argv = our_argv(toml_edit.value_of(text, _table(document).path), harness)
        return [argv] if argv else []
    root = root_of(object_text(text), document)
    values = [plain(part.node) for _, _, part in our_items(root, document, harness)]
    for wish in document.wishes:
        node = walk(root, wish.path) if isinstance(wish, Member) else None
        if node is not None:
            values.append(plain(node))
    return [argv for value in values if (argv := our_argv(value, harness))]


def is_empty(text: str, document: Document) -> bool:
    """Return whether the text holds no entry of anyone."""
    if document.syntax in ("toml", "text") or not text.removeprefix(BOM).strip():
        return not text.removeprefix(BOM).strip()
    frame = {wish.path[0] for wish in document.wishes if is_frame(wish)}
    node = read(text, dialect_of(document))
    rest = {part.name for part in node.parts} - frame
    return node.kind == "object" and not rest


def says_the_same(one: str, other: str, document: Document) -> bool:
    """Return whether both texts hold the same values; an empty file is an empty object."""
    if document.syntax == "text":
        return one == other or is_our_text(other, document)
    if document.syntax == "toml":
        return toml_edit.says_the_same(one, other)
    first, second = (plain(root_of(object_text(text), document)) for text in (one, other))
    frame = {wish.path[0]: wish.value for wish in document.wishes if is_frame(wish)}
    return bool({**frame, **first} == {**frame, **second})


def is_our_text(text: str, document: Document) -> bool:
    """Return whether Meritory wrote a whole file: its first line says so."""
    return text.splitlines()[:1] == document.text.splitlines()[:1]


def _table(document: Document) -> Member:
    return next(wish for wish in document.wishes if isinstance(wish, Member))


def _is_there(root: Node, wish: Wish, harness: str) -> bool:
    """Return whether the file holds an entry other than a hook."""
    if isinstance(wish, Item):
        return True
    node = walk(root, wish.path)
    if isinstance(wish, Word):
        values = plain(node) if node is not None and node.kind == "array" else []
        if wish.if_present and not values:
            return True
        return wish.value in values and sum(is_word(value, wish) for value in values) == 1
    if node is None:
        return False
    if isinstance(wish, Mark):
        return True
    argv = our_argv(plain(node), harness)
    return argv is None or argv == our_argv(wish.value, harness)


class _Merger:
    """Adds one entry after the other to a text."""

    def __init__(self, text: str, document: Document, harness: str) -> None:
        self.text, self._document, self._harness = text, document, harness
        self.created: list[Keys] = []
        self.added: list[Keys] = []
        self.conflicts: list[str] = []

    def add(self, wish: Wish) -> None:
        """Add an entry, unless it exists or another program's is in its place."""
        root = root_of(self.text, self._document)
        is_listed = isinstance(wish, Item | Word)
        node = self._node_at(root, wish.path, is_listed)
        if isinstance(wish, Word):
            is_unwanted = wish.if_present and (node is None or not node.parts)
            if is_unwanted or (node is not None and wish.value in plain(node)):
                return
            self.added.append((*wish.path, wish.value))
        elif node is not None and not is_listed:
            value, dotted = plain(node), ".".join(wish.path)
            if isinstance(wish, Mark) and value != wish.value and not wish.is_frame:
                self.conflicts.append(f"`{dotted}` is {value!r} there; it stays")
            if isinstance(wish, Member) and our_argv(value, self._harness) is None:
                self.conflicts.append(
                    f"`{dotted}` exists and is not Meritory's; it stays, and Meritory's is missing"
                )
            return
        elif isinstance(wish, Mark):
            self.added.append(wish.path)
        self._insert(root, wish, is_listed)

    def _node_at(self, root: Node, path: Keys, is_listed: bool) -> Node | None:
        """Return the node at a path; raise an error for a wrong kind or a repeated name."""
        node = root
        for depth, name in enumerate(path):
            if node.kind != "object":
                raise wrong_kind(self._document, path[:depth], "an object")
            if sum(part.name == name for part in node.parts) > 1:
                dotted = ".".join(path[: depth + 1])
                raise InputError(
                    f"`{dotted}` occurs twice in {self._document.path}",
                    hint="remove one, and try again; nothing was changed",
                )
            part = node.member(name)
            if part is None:
                return None
            node = part.node
        if is_listed and node.kind != "array":
            raise wrong_kind(self._document, path, "a list")
        return node

    def _insert(self, root: Node, wish: Wish, is_listed: bool) -> None:
        """Insert an entry, with the objects and lists that it needs."""
        node, depth = root, 0
        while depth < len(wish.path) and (part := node.member(wish.path[depth])) is not None:
            node, depth = part.node, depth + 1
        if depth == len(wish.path):
            self.text = applied(self.text, insertion(self.text, node, None, wish.value))
            return
        value: Any = [wish.value] if is_listed else wish.value
        last = len(wish.path) if is_listed else len(wish.path) - 1
        self.created += [wish.path[:end] for end in range(depth + 1, last + 1)]
        for name in reversed(wish.path[depth + 1 :]):
            value = {name: value}
        self.text = applied(self.text, insertion(self.text, node, wish.path[depth], value))


class Remover:
    """Removes Meritory's entries from a text, and the containers that only they needed."""

    def __init__(self, text: str, document: Document, harness: str, made: Made | None) -> None:
        self._text, self._document, self._harness, self._made = text, document, harness, made
        self._emptied: set[Keys] = set()

    def run(self) -> str:
        """Return the text without the entries."""
        while cuts := self._next_removal():
            self._text = applied(self._text, cuts)
        containers = self._emptied if self._made is None else set(self._made.created)
        for path in sorted(containers, key=len, reverse=True):
            owner = walk(root_of(self._text, self._document), path[:-1])
            part = owner.member(path[-1]) if owner and owner.kind == "object" else None
            if owner is not None and part is not None and self._is_empty(part.node):
                self._text = applied(self._text, removal(self._text, owner, part))
        for wish in self._document.wishes:
            if isinstance(wish, Mark) and wish.is_frame:
                self._drop_frame(wish)
        return self._text

    def _next_removal(self) -> list[Cut]:
        root = root_of(self._text, self._document)
        for path, container, part in our_items(root, self._document, self._harness):
            self._emptied |= {path[:end] for end in range(1, len(path) + 1)}
            if len(container.parts) == 1:
                # The group in the event's list goes with its only hook.
                events = walk(root, path)
                if events is not None and events is not container:
                    for group in events.parts:
                        if group.start <= container.start < group.end:
                            return removal(self._text, events, group)
            return removal(self._text, container, part)
        for wish in self._document.wishes:
            found = None if isinstance(wish, Item) else self._find(root, wish)
            if found is not None:
                self._emptied |= {wish.path[:end] for end in range(1, len(wish.path) + 1)}
                return removal(self._text, *found)
        return []

    def _find(self, root: Node, wish: Wish) -> tuple[Node, JsonPart] | None:
        """Return an entry other than a hook, with its container, if Meritory added it."""
        if isinstance(wish, Word):
            node = walk(root, wish.path)
            if node is None or node.kind != "array":
                return None
            alike = (part for part in node.parts if is_word(plain(part.node), wish))
            is_own = wish.ending or self._was_added((*wish.path, wish.value))
            return next(((node, part) for part in alike if is_own), None)
        owner = walk(root, wish.path[:-1])
        part = owner.member(wish.path[-1]) if owner and owner.kind == "object" else None
        if owner is None or part is None:
            return None
        value = plain(part.node)
        if isinstance(wish, Member):
            return (owner, part) if our_argv(value, self._harness) else None
        is_own = not isinstance(wish, Mark) or (not wish.is_frame and value == wish.value)
        return (owner, part) if is_own and self._was_added(wish.path) else None

    def _was_added(self, path: Keys) -> bool:
        return self._made is None or path in self._made.added

    def _drop_frame(self, mark: Mark) -> None:
        """Remove a value that the file needed only for Meritory's entries."""
        root = root_of(self._text, self._document)
        part = root.member(mark.path[0])
        names = {wish.path[0] for wish in self._document.wishes if isinstance(wish, Item)}
        is_own = self._made is not None and mark.path in self._made.added
        is_needed = any(map(root.member, names))
        if is_own and not is_needed and part is not None and plain(part.node) == mark.value:
            self._text = applied(self._text, removal(self._text, root, part))

    def _is_empty(self, node: Node) -> bool:
        inside = self._text[node.start + 1 : node.end - 1]
        # A container that was not parsed, because no entry is desired there any more.
        is_container = node.kind != "scalar" or node.value in ({}, [])
        return is_container and not node.parts and not inside.strip()
