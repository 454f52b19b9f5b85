"""Taking out of a user's JSON file what is ours, and what was only there for it."""

from __future__ import annotations

from meritory.connect.ours import our_argv
from meritory.connect.surgery import Cut, applied, removal
from meritory.connect.syntax import Node, Part, plain
from meritory.connect.tree import Keys, Made, is_word, our_items, root_of, walk
from meritory.connect.wishes import Document, Item, Mark, Member, Wish, Word


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

    def _group_of(self, root: Node, path: Keys, container: Node) -> tuple[Node, Part] | None:
        """The group in an event's list that holds this list of hooks."""
        events = walk(root, path)
        if events is None or events is container:
            return None
        inside = (part for part in events.parts if part.start <= container.start < part.end)
        return next(((events, part) for part in inside), None)

    def _find(self, root: Node, wish: Wish) -> tuple[Node, Part] | None:
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
