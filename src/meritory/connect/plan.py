"""What connecting or disconnecting would change, before anything is; then doing it."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from meritory.connect.desired import Document
from meritory.connect.files import make_folders, read_file, replace_file, text_of
from meritory.connect.install_record import InstallRecord, Record, digest
from meritory.connect.json_edit import NOTHING_MADE, Made
from meritory.connect.merge import is_empty, is_merged, merged, says_the_same, unmerged
from meritory.domain.errors import InputError, MeritoryError

CONTEXT_LINES = 2
_NOWHERE = "/dev/null"


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file: what it holds, what it would hold, and what to keep in mind about it."""

    path: Path
    before: bytes | None
    after: bytes | None
    # What to go back to on disconnecting; differs from `before` when we were there already.
    base: bytes | None = None
    made: Made = NOTHING_MADE
    conflicts: tuple[str, ...] = ()

    @property
    def is_real(self) -> bool:
        """Whether anything changes."""
        return self.before != self.after

    def diff(self) -> list[str]:
        """The change as a unified diff."""
        old, new = (_lines(content) for content in (self.before, self.after))
        name = str(self.path)
        here = _NOWHERE if self.before is None else name
        there = _NOWHERE if self.after is None else name
        return list(difflib.unified_diff(old, new, here, there, n=CONTEXT_LINES, lineterm=""))


def _lines(content: bytes | None) -> list[str]:
    return (content or b"").decode("utf-8", "replace").splitlines()


def plan_connect(
    harness: str, documents: Sequence[Document], ledger: InstallRecord
) -> list[FileChange]:
    """The changes that put Meritory's part into every file; refuses what cannot be read."""
    return [_connecting(harness, document, ledger) for document in documents]


def _connecting(harness: str, document: Document, ledger: InstallRecord) -> FileChange:
    content = read_file(document.path)
    with _named(document.path):
        text = text_of(document.path, content)
        if content is not None and is_merged(text, document, harness):
            conflicts = merged(text, document, harness).conflicts
            return FileChange(document.path, content, content, conflicts=conflicts)
        base = _base(harness, document, ledger, content)
        plain = text_of(document.path, base)
        new = merged(plain, document, harness)
        # What goes in must come out again: a file where it does not is better left alone.
        if not says_the_same(unmerged(new.text, document, harness, new.made), plain, document):
            raise InputError(
                "it is written in a way that Meritory could not undo",
                hint="put the hooks there by hand; nothing was changed",
            )
    after = _encoded(new.text)
    return FileChange(document.path, content, after, base, new.made, new.conflicts)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            "the path of Python, of Meritory or of its data folder is not UTF-8",
            hint="move it to a folder whose name is, and try again; nothing was changed",
        ) from error


def _base(
    harness: str, document: Document, ledger: InstallRecord, content: bytes | None
) -> bytes | None:
    """The file as it would be without us; what is not on record as ours counts as the user's."""
    if content is None:
        return None
    return _disconnecting(harness, document, ledger, content, NOTHING_MADE).after


def plan_disconnect(
    harness: str, documents: Sequence[Document], ledger: InstallRecord
) -> list[FileChange]:
    """The changes that take Meritory's part out of every file, wherever it was put."""
    known = {document.path: document for document in documents}
    for record in ledger.records(harness):
        alike = [document for document in documents if document.path.name == record.path.name]
        if record.path not in known:
            # Put there when the harness kept its files elsewhere.
            known[record.path] = replace((alike or documents)[0], path=record.path)
    changes = []
    for document in known.values():
        content = read_file(document.path)
        with _named(document.path):
            changes.append(_disconnecting(harness, document, ledger, content))
    return changes


def _disconnecting(
    harness: str,
    document: Document,
    ledger: InstallRecord,
    content: bytes | None,
    unknown: Made | None = None,
) -> FileChange:
    record = ledger.record(harness, document.path)
    if content is None:
        return FileChange(document.path, None, None)
    if record is not None and digest(content) == record.after_sha256:
        with contextlib.suppress(FileNotFoundError):
            return FileChange(document.path, content, ledger.before(record))
    made = unknown if record is None else record.made
    text = text_of(document.path, content)
    rest = unmerged(text, document, harness, made)
    was_new = document.syntax == "text" or (record is not None and record.backup is None)
    if rest != text and was_new and is_empty(rest, document):
        return FileChange(document.path, content, None)
    return FileChange(document.path, content, content if rest == text else rest.encode("utf-8"))


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Says which file an error is about."""
    try:
        yield
    except InputError as error:
        if str(path) in error.message:
            raise
        raise InputError(f"{path}: {error.message}", hint=error.hint) from error


def apply_connect(
    harness: str, changes: Sequence[FileChange], ledger: InstallRecord, now: datetime
) -> list[Record]:
    """Writes the changes, each after its copy and its record; all of them or none."""
    begun: list[_Begun] = []
    with ledger.held():
        try:
            for change in changes:
                if change.is_real:
                    begun.append(_begin(harness, change, ledger, now))
                    replace_file(change.path, change.before, change.after)
        except (OSError, MeritoryError):
            for one in reversed(begun):
                _undo(one, ledger)
            raise
    return [one.record for one in begun]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A change that is on record, the record before it, and the folders made for it."""

    change: FileChange
    record: Record
    known: Record | None
    folders: Sequence[Path]


def _begin(harness: str, change: FileChange, ledger: InstallRecord, now: datetime) -> _Begun:
    known = ledger.record(harness, change.path)
    folders = make_folders(Path(change.path).resolve().parent)
    record = Record(
        harness,
        change.path,
        None,
        digest(change.after or b""),
        change.made,
        tuple(folders) or (known.folders if known else ()),
    )
    try:
        return _Begun(change, ledger.keep(record, change.base, now), known, folders)
    except OSError:
        _remove(folders)
        raise


def _undo(begun: _Begun, ledger: InstallRecord) -> None:
    """Leaves nothing behind of a change; what cannot be put back stays on record."""
    change = begun.change
    with contextlib.suppress(OSError, MeritoryError):
        # What is not as we would have left it was not written, or has a newer owner.
        if read_file(change.path) == change.after:
            replace_file(change.path, change.after, change.before)
        ledger.take_back(begun.record, begun.known)
        _remove(begun.folders)


def _remove(folders: Sequence[Path]) -> None:
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


def apply_disconnect(harness: str, changes: Sequence[FileChange], ledger: InstallRecord) -> None:
    """Writes the changes and forgets the records; all of them or none."""
    done: list[FileChange] = []
    with ledger.held():
        try:
            for change in changes:
                if change.is_real:
                    replace_file(change.path, change.before, change.after)
                    done.append(change)
        except (OSError, MeritoryError):
            _take_back(done)
            raise
        for change in changes:
            record = ledger.record(harness, change.path)
            if record is not None:
                _remove(record.folders)
                ledger.drop(record)


def _take_back(done: Sequence[FileChange]) -> None:
    for change in reversed(done):
        with contextlib.suppress(OSError, MeritoryError):
            replace_file(change.path, change.after, change.before)
