"""Import of JSON lines: our own export exactly, anybody else's through the write path."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, TypeVar

from tenure.errors import Conflict, InputError, TenureError
from tenure.flow.checked import ExportedLine, ExportedMemory, checked_line
from tenure.flow.drafts import make_draft
from tenure.flow.export import FORMAT_VERSION, json_line
from tenure.flow.services import Services
from tenure.flow.write import BATCH_LIMIT, indexed, prepare_batch, store_batch
from tenure.ports.embedder import Vectors
from tenure.store.base import Indexed, Transaction
from tenure.types import Draft, OnSimilar, Scope

LINE_LIMIT_BYTES = 2_000_000
# A memory of ours brings its whole history along.
EXPORT_LINE_LIMIT_BYTES = 64_000_000
# A batch ends before its lines grow beyond this together; only a single line may be longer.
BATCH_LIMIT_BYTES = 8_000_000
PROBLEM_LIMIT = 100
REASON_LIMIT_CHARS = 300
_SKIP_BYTES = 1 << 20

T = TypeVar("T")
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class ImportReport:
    """What an import did: lines read, outcomes, and the first problems with their line numbers."""

    line_count: int = 0
    resumed_at: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[tuple[int, str]] = field(default_factory=list)

    def add(self, taken: _Taken) -> None:
        """Adds what became of one batch."""
        self.line_count = taken.line_count
        self.outcomes.update(taken.outcomes)
        room = PROBLEM_LIMIT - len(self.problems)
        self.problems += [(n, reason[:REASON_LIMIT_CHARS]) for n, reason in taken.problems[:room]]


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    size_bytes: int
    end_bytes: int
    value: Any


@dataclass(frozen=True, slots=True)
class _Batch:
    """Lines for one transaction; the one with the file's end is the last."""

    lines: list[_Line]
    is_last: bool

    @property
    def numbers(self) -> list[int]:
        return [line.number for line in self.lines]


@dataclass(frozen=True, slots=True)
class _Taken:
    """What became of one batch, and how far into the file it reached."""

    line_count: int
    outcomes: Counter[str]
    problems: list[tuple[int, str]]


# Runs in the writer's thread; the report is only changed where the lines are read.
Store = Callable[[], _Taken]
Note = Callable[[Transaction], None]


