"""Read Markdown files and the notes of basic-memory: split them into claims of a kind each."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any

from meritory.domain.errors import InputError
from meritory.domain.memory import Kind
from meritory.engine.transfer import entries
from meritory.engine.transfer.entries import ImportEntry
from meritory.text.commands.prohibitions import stated_constraints

_FORBIDS = re.compile(
    r"\b(?:never|must not|mustn't|do not|don't|forbidden|not allowed|under no circumstances"
    r"|off limits)\b",
    re.IGNORECASE,
)
_PREFERS = re.compile(
    r"\b(?:prefers?|preferred|favou?rs?|rather than|instead of|likes?|always use|avoid|style)\b",
    re.IGNORECASE,
)
_DECIDES = re.compile(r"\b(?:we|i) (?:decided|chose|agreed)\b|\bdecision\b", re.IGNORECASE)
_DOES = re.compile(
    r"^(?:\*\*)?(?:to |run |build |test |deploy |install |start |first |use `"
    r"|before |after |always )"
    r"|^\d+[.)] |(?:^|\n)```|(?:^|\s)\$ ",
    re.IGNORECASE,
)
_HEADINGS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("decision", re.compile(r"\bdecisions?\b|\badrs?\b", re.IGNORECASE)),
    ("preference", re.compile(r"\bpreferences?|\bstyle\b|\bconventions?\b", re.IGNORECASE)),
    ("procedure", re.compile(r"\bcommands?\b|\bworkflows?\b|\bhow to\b|\bsteps\b", re.IGNORECASE)),
)


def kind_of(text: str, heading: str = "") -> Kind:
    """Return the kind of a note; a prohibition comes first, for it must not be lost."""
    if _FORBIDS.search(text) or stated_constraints(text):
        return "constraint"
    if _DECIDES.search(text):
        return "decision"
    if _PREFERS.search(text):
        return "preference"
    for kind, pattern in _HEADINGS:
        if pattern.search(heading):
            return kind
    return "procedure" if _DOES.search(text) else "fact"


CODE_LIMIT_LINES = 12
CODE_LIMIT_CHARS = 800
CLAIM_LIMIT_CHARS = 2_000
_STEPS_LIMIT_CHARS = 1_200
_TAB_SPACES = 4

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HEADING = re.compile(r"(#{1,6})\s(.*)$")
_UNDERLINE = re.compile(r"(=+|-+)\s*$")
_RULE = re.compile(r"([-*_])(?:\s*\1){2,}\s*$")
_BULLET = re.compile(r"(?P<indent>\s*)(?P<mark>[-*+]|\d{1,3}[.)])\s+(?P<text>.*)$")
_TASK = re.compile(r"\[[ xX]\]\s+")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
# Alone on its line or in a bullet: a reference to a file.
REFERENCE = re.compile(r"@(?:~?/)?[\w./-]*[\w-]\.?[\w-]*$")
_TABLE_RULE = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$")
_CELL_EDGE = re.compile(r"(?<!\\)\|")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
# A pattern starts again at each character of such a run: thousands would take hours.
_LONG_GAP = re.compile(r"[^\S\n]{100,}")


@dataclass(slots=True)
class MarkdownClaim:
    """A claim of a document: its line, the headings above it, its text."""

    line: int
    path: tuple[str, ...]
    text: str

    @property
    def whole(self) -> str:
        """The text after its headings, so that it is understood alone."""
        return f"{' > '.join(self.path)}: {self.text}" if self.path else self.text


@dataclass(slots=True)
class _MarkdownPiece:
    """A block under construction."""

    line: int
    mark: str
    indent: int
    lines: list[str]
    children: list[_MarkdownPiece] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip()

    @property
    def is_step(self) -> bool:
        return self.mark[:1].isdigit()


def without_front(text: str) -> tuple[str, str]:
    """Return the front matter of a document, and the body with its line numbers unchanged."""
    lines = text.split("\n")
    if lines[0].strip() != "---":
        return "", text
    for number, line in enumerate(lines[1:], 1):
        if line.strip() in ("---", "..."):
            return "\n".join(lines[1:number]), "\n" * (number + 1) + "\n".join(lines[number + 1 :])
    return "", text


def tamed(text: str) -> str:
    """Replace very long gaps by single spaces."""
    return _LONG_GAP.sub(" ", text)


def claims(text: str) -> Iterator[MarkdownClaim]:
    """Yield every claim of a document in order."""
    _, body = without_front(tamed(text))
    body = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), body)
    titles: list[tuple[int, str]] = []
    lines = body.split("\n")
    has_many = sum(1 for line in lines if _HEADING.match(line)) > 1
    reader = _MarkdownReader()
    for number, line in enumerate(lines, 1):
        heading = None if reader.fence else _heading(line, lines[number : number + 1], reader)
        if heading is None:
            reader.take(number, line)
            continue
        yield from _of_chapter(titles, reader.taken())
        level, title = heading
        titles = [(above, name) for above, name in titles if above < level]
        # The title of the whole document adds nothing to a claim.
        if title and not (level == 1 and has_many):
            titles.append((level, title))
    yield from _of_chapter(titles, reader.taken())


def _heading(line: str, following: list[str], reader: _MarkdownReader) -> tuple[int, str] | None:
    found = _HEADING.match(line)
    if found:
        return len(found[1]), found[2].strip().rstrip("#").strip("*` \t")
    below = _UNDERLINE.match(following[0]) if following else None
    if below and line.strip() and reader.open is None and not _BULLET.match(line):
        return (1 if below[1][0] == "=" else 2), line.strip()
    return None


class _MarkdownReader:
    """Groups lines into blocks."""

    def __init__(self) -> None:
        # The block that a line without a mark continues, and the fence of an open code block.
        self.open: _MarkdownPiece | None = None
        self.fence = ""
        self._pieces: list[_MarkdownPiece] = []
        self._code: list[str] = []
        self._code_line = 0
        self._is_parted = False

    def taken(self) -> list[_MarkdownPiece]:
        """Return the blocks so far, and start over."""
        if self.fence:
            self._end_code()
        pieces, self._pieces, self.open = self._pieces, [], None
        return pieces

    def take(self, number: int, line: str) -> None:
        """Add one line."""
        fence = _FENCE.match(line)
        if line.strip():
            was_parted, self._is_parted = self._is_parted, False
        if self.fence:
            self._code.append(line)
            if fence and fence[1].startswith(self.fence) and line.strip() == fence[1]:
                self._end_code()
        elif fence:
            self.fence, self._code, self._code_line = fence[1], [line], number
        elif not line.strip() or _RULE.match(line):
            # A bullet may continue after an empty line, if the next line is indented.
            self._is_parted = True
            if self.open is not None and not self.open.mark:
                self.open = None
        elif _UNDERLINE.match(line):
            self.open = None
        else:
            self._take_text(number, line, was_parted)

    def _take_text(self, number: int, line: str, was_parted: bool) -> None:
        bullet = _BULLET.match(line)
        plain = line.expandtabs(_TAB_SPACES)
        indent = len(plain) - len(plain.lstrip())
        if bullet:
            text = _TASK.sub("", bullet["text"], count=1)
            self._add(_MarkdownPiece(number, bullet["mark"], indent, [text]))
        elif self.open is not None and (not was_parted or indent > self.open.indent):
            self.open.lines.append(line.strip().removeprefix("> "))
        else:
            self.open = None
            self._add(_MarkdownPiece(number, "", indent, [line.strip().removeprefix("> ")]))

    def _add(self, piece: _MarkdownPiece) -> None:
        last = self._pieces[-1] if self._pieces else None
        parent = last if last is not None and last.mark and piece.mark else None
        while parent is not None and piece.indent > parent.indent:
            if not parent.children or piece.indent <= parent.children[-1].indent:
                parent.children.append(piece)
                break
            parent = parent.children[-1]
        else:
            self._pieces.append(piece)
        self.open = piece

    def _end_code(self) -> None:
        code = textwrap.dedent("\n".join(self._code)).strip("\n")
        is_short = len(self._code) - 2 <= CODE_LIMIT_LINES and len(code) <= CODE_LIMIT_CHARS
        holder = self.open or (self._pieces[-1] if self._pieces else None)
        if not is_short:
            code = f"(a code block of {len(self._code) - 2} lines is left out)"
        if holder is not None:
            holder.lines.append(code)
        elif is_short:
            self._pieces.append(_MarkdownPiece(self._code_line, "", 0, [code]))
        self.fence, self._code = "", []
        if self.open is not None and not self.open.mark:
            self.open = None


def _of_chapter(
    titles: list[tuple[int, str]], pieces: list[_MarkdownPiece]
) -> Iterator[MarkdownClaim]:
    path = tuple(title for _, title in titles)
    lead: _MarkdownPiece | None = None
    index = 0
    while index < len(pieces):
        piece = pieces[index]
        if index and pieces[index - 1].mark and piece.is_step != pieces[index - 1].is_step:
            # Another list starts.
            lead = None
        under = (*path, lead.text.rstrip(": ")) if lead is not None and piece.mark else path
        steps = list(takewhile(lambda step: step.is_step, pieces[index:]))
        if len(steps) > 1 and len(_joined(steps)) <= _STEPS_LIMIT_CHARS:
            # A short numbered list is one claim.
            yield from _cut(piece.line, under, _joined(steps))
            index += len(steps)
            continue
        following = pieces[index + 1 : index + 2]
        if not piece.mark and piece.text.endswith(":") and following and following[0].mark:
            # The introduction of a list is repeated with each of its bullets.
            lead = piece
        else:
            lead = lead if piece.mark else None
            yield from _of_piece(under, piece)
        index += 1


def _of_piece(path: tuple[str, ...], piece: _MarkdownPiece) -> Iterator[MarkdownClaim]:
    if piece.children and piece.text.endswith(":"):
        for child in piece.children:
            yield from _of_piece((*path, piece.text.rstrip(": ")), child)
        return
    if not piece.mark and (rows := _table_rows(piece.lines)):
        for number, row in enumerate(rows, 2):
            yield from _cut(piece.line + number, path, row)
        return
    yield from _cut(piece.line, path, _joined([piece]) if piece.children else piece.text)


def _table_rows(lines: list[str]) -> list[str]:
    """Return each row of a table with its column names; empty if it is not a table."""
    if len(lines) < 3 or not _TABLE_RULE.match(lines[1]):
        return []
    names = _cells(lines[0])
    rows = []
    for line in lines[2:]:
        cells = zip_longest(names, _cells(line), fillvalue="")
        rows.append("; ".join(f"{name}: {cell}" if name else cell for name, cell in cells if cell))
    return [row for row in rows if row]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL_EDGE.split(line.strip().strip("|"))]


def _joined(pieces: list[_MarkdownPiece], depth: int = 0) -> str:
    lines: list[str] = []
    for piece in pieces:
        mark = f"{'  ' * depth}{piece.mark} " if depth or piece.is_step else ""
        lines.append(f"{mark}{piece.text}")
        if piece.children:
            lines.append(_joined(piece.children, depth + 1))
    return "\n".join(lines)


def _cut(line: int, path: tuple[str, ...], text: str) -> Iterator[MarkdownClaim]:
    for part in parts(text, CLAIM_LIMIT_CHARS):
        yield MarkdownClaim(line, path, part)


def parts(text: str, limit_chars: int) -> Iterator[str]:
    """Split a long text at lines, else at sentences, else anywhere."""
    rest = text.strip()
    while len(rest) > limit_chars:
        window = rest[:limit_chars]
        ends = [window.rfind("\n")] + [found.end() for found in _SENTENCE_END.finditer(window)]
        at = max(ends)
        at = at if at > limit_chars // 4 else limit_chars
        yield rest[:at].strip()
        rest = rest[at:].strip()
    if rest:
        yield rest


# Files that people write for agents.
INSTRUCTION_NAMES = (
    *("claude.md", "claude.local.md", "agents.md", "agent.md", "gemini.md", "copilot.md"),
    *("copilot-instructions.md", "conventions.md", ".cursorrules", ".windsurfrules"),
    *(".clinerules", ".goosehints", ".rules"),
)
# Files that agents write for themselves.
MEMORY_NAMES = ("memory.md", "memories.md")
INSTRUCTION_ENDINGS = (".mdc", ".instructions.md")
# Reads a file by its path, its name and its text.
TextReader = Callable[[Path, str, str], Iterator[ImportEntry]]
_CONFIDENCE = {"user_stated": 0.8, "assistant_derived": 0.6}


def is_instruction(path: Path) -> bool:
    """Return whether the name of a file says that a person wrote it for agents."""
    name = path.name.lower()
    return name in INSTRUCTION_NAMES or name.endswith(INSTRUCTION_ENDINGS)


def read_files(read_text_of: TextReader, found: entries.FoundFiles) -> Iterator[ImportEntry]:
    """Yield the entries of all files; an unreadable file is an entry with its error."""
    for path in found.files:
        name = path.relative_to(found.path).as_posix() if found.path.is_dir() else path.name
        try:
            text = entries.read_text(path)
        except InputError as error:
            yield ImportEntry(name, error)
            continue
        yield from read_text_of(path, name, text)


def read_document(path: Path, name: str, text: str) -> Iterator[ImportEntry]:
    """Yield every claim of a Markdown file."""
    provenance = "user_stated" if is_instruction(path) else "assistant_derived"
    created_at = entries.changed_at(path)
    for claim in claims(text):
        place = f"{name}:{claim.line}"
        if REFERENCE.match(claim.text):
            skipped = entries.Skipped(
                f"{claim.text[:80]} is not followed; import that file separately"
            )
            yield ImportEntry(place, skipped, len(claim.text))
            continue
        content = claim.whole
        yield entries.make_entry(
            place,
            content=content,
            kind=kind_of(claim.text, " ".join(claim.path)),
            provenance=provenance,
            confidence=_CONFIDENCE[provenance],
            created_at=created_at,
            source=entries.source("markdown", " > ".join((name, *claim.path)), content),
        )


# -- basic-memory ---------------------------------------------------------------------------------

_OBSERVATION = re.compile(r"\s*[-*]\s+\[(?P<category>[^\[\]()]{2,60})\]\s+(?P<text>\S.*)$")
_RELATION = re.compile(r"\s*[-*]\s+(?P<kind>[^\[\]]{0,60}?)\s*\[\[(?P<target>[^\[\]]{1,200})\]\]")
_CONTEXT = re.compile(r"\s*\((?P<context>[^()]{1,300})\)\s*$")
_TAG = re.compile(r"(?<!\S)#(?P<tag>[\w/-]{1,60})")
_END_TAGS = re.compile(r"(?:\s+#[\w/-]{1,60})+\s*$")
_KEY = re.compile(r"(?P<key>[\w-]{1,60}):\s*(?P<value>.*)$")
_DEPENDS = frozenset({"depends_on", "requires", "needs", "uses", "built_on", "part_of", "extends"})
# Links that only say that two notes are related.
_PLAIN = frozenset({"", "relates_to", "related_to", "links_to", "see", "see_also"})
_CATEGORIES: Mapping[str, Kind] = {
    **dict.fromkeys(("decision", "choice"), "decision"),
    **dict.fromkeys(("preference", "like", "dislike"), "preference"),
    **dict.fromkeys(("technique", "method", "step", "process", "procedure", "howto"), "procedure"),
    **dict.fromkeys(("constraint", "requirement", "rule", "never"), "constraint"),
    **dict.fromkeys(("event", "meeting", "episode", "status", "milestone"), "episode"),
}
_ENTITY_LIMIT = 16


def is_note(text: str) -> bool:
    """Return whether a text is a note of basic-memory: it has a permalink or observations."""
    front, body = without_front(tamed(text))
    return "permalink" in front_matter(front) or any(map(_OBSERVATION.match, body.split("\n")))


def read_note(path: Path, name: str, text: str) -> Iterator[ImportEntry]:
    """Yield every observation, specific relation and section of a note of basic-memory."""
    front, body = without_front(tamed(text))
    fields = front_matter(front)
    title = str(fields.get("title") or path.stem)
    topic, lines = entries.entity(title), body.split("\n")
    observed: dict[int, re.Match[str]] = {}
    related: dict[int, tuple[str, str]] = {}
    for number, line in enumerate(lines, 1):
        if found := _OBSERVATION.match(line):
            observed[number] = found
        elif (found := _RELATION.match(line)) and (
            target := entries.entity(found["target"].partition("|")[0])
        ):
            kind = "_".join(found["kind"].lower().split()).strip("*_:`")
            related[number] = (kind, target)
    needed = [target for kind, target in related.values() if kind in _DEPENDS and target != topic]
    shared = {
        "tags": entries.tags(fields.get("tags")),
        "about": [topic] if topic else [],
        "depends_on": needed[:_ENTITY_LIMIT] if topic else [],
        "provenance": "assistant_derived",
        "created_at": entries.when(fields.get("created"), fields.get("date"))
        or entries.changed_at(path),
    }

    def entry(number: int, content: str, **own: Any) -> ImportEntry:
        origin = entries.source("basic-memory", name, content)
        return entries.make_entry(
            f"{name}:{number}", **{**shared, "content": content, "source": origin, **own}
        )

    for number, found in observed.items():
        category, said = found["category"].strip(), found["text"].strip()
        # Remove tags at the end; a tag within the sentence is also a word of it.
        bare = _END_TAGS.sub("", _CONTEXT.sub("", said)) or said
        own_tags = [match["tag"] for match in _TAG.finditer(said)]
        yield entry(
            number,
            f"{title}: {bare}{_remark(said)}",
            kind=_CATEGORIES.get(category.lower()) or kind_of(bare),
            tags=entries.tags(own_tags, [category], shared["tags"]),
        )
    for number, (kind, target) in related.items():
        content = f"{title} {kind.replace('_', ' ')} {target}{_remark(lines[number - 1].rstrip())}"
        if kind in _DEPENDS:
            yield entry(number, content)
        elif kind not in _PLAIN:
            about = dict.fromkeys(name for name in (topic, target) if name)
            yield entry(number, content, about=list(about), depends_on=[])
    prose = ["" if n in observed or n in related else line for n, line in enumerate(lines, 1)]
    for claim in claims("\n".join(prose)):
        yield entry(claim.line, f"{title}: {claim.whole}", kind=kind_of(claim.text))


def _remark(text: str) -> str:
    context = _CONTEXT.search(text)
    return f" ({context['context']})" if context else ""


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
