"""Trained models as files: the format of a checkpoint, and the folder of a store's models.

    "SGPT" | version u32 | flags u32 | config length u32 | config, JSON | parameters, f64

Everything is little-endian. The config lists the parameters in order with their shapes, so the
length of a sound file is known before anything is read into memory. It contains two hashes: of the
parameters, and of everything before them. A file is written completely or not at all.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import hashlib
import json
import math
import os
import re
import stat
import struct
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NoReturn, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta

from meritory.domain.errors import BadCheckpoint, DiskFull, InputError, ReadOnlyStore, StorageError
from meritory.domain.session import ModelRows
from meritory.model.base import Floats, Model

MAGIC = b"SGPT"
FORMAT_VERSION = 1
# The larger scorer has some 1.1 million parameters. Four million leave room, and a hostile file
# costs at most 32 MB of memory.
FILE_LIMIT_BYTES = 32 << 20
CONFIG_LIMIT_BYTES = 64 << 10
PARAMETER_LIMIT = FILE_LIMIT_BYTES // 8
AXIS_LIMIT = 4
LARGEST_VERSION = 999_999_999
TEMPORARY_SUFFIX = ".part"
KEPT_COUNT = 3
_HEAD = struct.Struct("<4sIII")
_NUMBER = np.dtype("<f8")
_FILE_NAME = re.compile(r"model-(0|[1-9][0-9]{0,8})\.sgpt")
_LEFTOVER = re.compile(r"\.model-[0-9]+\.sgpt\.\w+" + re.escape(TEMPORARY_SUFFIX))
# Fields that a config has as they are.
_PLAIN_FIELDS = ("model_version", "embedder", "feature_version", "session_count", "buckets")
_ADVICE = "it is left as it is; `meritory predictor rollback` puts an earlier model in its place"
_FILE_ADVICE = "give the path of a checkpoint file"
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class CheckpointFlags(enum.IntFlag):
    """The origin of the parameters."""

    PRETRAINED = 1
    FINE_TUNED = 2


_KNOWN_FLAGS = int(CheckpointFlags.PRETRAINED | CheckpointFlags.FINE_TUNED)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """The parameters of a scorer, and the facts needed to use them."""

    # The kind of scorer.
    kind: str
    # In the order in which they are stored; parameters that were read are read-only.
    params: Mapping[str, Floats]
    model_version: int
    embedder: str
    features: tuple[str, ...]
    feature_version: int
    flags: CheckpointFlags
    trained_at: datetime
    # The number of sessions that it was trained on.
    session_count: int = 0
    # Sizes of the scorer by name, and the number of buckets that words are hashed into.
    dims: Mapping[str, int] = field(default_factory=dict)
    buckets: int = 0


Builder: TypeAlias = Callable[[Checkpoint], Model]


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically: readers see the former file or all of this one."""
    arrays = [np.asarray(value, _NUMBER) for value in checkpoint.params.values()]
    pieces = [array.tobytes() for array in arrays]
    if not all(np.isfinite(array).all() for array in arrays):
        _refuse(path, "a parameter is not a finite number", "train again; nothing was written")
    config = {
        "scorer": checkpoint.kind,
        "parameters": [[name, list(np.shape(value))] for name, value in checkpoint.params.items()],
        "dims": dict(checkpoint.dims),
        "features": list(checkpoint.features),
        "sha256": _digest(*pieces),
        "trained_at": checkpoint.trained_at.isoformat(),
        **{name: getattr(checkpoint, name) for name in _PLAIN_FIELDS},
    }
    _check(path, config)
    flags = int(checkpoint.flags)
    raw = _canonical({**config, "seal": _seal(config, flags)})
    head = _HEAD.pack(MAGIC, FORMAT_VERSION, flags, len(raw)) + raw
    if len(head) + sum(map(len, pieces)) > FILE_LIMIT_BYTES or len(head) > CONFIG_LIMIT_BYTES:
        _refuse(path, "the model is too large for a checkpoint", "use a smaller scorer")
    write_bytes(path, head, *pieces)