def import_file(
    services: Services,
    scope: Scope,
    path: Path,
    *,
    on_similar: OnSimilar = "gate",
    progress: Progress = lambda done, total: None,
) -> ImportReport:
    """Takes in a file of JSON lines in batches; after an interruption it goes on where it stopped.

    Once a file was taken in to its end this is forgotten: the next run goes through all its lines
    and finds what is stored already. Lines kept as they are would double, so they come in once.
    """
    report = ImportReport()
    with open_regular(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        digest = _digest(file, scope, on_similar)
        report.resumed_at = services.store.import_progress(scope.user, digest)
        lines = _lines(file)
        first = next(lines, None)
        if first is None:
            raise InputError(f"{path} holds no lines", hint="expected one JSON object per line")
        is_export = _is_header(first.value)
        if is_export:
            _check_version(first.value)
        take = _Restore(services, scope) if is_export else _Write(services, scope, on_similar)
        rest = lines if is_export else itertools.chain([first], lines)
        wanted = (line for line in rest if line.number > report.resumed_at)
        # While one batch is being written, the next one is read, screened and embedded.
        with ThreadPoolExecutor(1, "tenure-import") as writer:
            writing: Future[_Taken] | None = None
            end_bytes = 0
            for batch in _batches(wanted):
                reached = 0 if batch.is_last and take.is_repeatable else batch.numbers[-1]
                store = take.prepare(batch, _progress_note(services, scope, digest, reached))
                if writing is not None:
                    report.add(writing.result())
                    progress(end_bytes, size_bytes)
                writing, end_bytes = writer.submit(store), batch.lines[-1].end_bytes
            if writing is not None:
                report.add(writing.result())
    progress(size_bytes, size_bytes)
    return report


def open_regular(path: Path) -> IO[bytes]:
    """Opens a plain file for reading; devices, pipes and folders are refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path} cannot be read: {reason}", hint="check the path") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path} is not a plain file", hint="give the path of a JSONL file")
    return open(descriptor, "rb")


def _digest(file: IO[bytes], scope: Scope, on_similar: OnSimilar) -> str:
    """What names this import: the file's bytes, where they go and how."""
    named = [scope.user, scope.agent, scope.project, on_similar]
    whole = hashlib.sha256(json_line(named).encode())
    for chunk in iter(lambda: file.read(1 << 20), b""):
        whole.update(chunk)
    file.seek(0)
    return whole.hexdigest()


def _lines(file: IO[bytes]) -> Iterator[_Line]:
    """The parsed lines that are not blank; a bad one has the reason as its value."""
    at_bytes, limit, is_first = 0, LINE_LIMIT_BYTES, True
    for number in itertools.count(1):
        raw = file.readline(limit)
        if not raw:
            return
        start_bytes, at_bytes = at_bytes, at_bytes + len(raw)
        if len(raw) == limit and not raw.endswith(b"\n"):
            at_bytes += _skip_line(file)
            value: Any = InputError(f"longer than {limit} bytes")
        elif raw.strip():
            value = _parsed(raw)
        else:
            continue
        if is_first and _is_header(value):
            limit = EXPORT_LINE_LIMIT_BYTES
        is_first = False
        yield _Line(number, at_bytes - start_bytes, at_bytes, value)


def _skip_line(file: IO[bytes]) -> int:
    skipped = 0
    while raw := file.readline(_SKIP_BYTES):
        skipped += len(raw)
        if raw.endswith(b"\n"):
            break
    return skipped


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        return InputError("nested too deeply")
    except ValueError as error:
        return InputError(f"not a line of JSON in UTF-8: {str(error)[:80]}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _batches(lines: Iterable[_Line]) -> Iterator[_Batch]:
    """Lines by the batch, limited in number and in bytes."""
    batch: list[_Line] = []
    size_bytes = 0
    for line in lines:
        if batch and (
            len(batch) >= BATCH_LIMIT or size_bytes + line.size_bytes > BATCH_LIMIT_BYTES
        ):
            yield _Batch(batch, is_last=False)
            batch, size_bytes = [], 0
        batch.append(line)
        size_bytes += line.size_bytes
    if batch:
        yield _Batch(batch, is_last=True)


def _is_header(value: Any) -> bool:
    return isinstance(value, dict) and "tenure_export" in value


def _check_version(header: dict[str, Any]) -> None:
    version = header["tenure_export"]
    if version != FORMAT_VERSION:
        raise Conflict(
            f"this export has format {str(version)[:40]}, this Tenure reads {FORMAT_VERSION}",
            hint="upgrade Tenure",
        )


def _checked(check: Callable[[Any], T], value: Any) -> T | TenureError:
    """What a line holds, or why it cannot be taken in: one bad line must not stop the others."""
    if isinstance(value, TenureError):
        return value
    try:
        return check(value)
    except TenureError as error:
        return error
    except (OverflowError, RecursionError):
        return InputError("a number is too large, or the line is nested too deeply")


class _Write:
    """Foreign lines go through the write path like any other memory."""

    def __init__(self, services: Services, scope: Scope, on_similar: OnSimilar) -> None:
        self._services = services
        self._scope = scope
        self._on_similar = on_similar
        self.is_repeatable = on_similar == "gate"

    def prepare(self, batch: _Batch, note: Note) -> Store:
        """Screens and embeds a batch; returns what writes it and notes how far it got."""
        drafts = [_checked(self._draft, line.value) for line in batch.lines]
        prepared = prepare_batch(self._services, drafts)
        numbers = batch.numbers

        def store() -> _Taken:
            results = store_batch(self._services, prepared, note)
            problems = [
                (number, str(result.error))
                for number, result in zip(numbers, results, strict=True)
                if result.error is not None
            ]
            return _Taken(numbers[-1], Counter(result.outcome for result in results), problems)

        return store

    def _draft(self, value: Any) -> Draft:
        if isinstance(value, str):
            value = {"content": value}
        if not isinstance(value, dict):
            raise InputError("expected an object with a content field")
        # A file cannot reach into another user's memories or retire one by its id.
        for name in ("user", "supersedes"):
            if name in value:
                raise InputError(f"{name} cannot be set by an import")
        fields = {"origin": "import", **value}
        if fields["origin"] == "user":
            # No file is a person: what it pins or forbids stays a proposal.
            fields["origin"] = "import"
        content = fields.pop("content", None)
        return make_draft(content, self._scope, {**fields, "on_similar": self._on_similar})


class _Restore:
    """Lines of our own export come back exactly: ids, times, history, links."""

    is_repeatable = True

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._user = scope.user

    def prepare(self, batch: _Batch, note: Note) -> Store:
        """Checks and embeds a batch; returns what restores it and notes how far it got."""
        checked = [_checked(self._line, line.value) for line in batch.lines]
        numbers = batch.numbers
        problems = [
            (number, str(found))
            for number, found in zip(numbers, checked, strict=True)
            if isinstance(found, TenureError)
        ]
        sound = [found for found in checked if isinstance(found, ExportedLine)]
        memories = [line.memory for line in sound if line.memory is not None]
        vectors = self._services.embedding.documents([item.record.content for item in memories])
        ready = [(item, _indexed(item, made)) for item, made in zip(memories, vectors, strict=True)]

        def work(transaction: Transaction) -> Counter[str]:
            note(transaction)
            outcomes = Counter(self._put(transaction, item, memory) for item, memory in ready)
            self._put_others(transaction, sound)
            return outcomes

        def store() -> _Taken:
            outcomes = self._services.store.write(work)
            if problems:
                outcomes["refused"] = len(problems)
            return _Taken(numbers[-1], outcomes, problems)

        return store

    def _line(self, value: Any) -> ExportedLine:
        return checked_line(value, self._user)

    def _put(self, transaction: Transaction, item: ExportedMemory, memory: Indexed) -> str:
        if transaction.has(self._user, item.record.id):
            return "duplicate"
        transaction.insert(memory, None)
        transaction.put_history(self._user, item.history)
        return "stored"

    def _put_others(self, transaction: Transaction, lines: list[ExportedLine]) -> None:
        pairs = [line.dependency for line in lines if line.dependency is not None]
        transaction.put_dependencies(self._user, pairs)
        wanted: dict[str, int] = {}
        for line in lines:
            for name, amount in line.counters.items():
                wanted[name] = max(amount, wanted.get(name, 0))
        known = self._services.store.counters(self._user) if wanted else {}
        for name, amount in wanted.items():
            # Only what is missing: importing an export twice must not count twice.
            transaction.count(self._user, name, max(0, amount - known.get(name, 0)))


def _indexed(item: ExportedMemory, vectors: dict[str, Vectors]) -> Indexed:
    memory = indexed(item.record, vectors)
    return replace(memory, attributes=(*item.about, *memory.attributes))


def _progress_note(services: Services, scope: Scope, digest: str, line_count: int) -> Note:
    """Notes with a batch how many lines were taken in; 0 lets the next run begin anew."""
    now = services.world.now()
    return lambda transaction: transaction.set_import_progress(scope.user, digest, line_count, now)
