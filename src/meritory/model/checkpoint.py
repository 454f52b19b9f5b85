"""A learned model as a file: written whole or not at all, and believed only when all of it fits.

    "SGPT" | version u32 | flags u32 | config length u32 | config, JSON | parameters, f64

Everything is little-endian. The config names the parameters in their order with their shapes, so
the length of a sound file is known before anything is read into memory. It carries two hashes: of
the parameters, and of all that stands before them.
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeAlias

import numpy as np

from meritory.domain.errors import BadCheckpoint, DiskFull, InputError, ReadOnlyStore, StorageError
from meritory.model.base import Floats, Model

MAGIC = b"SGPT"
FORMAT_VERSION = 1
# The larger scorer has some 1.1 million parameters: four million leave room, and 32 MB of memory
# is what a hostile file can cost at most.
FILE_LIMIT_BYTES = 32 << 20
CONFIG_LIMIT_BYTES = 64 << 10
PARAMETER_LIMIT = FILE_LIMIT_BYTES // 8
AXIS_LIMIT = 4
LARGEST_VERSION = 999_999_999
TEMPORARY_SUFFIX = ".part"
_HEAD = struct.Struct("<4sIII")
_NUMBER = np.dtype("<f8")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_ADVICE = "it is left as it is; `meritory predictor rollback` puts an earlier model in its place"
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Shapes: TypeAlias = dict[str, tuple[int, ...]]


class CheckpointFlags(enum.IntFlag):
    """Where the parameters come from."""

    PRETRAINED = 1
    FINE_TUNED = 2


_KNOWN_FLAGS = int(CheckpointFlags.PRETRAINED | CheckpointFlags.FINE_TUNED)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """A scorer's parameters with what one must know to use them."""

    # The kind of scorer.
    kind: str
    # In the order in which they are stored; those that were read cannot be changed.
    params: Mapping[str, Floats]
    model_version: int
    embedder: str
    features: tuple[str, ...]
    feature_version: int
    flags: CheckpointFlags
    trained_at: datetime
    # How many sessions it has learned from.
    session_count: int = 0
    # Sizes of the scorer by name, and how many buckets its words are hashed into.
    dims: Mapping[str, int] = field(default_factory=dict)
    buckets: int = 0


