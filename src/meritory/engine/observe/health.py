"""The health checks of `meritory doctor`: each has a status, a detail and a hint."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePath
from typing import Literal

from meritory.domain.errors import MeritoryError, PortError
from meritory.domain.folder import NAME_MARK
from meritory.domain.place import Place
from meritory.domain.policy import EmbedderSpec
from meritory.engine.folders import find_folder, identity_of
from meritory.engine.predictor.state import decoded, soundness
from meritory.model.checkpoint import models_beside
from meritory.ports.embedder import FILE_KINDS, Embedder, open_embedder
from meritory.ports.scorer import ModelFolders, base_weights
from meritory.store import open_store
from meritory.store.contract.store import Store
from meritory.store.sqlite.engine import schema_of, side_files, sqlite_features

Status = Literal["ok", "warn", "fail"]
_ORDER: tuple[Status, ...] = ("ok", "warn", "fail")

# A disk with less is full. One with little space is nearly full: less than `DISK_LOW_BYTES`, or
# less than `DISK_WARN_BYTES` and `DISK_WARN_SHARE` of the whole.
DISK_FULL_BYTES = 1024 * 1024
DISK_LOW_BYTES = 32 * 1024 * 1024
DISK_WARN_BYTES = 512 * 1024 * 1024
DISK_WARN_SHARE = 0.1
WAL_WARN_BYTES = 256 * 1024 * 1024
BACKUP_WARN_AGE = timedelta(days=30)
PYTHON_MIN = (3, 11)
_OTHERS = 0o077
_PROBE = "is the embedder well?"
_DAMAGE_SHOWN = 3
_FOLDERS_SHOWN = 3
# Settings that change the vectors of an embedder; an address or a key does not.
_IDENTITY = ("kind", "model", "document_prefix")


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check."""

    name: str
    status: Status
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """The store and folders to examine, how thoroughly, and the time."""

    home: Path
    place: Place
    backups: Path
    spec: EmbedderSpec
    now: datetime
    deep: bool = False
    # The base weights of models, if not those of the package.
    base_weights: str = ""
    # The folder with copies of models that are stored in a database.
    copied_models: Path = Path()


def worst(checks: Sequence[HealthCheck]) -> Status:
    """Return the worst status of all checks."""
    return max((check.status for check in checks), key=_ORDER.index, default="ok")


def examine(patient: HealthFacts) -> list[HealthCheck]:
    """Run every check, even if some fail."""
    file = patient.place.file
    if file is None:
        # The server and its administrator take care of disk, log and backups.
        return [_python(), _home(patient.home), *_store(patient)]
    return [
        _python(),
        _sqlite(),
        _home(patient.home),
        _disk(file),
        *_store(patient),
        _log(file),
        _backup(patient),
    ]


def is_reembedding_due(store: Store, spec: EmbedderSpec) -> bool:
    """Return whether searches use another embedder's vectors, without calling an embedder."""
    if spec.kind == "none":
        return False
    info = store.serving_embedder()
    if info is None:
        # No memory has a vector yet.
        return any(store.totals(user)["live"] for user in store.users())
    plain = json.loads(info.spec)
    if spec.kind == plain.get("kind") and spec.kind in FILE_KINDS:
        # The file's name decides, not its path: a release may bring another file.
        with contextlib.suppress(PortError):
            return info.name != open_embedder(spec).name
    return any(plain.get(name) != getattr(spec, name) for name in _IDENTITY)


def _python() -> HealthCheck:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON_MIN:
        return HealthCheck("python", "fail", version, "Meritory needs Python 3.11 or newer")
    return HealthCheck("python", "ok", version)


def _sqlite() -> HealthCheck:
    found = sqlite_features()
    if not found.is_new_enough:
        return HealthCheck("sqlite", "fail", found.version, "Meritory needs SQLite 3.37 or newer")
    if not found.has_full_text:
        return HealthCheck(
            "sqlite", "fail", f"{found.version} without FTS5", "use a Python with FTS5"
        )
    return HealthCheck("sqlite", "ok", f"{found.version} with FTS5")


def _home(home: Path) -> HealthCheck:
    try:
        mode = stat.S_IMODE(home.stat().st_mode)
    except FileNotFoundError:
        if home.is_symlink():
            told = f"{home} is a link to {os.path.realpath(home)}, which does not exist"
            return HealthCheck("data folder", "fail", told, "mend the link, or set MERITORY_HOME")
        return HealthCheck(
            "data folder", "ok", f"{home} does not exist yet", "the first memory creates it"
        )
    except OSError as error:
        return HealthCheck("data folder", "fail", f"{home}: {error.strerror}", "set MERITORY_HOME")
    if not home.is_dir():
        return HealthCheck("data folder", "fail", f"{home} is not a folder", "move it away")
    if not os.access(home, os.W_OK | os.X_OK):
        return HealthCheck("data folder", "fail", f"{home} cannot be written", "make it writable")
    if mode & _OTHERS:
        hint = f"chmod 700 {home}"
        return HealthCheck("data folder", "warn", f"open to other users (mode {mode:03o})", hint)
    return HealthCheck("data folder", "ok", f"{home} is private (mode {mode:03o})")


