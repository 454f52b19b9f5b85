"""Folders and their projects: what tells two folders of one name apart, and how they are named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from urllib.parse import urlsplit

from meritory.domain.memory import NAME_LIMIT_CHARS

# Between the parts of a project's name that tell it from another of the same folder name.
NAME_MARK = "/"
IDENTITY_LIMIT_CHARS = 4_200
_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[^:/\s]+):(?P<path>[^\s]+)")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFolder:
    """The project of a folder, by one of the identities of that folder."""

    # `path:/home/ann/api`, or `git:host/owner/api` for all clones of a repository.
    identity: str
    project: str
    path: str
    at: datetime

    @property
    def is_remote(self) -> bool:
        """Return whether the identity is that of a repository on a server."""
        return self.identity.startswith("git:")


def path_identity(path: str) -> str:
    """Return the identity of a folder by its path."""
    return f"path:{path}"[:IDENTITY_LIMIT_CHARS]


def remote_identity(url: str) -> str | None:
    """Return the identity of the repository behind a remote, the same for every form of its URL.

    User and password are left out. None for a repository in the file system.
    """
    url = url.strip()
    if not url or _DRIVE.match(url):
        return None
    if _SCHEME.match(url):
        try:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return None
        if parts.scheme.lower() == "file":
            return None
    elif match := _SCP.fullmatch(url):
        host, path = match["host"], match["path"]
    else:
        return None
    path = path.strip("/").removesuffix(".git").strip("/")
    whole = f"git:{host}/{path}".lower()
    return whole[:IDENTITY_LIMIT_CHARS] if host and path else None


def clean_name(text: str) -> str | None:
    """Return a text as the name of a project; None if nothing printable is left."""
    shown = "".join(character for character in text if character.isprintable())
    return shown[:NAME_LIMIT_CHARS].strip() or None


def names_of(path: str, remote: str | None) -> Iterator[str]:
    """Yield names for the project of a folder, the shortest first.

    `api`, then by its repository `acme/api`, then by the folders above it `b/api`.
    """
    folder = PurePath(path)
    parts = [part for part in folder.parts if part != folder.anchor]
    longer = [remote.split(NAME_MARK)[-2:]] if remote else []
    longer += [parts[-count:] for count in range(2, len(parts) + 1)]
    for chosen in ([folder.name], *longer):
        name = clean_name(NAME_MARK.join(chosen))
        if name is not None and len(name) < NAME_LIMIT_CHARS:
            yield name
