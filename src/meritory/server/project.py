"""The project of a working directory: the one place that decides it.

The project is the name of the repository's folder, from anywhere inside it and from its worktrees.
Without a repository it is the directory's own name. The home folder, the temporary folder and the
root are not projects.
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
    """Return the project's name, None for folders that are not projects; read names only."""
    if not cwd or not os.path.isabs(cwd) or "\0" in cwd or len(cwd) > _PATH_LIMIT_CHARS:
        return None
    directory = PurePath(os.path.realpath(cwd))
    own = home or os.path.expanduser("~")
    excluded = {PurePath(os.path.realpath(path)) for path in (own, tempfile.gettempdir())}
    for folder in (directory, *directory.parents)[:LEVELS_LIMIT]:
        if folder in excluded or folder == folder.parent:
            # A home folder that is a repository is not one project.
            break
        marker = os.path.join(folder, ".git")
        try:
            if os.path.lexists(marker):
                return _name(_main_folder(folder, marker))
        except (OSError, ValueError):
            break
    is_excluded = directory in excluded or directory == directory.parent
    return None if is_excluded else _name(directory)


def folder_name(cwd: str | None) -> str | None:
    """Return the name of a folder on another machine, by its path alone."""
    if not cwd or not os.path.isabs(cwd) or len(cwd) > _PATH_LIMIT_CHARS:
        return None
    return _name(PurePath(cwd))


def _main_folder(folder: PurePath, marker: str) -> PurePath:
    """Return the repository's folder; a worktree has a file that points to it."""
    if not os.path.isfile(marker):
        return folder
    with open(marker, "rb") as file:
        pointer = file.read(_POINTER_LIMIT_BYTES).decode("utf-8", "replace")
    target = os.path.join(folder, pointer.removeprefix("gitdir:").strip())
    git = PurePath(os.path.normpath(target))
    is_worktree = git.parent.name == "worktrees" and git.parent.parent.name == ".git"
    return git.parents[2] if is_worktree else folder


def _name(folder: PurePath) -> str | None:
    """Return a folder's name as a project name."""
    shown = "".join(character for character in folder.name if character.isprintable())
    return shown[:NAME_LIMIT_CHARS].strip() or None
