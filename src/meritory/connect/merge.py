"""A user's file with Meritory's part put in, or taken out; what else it holds stays as it is."""

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
    """The text with our part in it, what was put there, and what stood in the way."""

    text: str
    made: Made = NOTHING_MADE
    conflicts: tuple[str, ...] = ()


def merged(text: str, document: Document, harness: str) -> Merged:
    """The text with everything in it that the document wishes for."""
    if document.syntax == "toml":
        new, chunk, conflicts = toml_edit.merged(text, _table(document), harness)
        return Merged(new, Made(chunk=chunk), conflicts)
    if document.syntax == "text":
        if text and not is_our_text(text, document):
            return Merged(text, conflicts=("it was not written by Meritory and is left as it is",))
        return Merged(document.text)
    merger = _Merger(object_text(text), document, harness)
    for wish in document.wishes:
        merger.fulfil(wish)
    return merger.result()


def unmerged(text: str, document: Document, harness: str, made: Made | None) -> str:
    """The text without our part; `made` is what is on record, None when nothing is."""
    if document.syntax == "toml":
        return toml_edit.unmerged(text, _table(document), harness, made.chunk if made else "")
    if document.syntax == "text":
        return "" if is_our_text(text, document) else text
    if not text.removeprefix(BOM).strip():
        return text
    return Remover(text, document, harness, made).run()


def is_merged(text: str, document: Document, harness: str) -> bool:
    """Whether all wishes are fulfilled already and nothing out of date is there."""
    if document.syntax == "text":
        return text == document.text or (bool(text) and not is_our_text(text, document))
    if document.syntax == "toml":
        return toml_edit.is_merged(text, _table(document), harness)
    root = root_of(object_text(text), document)
    wanted = [
        (wish.path, our_argv(_handler(wish.value), harness))
        for wish in document.wishes
        if isinstance(wish, Item)
    ]
    found = [
        (path, our_argv(plain(part.node), harness))
        for path, _, part in our_items(root, document, harness)
    ]
    if sorted(wanted, key=str) != sorted(found, key=str):
        return False
    return all(_is_there(root, wish, harness) for wish in document.wishes)


def our_commands(text: str, document: Document, harness: str) -> list[list[str]]:
    """Every command of ours in a file."""
    if document.syntax == "text":
        return []
    if document.syntax == "toml":
        found = our_argv(toml_edit.value_of(text, _table(document).path), harness)
        return [found] if found else []
    root = root_of(object_text(text), document)
    values = [plain(part.node) for _, _, part in our_items(root, document, harness)]
    for wish in document.wishes:
        place = walk(root, wish.path) if isinstance(wish, Member) else None
        if place is not None:
            values.append(plain(place))
    return [argv for value in values if (argv := our_argv(value, harness))]


def is_empty(text: str, document: Document) -> bool:
    """Whether nothing is left that anybody wrote."""
    if document.syntax in ("toml", "text") or not text.removeprefix(BOM).strip():
        return not text.removeprefix(BOM).strip()
    frame = {wish.path[0] for wish in document.wishes if is_frame(wish)}
    node = read(text, dialect_of(document))
    rest = {part.name for part in node.parts} - frame
    return node.kind == "object" and not rest


def says_the_same(one: str, other: str, document: Document) -> bool:
    """Whether a client reads the same from both, an empty file counting as an empty object."""
    if document.syntax == "text":
        return one == other or is_our_text(other, document)
    if document.syntax == "toml":
        return toml_edit.says_the_same(one, other)
    first, second = (plain(root_of(object_text(text), document)) for text in (one, other))
    frame = {wish.path[0]: wish.value for wish in document.wishes if is_frame(wish)}
    return bool({**frame, **first} == {**frame, **second})


def is_our_text(text: str, document: Document) -> bool:
    """Whether a whole file is one that we wrote: its first line says so."""
    return text.splitlines()[:1] == document.text.splitlines()[:1]


