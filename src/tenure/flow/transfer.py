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
from typing import IO, Any

from tenure.errors import Conflict, InputError, TenureError
from tenure.flow.checked import checked_entry, checked_record
from tenure.flow.drafts import make_draft
from tenure.flow.export import FORMAT_VERSION, json_line
from tenure.flow.services import Services
from tenure.flow.write import BATCH_LIMIT, indexed, prepare_batch, store_batch
from tenure.ports.embedder import Vectors
from tenure.store.base import Attribute, Indexed, Transaction
from tenure.types import Draft, HistoryEntry, MemoryRecord, OnSimilar, Scope

LINE_LIMIT_BYTES = 2_000_000
PROBLEM_LIMIT = 100

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class ImportReport:
    """What an import did: lines read, outcomes, and the first problems with their line numbers."""

    line_count: int = 0
    resumed_at: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[tuple[int, str]] = field(default_factory=list)

    def refuse(self, line: int, reason: str) -> None:
        """Notes a line that could not be taken in."""
        if len(self.problems) < PROBLEM_LIMIT:
            self.problems.append((line, reason))


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    end_bytes: int
    value: Any


@dataclass(frozen=True, slots=True)
class _Exported:
    """One memory out of an export, with the links that were stated and its history."""

    record: MemoryRecord
    about: list[Attribute]
    history: list[HistoryEntry]

    def indexed(self, vectors: dict[str, Vectors]) -> Indexed:
        memory = indexed(self.record, vectors)
        return replace(memory, attributes=(*self.about, *memory.attributes))


Store = Callable[[], _Line]


