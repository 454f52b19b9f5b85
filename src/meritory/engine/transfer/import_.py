"""Import: restore the lines of an export exactly, or write the entries of another format."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from meritory.domain.errors import Conflict, InputError, MeritoryError, NotFound
from meritory.domain.feedback import FeedbackEvent
from meritory.domain.memory import Draft, OnSimilar, Scope
from meritory.domain.quality import Carried
from meritory.domain.rule import Rule
from meritory.engine.memories.validate import make_draft, screened_draft
from meritory.engine.memories.write import indexed, prepare_batch, store_batch
from meritory.engine.services import Services
from meritory.engine.transfer.entries import (
    HARNESS_START,
    FoundFiles,
    ImportLine,
    Skipped,
    batches,
    digest_of,
    entry_lines,
    is_header,
    json_lines,
    open_regular,
)
from meritory.engine.transfer.export import (
    READABLE_VERSIONS,
    ExportedLine,
    ExportedMemory,
    ExportedRule,
    check_line,
    json_line,
)
from meritory.engine.transfer.formats import READERS
from meritory.ports.embedder import Vectors
from meritory.store.contract.store import Transaction
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
    digest = digest_of(found.files, json_line([found.form, *named]).encode())

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
            for batch, is_last in batches(remaining):
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
            if source.harness == f"{HARNESS_START}{found.form}" and source.quote_hash is not None
        )
        lines = entry_lines(READERS[found.form](found), size_bytes)
        yield _DraftImporter(services, scope, options, known), lines, size_bytes
        return
    with open_regular(found.path) as file:
        lines = json_lines(file)
        first = next(lines, None)
        if first is None:
            raise InputError(f"{found.path} has no lines", hint="expected one JSON object per line")
        if is_header(first.value):
            version = first.value["meritory_export"]
            if version not in READABLE_VERSIONS or isinstance(version, bool):
                raise Conflict(
                    f"the export has format {str(version)[:40]};"
                    f" this Meritory reads {READABLE_VERSIONS}",
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
            if isinstance(draft, Skipped):
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
        lines: list[ExportedLine] = []
        problems: list[tuple[int, str]] = []
        for line in batch:
            checked = _attempt(lambda value: check_line(value, self.user), line.value)
            if isinstance(checked, ExportedLine):
                lines.append(checked)
            else:
                problems.append(line.problem(str(checked)))
        memories = [line.memory for line in lines if line.memory is not None]
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
            return outcomes

        def store() -> BatchResult:
            work = find_new if self.options.is_dry else restore
            outcomes = self.services.store.write(self.user, work)
            if problems:
                outcomes["refused"] = len(problems)
            return BatchResult(batch[-1].number, outcomes, problems)

        return store

    def _put_memory(
        self, transaction: Transaction, item: ExportedMemory, vectors: dict[str, Vectors]
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

    def _put_others(self, transaction: Transaction, lines: Sequence[ExportedLine]) -> None:
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
        for row in extras:
            if isinstance(row, ExportedRule) and not _exists(transaction.rule, user, row.rule.id):
                transaction.put_rule(user, row.rule)
                for event in row.events:
                    transaction.add_rule_event(user, event)


def _exists(get: Callable[[str, str], FeedbackEvent | Rule], user: str, record_id: str) -> bool:
    """Return whether a record with exactly this id exists; `get` also accepts prefixes."""
    try:
        return get(user, record_id).id == record_id
    except NotFound:
        return False
