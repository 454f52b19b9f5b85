"""Add Meritory's entries to a user's file, or remove them; everything else stays."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from meritory.connect.desired import Document, Item, Mark, Member, Wish, Word, at, our_argv
from meritory.connect.files import NOTHING_MADE, Keys, Made
from meritory.connect.json_edit import (
    Cut,
    Dialect,
    JsonPart,
    JsonSyntaxError,
    Node,
    applied,
    first_loose,
    insertion,
    newline_of,
    plain,
    read,
    removal,
)
from meritory.domain.errors import InputError

BOM = "\ufeff"
HEADS_TRIED_COUNT = 4
_HEADER = re.compile(r"[ \t]*\[\[?(?P<name>[^\]\r\n]+)\]\]?[ \t]*(?:#[^\r\n]*)?\r?\n?")
_NOTHING = re.compile(r"[ \t]*(?:#[^\r\n]*)?\r?\n?")
_NOT_OURS = "`{}` exists and is not Meritory's; it stays, and Meritory's is missing"
_BY_HAND = "remove the lines of `{}` by hand, and try again; nothing was changed"


@dataclass(frozen=True, slots=True)
class Merged:
    """The text with the entries added, a record of the additions, and conflicts."""

    text: str
    made: Made = NOTHING_MADE
    conflicts: tuple[str, ...] = ()


def check_loadable(text: str, document: Document) -> None:
    """Raise InputError if the client refuses a file that other programs can read."""
    found = first_loose(text, document.refused)
    if found is not None:
        raise InputError(
            f"{found}; its client loads nothing of such a file",
            hint="remove it, and try again; nothing was changed",
        )


def merged(text: str, document: Document, harness: str) -> Merged:
    """Return the text with all desired entries."""
    if document.syntax == "toml":
        return _toml_merged(text, _table(document), harness)
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
        return _toml_unmerged(text, _table(document), harness, made.chunk if made else "")
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
        table = _table(document)
        return _is_current(at(_parsed(text), *table.path), table, harness)
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
        argv = our_argv(at(_parsed(text), *_table(document).path), harness)
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
    return {part.name for part in root_of(text, document).parts} <= frame


def says_the_same(one: str, other: str, document: Document) -> bool:
    """Return whether both texts hold the same values; an empty file is an empty object."""
    if document.syntax == "text":
        return one == other or is_our_text(other, document)
    if document.syntax == "toml":
        return _parsed(one) == _parsed(other)
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
    if isinstance(wish, Mark):
        return node is not None
    return _is_current(None if node is None else plain(node), wish, harness)


def _is_current(present: Any, wish: Member, harness: str) -> bool:
    """Return whether an entry exists and is up to date, or is another program's."""
    argv = our_argv(present, harness)
    return present is not None and argv in (None, our_argv(wish.value, harness))


class _Merger:
    """Adds one entry after the other to a text."""

    def __init__(self, text: str, document: Document, harness: str) -> None:
        self.text, self._document, self._harness = text, document, harness
        self.created: list[Keys] = []
        self.added: list[Keys] = []
        self.conflicts: list[str] = []

    def add(self, wish: Wish) -> None:
        """Add an entry, unless it exists or another program's is in its place."""
        node, depth = self._deepest(wish.path)
        path, is_listed = wish.path, isinstance(wish, Item | Word)
        exists = depth == len(path)
        if exists and is_listed and node.kind != "array":
            raise wrong_kind(self._document, path, "a list")
        if isinstance(wish, Word):
            if (wish.if_present and not (exists and node.parts)) or (
                exists and wish.value in plain(node)
            ):
                return
            self.added.append((*path, wish.value))
        elif exists and not is_listed:
            value, dotted = plain(node), ".".join(path)
            if isinstance(wish, Mark) and value != wish.value and not wish.is_frame:
                self.conflicts.append(f"`{dotted}` is {value!r} there; it stays")
            if isinstance(wish, Member) and our_argv(value, self._harness) is None:
                self.conflicts.append(_NOT_OURS.format(dotted))
            return
        elif isinstance(wish, Mark):
            self.added.append(path)
        name, value = None, wish.value
        if not exists:
            # The objects and lists that the entry needs come with it.
            name, value = path[depth], [wish.value] if is_listed else wish.value
            last = len(path) if is_listed else len(path) - 1
            self.created += [path[:end] for end in range(depth + 1, last + 1)]
            for inner in reversed(path[depth + 1 :]):
                value = {inner: value}
        self.text = applied(self.text, insertion(self.text, node, name, value))

    def _deepest(self, path: Keys) -> tuple[Node, int]:
        """Return the deepest node on a path that exists, and how many of its names lead there."""
        node = root_of(self.text, self._document)
        for depth, name in enumerate(path):
            if node.kind != "object":
                raise wrong_kind(self._document, path[:depth], "an object")
            alike = [part for part in node.parts if part.name == name]
            if len(alike) > 1:
                dotted = ".".join(path[: depth + 1])
                raise InputError(
                    f"`{dotted}` occurs twice in {self._document.path}",
                    hint="remove one, and try again; nothing was changed",
                )
            if not alike:
                return node, depth
            node = alike[0].node
        return node, len(path)


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
            if owner is None or part is None or part.node.parts:
                continue
            # A container may not have been parsed, because no entry is desired there any more.
            is_container = part.node.kind != "scalar" or part.node.value in ({}, [])
            if is_container and not self._text[part.node.start + 1 : part.node.end - 1].strip():
                self._text = applied(self._text, removal(self._text, owner, part))
        # Values that the file needed only for Meritory's entries.
        names = {wish.path[0] for wish in self._document.wishes if isinstance(wish, Item)}
        for mark in filter(is_frame, self._document.wishes):
            root = root_of(self._text, self._document)
            part = root.member(mark.path[0])
            is_own = self._made is not None and mark.path in self._made.added
            is_needed = any(map(root.member, names))
            if is_own and not is_needed and part is not None and plain(part.node) == mark.value:
                self._text = applied(self._text, removal(self._text, root, part))
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


