"""Export of everything as JSON lines, and import of that or of anybody's JSON lines."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from tenure.codec import moment_text, record_to_dict
from tenure.errors import Conflict, InputError, TenureError
from tenure.flow.checked import checked_entry, checked_record
from tenure.flow.drafts import make_draft
from tenure.flow.services import Services
from tenure.flow.write import BATCH_LIMIT, indexed, write_batch
from tenure.store.base import Attribute, Transaction
from tenure.types import Draft, HistoryEntry, MemoryRecord, OnSimilar, Scope

FORMAT_VERSION = 1
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


# -- export ---------------------------------------------------------------------------------


def export_lines(services: Services, user: str) -> Iterator[str]:
    """Every memory of a user with its history and links, a header first, as lines of JSON."""
    store = services.store
    yield _json({"tenure_export": FORMAT_VERSION, "at": moment_text(services.world.now())})
    stated = store.stated_attributes(user)
    for record in store.walk(user):
        yield _json(
            {
                "memory": record_to_dict(record),
                "about": [asdict(attribute) for attribute in stated.get(record.id, ())],
                "history": [_entry_plain(entry) for entry in store.history(user, record.id)],
            }
        )
    for pair in store.dependencies(user):
        yield _json({"dependency": [asdict(attribute) for attribute in pair]})
    yield _json({"counters": store.counters(user)})


def write_export(services: Services, user: str, target: Path, progress: Progress) -> int:
    """Writes an export file, whole or not at all; returns the number of memories."""
    if target.exists():
        raise InputError(f"{target} exists already", hint="choose another name")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}", hint="create it first")
    figures = services.store.totals(user)
    total = figures["live"] + figures["deleted"] + figures["superseded"]
    temporary = target.with_name(f"{target.name}.part-{os.getpid()}")
    count = 0
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            for count, line in enumerate(export_lines(services, user)):
                file.write(line + "\n")
                if count % BATCH_LIMIT == 0:
                    progress(min(count, total), total)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    progress(total, total)
    return total


def _entry_plain(entry: HistoryEntry) -> dict[str, Any]:
    """A history entry; `after` is left out, it is the next one's `before`."""
    return {
        "entry": entry.entry,
        "operation": entry.operation,
        "at": moment_text(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "why": entry.why,
        "before": None if entry.before is None else record_to_dict(entry.before),
        "other": None if entry.other is None else record_to_dict(entry.other),
        "other_id": entry.other_id,
        "undone": entry.undone,
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# -- import ---------------------------------------------------------------------------------


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
        for batch in _batches(wanted, BATCH_LIMIT):
            last = batch[-1]
            take.batch(batch, report, digest)
            report.line_count = last.number
            progress(last.end_bytes, size_bytes)
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


def _digest(file: IO[bytes], scope: Scope) -> str:
    """What names this import: the file's bytes and where they go."""
    whole = hashlib.sha256(_json([scope.user, scope.agent, scope.project]).encode())
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

    def batch(self, lines: list[_Line], report: ImportReport, digest: str) -> None:
        """Writes a batch together with the note of how far it got."""
        drafts = [self._draft(line.value) for line in lines]
        results = write_batch(
            self._services, drafts, _progress_note(self._services, self._scope, digest, lines)
        )
        for line, result in zip(lines, results, strict=True):
            report.outcomes[result.outcome] += 1
            if result.error is not None:
                report.refuse(line.number, str(result.error))

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

    def batch(self, lines: list[_Line], report: ImportReport, digest: str) -> None:
        """Restores a batch together with the note of how far it got."""
        taken: list[tuple[MemoryRecord, list[Attribute], list[HistoryEntry]]] = []
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
        vectors = self._services.embedding.documents([record.content for record, _, _ in taken])
        note = _progress_note(self._services, self._scope, digest, lines)

        def work(transaction: Transaction) -> Counter[str]:
            note(transaction)
            outcomes: Counter[str] = Counter()
            for (record, about, history), made in zip(taken, vectors, strict=True):
                if transaction.has(self._user, record.id):
                    outcomes["duplicate"] += 1
                    continue
                memory = indexed(record, made)
                links = (*about, *memory.attributes)
                transaction.insert(replace(memory, attributes=links), None)
                transaction.put_history(self._user, history)
                outcomes["stored"] += 1
            for other in others:
                self._put_other(transaction, other)
            return outcomes

        report.outcomes += self._services.store.write(work)

    def _memory(
        self, value: dict[str, Any]
    ) -> tuple[MemoryRecord, list[Attribute], list[HistoryEntry]]:
        record = checked_record(value["memory"], self._user)
        about = [_attribute(plain) for plain in value.get("about", [])]
        entries = value.get("history", [])
        if not isinstance(entries, list):
            raise InputError("history must be a list")
        return record, about, [checked_entry(entry, record.id, self._user) for entry in entries]

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
