"""Connect, disconnect and check a harness: plan the edits of its files, then apply them."""

from __future__ import annotations

import contextlib
import difflib
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from meritory.connect.desired import (
    Commands,
    Document,
    Finding,
    HarnessModule,
    InstallTarget,
    harness_module,
    missing_python,
)
from meritory.connect.files import (
    NOTHING_MADE,
    InstallRecord,
    Made,
    Record,
    check_writable,
    digest,
    make_folders,
    read_file,
    replace_file,
    text_of,
)
from meritory.connect.merge import (
    check_loadable,
    is_empty,
    is_merged,
    is_our_text,
    merged,
    our_commands,
    says_the_same,
    unmerged,
)
from meritory.domain.errors import Conflict, InputError, MeritoryError
from meritory.domain.harness import HARNESS_NAMES
from meritory.settings.home import HOME_NAME, prepare_home

PACKAGE = Path(__file__).absolute().parents[1]


@dataclass(frozen=True, slots=True)
class FileChange:
    """The edit of one file: its content before and after, and what is recorded about it."""

    path: Path
    before: bytes | None
    after: bytes | None
    # The content to restore on disconnect. It differs from `before` after an earlier connect.
    base: bytes | None = None
    made: Made = NOTHING_MADE
    conflicts: tuple[str, ...] = ()

    @property
    def is_real(self) -> bool:
        """Return whether the file changes."""
        return self.before != self.after

    def diff(self) -> list[str]:
        """Return the change as a unified diff."""
        sides = (self.before, self.after)
        old, new = ((side or b"").decode("utf-8", "replace").splitlines() for side in sides)
        here, there = ("/dev/null" if side is None else str(self.path) for side in sides)
        return list(difflib.unified_diff(old, new, here, there, n=2, lineterm=""))


@dataclass(frozen=True, slots=True)
class ConnectPlan:
    """The edits for one harness, and notes to print after they are applied."""

    harness: str
    title: str
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]
    home: Path
    disconnects: bool = False

    @property
    def is_real(self) -> bool:
        """Return whether any file changes."""
        return any(change.is_real for change in self.changes)

    def check_writable(self) -> None:
        """Raise an error if a file cannot be written, before the user is asked."""
        for change in self.changes:
            if change.is_real:
                check_writable(change.path)

    def apply(self, now: datetime) -> dict[Path, Path]:
        """Edit the files; return by path where the copy from before is."""
        self.check_writable()
        records = InstallRecord(self.home)
        if self.disconnects:
            apply_disconnect(self.harness, self.changes, records)
            return {}
        prepare_home(self.home)
        return apply_connect(self.harness, self.changes, records, now)


def prepare_connect(
    name: str,
    home: Path,
    env: Mapping[str, str],
    *,
    hides_ratings: bool = False,
    asks_to_keep: bool = False,
) -> ConnectPlan:
    """Return the edits that connect a harness; raise an error if it cannot be connected."""
    if not sys.executable:
        raise InputError(
            "the path of the running Python is unknown, so no command can be written",
            hint="install Meritory with a Python whose path is readable, and try again",
        )
    harness, target = harness_module(name), target_for(name, home, env)
    target = replace(target, hides_ratings=hides_ratings, asks_to_keep=asks_to_keep)
    setup = harness.setup(target)
    for obstacle in setup.obstacles:
        raise Conflict(obstacle.detail, hint=obstacle.hint)
    records = InstallRecord(home)
    changes = tuple(_connecting(name, document, records) for document in setup.documents)
    conflicts = tuple(f"{change.path}: {text}" for change in changes for text in change.conflicts)
    absent = () if is_found(name, home, env) else (f"{harness.TITLE} was not found here",)
    notes = (*absent, *conflicts, *setup.notes)
    return ConnectPlan(name, harness.TITLE, changes, notes, home)


def prepare_disconnect(name: str, home: Path, env: Mapping[str, str]) -> ConnectPlan:
    """Return the edits that disconnect a harness, also in files that it moved since."""
    harness, target = harness_module(name), target_for(name, home, env)
    documents, records = harness.setup(target).documents, InstallRecord(home)
    known = {document.path: document for document in documents}
    for record in records.records(name):
        alike = [document for document in documents if document.path.name == record.path.name]
        if record.path not in known:
            # Written when the harness kept its files elsewhere.
            known[record.path] = replace((alike or documents)[0], path=record.path)
    changes = []
    for document in known.values():
        content = read_file(document.path)
        with _named(document.path):
            changes.append(_disconnecting(name, document, records, content))
    return ConnectPlan(name, harness.TITLE, tuple(changes), (), home, disconnects=True)