Builder: TypeAlias = Callable[[Checkpoint], Model]


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically: readers see the former file or all of this one."""
    arrays = [np.asarray(value, _NUMBER) for value in checkpoint.params.values()]
    pieces = [array.tobytes() for array in arrays]
    if not all(np.isfinite(array).all() for array in arrays):
        _refuse(path, "a parameter is not a finite number", "train again; nothing was written")
    config = _config_of(checkpoint, _digest(*pieces))
    _check(path, config)
    head = _encoded(config, int(checkpoint.flags))
    if len(head) + sum(map(len, pieces)) > FILE_LIMIT_BYTES or len(head) > CONFIG_LIMIT_BYTES:
        _refuse(path, "the model is too large for a checkpoint", "use a smaller scorer")
    write_bytes(path, head, *pieces)


def write_bytes(path: Path, *pieces: bytes) -> None:
    """Puts the bytes of a checkpoint in their place, all of them or none."""
    try:
        _write_durably(path, list(pieces))
    except OSError as error:
        raise _translated(error, path) from error


def read(path: Path) -> Checkpoint:
    """The checkpoint in a file; anything unsound about it is refused with the reason."""
    with _opened(path) as (file, size_bytes):
        flags, length = _head(path, file, size_bytes)
        raw = file.read(length)
        config = _parsed(path, raw)
        if raw != _canonical(config) or config.get("seal") != _seal(config, flags):
            _refuse(path, "its config does not match its hash, so it was altered or damaged")
        _check(path, config)
        shapes = {name: tuple(shape) for name, shape in config["parameters"]}
        packed = _packed(path, file, size_bytes - _HEAD.size - length, shapes)
    if _digest(packed) != config["sha256"]:
        _refuse(path, "its parameters do not match their hash, so it was altered or damaged")
    numbers = np.frombuffer(packed, _NUMBER)
    if not np.isfinite(numbers).all():
        _refuse(path, "a parameter is not a finite number")
    return Checkpoint(
        kind=config["scorer"],
        params=_cut(numbers, shapes),
        model_version=config["model_version"],
        embedder=config["embedder"],
        features=tuple(config["features"]),
        feature_version=config["feature_version"],
        trained_at=datetime.fromisoformat(config["trained_at"]),
        session_count=config["session_count"],
        flags=CheckpointFlags(flags),
        dims=config["dims"],
        buckets=config["buckets"],
    )


def fits(
    checkpoint: Checkpoint, embedder: str, features: tuple[str, ...], feature_version: int
) -> str | None:
    """Why a checkpoint cannot be used in this installation; None when it can."""
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
    """What makes a scorer out of its checkpoint, by kind."""
    # Here and not above: a file can be looked at without loading any scorer.
    from meritory.model.attention import Attention
    from meritory.model.ranker import Ranker

    return {
        "features": lambda kept: Ranker(kept.params),
        "attention": lambda kept: Attention(kept.params),
    }


def restored(checkpoint: Checkpoint, known: Mapping[str, Builder] | None = None) -> Model:
    """The scorer that a checkpoint holds."""
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


def _config_of(checkpoint: Checkpoint, digest: str) -> dict[str, Any]:
    return {
        "scorer": checkpoint.kind,
        "model_version": checkpoint.model_version,
        "parameters": [[name, list(np.shape(value))] for name, value in checkpoint.params.items()],
        "dims": dict(checkpoint.dims),
        "buckets": checkpoint.buckets,
        "embedder": checkpoint.embedder,
        "features": list(checkpoint.features),
        "feature_version": checkpoint.feature_version,
        "sha256": digest,
        "trained_at": checkpoint.trained_at.isoformat(),
        "session_count": checkpoint.session_count,
    }


def _encoded(config: dict[str, Any], flags: int) -> bytes:
    raw = _canonical({**config, "seal": _seal(config, flags)})
    return _HEAD.pack(MAGIC, FORMAT_VERSION, flags, len(raw)) + raw


def _canonical(config: Mapping[str, Any]) -> bytes:
    return json.dumps(config, sort_keys=True, separators=(",", ":")).encode()


def _seal(config: Mapping[str, Any], flags: int) -> str:
    """The hash of the flags and of the config but for the hash itself."""
    rest = {name: value for name, value in config.items() if name != "seal"}
    return _digest(_HEAD.pack(MAGIC, FORMAT_VERSION, flags, 0), _canonical(rest))


def _digest(*pieces: bytes) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _write_durably(path: Path, pieces: list[bytes]) -> None:
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
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _translated(error: OSError, path: Path) -> StorageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no space left to write {path.name}", hint="free some space and try again")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyStore(f"{path} cannot be written", hint="check its owner and permissions")
    return StorageError(f"{path}: {error.strerror}", hint="check the path")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file of bearable size, open, and how many bytes it has; a link is not followed."""
    try:
        with open(os.open(path, _OPEN_FLAGS), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                _refuse(path, "it is not a regular file", "give the path of a checkpoint")
            if about.st_size > FILE_LIMIT_BYTES:
                _refuse(path, f"it is larger than {FILE_LIMIT_BYTES >> 20} MB")
            yield file, about.st_size
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else str(error.strerror).lower()
        _refuse(path, f"it cannot be read: {why}", "give the path of a checkpoint file")


def _head(path: Path, file: BinaryIO, size_bytes: int) -> tuple[int, int]:
    """The flags and the length of the config."""
    raw = file.read(_HEAD.size)
    if raw[: len(MAGIC)] != MAGIC[: len(raw)]:
        _refuse(path, "it does not begin with SGPT", "give the path of a checkpoint file")
    if len(raw) < _HEAD.size:
        _refuse(path, f"it ends after {len(raw)} bytes, within the header")
    _, version, flags, length = _HEAD.unpack(raw)
    if version > FORMAT_VERSION:
        _refuse(
            path, f"its format is version {version}", "a newer Meritory wrote it; update Meritory"
        )
    if version < 1 or flags & ~_KNOWN_FLAGS:
        _refuse(path, "its header has an unknown version or unknown flags")
    if length > CONFIG_LIMIT_BYTES:
        _refuse(path, f"its config is larger than {CONFIG_LIMIT_BYTES >> 10} KB")
    if _HEAD.size + length > size_bytes:
        _refuse(path, f"it ends after {size_bytes} bytes, within the config")
    return flags, length


def _parsed(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError):
        _refuse(path, "its config is not JSON")
    if not isinstance(config, dict):
        _refuse(path, "its config is not a JSON object")
    return config


def _check(path: Path, config: Mapping[str, Any]) -> None:
    """Refuses a config in which something is missing, of the wrong type or out of bounds."""
    tests: dict[str, Callable[[Any], bool]] = {
        "scorer": lambda value: isinstance(value, str) and bool(_NAME.fullmatch(value)),
        "model_version": _is_count,
        "parameters": _are_parameters,
        "dims": lambda value: isinstance(value, dict) and all(map(_is_count, value.values())),
        "buckets": _is_count,
        "embedder": lambda value: isinstance(value, str),
        "features": lambda value: isinstance(value, list) and _are_names(value),
        "feature_version": _is_count,
        "sha256": lambda value: isinstance(value, str),
        "trained_at": _is_time,
        "session_count": _is_count,
    }
    for name, is_sound in tests.items():
        if not is_sound(config.get(name)):
            _refuse(path, f"its config has no sound {name!r}")


def _is_count(value: Any) -> bool:
    # True is a number to Python, but not a count.
    return type(value) is int and 0 <= value <= LARGEST_VERSION


def _are_names(values: list[Any]) -> bool:
    """Whether all are plain names, and none stands there twice."""
    are_names = all(isinstance(value, str) and _NAME.fullmatch(value) for value in values)
    return are_names and len(set(values)) == len(values)


def _are_parameters(value: Any) -> bool:
    """Whether it is a list of different names, each with its bearable shape."""
    if not isinstance(value, list) or not value:
        return False
    if not all(isinstance(entry, list) and len(entry) == 2 for entry in value):
        return False
    return _are_names([name for name, _ in value]) and all(_is_shape(shape) for _, shape in value)


def _is_shape(shape: Any) -> bool:
    if not isinstance(shape, list) or len(shape) > AXIS_LIMIT or not all(map(_is_count, shape)):
        return False
    # An axis of 0 makes room for nothing, but not for absurd axes beside it.
    return bool(math.prod(max(size, 1) for size in shape) <= PARAMETER_LIMIT)


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _packed(path: Path, file: BinaryIO, left_bytes: int, shapes: Shapes) -> bytes:
    """All parameters as they are stored; read only once the file is known to hold as many."""
    wanted_bytes = _NUMBER.itemsize * sum(math.prod(shape) for shape in shapes.values())
    if left_bytes != wanted_bytes:
        why = "it ends within" if left_bytes < wanted_bytes else "something follows"
        _refuse(path, f"{why} the parameters: {left_bytes} bytes instead of {wanted_bytes}")
    packed = file.read(wanted_bytes)
    if len(packed) != wanted_bytes:
        _refuse(path, "it was cut while it was read")
    return packed


def _cut(numbers: Floats, shapes: Shapes) -> dict[str, Floats]:
    """The parameters by name: parts of one row over bytes, which cannot be changed in place."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()], dtype=np.int64)
    params = {}
    for (name, shape), part in zip(shapes.items(), np.split(numbers, ends[:-1]), strict=True):
        params[name] = np.asarray(part, np.float64).reshape(shape)
    return params


def _refuse(path: Path, why: str, hint: str = _ADVICE) -> NoReturn:
    raise BadCheckpoint(f"{path} is no sound checkpoint: {why}", hint=hint)