def _table(document: Document) -> Member:
    return next(wish for wish in document.wishes if isinstance(wish, Member))


def _handler(value: Any) -> Any:
    """The hook inside a group of hooks, or the value itself."""
    hooks = value.get("hooks") if isinstance(value, dict) else None
    return hooks[0] if isinstance(hooks, list) and hooks else value


def _is_there(root: Node, wish: Wish, harness: str) -> bool:
    if isinstance(wish, Item):
        return True
    node = walk(root, wish.path)
    if isinstance(wish, Word):
        return _has_word(node, wish)
    if node is None:
        return False
    if isinstance(wish, Mark):
        return True
    argv = our_argv(plain(node), harness)
    return argv is None or argv == our_argv(wish.value, harness)


def _has_word(node: Node | None, wish: Word) -> bool:
    values = plain(node) if node is not None and node.kind == "array" else []
    if wish.if_present and not values:
        return True
    alike = [value for value in values if is_word(value, wish)]
    return wish.value in values and len(alike) == 1


class _Merger:
    """Puts one wish after the other into a text."""

    def __init__(self, text: str, document: Document, harness: str) -> None:
        self._text, self._document, self._harness = text, document, harness
        self._created: list[Keys] = []
        self._added: list[Keys] = []
        self._conflicts: list[str] = []

    def result(self) -> Merged:
        made = Made(tuple(self._created), tuple(self._added))
        return Merged(self._text, made, tuple(self._conflicts))

    def fulfil(self, wish: Wish) -> None:
        """Puts in what is wished for, unless it is there or something else is."""
        root = root_of(self._text, self._document)
        is_listed = isinstance(wish, Item | Word)
        node = self._found(root, wish.path, is_listed)
        if isinstance(wish, Word):
            if (node is not None and wish.value in plain(node)) or _skips(node, wish):
                return
            self._added.append((*wish.path, wish.value))
        elif node is not None and not is_listed:
            self._compare(wish, plain(node))
            return
        elif isinstance(wish, Mark):
            self._added.append(wish.path)
        self._put(root, wish, is_listed)

    def _compare(self, wish: Wish, value: Any) -> None:
        if isinstance(wish, Mark) and value != wish.value and not wish.is_frame:
            self._conflicts.append(f"`{'.'.join(wish.path)}` is {value!r} there; it is left so")
        if isinstance(wish, Member) and our_argv(value, self._harness) is None:
            self._conflicts.append(
                f"`{'.'.join(wish.path)}` is there already and not Meritory's; it is left as it is,"
                " so Meritory's own is missing"
            )

    def _found(self, root: Node, path: Keys, is_listed: bool) -> Node | None:
        """What stands at a path; refuses what is not an object on the way, or given twice."""
        node = root
        for depth, name in enumerate(path):
            if node.kind != "object":
                raise wrong_kind(self._document, path[:depth], "an object")
            if sum(part.name == name for part in node.parts) > 1:
                where = ".".join(path[: depth + 1])
                raise InputError(
                    f"`{where}` stands twice in {self._document.path}",
                    hint="make it one, and try again; nothing was changed",
                )
            part = node.member(name)
            if part is None:
                return None
            node = part.node
        if is_listed and node.kind != "array":
            raise wrong_kind(self._document, path, "a list")
        return node

    def _put(self, root: Node, wish: Wish, is_listed: bool) -> None:
        node, depth = root, 0
        while depth < len(wish.path) and (part := node.member(wish.path[depth])) is not None:
            node, depth = part.node, depth + 1
        if depth == len(wish.path):
            self._text = applied(self._text, insertion(self._text, node, None, wish.value))
            return
        value: Any = [wish.value] if is_listed else wish.value
        last = len(wish.path) if is_listed else len(wish.path) - 1
        self._created += [wish.path[:end] for end in range(depth + 1, last + 1)]
        for name in reversed(wish.path[depth + 1 :]):
            value = {name: value}
        self._text = applied(self._text, insertion(self._text, node, wish.path[depth], value))