def _disk(file: Path) -> HealthCheck:
    place = next((folder for folder in file.parents if folder.is_dir()), Path("/"))
    try:
        total, _, free = shutil.disk_usage(place)
    except OSError as error:
        return HealthCheck("disk", "warn", f"{place}: {error.strerror}")
    room = disk_room(total, free)
    if room == "enough":
        return HealthCheck("disk", "ok", f"{_size(free)} free")
    status: Status = "fail" if room == "full" else "warn"
    return HealthCheck("disk", status, f"{room}, {_size(free)} free", "free some space")


def disk_room(total_bytes: int, free_bytes: int) -> Literal["enough", "nearly full", "full"]:
    """Return whether a disk has enough space; a small disk may have little and not be full."""
    if free_bytes < DISK_FULL_BYTES:
        return "full"
    is_low = free_bytes < min(DISK_WARN_BYTES, DISK_WARN_SHARE * total_bytes)
    return "nearly full" if is_low or free_bytes < DISK_LOW_BYTES else "enough"


def _store(patient: HealthFacts) -> Iterator[HealthCheck]:
    """Open the store and check its contents; the embedder is called once."""
    embedder, embedder_check = _embedder(patient.spec)
    place, file = patient.place, patient.place.file
    if file is not None and not file.exists():
        yield _new_store(file, patient.home)
        yield embedder_check
        return
    try:
        schema = None if file is None else schema_of(file)
        store = open_store(place)
    except MeritoryError as error:
        yield HealthCheck("store", "fail", error.message, error.hint or "")
        yield embedder_check
        return
    except OSError as error:
        told = f"{place.name}: {error.strerror}"
        yield HealthCheck("store", "fail", told, "check its owner and permissions")
        yield embedder_check
        return
    try:
        opened = _checked("store", lambda: _opened(store))
        yield opened
        if file is None and opened.status == "fail":
            # Without access every other check would report the same error.
            yield embedder_check
            return
        yield _checked("schema", lambda: _schema(store, schema))
        yield _contents(store, deep=patient.deep)
        yield _checked("projects", lambda: _projects(store))
        folder = patient.copied_models if file is None else models_beside(file)
        shelves = ModelFolders(folder, base_weights(patient.base_weights), store.models)
        yield _checked("models", lambda: _models(store, shelves))
        yield embedder_check
        if embedder is not None:
            yield _checked("vectors", lambda: _vectors(store, embedder))
    finally:
        store.close()


def _new_store(file: Path, home: Path) -> HealthCheck:
    """Check that a store that does not exist yet can be created."""
    target = Path(os.path.realpath(file))
    if target.parent.is_dir() or (file.parent == home and not file.is_symlink()):
        hint = "the first memory creates it"
        return HealthCheck("store", "ok", f"{file} does not exist yet", hint)
    told = f"{file} cannot be opened: there is no folder {target.parent}"
    return HealthCheck("store", "fail", told, "create the folder, or set another path")


def _checked(name: str, check: Callable[[], HealthCheck]) -> HealthCheck:
    """Run a check of a store; an error of the store is its result."""
    try:
        return check()
    except MeritoryError as error:
        return HealthCheck(name, "fail", error.message, error.hint or "")


def _schema(store: Store, versions: tuple[int, int] | None) -> HealthCheck:
    """Check the schema version; opening a store migrates it."""
    if versions is None:
        advice = store.advice()
        status: Status = "warn" if advice else "ok"
        return HealthCheck("schema", status, store.engine_name(), "; ".join(advice))
    found, newest = versions
    told = f"version {found}" + ("" if found == newest else f", now brought to {newest}")
    return HealthCheck("schema", "ok", told)


def _opened(store: Store) -> HealthCheck:
    totals = [store.totals(user) for user in store.users()]
    size = _size(store.size_bytes())
    live = sum(figures["live"] for figures in totals)
    people = "user" if len(totals) == 1 else "users"
    told = f"{live} memories, {len(totals)} {people}, {size}, {store.place.name}"
    return HealthCheck("store", "ok", told)


def _projects(store: Store) -> HealthCheck:
    """Name the folders that share a name with another one."""
    folders = [folder for user in store.users() for folder in store.project_folders(user)]
    told, shared = [], []
    by_project: dict[str, set[str]] = {}
    for folder in folders:
        by_project.setdefault(folder.project, set()).add(folder.path)
    for project, paths in sorted(by_project.items()):
        other = by_project.get(PurePath(min(paths)).name)
        if NAME_MARK in project and other is not None:
            told.append(f"{project} is {min(paths)}, next to {min(other)}")
        places = {find_folder(path) for path in paths if os.path.isdir(path)} - {None}
        origins = {identity_of(one) for one in places if one}
        if len(origins) > 1:
            shared.append(f"{' and '.join(sorted(paths))} share the project {project}")
    if shared:
        hint = "rename one folder, or give it a project by `meritory edit ID --project NAME`"
        return HealthCheck("projects", "warn", "; ".join(shared[:_FOLDERS_SHOWN]), hint)
    count = f"{len(by_project)} {'project' if len(by_project) == 1 else 'projects'} with a folder"
    return HealthCheck("projects", "ok", "; ".join([count, *told[:_FOLDERS_SHOWN]]))


