"""Read Markdown files: split a document into claims, and guess the kind of each."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from meritory.domain.errors import InputError
from meritory.domain.memory import Kind
from meritory.engine.transfer.entries import (
    FoundFiles,
    ImportEntry,
    Skipped,
    changed_at,
    filled,
    read_text,
    source,
)
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
    has_many = sum(1 for line in body.split("\n") if _HEADING.match(line)) > 1
    for level, title, pieces in _chapters(body):
        titles = [(above, name) for above, name in titles if above < level]
        # The title of the whole document adds nothing to a claim.
        if title and not (level == 1 and has_many):
            titles.append((level, title))
        yield from _of_chapter(tuple(name for _, name in titles), pieces)


def _chapters(body: str) -> Iterator[tuple[int, str, list[_MarkdownPiece]]]:
    """Yield each heading with the blocks below it; the first may have no heading."""
    reader = _MarkdownReader()
    level, title = 7, ""
    lines = body.split("\n")
    for number, line in enumerate(lines, 1):
        found = None if reader.in_code else _heading(line, lines[number : number + 1], reader)
        if found is None:
            reader.take(number, line)
            continue
        yield level, title, reader.taken()
        level, title = found
    yield level, title, reader.taken()


def _heading(line: str, following: list[str], reader: _MarkdownReader) -> tuple[int, str] | None:
    found = _HEADING.match(line)
    if found:
        return len(found[1]), found[2].strip().rstrip("#").strip("*` \t")
    below = _UNDERLINE.match(following[0]) if following else None
    if below and line.strip() and not reader.is_open and not _BULLET.match(line):
        return (1 if below[1][0] == "=" else 2), line.strip()
    return None


class _MarkdownReader:
    """Groups lines into blocks."""

    def __init__(self) -> None:
        self._pieces: list[_MarkdownPiece] = []
        self._open: _MarkdownPiece | None = None
        self._fence = ""
        self._code: list[str] = []
        self._code_line = 0
        self._is_parted = False

    @property
    def in_code(self) -> bool:
        """Whether a code block is open."""
        return bool(self._fence)

    @property
    def is_open(self) -> bool:
        """Whether a line without a mark would continue the last block."""
        return self._open is not None

    def taken(self) -> list[_MarkdownPiece]:
        """Return the blocks so far, and start over."""
        if self._fence:
            self._end_code()
        pieces, self._pieces, self._open = self._pieces, [], None
        return pieces

    def take(self, number: int, line: str) -> None:
        """Add one line."""
        fence = _FENCE.match(line)
        if line.strip():
            was_parted, self._is_parted = self._is_parted, False
        if self._fence:
            self._code.append(line)
            if fence and fence[1].startswith(self._fence) and line.strip() == fence[1]:
                self._end_code()
        elif fence:
            self._fence, self._code, self._code_line = fence[1], [line], number
        elif not line.strip() or _RULE.match(line):
            # A bullet may continue after an empty line, if the next line is indented.
            self._is_parted = True
            if self._open is not None and not self._open.mark:
                self._open = None
        elif _UNDERLINE.match(line):
            self._open = None
        else:
            self._take_text(number, line, was_parted)

    def _take_text(self, number: int, line: str, was_parted: bool) -> None:
        bullet = _BULLET.match(line)
        plain = line.expandtabs(_TAB_SPACES)
        indent = len(plain) - len(plain.lstrip())
        if bullet:
            text = _TASK.sub("", bullet["text"], count=1)
            self._add(_MarkdownPiece(number, bullet["mark"], indent, [text]))
        elif self._open is not None and (not was_parted or indent > self._open.indent):
            self._open.lines.append(line.strip().removeprefix("> "))
        else:
            self._open = None
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
        self._open = piece

    def _end_code(self) -> None:
        code = textwrap.dedent("\n".join(self._code)).strip("\n")
        is_short = len(self._code) - 2 <= CODE_LIMIT_LINES and len(code) <= CODE_LIMIT_CHARS
        holder = self._open or (self._pieces[-1] if self._pieces else None)
        if not is_short:
            code = f"(a code block of {len(self._code) - 2} lines is left out)"
        if holder is not None:
            holder.lines.append(code)
        elif is_short:
            self._pieces.append(_MarkdownPiece(self._code_line, "", 0, [code]))
        self._fence, self._code = "", []
        if self._open is not None and not self._open.mark:
            self._open = None


def _of_chapter(path: tuple[str, ...], pieces: list[_MarkdownPiece]) -> Iterator[MarkdownClaim]:
    lead: _MarkdownPiece | None = None
    index = 0
    while index < len(pieces):
        piece = pieces[index]
        if index and pieces[index - 1].mark and piece.is_step != pieces[index - 1].is_step:
            # Another list starts.
            lead = None
        under = (*path, lead.text.rstrip(": ")) if lead is not None and piece.mark else path
        steps = _steps(pieces[index:])
        if len(steps) > 1:
            yield from _cut(MarkdownClaim(piece.line, under, _joined(steps)))
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


def _steps(pieces: list[_MarkdownPiece]) -> list[_MarkdownPiece]:
    """Return the numbered list at the start, if it is short enough for one claim."""
    steps: list[_MarkdownPiece] = []
    for piece in pieces:
        if not piece.is_step:
            break
        steps.append(piece)
    return steps if len(_joined(steps)) <= _STEPS_LIMIT_CHARS else []


def _of_piece(path: tuple[str, ...], piece: _MarkdownPiece) -> Iterator[MarkdownClaim]:
    if piece.children and piece.text.endswith(":"):
        for child in piece.children:
            yield from _of_piece((*path, piece.text.rstrip(": ")), child)
        return
    if not piece.mark and (rows := _table_rows(piece.lines)):
        for number, row in enumerate(rows, 2):
            yield from _cut(MarkdownClaim(piece.line + number, path, row))
        return
    yield from _cut(
        MarkdownClaim(piece.line, path, _joined([piece]) if piece.children else piece.text)
    )


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


def _cut(claim: MarkdownClaim) -> Iterator[MarkdownClaim]:
    for part in parts(claim.text, CLAIM_LIMIT_CHARS):
        yield MarkdownClaim(claim.line, claim.path, part)


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
_CONFIDENCE = {"user_stated": 0.8, "assistant_derived": 0.6}


def is_instruction(path: Path) -> bool:
    """Return whether the name of a file says that a person wrote it for agents."""
    name = path.name.lower()
    return name in INSTRUCTION_NAMES or name.endswith(INSTRUCTION_ENDINGS)


def read(found: FoundFiles) -> Iterator[ImportEntry]:
    """Yield every claim of the files."""
    for path in found.files:
        name = path.relative_to(found.path).as_posix() if found.path.is_dir() else path.name
        try:
            text = read_text(path)
        except InputError as error:
            yield ImportEntry(name, error)
            continue
        yield from _of_file(path, name, text)


def _of_file(path: Path, name: str, text: str) -> Iterator[ImportEntry]:
    provenance = "user_stated" if is_instruction(path) else "assistant_derived"
    created_at = changed_at(path)
    for claim in claims(text):
        place = f"{name}:{claim.line}"
        if REFERENCE.match(claim.text):
            skipped = Skipped(f"{claim.text[:80]} is not followed; import that file separately")
            yield ImportEntry(place, skipped, len(claim.text))
            continue
        content = claim.whole
        fields = {
            "content": content,
            "kind": kind_of(claim.text, " ".join(claim.path)),
            "provenance": provenance,
            "confidence": _CONFIDENCE[provenance],
            "created_at": created_at,
            "source": source("markdown", " > ".join((name, *claim.path)), content),
        }
        yield ImportEntry(place, filled(fields), len(content.encode("utf-8", "replace")))