# -- JSON -----------------------------------------------------------------------------------


def object_text(text: str) -> str:
    """Return the text; an empty object for an empty file."""
    if text.removeprefix(BOM).strip():
        return text
    return (BOM if text.startswith(BOM) else "") + "{}" + newline_of(text)


def root_of(text: str, document: Document) -> Node:
    """Return the object in a file; raise an error for anything else."""
    dialect: Dialect = "json5" if document.syntax == "json5" else "json"
    try:
        root = read(text, dialect, {wish.path[0] for wish in document.wishes})
    except JsonSyntaxError as error:
        raise InputError(
            f"{document.path} is not valid {dialect.upper()}: {error}",
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


# -- TOML -----------------------------------------------------------------------------------


def _toml_merged(text: str, wish: Member, harness: str) -> Merged:
    """Return the text with the table at its end."""
    present, dotted = at(_parsed(text), *wish.path), ".".join(wish.path)
    if present is not None:
        conflicts = () if our_argv(present, harness) else (_NOT_OURS.format(dotted),)
        return Merged(text, conflicts=conflicts)
    newline = newline_of(text)
    lines = [f"[{dotted}]"]
    for name, value in wish.value.items():
        # JSON's texts and lists are TOML as well, except for one control character.
        lines.append(f"{name} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f"))
    bare = text.removeprefix(BOM)
    before = newline * 2 if bare and not bare.endswith("\n") else newline if bare else ""
    chunk = before + newline.join(lines) + newline
    try:
        _parsed(text + chunk)
    except InputError as error:
        raise InputError(
            f"a table [{dotted}] cannot be added to this file: {error.message}",
            hint=f"write `{wish.path[0]}` as tables, [{wish.path[0]}.NAME], and try again; "
            "nothing was changed",
        ) from error
    return Merged(text + chunk, Made(chunk=chunk))


def _toml_unmerged(text: str, wish: Member, harness: str, chunk: str) -> str:
    """Return the text without the table and its subtables."""
    values = _parsed(text)
    if our_argv(at(values, *wish.path), harness) is None:
        return text
    wanted = _without(values, wish.path)
    candidates = [text.replace(chunk, "", 1)] if chunk and text.count(chunk) == 1 else []
    # A line inside a multi-line string may look like the head of the table.
    candidates += (_without_lines(text, wish.path, skipped) for skipped in range(HEADS_TRIED_COUNT))
    for candidate in candidates:
        try:
            # A parent that held only the table may be gone with it.
            if _without(_parsed(candidate), wish.path) == wanted:
                return candidate
        except InputError:
            continue
    dotted = ".".join(wish.path)
    raise InputError(f"`{dotted}` is not written as a table", hint=_BY_HAND.format(dotted))


def _without(parsed: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    name, rest = path[0], path[1:]
    copy = dict(parsed)
    if rest and isinstance(copy.get(name), dict):
        copy[name] = _without(copy[name], rest)
    if not rest or copy.get(name) == {}:
        copy.pop(name, None)
    return copy


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(BOM))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"not valid TOML: {error}",
            hint="fix that line, or move the file away, and try again; nothing was changed",
        ) from error


def _without_lines(text: str, path: tuple[str, ...], heads_skipped: int) -> str:
    kept: list[str] = []
    skipped: list[str] = []
    inside = False
    heads = 0
    for line in text.splitlines(keepends=True):
        header = _HEADER.fullmatch(line.removeprefix(BOM))
        if header is not None:
            if inside:
                # Comments and blank lines before the next table belong to it.
                kept += _tail(skipped)
            is_head = False
            with contextlib.suppress(tomllib.TOMLDecodeError):
                is_head = at(tomllib.loads(f"[{header['name']}]"), *path) is not None
            heads += is_head
            was_inside, inside = inside, is_head and heads > heads_skipped
            if inside and not was_inside and kept and not kept[-1].strip():
                kept.pop()
            skipped = []
        (skipped if inside else kept).append(line)
    return "".join(kept) + "".join(_tail(skipped) if inside else ())


def _tail(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and _NOTHING.fullmatch(lines[end - 1]):
        end -= 1
    return lines[end:]
