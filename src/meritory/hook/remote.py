"""The hook's way to a daemon on another machine, which cannot read files on this one.

Part of the hook, so standard library only. It is apart because only users of such a daemon
(MERITORY_URL, MERITORY_TOKEN) need its imports.
"""

from __future__ import annotations

import http.client
import os
import stat
import time
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# With the rest of the request, in JSON, below the daemon's limit.
TRANSCRIPT_LIMIT_BYTES = 600_000
ANSWER_LIMIT_BYTES = 4 << 20
LEVELS_LIMIT, POINTER_LIMIT_CHARS = 64, 4_096
# The events that are sent with the transcript.
_WITH_TRANSCRIPT = ("session-end", "pre-compact")


def asked(
    url: str,
    event: str,
    body: dict[str, Any],
    deadline: float,
    encoded: Callable[[dict[str, Any]], bytes],
) -> bytes:
    """Return the daemon's answer, empty if it refuses; raise OSError if it cannot be reached."""
    place = urlsplit(url)
    if place.scheme not in ("http", "https") or not place.hostname:
        raise OSError(f"invalid address of a daemon: {url[:80]!r}")
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(place.netloc, timeout=max(0.001, deadline - time.monotonic()))
    headers = {"Content-Type": "application/json"}
    token = os.environ.get("MERITORY_TOKEN", "").strip()
    if token.isascii() and token.isprintable() and token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        connection.request(
            "POST", f"/api/hooks/{event}", encoded(request_for(event, body)), headers
        )
        reply = connection.getresponse()
        raw = reply.read(ANSWER_LIMIT_BYTES)
        return raw if reply.status == 200 else b""
    except (OSError, http.client.HTTPException, ValueError) as error:
        # A plain OSError: the other kinds would start a local daemon.
        raise OSError("the daemon cannot be reached") from error
    finally:
        connection.close()


def request_for(event: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the request of an event, with the repository and the transcript instead of paths."""
    request = {**body, "cwd": repository(str(body.get("cwd", "")))}
    path = request.pop("transcript_path", "")
    if event in _WITH_TRANSCRIPT and path:
        text = _tail(str(path))
        if text:
            request["transcript"] = text
    return request


def repository(cwd: str) -> str:
    """Return the repository of a folder, else the folder; empty for none.

    A worktree counts as its repository. The home folder and the root are not projects.
    """
    if not cwd or not os.path.isabs(cwd) or "\0" in cwd:
        return ""
    place = folder = os.path.realpath(cwd)
    nowhere = {os.path.realpath(os.path.expanduser("~")), "/", os.path.realpath("/tmp")}  # noqa: S108
    for _ in range(LEVELS_LIMIT):
        if folder in nowhere:
            break
        marker = os.path.join(folder, ".git")
        if not os.path.lexists(marker):
            folder = os.path.dirname(folder)
            continue
        pointer = ""
        try:
            if os.path.isfile(marker):
                with open(marker, encoding="utf-8", errors="replace") as file:
                    pointer = file.read(POINTER_LIMIT_CHARS).removeprefix("gitdir:").strip()
        except OSError:
            pass
        kept, _, name = os.path.normpath(os.path.join(folder, pointer)).rpartition("/worktrees/")
        return os.path.dirname(kept) if pointer and name and kept.endswith("/.git") else folder
    return "" if place in nowhere else place


def _tail(path: str) -> str:
    """Return the end of a transcript, from the start of a line."""
    try:
        with open(os.path.expanduser(path), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return ""
            file.seek(max(0, about.st_size - TRANSCRIPT_LIMIT_BYTES))
            raw = file.read(TRANSCRIPT_LIMIT_BYTES)
    except OSError:
        return ""
    if about.st_size > TRANSCRIPT_LIMIT_BYTES:
        raw = raw.partition(b"\n")[2]
    return raw.decode("utf-8", "replace")
