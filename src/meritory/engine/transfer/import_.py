"""Import: recognise a format, restore an export exactly, or write the entries of another format."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from meritory.domain.errors import Conflict, InputError, MeritoryError, NotFound
from meritory.domain.feedback import FeedbackEvent
from meritory.domain.memory import Draft, OnSimilar, Scope
from meritory.domain.quality import Carried
from meritory.domain.rule import Rule
from meritory.engine.memories.validate import make_draft, screened_draft
from meritory.engine.memories.write import indexed, prepare_batch, store_batch
from meritory.engine.services import Services
from meritory.engine.transfer import entries, export, markdown
from meritory.engine.transfer.entries import Form, FoundFiles, ImportEntry, ImportLine
from meritory.engine.transfer.learned import put_learned, put_models
from meritory.engine.transfer.memory_programs import JSON_LIMIT_BYTES, read_claude_mem, read_mem0
from meritory.ports.embedder import Vectors
from meritory.store.contract.store import Transaction
from meritory.store.sqlite.foreign import MAGIC, open_foreign
from meritory.text.normalize import content_hash

PROBLEM_LIMIT = 100
REASON_LIMIT_CHARS = 300
SAMPLE_LIMIT = 5

T = TypeVar("T")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Whether the similarity gate compares imported memories, and whether this is a dry run."""

    on_similar: OnSimilar = "gate"
    is_dry: bool = False


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The outcomes of one batch, and the number of its last line."""

    line_count: int
    outcomes: Counter[str]
    problems: list[tuple[int, str]]
    seen: list[Draft] = field(default_factory=list)


@dataclass(slots=True)
class ImportReport:
    """The result of an import: lines read, outcomes, and the first problems by line number."""

    line_count: int = 0
    resumed_at: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[tuple[int, str]] = field(default_factory=list)
    # Of a dry run: the first drafts, and all by kind.
    samples: list[Draft] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, result: BatchResult) -> None:
        """Add the result of one batch."""
        self.line_count = result.line_count
        self.outcomes.update(result.outcomes)
        room = PROBLEM_LIMIT - len(self.problems)
        self.problems += [(n, reason[:REASON_LIMIT_CHARS]) for n, reason in result.problems[:room]]
        self.samples += result.seen[: SAMPLE_LIMIT - len(self.samples)]
        self.kinds.update(draft.kind for draft in result.seen)


# Runs on the writer thread; only the reading thread changes the report.
StoreBatch = Callable[[], BatchResult]
SaveProgress = Callable[[Transaction], None]


def _attempt(check: Callable[[Any], T], value: Any) -> T | MeritoryError:
    """Return the checked value of a line or its error: one bad line must not stop the others."""
    if isinstance(value, MeritoryError):
        return value
    try:
        return check(value)
    except MeritoryError as error:
        return error
    except (OverflowError, RecursionError):
        return InputError("a number is too large, or the line is nested too deeply")


def import_found(
    services: Services,
    scope: Scope,
    found: FoundFiles,
    options: ImportOptions,
    progress: Progress,
) -> ImportReport:
    """Import recognised files in batches; an interrupted import continues where it stopped.

    The progress of a complete import is deleted: the next run reads all lines and finds them
    stored. Without the gate that would double the lines, so then the progress is kept.
    """
    if found.only_user is not None and found.form != "mem0":
        raise InputError(
            f"{found.path.name} does not name the user of a memory", hint="leave out --only-user"
        )
    report, now = ImportReport(), services.world.now
    named = [scope.user, scope.agent, scope.project, options.on_similar, found.only_user]
    digest = entries.digest_of(found.files, export.json_line([found.form, *named]).encode())

    def save_progress(line_count: int) -> SaveProgress:
        at = now()
        return lambda transaction: transaction.set_import_progress(
            scope.user, digest, line_count, at
        )

    if not options.is_dry:
        report.resumed_at = services.store.import_progress(scope.user, digest)
    with _open(services, scope, found, options) as (importer, lines, size_bytes):
        remaining = (line for line in lines if line.number > report.resumed_at)
        # While one batch is written, the next one is read, screened and embedded.
        with ThreadPoolExecutor(1, "meritory-import") as writer:
            writing: Future[BatchResult] | None = None
            end_bytes = 0
            for batch, is_last in entries.batches(remaining):
                line_count = 0 if is_last and importer.is_repeatable else batch[-1].number
                store = importer.prepare(batch, save_progress(line_count))
                if writing is not None:
                    report.add(writing.result())
                    progress(end_bytes, size_bytes)
                writing, end_bytes = writer.submit(store), batch[-1].end_bytes
            if writing is not None:
                report.add(writing.result())
    progress(size_bytes, size_bytes)
    return report


@contextmanager
def _open(
    services: Services, scope: Scope, found: FoundFiles, options: ImportOptions
) -> Iterator[tuple[_DraftImporter | _ExportImporter, Iterator[ImportLine], int]]:
    """Open the files; yield their importer, their lines and their size in bytes."""
    size_bytes = sum(path.stat().st_size for path in found.files)
    if found.form in READERS:
        # The texts of earlier imports of this format, even if they are forgotten by now.
        known = frozenset(
            (record.scope, source.quote_hash)
            for record in services.store.walk(scope.user)
            for source in record.sources
            if source.harness == f"{entries.HARNESS_START}{found.form}"
            and source.quote_hash is not None
        )
        lines = entries.entry_lines(READERS[found.form](found), size_bytes)
        yield _DraftImporter(services, scope, options, known), lines, size_bytes
        return
    with entries.open_regular(found.path) as file:
        lines = entries.json_lines(file)
        first = next(lines, None)
        if first is None:
            raise InputError(f"{found.path} has no lines", hint="expected one JSON object per line")
        if entries.is_header(first.value):
            version = first.value["meritory_export"]
            if version not in export.READABLE_VERSIONS or isinstance(version, bool):
                raise Conflict(
                    f"the export has format {str(version)[:40]};"
                    f" this Meritory reads {export.READABLE_VERSIONS}",
                    hint="upgrade Meritory",
                )
            yield _ExportImporter(services, scope.user, options), lines, size_bytes
        else:
            importer = _DraftImporter(services, scope, options, frozenset())
            yield importer, itertools.chain([first], lines), size_bytes


@dataclass(frozen=True, slots=True)
class _DraftImporter:
    """Imports lines of other formats through the write path."""

    services: Services
    scope: Scope
    options: ImportOptions
    # The texts of earlier imports, by scope and hash.
    known: frozenset[tuple[Scope, str]]

    @property
    def is_repeatable(self) -> bool:
        return self.options.on_similar == "gate"

    def prepare(self, batch: list[ImportLine], save_progress: SaveProgress) -> StoreBatch:
        """Screen and embed a batch; return the function that writes it and its progress."""
        result = BatchResult(batch[-1].number, Counter(), [])
        drafts: list[tuple[ImportLine, Draft | MeritoryError]] = []
        for line in batch:
            draft = _attempt(self._draft, line.value)
            if isinstance(draft, entries.Skipped):
                result.outcomes["skipped"] += 1
                result.problems.append(line.problem(str(draft)))
            elif (
                isinstance(draft, Draft)
                and draft.source is not None
                and (draft.scope, draft.source.quote_hash) in self.known
            ):
                result.outcomes["duplicate"] += 1
            else:
                drafts.append((line, draft))
        if self.options.is_dry:
            return self._preview(result, drafts)
        prepared = prepare_batch(self.services, [draft for _, draft in drafts])

        def store() -> BatchResult:
            written = store_batch(self.services, self.scope.user, prepared, save_progress)
            result.outcomes.update(row.outcome for row in written)
            for (line, _), row in zip(drafts, written, strict=True):
                if row.error is not None:
                    result.problems.append(line.problem(str(row.error)))
            return result

        return store

    def _preview(
        self, result: BatchResult, drafts: list[tuple[ImportLine, Draft | MeritoryError]]
    ) -> StoreBatch:
        """Predict the outcomes without the gate, which would need vectors."""
        policy = self.services.policy.secrets.policy
        valid: list[Draft] = []
        for line, draft in drafts:
            screened = _attempt(lambda draft: screened_draft(draft, policy), draft)
            if isinstance(screened, Draft):
                valid.append(screened)
            else:
                result.outcomes["refused"] += 1
                result.problems.append(line.problem(str(screened)))

        def find_new(transaction: Transaction) -> list[Draft]:
            find = transaction.live_by_hash
            return [d for d in valid if not find(d.scope, [content_hash(d.content)])]

        def store() -> BatchResult:
            new = self.services.store.write(self.scope.user, find_new)
            duplicate_count = len(valid) - len(new)
            result.outcomes.update(["new"] * len(new) + ["duplicate"] * duplicate_count)
            result.seen.extend(new)
            return result

        return store

    def _draft(self, value: Any) -> Draft:
        if isinstance(value, str):
            value = {"content": value}
        if not isinstance(value, dict):
            raise InputError("expected an object with a content field")
        # A file must not write for another user, or supersede a memory by its id.
        for name in ("user", "supersedes"):
            if name in value:
                raise InputError(f"{name} cannot be set by an import")
        fields = {"origin": "import", **value}
        if fields["origin"] == "user":
            # A file is not a person: its pins and constraints remain proposals.
            fields["origin"] = "import"
        source = fields.get("source")
        if isinstance(source, dict) and "extractor" in source:
            # Only an extractor may name itself.
            fields["source"] = {**source, "extractor": None}
        content = fields.pop("content", None)
        return make_draft(content, self.scope, {**fields, "on_similar": self.options.on_similar})


@dataclass(frozen=True, slots=True)
class _ExportImporter:
    """Restores the lines of an export exactly: ids, times, history, links, reports and rules."""

    services: Services
    user: str
    options: ImportOptions
    is_repeatable = True

    def prepare(self, batch: list[ImportLine], save_progress: SaveProgress) -> StoreBatch:
        """Check and embed a batch; return the function that restores it and its progress."""
        lines: list[export.ExportedLine] = []
        problems: list[tuple[int, str]] = []
        for line in batch:
            checked = _attempt(lambda value: export.check_line(value, self.user), line.value)
            if isinstance(checked, export.ExportedLine):
                lines.append(checked)
            else:
                problems.append(line.problem(str(checked)))
        memories = [line.memory for line in lines if line.memory is not None]
        learned = [line.learned for line in lines if line.learned is not None]
        texts = [] if self.options.is_dry else [memory.record.content for memory in memories]
        vectors = self.services.embedding.documents(texts)

        def find_new(transaction: Transaction) -> Counter[str]:
            is_stored = (transaction.has(self.user, memory.record.id) for memory in memories)
            return Counter("duplicate" if stored else "new" for stored in is_stored)

        def restore(transaction: Transaction) -> Counter[str]:
            save_progress(transaction)
            outcomes = Counter(
                self._put_memory(transaction, memory, made)
                for memory, made in zip(memories, vectors, strict=True)
            )
            self._put_others(transaction, lines)
            put_learned(transaction, self.user, learned)
            return outcomes

        def store() -> BatchResult:
            work = find_new if self.options.is_dry else restore
            if not self.options.is_dry:
                # Before the state that names them.
                put_models(self.services, self.user, learned)
            outcomes = self.services.store.write(self.user, work)
            if problems:
                outcomes["refused"] = len(problems)
            return BatchResult(batch[-1].number, outcomes, problems)

        return store

    def _put_memory(
        self, transaction: Transaction, item: export.ExportedMemory, vectors: dict[str, Vectors]
    ) -> str:
        user, memory_id = self.user, item.record.id
        if transaction.has(user, memory_id):
            return "duplicate"
        memory = indexed(item.record, vectors)
        memory = replace(memory, attributes=(*item.about, *memory.attributes))
        transaction.insert(memory, None)
        transaction.put_history(user, item.history)
        if item.audits:
            # The entries have new numbers in the same order.
            numbers = [entry.entry for entry in transaction.history(user, memory_id)]
            audits = [replace(audit, entry=numbers[index]) for index, audit in item.audits]
            transaction.carry(user, audits)
        if item.retrieved is not None:
            count = {memory_id: item.retrieved.count}
            transaction.add_retrievals(user, count, item.retrieved.last_at)
        return "stored"

    def _put_others(self, transaction: Transaction, lines: Sequence[export.ExportedLine]) -> None:
        user, store = self.user, self.services.store
        transaction.put_dependencies(user, [line.dependency for line in lines if line.dependency])
        counters: dict[str, int] = {}
        for line in lines:
            for name, amount in line.counters.items():
                counters[name] = max(amount, counters.get(name, 0))
        current = store.counters(user) if counters else {}
        for name, amount in counters.items():
            # Only the difference: importing an export twice must not count twice.
            transaction.count(user, name, max(0, amount - current.get(name, 0)))
        extras = [line.extra for line in lines]
        transaction.carry(user, [row for row in extras if isinstance(row, Carried)])
        reports = {row.id: row for row in extras if isinstance(row, FeedbackEvent)}
        for report in reports.values():
            if not _exists(store.feedback_event, user, report.id):
                transaction.add_feedback(report)
        rules = (row for row in extras if isinstance(row, export.ExportedRule))
        for row in rules:
            if not _exists(transaction.rule, user, row.rule.id):
                transaction.put_rule(user, row.rule)
                for event in row.events:
                    transaction.add_rule_event(user, event)


def _exists(get: Callable[[str, str], FeedbackEvent | Rule], user: str, record_id: str) -> bool:
    """Return whether a record with exactly this id exists; `get` also accepts prefixes."""
    try:
        return get(user, record_id).id == record_id
    except NotFound:
        return False


# -- formats ---------------------------------------------------------------------------------

READERS: dict[str, Callable[[FoundFiles], Iterator[ImportEntry]]] = {
    "mem0": read_mem0,
    "claude-mem": read_claude_mem,
    "basic-memory": partial(markdown.read_files, markdown.read_note),
    "markdown": partial(markdown.read_files, markdown.read_document),
}
_TEXT_FORMS = ("jsonl", "mem0", "basic-memory", "markdown")
_HEAD_BYTES = 1_000_000
_CLAUDE_MEM_FILE = "claude-mem.db"
_POINTS_FILE = "storage.sqlite"
_MARKDOWN = (".md", ".mdc", ".markdown")
# Subfolders of a project in which clients look for instructions.
_PLACES = (".", ".claude", ".github", ".github/instructions", ".cursor/rules", ".clinerules")
_SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", "venv"})


def recognise(path: Path, wanted: str = "auto") -> FoundFiles:
    """Return the format and files at a path; InputError names the reason if there are none."""
    if wanted not in ("auto", *entries.FORMS):
        raise InputError(
            f"unknown format: {wanted[:40]!r}", hint=f"formats: {', '.join(entries.FORMS)}"
        )
    if path.is_dir():
        return _folder(path, wanted)
    form, why = _form_of(path)
    if wanted not in ("auto", form):
        # A text file can be read in any text format.
        if entries.is_database(path) or wanted not in _TEXT_FORMS or form == "meritory":
            raise InputError(f"{path.name} is not {wanted}: {why}", hint=f"try --from {form}")
        form, why = cast("Form", wanted), "as given by --from"
    return FoundFiles(form, path, (path,), why)


def _form_of(path: Path) -> tuple[Form, str]:
    """Return the format of a file and the reason."""
    with entries.open_regular(path) as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(MAGIC):
        return _database(path)
    if b"\0" in head:
        raise InputError(f"{path.name} is neither text nor a database", hint="check the path")
    text = head.decode("utf-8-sig", "replace")
    if markdown.is_instruction(path):
        return "markdown", "a Markdown file"
    if path.suffix.lower() in _MARKDOWN:
        if markdown.is_note(text):
            return "basic-memory", "a note with a permalink or observations"
        return "markdown", "a Markdown file"
    return _json(path, text)


def _database(path: Path) -> tuple[Form, str]:
    with open_foreign(path) as tables:
        if {"title", "project"} <= set(tables.columns("observations")):
            return "claude-mem", "a database with observations"
        if {"memory_id", "new_memory"} <= set(tables.columns("history")):
            return "mem0", "mem0's history database"
        if {"id", "point"} <= set(tables.columns("points")):
            return "mem0", "a local Qdrant collection"
        if tables.columns("memory_history"):
            raise InputError(
                f"{path.name} is a store of Meritory",
                hint="export it with `meritory --store FILE export`, then import that file",
            )
        names = ", ".join(tables.names()[:8]) or "none"
    raise InputError(f"{path.name} is an unknown kind of database", hint=f"its tables: {names}")


def _json(path: Path, text: str) -> tuple[Form, str]:
    text = text.lstrip("\ufeff \t\r\n")
    first = _value(text.partition("\n")[0])
    if isinstance(first, dict) and "meritory_export" in first:
        return "meritory", "an export of Meritory"
    is_whole = first is None and text[:1] in ("{", "[") and path.suffix.lower() == ".json"
    value = _value(entries.read_text(path, JSON_LIMIT_BYTES)) if is_whole else first
    if _is_memory(value) or _holds_memories(value):
        return "mem0", "memories as mem0's get_all returns them"
    if is_whole:
        raise InputError(
            f"{path.name} is one JSON value, but not a list of memories",
            hint="expected what mem0's get_all returns, or one JSON object per line",
        )
    return "jsonl", "lines of JSON"


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_memory(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("memory"), str)


def _holds_memories(value: Any) -> bool:
    if isinstance(value, dict):
        value = next((value[name] for name in ("results", "memories") if name in value), None)
    return isinstance(value, list) and (not value or any(map(_is_memory, value)))


def _folder(path: Path, wanted: str) -> FoundFiles:
    files, links = _files_below(path)
    remarks = (f"{links} links are not followed",) if links else ()
    choices = (choice for choice in _choices(path, files) if wanted in ("auto", choice.form))
    found = next(choices, None)
    notes = tuple(file for file in files if file.suffix.lower() in _MARKDOWN)
    if found is None and wanted == "markdown" and notes:
        found = FoundFiles("markdown", path, notes, "all Markdown files of a folder")
    if found is None:
        content = "files to import" if wanted == "auto" else f"files of {wanted}"
        raise InputError(
            f"{path} has no {content}",
            hint="name a file, or import all its Markdown files with --from markdown",
        )
    return replace(found, remarks=remarks)


def _choices(path: Path, files: list[Path]) -> Iterator[FoundFiles]:
    if named := [file for file in files if file.name == _CLAUDE_MEM_FILE]:
        yield FoundFiles("claude-mem", path, (named[0],), f"it contains {_CLAUDE_MEM_FILE}")
    if points := [
        file for file in files if file.name == _POINTS_FILE and entries.is_database(file)
    ]:
        yield FoundFiles("mem0", path, tuple(points), "it contains collections of a local Qdrant")
    texts = [file for file in files if file.suffix.lower() == ".md"]
    known = [
        file
        for file in files
        if (markdown.is_instruction(file) or file.name.lower() in markdown.MEMORY_NAMES)
        and file.parent.relative_to(path).as_posix() in _PLACES
    ]
    if any(_holds(_has_permalink, file) for file in texts):
        plain = tuple(file for file in texts if not markdown.is_instruction(file))
        yield FoundFiles("basic-memory", path, plain, "it contains notes with permalinks")
    if known:
        yield FoundFiles("markdown", path, tuple(known), "it contains instruction or memory files")
    if any(_holds(markdown.is_note, file) for file in texts):
        yield FoundFiles("basic-memory", path, tuple(texts), "it contains notes with observations")


def _holds(check: Callable[[str], bool], file: Path) -> bool:
    """Return whether the text of a file passes a check; False if it cannot be read."""
    try:
        return check(entries.read_text(file))
    except InputError:
        return False


def _has_permalink(text: str) -> bool:
    return "permalink" in markdown.front_matter(markdown.without_front(text)[0])


def _files_below(folder: Path) -> tuple[list[Path], int]:
    """Return the regular files below a folder in a fixed order, and the number of links."""
    regular: list[Path] = []
    links = 0
    for place, folders, names in os.walk(folder, followlinks=False):
        here = Path(place)
        links += sum((here / name).is_symlink() for name in (*folders, *names))
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        files = (here / name for name in sorted(names))
        regular += [file for file in files if not file.is_symlink() and file.is_file()]
        if len(regular) > entries.FILE_LIMIT_COUNT:
            raise InputError(
                f"{folder} has more than {entries.FILE_LIMIT_COUNT:,} files",
                hint="name the folder with the notes",
            )
    return regular, links