def import_file(
    services: Services,
    scope: Scope,
    path: Path,
    *,
    on_similar: OnSimilar = "gate",
    progress: Progress = lambda done, total: None,
) -> ImportReport:
    """Takes in a file of JSON lines in batches; a second run goes on where the first stopped."""
    report = ImportReport()
    with open_regular(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        digest = _digest(file, scope)
        report.resumed_at = services.store.import_progress(scope.user, digest)
        lines = _lines(file, report)
        first = next(lines, None)
        if first is None:
            raise InputError(f"{path} holds no lines", hint="expected one JSON object per line")
        is_export = isinstance(first.value, dict) and "tenure_export" in first.value
        if is_export:
            _check_version(first.value)
        take = _Restore(services, scope) if is_export else _Write(services, scope, on_similar)
        rest = lines if is_export else itertools.chain([first], lines)
        wanted = (line for line in rest if line.number > report.resumed_at)
        # While one batch is being written, the next one is read, screened and embedded.
        with ThreadPoolExecutor(1, "tenure-import") as writer:
            writing: Future[_Line] | None = None
            for batch in _batches(wanted, BATCH_LIMIT):
                store = take.prepare(batch, report, digest)
                if writing is not None:
                    _finish(writing, report, progress, size_bytes)
                writing = writer.submit(store)
            if writing is not None:
                _finish(writing, report, progress, size_bytes)
    progress(size_bytes, size_bytes)
    return report


def _finish(
    writing: Future[_Line], report: ImportReport, progress: Progress, size_bytes: int
) -> None:
    last = writing.result()
    report.line_count = last.number
    progress(last.end_bytes, size_bytes)


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


def _digest(file: IO[bytes], scope: Scope) -> str:
    """What names this import: the file's bytes and where they go."""
    whole = hashlib.sha256(json_line([scope.user, scope.agent, scope.project]).encode())
    for chunk in iter(lambda: file.read(1 << 20), b""):
        whole.update(chunk)
    file.seek(0)
    return whole.hexdigest()


def _lines(file: IO[bytes], report: ImportReport) -> Iterator[_Line]:
    """The parsed lines; a bad one is reported by its number and left out."""
    at_bytes = 0
    for number in itertools.count(1):
        raw = file.readline(LINE_LIMIT_BYTES)
        if not raw:
            return
        at_bytes += len(raw)
        if len(raw) == LINE_LIMIT_BYTES and not raw.endswith(b"\n"):
            at_bytes += _skip_line(file)
            yield _Line(number, at_bytes, InputError(f"longer than {LINE_LIMIT_BYTES} bytes"))
        elif raw.strip():
            yield _Line(number, at_bytes, _parsed(raw))


def _skip_line(file: IO[bytes]) -> int:
    skipped = 0
    while raw := file.readline(LINE_LIMIT_BYTES):
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


def _batches(lines: Iterable[_Line], size: int) -> Iterator[list[_Line]]:
    iterator = iter(lines)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def _check_version(header: dict[str, Any]) -> None:
    version = header["tenure_export"]
    if version != FORMAT_VERSION:
        raise Conflict(
            f"this export has format {version!r}, this Tenure reads {FORMAT_VERSION}",
            hint="upgrade Tenure",
        )


class _Write:
    """Foreign lines go through the write path like any other memory."""

    def __init__(self, services: Services, scope: Scope, on_similar: OnSimilar) -> None:
        self._services = services
        self._scope = scope
        self._on_similar = on_similar

    def prepare(self, lines: list[_Line], report: ImportReport, digest: str) -> Store:
        """Screens and embeds a batch; returns what writes it and notes how far it got."""
        prepared = prepare_batch(self._services, [self._draft(line.value) for line in lines])
        note = _progress_note(self._services, self._scope, digest, lines)

        def store() -> _Line:
            results = store_batch(self._services, prepared, note)
            for line, result in zip(lines, results, strict=True):
                report.outcomes[result.outcome] += 1
                if result.error is not None:
                    report.refuse(line.number, str(result.error))
            return lines[-1]

        return store

    def _draft(self, value: Any) -> Draft | TenureError:
        if isinstance(value, TenureError):
            return value
        if isinstance(value, str):
            value = {"content": value}
        if not isinstance(value, dict):
            return InputError("expected an object with a content field")
        fields = {"origin": "import", "provenance": "assistant_derived", **value}
        content = fields.pop("content", None)
        try:
            # A file cannot reach into another user's memories or retire one by its id.
            for name in ("user", "supersedes"):
                if name in fields:
                    raise InputError(f"{name} cannot be set by an import")
            draft = make_draft(content, self._scope, {**fields, "on_similar": self._on_similar})
        except TenureError as error:
            return error
        return draft


class _Restore:
    """Lines of our own export come back exactly: ids, times, history, links."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._user = scope.user
        self._scope = scope

    def prepare(self, lines: list[_Line], report: ImportReport, digest: str) -> Store:
        """Checks and embeds a batch; returns what restores it and notes how far it got."""
        taken: list[_Exported] = []
        others: list[dict[str, Any]] = []
        for line in lines:
            try:
                if isinstance(line.value, dict) and "memory" in line.value:
                    taken.append(self._memory(line.value))
                else:
                    others.append(_other(line.value))
            except InputError as error:
                report.outcomes["refused"] += 1
                report.refuse(line.number, str(error))
        vectors = self._services.embedding.documents([item.record.content for item in taken])
        ready = [(item, item.indexed(made)) for item, made in zip(taken, vectors, strict=True)]
        note = _progress_note(self._services, self._scope, digest, lines)

        def work(transaction: Transaction) -> Counter[str]:
            note(transaction)
            outcomes = Counter(self._put(transaction, item, memory) for item, memory in ready)
            for other in others:
                self._put_other(transaction, other)
            return outcomes

        def store() -> _Line:
            report.outcomes.update(self._services.store.write(work))
            return lines[-1]

        return store

    def _put(self, transaction: Transaction, item: _Exported, memory: Indexed) -> str:
        if transaction.has(self._user, item.record.id):
            return "duplicate"
        transaction.insert(memory, None)
        transaction.put_history(self._user, item.history)
        return "stored"

    def _memory(self, value: dict[str, Any]) -> _Exported:
        record = checked_record(value["memory"], self._user)
        about = [_attribute(plain) for plain in value.get("about", [])]
        entries = value.get("history", [])
        if not isinstance(entries, list):
            raise InputError("history must be a list")
        history = [checked_entry(entry, record.id, self._user) for entry in entries]
        return _Exported(record, about, history)

    def _put_other(self, transaction: Transaction, other: dict[str, Any]) -> None:
        if "dependency" in other:
            subject, needed = (_attribute(plain) for plain in other["dependency"])
            transaction.put_dependencies(self._user, [(subject, needed)])
        known = self._services.store.counters(self._user)
        for name, amount in other.get("counters", {}).items():
            # Only what is missing: importing an export twice must not count twice.
            transaction.count(self._user, name, max(0, amount - known.get(name, 0)))


def _other(value: Any) -> dict[str, Any]:
    if isinstance(value, TenureError):
        raise InputError(value.message)
    if isinstance(value, dict) and isinstance(value.get("counters", {}), dict):
        counters = value.get("counters", {})
        sound = all(isinstance(amount, int) and amount >= 0 for amount in counters.values())
        pair = value.get("dependency", [{}, {}])
        if (
            sound
            and isinstance(pair, list)
            and len(pair) == 2
            and value.keys()
            <= {
                "counters",
                "dependency",
            }
        ):
            return value
    raise InputError("neither a memory, a dependency nor counters")


def _attribute(plain: Any) -> Attribute:
    try:
        return Attribute(**{**plain, "is_stated": True})
    except TypeError as error:
        raise InputError("an entity link has unknown or missing fields") from error


def _progress_note(
    services: Services, scope: Scope, digest: str, lines: list[_Line]
) -> Callable[[Transaction], None]:
    now = services.world.now()
    return lambda transaction: transaction.set_import_progress(
        scope.user, digest, lines[-1].number, now
    )