def write_bytes(path: Path, *pieces: bytes) -> None:
    """Write the bytes of a checkpoint durably, all of them or none."""
    try:
        descriptor, name = tempfile.mkstemp(TEMPORARY_SUFFIX, f".{path.name}.", path.parent)
        try:
            with open(descriptor, "wb") as file:
                # Held until the file is in place: an unlocked file was left by a writer that died.
                fcntl.flock(file, fcntl.LOCK_EX)
                file.writelines(pieces)
                file.flush()
                os.fchmod(descriptor, 0o600)
                os.fsync(descriptor)
                os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"no space left to write {path.name}", hint="free some space and try again"
            ) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise ReadOnlyStore(
                f"{path} cannot be written", hint="check its owner and permissions"
            ) from error
        raise StorageError(f"{path}: {error.strerror}", hint="check the path") from error


def read(path: Path) -> Checkpoint:
    """Return the checkpoint of a file; raise BadCheckpoint with the reason if it is not sound."""
    try:
        # A link is not followed.
        with open(os.open(path, _OPEN_FLAGS), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                _refuse(path, "it is not a regular file", "give the path of a checkpoint")
            if about.st_size > FILE_LIMIT_BYTES:
                _refuse(path, f"it is larger than {FILE_LIMIT_BYTES >> 20} MB")
            flags, config = _read_config(path, file, about.st_size)
            params = _read_params(path, file, about.st_size, config)
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else str(error.strerror).lower()
        _refuse(path, f"it cannot be read: {why}", _FILE_ADVICE)
    return Checkpoint(
        kind=config["scorer"],
        params=params,
        features=tuple(config["features"]),
        trained_at=datetime.fromisoformat(config["trained_at"]),
        flags=CheckpointFlags(flags),
        dims=config["dims"],
        **{name: config[name] for name in _PLAIN_FIELDS},
    )


def _read_config(path: Path, file: BinaryIO, size_bytes: int) -> tuple[int, dict[str, Any]]:
    """Return the flags and the config."""
    head = file.read(_HEAD.size)
    if head[: len(MAGIC)] != MAGIC[: len(head)]:
        _refuse(path, "it does not begin with SGPT", _FILE_ADVICE)
    if len(head) < _HEAD.size:
        _refuse(path, f"it ends after {len(head)} bytes, within the header")
    _, version, flags, length = _HEAD.unpack(head)
    if version > FORMAT_VERSION:
        hint = "a newer Meritory wrote it; update Meritory"
        _refuse(path, f"its format is version {version}", hint)
    if version < 1 or flags & ~_KNOWN_FLAGS:
        _refuse(path, "its header has an unknown version or unknown flags")
    if length > CONFIG_LIMIT_BYTES:
        _refuse(path, f"its config is larger than {CONFIG_LIMIT_BYTES >> 10} KB")
    if _HEAD.size + length > size_bytes:
        _refuse(path, f"it ends after {size_bytes} bytes, within the config")
    raw = file.read(length)
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError):
        _refuse(path, "its config is not JSON")
    if not isinstance(config, dict):
        _refuse(path, "its config is not a JSON object")
    if raw != _canonical(config) or config.get("seal") != _seal(config, flags):
        _refuse(path, "its config does not match its hash, so it was altered or damaged")
    _check(path, config)
    return flags, config


