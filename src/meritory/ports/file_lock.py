"""A file lock for one daemon per data folder and store; it ends with its process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from meritory.domain.errors import Conflict, ReadOnlyStore

# A check for a running daemon holds the lock for a moment.
_TRIES = 10
_PAUSE_S = 0.03


@contextlib.contextmanager
def held(path: Path, what: str, since: str) -> Iterator[None]:
    """Hold the lock during the block; Conflict names the holder."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ReadOnlyStore(
            f"{path} cannot be opened: {error.strerror}", hint="check its rights"
        ) from error
    try:
        if not _taken(handle):
            raise _refusal(handle, what)
        holder = json.dumps({"pid": os.getpid(), "since": since}).encode("ascii")
        os.ftruncate(handle, 0)
        os.pwrite(handle, holder, 0)
        try:
            yield
        finally:
            # The file stays: after a removal two processes could lock two files of one name.
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    for attempt in range(_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt < _TRIES - 1:
                time.sleep(_PAUSE_S)
        else:
            return True
    return False


def _refusal(handle: int, what: str) -> Conflict:
    try:
        found = json.loads(os.pread(handle, 1_000, 0))
        holder = f"process {int(found['pid'])}, since {str(found['since'])[:40]}"
    except (ValueError, KeyError, TypeError):
        holder = "a process that is just starting or ending"
    return Conflict(
        f"another daemon already serves {what}: {holder}",
        hint="`meritory status` shows it, `meritory down` stops it",
    )
