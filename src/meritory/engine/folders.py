"""The project of a directory: the repository that it belongs to, and its name among others.

The name is that of the folder. A second, different folder of the same name gets a longer one, so
that two projects do not share memories by accident. Clones and worktrees of a repository share.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from meritory.domain.errors import Busy, StorageError
from meritory.domain.folder import (
    ProjectFolder,
    clean_name,
    names_of,
    path_identity,
    remote_identity,
)
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction

LEVELS_LIMIT = 64
PATH_LIMIT_CHARS = 4_096
_POINTER_LIMIT_BYTES = 4_096
_CONFIG_LIMIT_BYTES = 65_536
_DIGEST_CHARS = 6
_SECTION = re.compile(r'\s*\[\s*(\w+)(?:\s+"([^"]*)")?\s*\]')
_URL = re.compile(r"\s*url\s*=\s*(.+?)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of a project, and the folder with the settings of its repository, if it has one.

    The folder of a worktree is that of its repository.
    """

    path: PurePath
    git: str | None = None

    @property
    def name(self) -> str | None:
        """Return the name of the folder as the name of a project."""
        return clean_name(self.path.name)


def find_folder(cwd: str | None, home: str | None = None) -> Folder | None:
    """Return the folder of the project that a directory belongs to.

    It is the repository's folder, from anywhere inside it and from its worktrees. Without a
    repository it is the directory itself. The home folder, the temporary folder and the root are
    not projects.
    """
    if not cwd or not os.path.isabs(cwd) or "\0" in cwd or len(cwd) > PATH_LIMIT_CHARS:
        return None
    directory = PurePath(os.path.realpath(cwd))
    own = home or os.path.expanduser("~")
    excluded = {PurePath(os.path.realpath(path)) for path in (own, tempfile.gettempdir())}
    for folder in (directory, *directory.parents)[:LEVELS_LIMIT]:
        if folder in excluded or folder == folder.parent:
            # A home folder that is a repository is not one project.
            break
        try:
            if found := _repository(folder):
                return found
        except (OSError, ValueError):
            break
    is_excluded = directory in excluded or directory == directory.parent
    return None if is_excluded else Folder(directory)


def _repository(folder: PurePath) -> Folder | None:
    marker = os.path.join(folder, ".git")
    if not os.path.isfile(marker):
        return Folder(folder, marker) if os.path.lexists(marker) else None
    # A worktree or a submodule has a file that points to its repository.
    with open(marker, "rb") as file:
        pointer = file.read(_POINTER_LIMIT_BYTES).decode("utf-8", "replace")
    target = os.path.join(folder, pointer.removeprefix("gitdir:").strip())
    git = PurePath(os.path.normpath(target))
    if git.parent.name != "worktrees":
        return Folder(folder, str(git))
    shared = git.parents[1]
    # The worktrees of a bare repository have no folder in common.
    return Folder(shared.parent if shared.name == ".git" else folder, str(shared))


def project_of(cwd: str | None, home: str | None = None) -> str | None:
    """Return the name of the folder that a directory belongs to, None if it is no project."""
    folder = find_folder(cwd, home)
    return None if folder is None else folder.name


def remote_of(git: str | None, folder: str) -> str | None:
    """Return the identity of the repository that a folder was cloned from."""
    if git is None:
        return None
    try:
        with open(os.path.join(git, "config"), "rb") as file:
            lines = file.read(_CONFIG_LIMIT_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    is_origin = False
    for line in lines:
        if section := _SECTION.match(line):
            is_origin = section.groups() == ("remote", "origin")
        elif is_origin and (url := _URL.match(line)):
            local = url[1].removeprefix("file://")
            if found := remote_identity(url[1]):
                return found
            # A clone of a folder on this machine belongs to that folder.
            path = os.path.realpath(os.path.join(folder, local))
            return path_identity(path.removesuffix("/.git"))
    return None


def identity_of(folder: Folder) -> str:
    """Return what a folder has in common with its clones."""
    path = str(folder.path)
    return remote_of(folder.git, path) or path_identity(path)


# -- names among others -----------------------------------------------------------------------


def project_for(
    services: Services, user: str, cwd: str | None, *, claims: bool = True
) -> str | None:
    """Return the project of a directory, and remember it by the identity of its folder.

    Without `claims` nothing is stored.
    """
    folder = find_folder(cwd)
    if folder is None or folder.name is None:
        return None
    try:
        known = services.store.project_folder(user, path_identity(str(folder.path)))
        if known is not None:
            return known.project
        if not claims:
            return folder.name
        remote = remote_of(folder.git, str(folder.path))
        return services.store.write(user, lambda t: _claim(services, t, user, folder, remote))
    except (Busy, StorageError) as error:
        # Memory must not keep an agent from working.
        services.observer.failed("project_folder", error)
        return folder.name


def _claim(
    services: Services, transaction: Transaction, user: str, folder: Folder, remote: str | None
) -> str:
    """Return the project of a folder that was not seen before, and store its identities."""
    path = str(folder.path)
    identities = [path_identity(path), *([remote] if remote else [])]
    rows = transaction.project_folders(user)
    known = [row for row in rows if row.identity in identities]
    # A folder may have got its remote after it was stored.
    alike = (row for row in rows if remote and row.project == folder.name)
    now = ((row, find_folder(row.path)) for row in alike)
    known += [row for row, one in now if one is not None and identity_of(one) == remote]
    project = known[0].project if known else _free_name(transaction, user, path, remote, rows)
    at = services.world.now()
    transaction.put_project_folders(
        user,
        [
            ProjectFolder(identity=identity, project=project, path=path, at=at)
            for identity in identities
        ],
    )
    return project


def _free_name(
    transaction: Transaction,
    user: str,
    path: str,
    remote: str | None,
    rows: Sequence[ProjectFolder],
) -> str:
    """Return the shortest name that no other folder has."""
    is_on_server = remote is not None and remote.startswith("git:")
    for name in names_of(path, remote if is_on_server else None):
        others = [row for row in rows if row.project == name]
        is_taken = any(
            # A folder that is gone was moved here, unless both are known to be others.
            (row.is_remote and is_on_server) or os.path.isdir(row.path)
            for row in others
        )
        if not is_taken or transaction.has_session_in(user, name, path):
            # Sessions from before folders were told apart keep their memories.
            return name
    digest = hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{clean_name(PurePath(path).name)} {digest[:_DIGEST_CHARS]}"
