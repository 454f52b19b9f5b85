"""What connecting or disconnecting would change, before anything is; then doing it."""

from __future__ import annotations

import contextlib
import difflib
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from meritory.connect.checks import connection_of, harness_findings
from meritory.connect.desired import Document, Finding, InstallTarget, harness_module
from meritory.connect.files import check_writable, make_folders, read_file, replace_file, text_of
from meritory.connect.install_record import InstallRecord, Record, digest
from meritory.connect.json_edit import NOTHING_MADE, Made
from meritory.connect.managed import Commands
from meritory.connect.merge import is_empty, is_merged, merged, says_the_same, unmerged
from meritory.domain.errors import Conflict, InputError, MeritoryError
from meritory.domain.harness import HARNESS_NAMES
from meritory.settings.home import HOME_NAME, prepare_home

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


PACKAGE = Path(__file__).absolute().parents[1]


@dataclass(frozen=True, slots=True)
class ConnectPlan:
    """What would be done for one harness, and what to tell when it is."""

    harness: str
    title: str
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]
    home: Path
    disconnects: bool = False

    @property
    def is_real(self) -> bool:
        """Whether any file would change."""
        return any(change.is_real for change in self.changes)

    def check_writable(self) -> None:
        """Refuses what could not be written, before anybody is asked about it."""
        for change in self.changes:
            if change.is_real:
                check_writable(change.path)

    def apply(self, now: datetime) -> dict[Path, Path]:
        """Changes the files; returns where the copies from before are."""
        self.check_writable()
        ledger = InstallRecord(self.home)
        if self.disconnects:
            apply_disconnect(self.harness, self.changes, ledger)
            return {}
        prepare_home(self.home)
        kept = apply_connect(self.harness, self.changes, ledger, now)
        copies = ((record.path, ledger.copy_path(record)) for record in kept)
        return {path: copy for path, copy in copies if copy is not None}


def prepare_connect(
    name: str, home: Path, env: Mapping[str, str], *, hides_ratings: bool = False
) -> ConnectPlan:
    """What connecting a harness would change; refuses what cannot be done."""
    if not sys.executable:
        raise InputError(
            "Python does not know where it is, so no command can be written that runs it",
            hint="install Meritory with a Python that you may read, and try again",
        )
    harness, place = harness_module(name), place_for(name, home, env)
    setup = harness.setup(replace(place, hides_ratings=hides_ratings))
    for obstacle in setup.obstacles:
        raise Conflict(obstacle.detail, hint=obstacle.hint)
    changes = plan_connect(name, setup.documents, InstallRecord(home))
    left = tuple(f"{change.path}: {told}" for change in changes for told in change.conflicts)
    absent = () if is_found(name, home, env) else (f"{harness.TITLE} was not found here",)
    return ConnectPlan(name, harness.TITLE, tuple(changes), (*absent, *left, *setup.notes), home)


def prepare_disconnect(name: str, home: Path, env: Mapping[str, str]) -> ConnectPlan:
    """What disconnecting a harness would change."""
    harness, place = harness_module(name), place_for(name, home, env)
    changes = plan_disconnect(name, harness.setup(place).documents, InstallRecord(home))
    return ConnectPlan(name, harness.TITLE, tuple(changes), (), home, disconnects=True)


def is_found(name: str, home: Path, env: Mapping[str, str]) -> bool:
    """Whether a harness is used on this machine: its folder or its program is there."""
    harness = harness_module(name)
    if harness.root(place_for(name, home, env)).is_dir():
        return True
    return any(shutil.which(program, path=env.get("PATH")) for program in harness.PROGRAMS)


def is_connected(name: str, home: Path, env: Mapping[str, str]) -> bool:
    """Whether anything of ours is in a harness's files."""
    harness, place = harness_module(name), place_for(name, home, env)
    documents = harness.setup(place).documents
    has_records = any(read_file(one.path) is not None for one in InstallRecord(home).records(name))
    return has_records or connection_of(harness, documents).is_any


def harness_checks(home: Path, env: Mapping[str, str]) -> list[Finding]:
    """What the doctor says about every harness that is found or connected."""
    found: list[Finding] = []
    for name in HARNESS_NAMES:
        harness, place = harness_module(name), place_for(name, home, env)
        found += harness_findings(harness, place, is_found=is_found(name, home, env))
    return found


def place_for(name: str, home: Path, env: Mapping[str, str]) -> InstallTarget:
    """Where things are for one harness."""
    user_home = Path(env["HOME"]).absolute() if env.get("HOME") else Path.home()
    own = None if home == user_home / HOME_NAME else home
    commands = Commands(name, sys.executable, PACKAGE, own)
    return InstallTarget(env, user_home, commands)


def plugin_folder(*parts: str) -> Path:
    """Where the plugins are that come with Meritory."""
    return PACKAGE.joinpath("data", "plugins", *parts)
