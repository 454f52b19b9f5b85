"""The models beside a store's file, as a store that has them inside hands them out."""

from __future__ import annotations

import hashlib
import os
import shutil
from datetime import datetime
from pathlib import Path

from meritory.domain.errors import BadCheckpoint, InputError
from meritory.model import checkpoint
from meritory.model.model_files import ModelFolder, models_beside
from meritory.ports.scorer import ModelFolders, base_weights


class ModelFiles:
    """The models of all users of one file; what is in one is not looked into here."""

    def __init__(self, store: Path) -> None:
        # Models lie beside the file itself, whatever link leads to it.
        self._shelves = ModelFolders(models_beside(store.resolve()), base_weights())

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

    def _shelf(self, user: str) -> ModelFolder:
        return self._shelves.of(user)


def demand_free(backup: Path) -> None:
    """Refuses a name beside which models of another backup lie."""
    folder = models_beside(backup)
    if os.path.lexists(folder):
        raise InputError(f"{folder} exists already", hint="choose another name")


def keep_models(store: Path, backup: Path) -> int:
    """Copies the models that are whole next to a backup; says how many.

    After the database: whatever model that names is there by then.
    """
    return _copied(models_beside(store), models_beside(backup))


def put_back(backup: Path, store: Path, aside: Path | None) -> int:
    """Puts a backup's models in place; the present ones go to the former files. Says how many.

    A backup without any leaves what is there: the store asks for what it needs, and checks it.
    """
    return _copied(models_beside(backup), models_beside(store), aside)


def _copied(source: Path, target: Path, aside: Path | None = None) -> int:
    """Every sound model of every user, as one folder that is there whole or not at all."""
    if not source.is_dir():
        return 0
    part, count = target.with_name(f"{target.name}.part-{os.getpid()}"), 0
    try:
        for folder in sorted(one for one in source.iterdir() if one.is_dir()):
            count += _copied_shelf(ModelFolder(folder), ModelFolder(part / folder.name))
        if count:
            _set_aside(target, aside)
            os.replace(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return count


def _set_aside(target: Path, aside: Path | None) -> None:
    if not target.exists():
        return
    if aside is None:
        # There was no store whose models they could be.
        shutil.rmtree(target)
    else:
        os.replace(target, aside / target.name)


def _copied_shelf(source: ModelFolder, target: ModelFolder) -> int:
    count = 0
    for version in source.versions():
        try:
            kept = checkpoint.read(source.path_of(version))
        except BadCheckpoint:
            # It could not serve here, and could not there.
            continue
        target.put(kept)
        count += 1
    return count


def restore_store(target: Path, backup: Path, now: datetime) -> tuple[Path | None, int]:
    """Replace a store's file and models by a backup.

    Returns the folder that holds the former files, if there were any, and the number of models.
    """
    from meritory.store.sqlite.backup import restore

    aside = restore(target, backup, now)
    return aside, put_back(backup, target, aside)
