"""Read a folder of basic-memory: notes with front matter, observations, relations and prose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from meritory.domain.errors import InputError
from meritory.domain.memory import Kind
from meritory.engine.transfer.entries import (
    FoundFiles,
    ImportEntry,
    changed_at,
    entity,
    filled,
    read_text,
    source,
    tags,
    when,
)
from meritory.engine.transfer.readers.markdown import claims, kind_of, tamed, without_front

_OBSERVATION = re.compile(r"\s*[-*]\s+\[(?P<category>[^\[\]()]{2,60})\]\s+(?P<text>\S.*)$")
_RELATION = re.compile(r"\s*[-*]\s+(?P<kind>[^\[\]]{0,60}?)\s*\[\[(?P<target>[^\[\]]{1,200})\]\]")
_CONTEXT = re.compile(r"\s*\((?P<context>[^()]{1,300})\)\s*$")
_TAG = re.compile(r"(?<!\S)#(?P<tag>[\w/-]{1,60})")
_KEY = re.compile(r"(?P<key>[\w-]{1,60}):\s*(?P<value>.*)$")
_DEPENDS = frozenset({"depends_on", "requires", "needs", "uses", "built_on", "part_of", "extends"})
# Links that only say that two notes are related.
_PLAIN = frozenset({"", "relates_to", "related_to", "links_to", "see", "see_also"})
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("decision", "choice"), "decision"),
    **dict.fromkeys(("preference", "like", "dislike"), "preference"),
    **dict.fromkeys(("technique", "method", "step", "process", "procedure", "howto"), "procedure"),
    **dict.fromkeys(("constraint", "requirement", "rule", "never"), "constraint"),
    **dict.fromkeys(("event", "meeting", "episode", "status", "milestone"), "episode"),
}
_ENTITY_LIMIT = 16


@dataclass(frozen=True, slots=True)
class _NoteFile:
    """The properties of a note that all its entries share."""

    name: str
    title: str
    tags: list[str]
    at: datetime
    about: str | None
    depends_on: tuple[str, ...]


def is_note(text: str) -> bool:
    """Return whether a text is a note: it has a permalink or observations."""
    front, body = without_front(tamed(text))
    return "permalink" in front_matter(front) or any(map(_OBSERVATION.match, body.split("\n")))


def read(found: FoundFiles) -> Iterator[ImportEntry]:
    """Yield every observation, specific relation and section of the notes."""
    for path in found.files:
        name = path.relative_to(found.path).as_posix() if found.path.is_dir() else path.name
        try:
            text = read_text(path)
        except InputError as error:
            yield ImportEntry(name, error)
            continue
        yield from _of_note(path, name, text)


def _of_note(path: Path, name: str, text: str) -> Iterator[ImportEntry]:
    front, body = without_front(tamed(text))
    fields = front_matter(front)
    lines = body.split("\n")
    related = [(number, *found) for number, found in _relations(lines)]
    title = str(fields.get("title") or path.stem)
    note = _NoteFile(
        name=name,
        title=title,
        tags=tags(fields.get("tags")),
        at=when(fields.get("created"), fields.get("date")) or changed_at(path),
        about=entity(title),
        depends_on=tuple(
            target for _, kind, target, _ in related if kind in _DEPENDS and target != entity(title)
        )[:_ENTITY_LIMIT],
    )
    prose = list(lines)
    for number, line in enumerate(lines, 1):
        if found := _OBSERVATION.match(line):
            prose[number - 1] = ""
            yield _observed(note, number, found)
    for number, kind, target, line in related:
        prose[number - 1] = ""
        if kind not in _PLAIN:
            yield _related(note, number, (kind, target, line))
    for claim in claims("\n".join(prose)):
        content = f"{title}: {claim.whole}"
        yield _entry(note, claim.line, {"content": content, "kind": kind_of(claim.text)})


def _observed(note: _NoteFile, number: int, found: re.Match[str]) -> ImportEntry:
    category, text = found["category"].strip(), found["text"].strip()
    own = [match["tag"] for match in _TAG.finditer(text)]
    bare = _CONTEXT.sub("", text)
    # Remove tags at the end; a tag within the sentence is also a word of it.
    bare = re.sub(r"(?:\s+#[\w/-]{1,60})+\s*$", "", bare) or text
    context = _CONTEXT.search(text)
    text = f"{bare} ({context['context']})" if context else bare
    kind = _KINDS.get(category.lower()) or kind_of(bare)
    content = f"{note.title}: {text}"
    fields = {"content": content, "kind": kind, "tags": tags(own, [category], note.tags)}
    return _entry(note, number, fields)


def _related(note: _NoteFile, number: int, relation: tuple[str, str, str]) -> ImportEntry:
    kind, target, line = relation
    context = _CONTEXT.search(line)
    remark = f" ({context['context']})" if context else ""
    content = f"{note.title} {kind.replace('_', ' ')} {target}{remark}"
    if kind in _DEPENDS:
        return _entry(note, number, {"content": content})
    about = dict.fromkeys(name for name in (note.about, target) if name)
    return _entry(note, number, {"content": content, "about": list(about), "depends_on": []})


def _entry(note: _NoteFile, number: int, fields: dict[str, Any]) -> ImportEntry:
    content = fields["content"]
    about = [note.about] if note.about else []
    whole = {
        "tags": note.tags,
        "about": about,
        "depends_on": list(note.depends_on) if about else [],
        "provenance": "assistant_derived",
        "created_at": note.at,
        "source": source("basic-memory", note.name, content),
        **fields,
    }
    return ImportEntry(
        f"{note.name}:{number}", filled(whole), len(content.encode("utf-8", "replace"))
    )


def _relations(lines: list[str]) -> Iterator[tuple[int, tuple[str, str, str]]]:
    for number, line in enumerate(lines, 1):
        if _OBSERVATION.match(line):
            continue
        if found := _RELATION.match(line):
            target = entity(found["target"].partition("|")[0])
            if target:
                kind = "_".join(found["kind"].lower().split()).strip("*_:`")
                yield number, (kind, target, line.rstrip())


def front_matter(front: str) -> dict[str, str | list[str]]:
    """Return the front matter of a note: texts, and lists in brackets or with dashes."""
    fields: dict[str, str | list[str]] = {}
    last = ""
    for line in front.split("\n"):
        item = line.strip()
        if item.startswith("- ") and last:
            items = fields.get(last)
            fields[last] = [*(items if isinstance(items, list) else []), _unquoted(item[2:])]
        elif found := _KEY.match(line):
            last, value = found["key"].lower(), found["value"].strip()
            if value.startswith("[") and value.endswith("]"):
                fields[last] = [_unquoted(item) for item in value[1:-1].split(",")]
            else:
                fields[last] = _unquoted(value)
    return fields


def _unquoted(value: str) -> str:
    bare = value.strip()
    if len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "'\"":
        return bare[1:-1]
    return bare
