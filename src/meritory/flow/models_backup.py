"""The models of a store beside its backups: copied with them, and put back with them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from meritory.errors import BadCheckpoint, InputError
from meritory.model import checkpoint
from meritory.model.shelf import Shelf, models_beside


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
            count += _copied_shelf(Shelf(folder), Shelf(part / folder.name))
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


def _copied_shelf(source: Shelf, target: Shelf) -> int:
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