def _read_params(
    path: Path, file: BinaryIO, size_bytes: int, config: Mapping[str, Any]
) -> dict[str, Floats]:
    """Return the parameters by name, which are read-only views of one array."""
    shapes = {name: tuple(shape) for name, shape in config["parameters"]}
    sizes = [math.prod(shape) for shape in shapes.values()]
    left_bytes, wanted_bytes = size_bytes - file.tell(), _NUMBER.itemsize * sum(sizes)
    if left_bytes != wanted_bytes:
        why = "it ends within" if left_bytes < wanted_bytes else "something follows"
        _refuse(path, f"{why} the parameters: {left_bytes} bytes instead of {wanted_bytes}")
    packed = file.read(wanted_bytes)
    if len(packed) != wanted_bytes:
        _refuse(path, "it was cut while it was read")
    if _digest(packed) != config["sha256"]:
        _refuse(path, "its parameters do not match their hash, so it was altered or damaged")
    numbers = np.frombuffer(packed, _NUMBER)
    if not np.isfinite(numbers).all():
        _refuse(path, "a parameter is not a finite number")
    parts = np.split(numbers, np.cumsum(sizes, dtype=np.int64)[:-1])
    return {
        name: np.asarray(part, np.float64).reshape(shape)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def fits(
    checkpoint: Checkpoint, embedder: str, features: tuple[str, ...], feature_version: int
) -> str | None:
    """Return why this installation cannot use a checkpoint; None if it can."""
    if checkpoint.feature_version != feature_version:
        return (
            f"it was trained on version {checkpoint.feature_version} of the features, "
            f"this installation computes version {feature_version}"
        )
    if checkpoint.features != features:
        differing = sorted(set(checkpoint.features) ^ set(features))
        return f"it was trained on other features: {', '.join(differing) or 'in another order'}"
    # A scorer that sees features alone never sees a vector.
    if checkpoint.kind != "features" and checkpoint.embedder != embedder:
        return (
            f"it was trained on vectors of {checkpoint.embedder!r}, "
            f"this installation has those of {embedder!r}"
        )
    return None


def builders() -> dict[str, Builder]:
    """Return the functions that make a scorer from its checkpoint, by kind."""
    # Imported here, so that a file can be read without loading any scorer.
    from meritory.model.attention import Attention
    from meritory.model.ranker import Ranker

    return {
        "features": lambda kept: Ranker(kept.params),
        "attention": lambda kept: Attention(kept.params),
    }


def restored(checkpoint: Checkpoint, known: Mapping[str, Builder] | None = None) -> Model:
    """Return the scorer of a checkpoint."""
    known = builders() if known is None else known
    build = known.get(checkpoint.kind)
    if build is None:
        raise BadCheckpoint(
            f"there is no scorer {checkpoint.kind!r}", hint=f"known are {', '.join(sorted(known))}"
        )
    try:
        return build(checkpoint)
    except (InputError, ValueError, TypeError, LookupError) as error:
        raise BadCheckpoint(
            f"its parameters do not make a scorer {checkpoint.kind!r}: {error}", hint=_ADVICE
        ) from error


def _canonical(config: Mapping[str, Any]) -> bytes:
    return json.dumps(config, sort_keys=True, separators=(",", ":")).encode()


def _seal(config: Mapping[str, Any], flags: int) -> str:
    """Return the hash of the flags and of the config without this hash."""
    rest = {name: value for name, value in config.items() if name != "seal"}
    return _digest(_HEAD.pack(MAGIC, FORMAT_VERSION, flags, 0), _canonical(rest))


def _digest(*pieces: bytes) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


_Count = Annotated[int, Meta(ge=0, le=LARGEST_VERSION)]
_Name = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,63}\Z")]
_Shape = Annotated[list[_Count], Meta(max_length=AXIS_LIMIT)]
_CONFIG_TYPES: Mapping[str, Any] = {
    "scorer": _Name,
    "model_version": _Count,
    "parameters": Annotated[list[tuple[_Name, _Shape]], Meta(min_length=1)],
    "dims": dict[str, _Count],
    "buckets": _Count,
    "embedder": str,
    "features": list[_Name],
    "feature_version": _Count,
    "sha256": str,
    "trained_at": Annotated[datetime, Meta(tz=True)],
    "session_count": _Count,
}


