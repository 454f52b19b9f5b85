"""A folder with a store in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from meritory.store.contract.store import Store


class Shelf:
    """Holds one open store; `reopen` closes it and opens what is on disk."""

    def __init__(self, folder: Path, make: Callable[[Path], Store]) -> None:
        self.folder = folder
        self._make = make
        self.store = make(folder)

    def reopen(self) -> Store:
        """The same files in a new store."""
        self.store.close()
        self.store = self._make(self.folder)
        return self.store

    def before_and_after_reopening(self) -> Iterator[Store]:
        """The store as it is open now, then what a new start finds."""
        yield self.store
        yield self.reopen()

    def files_with(self, needle: str) -> list[str]:
        """Names of the files of the store that hold a text, in any letter case."""
        wanted = needle.encode().lower()
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path.name for path in files if wanted in path.read_bytes().lower())
