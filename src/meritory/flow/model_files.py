"""The models beside a store's file, as a store that has them inside hands them out."""

from __future__ import annotations

import hashlib
from pathlib import Path

from meritory.model import checkpoint
from meritory.model.shelf import Shelf, models_beside
from meritory.ports.scorer import Shelves, base_weights


class ModelFiles:
    """The models of all users of one file; what is in one is not looked into here."""

    def __init__(self, store: Path) -> None:
        # Models lie beside the file itself, whatever link leads to it.
        self._shelves = Shelves(models_beside(store.resolve()), base_weights())

    def versions(self, user: str) -> list[int]:
        """The versions there are, the latest first."""
        return self._shelf(user).versions()

    def digest(self, user: str, version: int) -> str | None:
        """The SHA-256 of a model in hexadecimal digits; None without one."""
        content = self.content(user, version)
        return None if content is None else hashlib.sha256(content).hexdigest()

    def content(self, user: str, version: int) -> bytes | None:
        """A model; None without one."""
        try:
            return self._shelf(user).path_of(version).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, user: str, version: int, content: bytes) -> None:
        """Keeps a model under its version, in the place of one that is there."""
        path = self._shelf(user).path_of(version)
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        checkpoint.write_bytes(path, content)

    def drop(self, user: str, version: int) -> None:
        """Removes a model, if it is there."""
        self._shelf(user).drop(version)

    def _shelf(self, user: str) -> Shelf:
        return self._shelves.of(user)
