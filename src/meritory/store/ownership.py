"""What makes an open database ours: the process that opened it, and the file that it opened."""

from __future__ import annotations

import os
from pathlib import Path

from meritory.errors import StorageError


class Ownership:
    """Remembers who opened which file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()
        self._file = _number(path)

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that opened the database."""
        return os.getpid() == self._pid

    def demand_process(self) -> None:
        """Threads do not live on in a forked child, and SQLite's locks belong to the parent."""
        if not self.is_ours:
            raise StorageError(
                f"{self._path} was opened before a fork", hint="open it again in this process"
            )

    def demand_file(self) -> None:
        """What is written to a file without a name is lost, and two files' logs do not mix."""
        if _number(self._path) != self._file:
            raise StorageError(
                f"{self._path} was moved, replaced or deleted while it was open",
                hint="put it back, or restart whatever has it open (`meritory down`)",
            )


def _number(path: Path) -> int | None:
    """The file system's number of a file; None when it is gone."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None