def is_found(name: str, home: Path, env: Mapping[str, str]) -> bool:
    """Return whether a harness is installed here: its folder or its program exists."""
    harness = harness_module(name)
    if harness.root(target_for(name, home, env)).is_dir():
        return True
    return any(shutil.which(program, path=env.get("PATH")) for program in harness.PROGRAMS)


def is_connected(name: str, home: Path, env: Mapping[str, str]) -> bool:
    """Return whether a harness's files hold any entry of Meritory's."""
    harness, target = harness_module(name), target_for(name, home, env)
    if any(read_file(record.path) is not None for record in InstallRecord(home).records(name)):
        return True
    return connection_of(harness, harness.setup(target).documents).is_any


def harness_checks(home: Path, env: Mapping[str, str]) -> list[Finding]:
    """Return the doctor's findings about every harness that is installed or connected."""
    findings: list[Finding] = []
    for name in HARNESS_NAMES:
        harness, target = harness_module(name), target_for(name, home, env)
        findings += harness_findings(harness, target, is_found=is_found(name, home, env))
    return findings


def target_for(name: str, home: Path, env: Mapping[str, str]) -> InstallTarget:
    """Return where a harness is looked for, and the commands to write there."""
    user_home = Path(env["HOME"]).absolute() if env.get("HOME") else Path.home()
    own = None if home == user_home / HOME_NAME else home
    return InstallTarget(env, user_home, Commands(name, sys.executable, PACKAGE, own))


def plugin_folder(*parts: str) -> Path:
    """Return the folder of a plugin that ships with Meritory."""
    return PACKAGE.joinpath("data", "plugins", *parts)


def _connecting(harness: str, document: Document, records: InstallRecord) -> FileChange:
    """Return the change that adds Meritory's entries to one file."""
    content = read_file(document.path)
    with _named(document.path):
        text = text_of(document.path, content)
        check_loadable(text, document)
        if content is not None and is_merged(text, document, harness):
            conflicts = merged(text, document, harness).conflicts
            return FileChange(document.path, content, content, conflicts=conflicts)
        # Without a record, everything but the managed entries counts as the user's.
        base = content and _disconnecting(harness, document, records, content, NOTHING_MADE).after
        bare = text_of(document.path, base)
        new = merged(bare, document, harness)
        # An edit that could not be undone is not made.
        if not says_the_same(unmerged(new.text, document, harness, new.made), bare, document):
            raise InputError(
                "Meritory could not undo an edit of this file",
                hint="add the hooks by hand; nothing was changed",
            )
    try:
        after = new.text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            "the path of Python, of Meritory or of its data folder is not UTF-8",
            hint="move it to a folder with a UTF-8 name, and try again; nothing was changed",
        ) from error
    return FileChange(document.path, content, after, base, new.made, new.conflicts)


