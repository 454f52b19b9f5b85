"""The model files next to a store: copy them for a backup, and restore them with it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from datetime import datetime
from pathlib import Path

from meritory.domain.errors import BadCheckpoint, InputError
from meritory.model import checkpoint
from meritory.model.checkpoint import ModelFolder, models_beside
from meritory.ports.scorer import ModelFolders, base_weights


class ModelFiles:
    """The models of all users of one store file."""

    def __init__(self, store: Path) -> None:
        # The models are next to the file itself, not next to a link to it.
        self._folders = ModelFolders(models_beside(store.resolve()), base_weights())

    def versions(self, user: str) -> list[int]:
        """Return the versions, the latest first."""
        return self._folders.of(user).versions()

    def digest(self, user: str, version: int) -> str | None:
        """Return the SHA-256 of a model in hexadecimal digits; None without a model."""
        content = self.content(user, version)
        return None if content is None else hashlib.sha256(content).hexdigest()

    def content(self, user: str, version: int) -> bytes | None:
        """Return the bytes of a model; None without a model."""
        try:
            return self._folders.of(user).path_of(version).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, user: str, version: int, content: bytes) -> None:
        """Store a model under its version; it replaces an existing one."""
        path = self._folders.of(user).path_of(version)
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        checkpoint.write_bytes(path, content)

    def drop(self, user: str, version: int) -> None:
        """Remove a model, if it exists."""
        self._folders.of(user).drop(version)


def require_free(backup: Path) -> None:
    """Reject a backup name that already has models next to it."""
    folder = models_beside(backup)
    if os.path.lexists(folder):
        raise InputError(f"{folder} already exists", hint="choose another name")


def keep_models(store: Path, backup: Path) -> int:
    """Copy the valid models of a store next to its backup and return their number.

    Call it after the database is copied, so that every model that it names exists.
    """
    return _copy(models_beside(store), models_beside(backup), None)


def _copy(source: Path, target: Path, aside: Path | None) -> int:
    """Copy every valid model of every user atomically; move existing ones to `aside`."""
    if not source.is_dir():
        return 0
    part, count = target.with_name(f"{target.name}.part-{os.getpid()}"), 0
    try:
        for folder in sorted(path for path in source.iterdir() if path.is_dir()):
            models, copies = ModelFolder(folder), ModelFolder(part / folder.name)
            for version in models.versions():
                # A damaged model is useless on both sides.
                with contextlib.suppress(BadCheckpoint):
                    copies.put(checkpoint.read(models.path_of(version)))
                    count += 1
        if count:
            if target.exists() and aside is not None:
                os.replace(target, aside / target.name)
            elif target.exists():
                # They belong to no store.
                shutil.rmtree(target)
            os.replace(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return count


def restore_store(target: Path, backup: Path, now: datetime) -> tuple[Path | None, int]:
    """Replace a store's file and models by a backup.

    Return the folder with the former files, if there were any, and the number of models. A backup
    without models keeps the current ones.
    """
    from meritory.store.sqlite.backup import restore

    aside = restore(target, backup, now)
    return aside, _copy(models_beside(backup), models_beside(target), aside)
