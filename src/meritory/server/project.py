"""Which project a working directory belongs to: the one place where this is decided.

The project is the repository's folder name, from anywhere inside it and from its worktrees alike.
Without a repository it is the directory's own name. The user's home, the temporary folder and the
root are no project: what is learned there belongs to none.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import PurePath

from meritory.domain.memory import NAME_LIMIT_CHARS

LEVELS_LIMIT = 64
_PATH_LIMIT_CHARS = 4_096
_POINTER_LIMIT_BYTES = 4_096


def project_of(cwd: str | None, home: str | None = None) -> str | None:
    """The project's name, None for places that are none; nothing but names is looked at."""
    if not cwd or not os.path.isabs(cwd) or "\0" in cwd or len(cwd) > _PATH_LIMIT_CHARS:
        return None
    place = PurePath(os.path.realpath(cwd))
    own = home or os.path.expanduser("~")
    nowhere = {PurePath(os.path.realpath(one)) for one in (own, tempfile.gettempdir())}
    for folder in (place, *place.parents)[:LEVELS_LIMIT]:
        if folder in nowhere or folder == folder.parent:
            # Whoever keeps their whole home in a repository does not work on one project.
            break
        marker = os.path.join(folder, ".git")
        try:
            if os.path.lexists(marker):
                return _name(_main_folder(folder, marker))
        except (OSError, ValueError):
            break
    return None if place in nowhere or place == place.parent else _name(place)


def folder_name(cwd: str | None) -> str | None:
    """The name of a folder on somebody else's machine, taken by its path alone."""
    if not cwd or not os.path.isabs(cwd) or len(cwd) > _PATH_LIMIT_CHARS:
        return None
    return _name(PurePath(cwd))


def _main_folder(folder: PurePath, marker: str) -> PurePath:
    """The repository's own folder: a worktree has a file that points to it."""
    if not os.path.isfile(marker):
        return folder
    with open(marker, "rb") as file:
        pointer = file.read(_POINTER_LIMIT_BYTES).decode("utf-8", "replace")
    kept = PurePath(os.path.normpath(os.path.join(folder, pointer.removeprefix("gitdir:").strip())))
    is_worktree = kept.parent.name == "worktrees" and kept.parent.parent.name == ".git"
    return kept.parents[2] if is_worktree else folder


def _name(folder: PurePath) -> str | None:
    """A folder's name as a project may have it."""
    shown = "".join(character for character in folder.name if character.isprintable())
    return shown[:NAME_LIMIT_CHARS].strip() or None