def _check(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse a config in which a value is missing, of the wrong type or out of bounds."""
    for name, wanted in _CONFIG_TYPES.items():
        try:
            msgspec.convert(config.get(name), wanted)
        except msgspec.ValidationError:
            _refuse(path, f"its config has no sound {name!r}")
    features, parameters = config["features"], config["parameters"]
    if len(set(features)) < len(features):
        _refuse(path, "its config has no sound 'features'")
    # Beside an axis of 0 no other axis may be absurd either.
    largest = max(math.prod(max(size, 1) for size in shape) for _, shape in parameters)
    if len(dict(parameters)) < len(parameters) or largest > PARAMETER_LIMIT:
        _refuse(path, "its config has no sound 'parameters'")


def _refuse(path: Path, why: str, hint: str = _ADVICE) -> NoReturn:
    raise BadCheckpoint(f"{path} is no sound checkpoint: {why}", hint=hint)


# -- the folder of a store's models -----------------------------------------------------------


def models_beside(store: Path) -> Path:
    """Return the folder of the models that belong to the file of a store or of a backup."""
    # Built as text: opening rejects a path without a name, not this.
    return Path(f"{store}-models")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with one file per model; other files in it are neither read nor removed."""

    folder: Path

    def path_of(self, version: int) -> Path:
        """Return the file of a version, which may not exist."""
        return self._file(version)

    def versions(self) -> list[int]:
        """Return the versions, latest first; links and foreign files are skipped."""
        matches = (_FILE_NAME.fullmatch(name) for name in self._files())
        return sorted((int(match[1]) for match in matches if match), reverse=True)

    def put(self, checkpoint: Checkpoint) -> Path:
        """Store a model under its version."""
        self._make_folder()
        path = self._file(checkpoint.model_version)
        write(path, checkpoint)
        return path

    def drop(self, version: int) -> None:
        """Remove a model if it exists."""
        self._file(version).unlink(missing_ok=True)

    def get(self, version: int) -> Checkpoint:
        """Return the model of a version."""
        path = self.path_of(version)
        checkpoint = read(path)
        if checkpoint.model_version != version:
            raise BadCheckpoint(
                f"{path} holds version {checkpoint.model_version}", hint="rename the file"
            )
        return checkpoint

    def prune(self, active: int, best: int | None = None) -> list[int]:
        """Remove all but the active model, the three before it, later ones and the best.

        Return the removed versions.
        """
        former = [version for version in self.versions() if version < active]
        removed = [version for version in former[KEPT_COUNT:] if version != best]
        for version in removed:
            self.drop(version)
        for name in filter(_LEFTOVER.fullmatch, self._files()):
            # A writer that died left this file; one that is alive has its file locked.
            with (
                contextlib.suppress(FileNotFoundError, BlockingIOError),
                open(os.open(self.folder / name, _OPEN_FLAGS), "rb") as file,
            ):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (self.folder / name).unlink()
        return removed

    def _file(self, version: int) -> Path:
        return self.folder / f"model-{version}.sgpt"

    def _make_folder(self) -> None:
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, exist_ok=True)

    def _files(self) -> list[str]:
        try:
            with os.scandir(self.folder) as entries:
                return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []


@dataclass(frozen=True, slots=True)
class SharedModelFolder(ModelFolder):
    """The models of one user in a store that many machines share; the folder has copies of them.

    The store decides: a copy that differs is replaced when it is asked for.
    """

    user: str
    rows: ModelRows

    def path_of(self, version: int) -> Path:
        """Return the copy of a version, the same as in the store; remove it if there is none."""
        path, wanted = self._file(version), self.rows.digest(self.user, version)
        if wanted is None:
            path.unlink(missing_ok=True)
            return path
        try:
            is_same = _digest(path.read_bytes()) == wanted
        except OSError:
            is_same = False
        content = None if is_same else self.rows.content(self.user, version)
        if content is not None:
            self._make_folder()
            write_bytes(path, content)
        return path

    def versions(self) -> list[int]:
        """Return the versions, latest first."""
        return self.rows.versions(self.user)

    def put(self, checkpoint: Checkpoint) -> Path:
        """Store a model under its version."""
        # A class with slots cannot use `super()` without arguments.
        path = ModelFolder.put(self, checkpoint)
        self.rows.put(self.user, checkpoint.model_version, path.read_bytes())
        return path

    def drop(self, version: int) -> None:
        """Remove a model if it exists."""
        self.rows.drop(self.user, version)
        ModelFolder.drop(self, version)