def _disconnecting(
    harness: str,
    document: Document,
    records: InstallRecord,
    content: bytes | None,
    made_by_default: Made | None = None,
) -> FileChange:
    """Return the change that removes Meritory's entries from one file."""
    record = records.record(harness, document.path)
    if content is None:
        return FileChange(document.path, None, None)
    if record is not None and digest(content) == record.after_sha256:
        with contextlib.suppress(FileNotFoundError):
            return FileChange(document.path, content, records.before(record))
    made = made_by_default if record is None else record.made
    text = text_of(document.path, content)
    rest = unmerged(text, document, harness, made)
    was_new = document.syntax == "text" or (record is not None and record.backup is None)
    if rest != text and was_new and is_empty(rest, document):
        return FileChange(document.path, content, None)
    return FileChange(document.path, content, content if rest == text else rest.encode("utf-8"))


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Add the path to an error that does not name it."""
    try:
        yield
    except InputError as error:
        if str(path) in error.message:
            raise
        raise InputError(f"{path}: {error.message}", hint=error.hint) from error


def apply_connect(
    harness: str, changes: Sequence[FileChange], records: InstallRecord, now: datetime
) -> dict[Path, Path]:
    """Write the changes, each after its copy and its record: all or none; return the copies."""

    def restore(change: FileChange, record: Record, earlier: Record | None) -> None:
        # A file that cannot be restored stays on record.
        with contextlib.suppress(OSError, MeritoryError):
            # Any other content was not written here, or has a newer owner.
            if read_file(change.path) == change.after:
                replace_file(change.path, change.after, change.before)
            records.take_back(record, earlier)

    copies: dict[Path, Path] = {}
    with contextlib.ExitStack() as undo, records.held():
        for change in changes:
            if not change.is_real:
                continue
            earlier = records.record(harness, change.path)
            folders = make_folders(Path(change.path).resolve().parent)
            undo.callback(_remove, folders)
            owned = tuple(folders) or (earlier.folders if earlier else ())
            record = Record(
                harness, change.path, None, digest(change.after or b""), change.made, owned
            )
            record = records.keep(record, change.base, now)
            undo.callback(restore, change, record, earlier)
            replace_file(change.path, change.before, change.after)
            if (copy := records.copy_path(record)) is not None:
                copies[record.path] = copy
        undo.pop_all()
    return copies


def _remove(folders: Sequence[Path]) -> None:
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


def apply_disconnect(harness: str, changes: Sequence[FileChange], records: InstallRecord) -> None:
    """Write the changes and delete the records: all of them, or none."""
    done: list[FileChange] = []
    with records.held():
        try:
            for change in changes:
                if change.is_real:
                    replace_file(change.path, change.before, change.after)
                    done.append(change)
        except (OSError, MeritoryError):
            for change in reversed(done):
                with contextlib.suppress(OSError, MeritoryError):
                    replace_file(change.path, change.after, change.before)
            raise
        for change in changes:
            record = records.record(harness, change.path)
            if record is not None:
                _remove(record.folders)
                records.drop(record)


# -- checks ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HarnessConnection:
    """Which desired entries a harness's files hold."""

    commands: tuple[list[str], ...] = ()
    # Files with missing or outdated entries.
    lacking: tuple[Document, ...] = ()
    has_file: bool = False
    trouble: str = ""

    @property
    def is_any(self) -> bool:
        """Return whether any entry of Meritory's exists."""
        return bool(self.commands) or self.has_file


def connection_of(harness: HarnessModule, documents: Sequence[Document]) -> HarnessConnection:
    """Return the state of Meritory's entries in a harness's files."""
    commands: list[list[str]] = []
    lacking: list[Document] = []
    has_file = False
    trouble = ""
    for document in documents:
        try:
            content = read_file(document.path)
            text = text_of(document.path, content)
            if document.syntax == "text":
                has_file |= content is not None and is_our_text(text, document)
            elif content is not None:
                commands += our_commands(text, document, harness.NAME)
            if content is None or not is_merged(text, document, harness.NAME):
                lacking.append(document)
            check_loadable(text, document)
        except MeritoryError as error:
            where = "" if str(document.path) in error.message else f"{document.path}: "
            trouble = trouble or where + error.message
    return HarnessConnection(tuple(commands), tuple(lacking), has_file, trouble)


def harness_findings(
    harness: HarnessModule, place: InstallTarget, *, is_found: bool
) -> list[Finding]:
    """Return the findings about a harness; none if it is neither installed nor connected."""
    setup = harness.setup(place)
    connection = connection_of(harness, setup.documents)
    name, title = harness.NAME, harness.TITLE
    connect = f"`meritory connect {name}`"
    if connection.trouble and (is_found or connection.is_any):
        return [
            Finding(name, "warn", connection.trouble, "fix the file; its client cannot read it")
        ]
    if not connection.is_any:
        if setup.obstacles:
            return [Finding(name, "ok", "connected by its plugin"), *harness.checks(place)]
        detail = f"{title} is installed and not connected"
        return [Finding(name, "ok", detail, f"{connect} connects it")] if is_found else []
    gone = next((word for argv in connection.commands if (word := missing_python(argv))), None)
    if gone is not None:
        detail = f"{title} runs {gone}, which no longer exists"
        return [Finding(name, "fail", detail, f"{connect} writes the present path")]
    findings = harness.checks(place)
    if setup.obstacles:
        detail = "connected by its plugin and by its settings, so everything happens twice"
        findings.append(
            Finding(name, "warn", detail, f"`meritory disconnect {name}` keeps the plugin")
        )
    elif connection.lacking:
        files = ", ".join(str(document.path) for document in connection.lacking)
        detail = f"connected, but entries are missing or outdated in {files}"
        findings.append(Finding(name, "warn", detail, f"{connect} fixes it"))
    return findings or [Finding(name, "ok", f"{title} is connected")]