def _contents(store: Store, *, deep: bool) -> HealthCheck:
    name = "contents, all rows" if deep else "contents"
    try:
        damage = store.check(deep=deep)
    except MeritoryError as error:
        damage = [error.message]
    if not damage:
        told = "every row matches its checksum" if deep else "the database is sound"
        return HealthCheck(name, "ok", told, "" if deep else "--deep reads every row too")
    # Each sentence of the deep check names its rows.
    shown = len(damage) if deep else _DAMAGE_SHOWN
    more = f" and {len(damage) - shown} more" if len(damage) > shown else ""
    return HealthCheck(
        name,
        "fail",
        "; ".join(damage[:shown]) + more,
        "`meritory doctor --deep --repair` makes again what follows from other data; for the rest"
        " `meritory restore BACKUP` restores a backup, `meritory export` saves what can be read",
    )


def _models(store: Store, shelves: ModelFolders) -> HealthCheck:
    """Check that every user's model exists and is valid; if not, an earlier one serves."""
    hint = "sessions go on with an earlier one; `meritory predictor train` makes a new one"
    states = {user: decoded(store.predictor_state(user)) for user in store.users()}
    found = []
    for user, state in states.items():
        fault = soundness(shelves, user, state.version).fault
        if fault is not None:
            found.append(f"{user}: model {state.version} cannot be used: {fault}")
        elif state.lost is not None:
            found.append(f"{user}: {state.lost}; model {state.version} serves in its place")
    if found:
        return HealthCheck("models", "warn", "; ".join(found[:_DAMAGE_SHOWN]), hint)
    lost = sum(state.fallbacks for state in states.values())
    told = f"; {lost} were lost and made up for" if lost else ""
    return HealthCheck("models", "ok", f"every learned ranking has its model{told}")


def _embedder(spec: EmbedderSpec) -> tuple[Embedder | None, HealthCheck]:
    if spec.kind == "none":
        return None, HealthCheck("embedder", "ok", "off by choice: searches go by words only")
    try:
        embedder = open_embedder(spec)
        length = len(embedder.embed_query(_PROBE))
    except MeritoryError as error:
        hint = error.hint or "until it is back, searches go by words only"
        return None, HealthCheck("embedder", "fail", error.message, hint)
    return embedder, HealthCheck("embedder", "ok", f"{embedder.name} answers with {length} numbers")


def _vectors(store: Store, embedder: Embedder) -> HealthCheck:
    state, serving = store.embedding_state(embedder.name), store.serving_embedder()
    told = (
        f"{state.embedded_count} of {state.memory_count} memories have vectors of {embedder.name}"
    )
    if state.memory_count and not state.is_complete:
        return HealthCheck("vectors", "warn", told, "`meritory reembed` makes the others")
    if state.memory_count and (serving is None or serving.name != embedder.name):
        return HealthCheck(
            "vectors", "warn", f"{told}, but another serves", "`meritory reembed` ends it"
        )
    return HealthCheck("vectors", "ok", told)


def _log(file: Path) -> HealthCheck:
    wal, _ = side_files(file)
    try:
        size_bytes = wal.stat().st_size
    except OSError:
        return HealthCheck("write-ahead log", "ok", "empty")
    if size_bytes > WAL_WARN_BYTES:
        hint = "a process with an endless read transaction keeps it large; end that process"
        return HealthCheck("write-ahead log", "warn", _size(size_bytes), hint)
    return HealthCheck("write-ahead log", "ok", _size(size_bytes))


def _backup(patient: HealthFacts) -> HealthCheck:
    try:
        moments = [file.stat().st_mtime for file in patient.backups.glob("*.db")]
    except OSError as error:
        return HealthCheck("backup", "warn", f"{patient.backups}: {error.strerror}")
    if not moments:
        return HealthCheck("backup", "ok", "none yet", "`meritory backup` makes one")
    latest = datetime.fromtimestamp(max(moments), UTC)
    told = f"the latest of {len(moments)} is of {latest:%Y-%m-%d %H:%M} UTC"
    if patient.now - latest > BACKUP_WARN_AGE:
        return HealthCheck("backup", "warn", told, "`meritory backup` makes a new one")
    return HealthCheck("backup", "ok", told)


def _size(size_bytes: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size_bytes < 1024 or unit == "GiB":
            break
        size_bytes /= 1024
    return f"{size_bytes:.0f} {unit}" if unit == "bytes" else f"{size_bytes:.1f} {unit}"
