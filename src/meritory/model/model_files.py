"""The folder of a store's models: the active one and the few before it, a file each."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from meritory.domain.errors import BadCheckpoint
from meritory.domain.session import ModelRows
from meritory.model import checkpoint
from meritory.model.checkpoint import Checkpoint

KEPT_COUNT = 3
_NAME = re.compile(r"model-(0|[1-9][0-9]{0,8})\.sgpt")
_LEFTOVER = re.compile(r"\.model-[0-9]+\.sgpt\.\w+" + re.escape(checkpoint.TEMPORARY_SUFFIX))


def models_beside(store: Path) -> Path:
    """The folder of the models that belong to a store's file, or to a backup's."""
    # By its text: opening rejects a path without a name, not this.
    return Path(f"{store}-models")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """Where the models are kept; whatever else lies there is neither read nor removed."""

    folder: Path

    def path_of(self, version: int) -> Path:
        """The file of a version, whether it is there or not."""
        return self._file(version)

    def versions(self) -> list[int]:
        """The versions there are, the latest first; links and foreign files are passed over."""
        found = (_NAME.fullmatch(name) for name in self._files())
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def put(self, kept: Checkpoint) -> Path:
        """Stores a model under its version."""
        self._make_folder()
        path = self._file(kept.model_version)
        checkpoint.write(path, kept)
        return path

    def drop(self, version: int) -> None:
        """Removes a model, if it is there."""
        self._file(version).unlink(missing_ok=True)

    def get(self, version: int) -> Checkpoint:
        """The model of a version."""
        path = self.path_of(version)
        found = checkpoint.read(path)
        if found.model_version != version:
            raise BadCheckpoint(
                f"{path} holds version {found.model_version}", hint="give it back its own name"
            )
        return found

    def prune(self, active: int, best: int | None = None) -> list[int]:
        """Removes all but the active model, the three before it, any after it and the best.

        Says which were removed.
        """
        former = [version for version in self.versions() if version < active]
        removed = [version for version in former[KEPT_COUNT:] if version != best]
        for version in removed:
            self.drop(version)
        for name in self._files():
            if _LEFTOVER.fullmatch(name):
                _remove_if_left(self.folder / name)
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

    Only what the store has counts: a different copy is replaced on request.
    """

    user: str
    rows: ModelRows

    def path_of(self, version: int) -> Path:
        """The copy of a version, the same as in the store; none where the store has none."""
        path, wanted = self._file(version), self.rows.digest(self.user, version)
        if wanted is None:
            path.unlink(missing_ok=True)
        elif _digest_of(path) != wanted:
            content = self.rows.content(self.user, version)
            if content is not None:
                self._make_folder()
                checkpoint.write_bytes(path, content)
        return path

    def versions(self) -> list[int]:
        """The versions there are, the latest first."""
        return self.rows.versions(self.user)

    def put(self, kept: Checkpoint) -> Path:
        """Stores a model under its version."""
        # Without the shortcut of `super()`, which a class with slots does not have.
        path = ModelFolder.put(self, kept)
        self.rows.put(self.user, kept.model_version, path.read_bytes())
        return path

    def drop(self, version: int) -> None:
        """Removes a model, if it is there."""
        self.rows.drop(self.user, version)
        ModelFolder.drop(self, version)


def _digest_of(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _remove_if_left(path: Path) -> None:
    """Removes what a writer left that died; one that is alive holds its file locked."""
    with (
        contextlib.suppress(FileNotFoundError, BlockingIOError),
        open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file,
    ):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