def _skips(node: Node | None, wish: Word) -> bool:
    return wish.if_present and (node is None or not node.parts)


class Remover:
    """Takes out of a text what is ours, and what was only there for it."""

    def __init__(self, text: str, document: Document, harness: str, made: Made | None) -> None:
        self._text, self._document, self._harness, self._made = text, document, harness, made
        self._emptied: set[Keys] = set()

    def run(self) -> str:
        """The text without us."""
        while cuts := self._next():
            self._text = applied(self._text, cuts)
        for path in sorted(self._leftovers(), key=len, reverse=True):
            self._drop_empty(path)
        for wish in self._document.wishes:
            if isinstance(wish, Mark) and wish.is_frame:
                self._drop_frame(wish)
        return self._text

    def _next(self) -> list[Cut]:
        root = root_of(self._text, self._document)
        for path, container, part in our_items(root, self._document, self._harness):
            self._emptied |= {path[:end] for end in range(1, len(path) + 1)}
            group = self._group_of(root, path, container)
            if group is not None and len(container.parts) == 1:
                return removal(self._text, *group)
            return removal(self._text, container, part)
        for wish in self._document.wishes:
            found = None if isinstance(wish, Item) else self._find(root, wish)
            if found is not None:
                self._emptied |= {wish.path[:end] for end in range(1, len(wish.path) + 1)}
                return removal(self._text, *found)
        return []

    def _group_of(self, root: Node, path: Keys, container: Node) -> tuple[Node, JsonPart] | None:
        """The group in an event's list that holds this list of hooks."""
        events = walk(root, path)
        if events is None or events is container:
            return None
        inside = (part for part in events.parts if part.start <= container.start < part.end)
        return next(((events, part) for part in inside), None)

    def _find(self, root: Node, wish: Wish) -> tuple[Node, JsonPart] | None:
        if isinstance(wish, Word):
            node = walk(root, wish.path)
            if node is None or node.kind != "array":
                return None
            mine = (part for part in node.parts if is_word(plain(part.node), wish))
            ours = wish.ending or self._was_added((*wish.path, wish.value))
            return next(((node, part) for part in mine if ours), None)
        owner = walk(root, wish.path[:-1])
        part = owner.member(wish.path[-1]) if owner and owner.kind == "object" else None
        if owner is None or part is None:
            return None
        value = plain(part.node)
        if isinstance(wish, Member):
            return (owner, part) if our_argv(value, self._harness) else None
        is_ours = not isinstance(wish, Mark) or (not wish.is_frame and value == wish.value)
        return (owner, part) if is_ours and self._was_added(wish.path) else None

    def _was_added(self, path: Keys) -> bool:
        return self._made is None or path in self._made.added

    def _leftovers(self) -> set[Keys]:
        return self._emptied if self._made is None else set(self._made.created)

    def _drop_empty(self, path: Keys) -> None:
        root = root_of(self._text, self._document)
        owner = walk(root, path[:-1])
        part = owner.member(path[-1]) if owner and owner.kind == "object" else None
        if owner is not None and part is not None and self._is_bare(part.node):
            self._text = applied(self._text, removal(self._text, owner, part))

    def _drop_frame(self, mark: Mark) -> None:
        """Takes out what only had to be there for us: nobody else has anything in this file."""
        root = root_of(self._text, self._document)
        part = root.member(mark.path[0])
        needed = {wish.path[0] for wish in self._document.wishes if isinstance(wish, Item)}
        is_ours = self._made is not None and mark.path in self._made.added
        is_needed = any(map(root.member, needed))
        if is_ours and not is_needed and part is not None and plain(part.node) == mark.value:
            self._text = applied(self._text, removal(self._text, root, part))

    def _is_bare(self, node: Node) -> bool:
        inside = self._text[node.start + 1 : node.end - 1]
        # One that was not taken apart, because nothing is wished for there any more.
        is_container = node.kind != "scalar" or node.value in ({}, [])
        return is_container and not node.parts and not inside.strip()
