"""The hook's way to a daemon on another machine, which cannot read files on this one.

Part of the hook, so standard library only. It is apart because only users of such a daemon
(MERITORY_URL, MERITORY_TOKEN) need its imports.
"""

from __future__ import annotations

import http.client
import os
import stat
import time
from urllib.parse import SplitResult, urlsplit

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
# The folder of what is kept, in the data folder; in it each daemon has its own.
_SPOOL, _FOLDERS = "spool", "remote"
_KEPT_LIMIT_BYTES = 32_768
# A file that another process has claimed is sent after this time: that process has ended.
CLAIM_LIMIT_S = 600.0
_OK, _UNAUTHORIZED, _TOO_MANY, _FAULT = 200, 401, 429, 500


def asked(
    url: str,
    event: str,
    body: dict[str, Any],
    deadline: float,
    encoded: Callable[[dict[str, Any]], bytes],
) -> bytes:
    """Return the daemon's answer, empty if it refuses.

    Raise OSError if it cannot be reached, or if it cannot take the event at present.
    """
    status, raw = _posted(url, event, request_for(event, body), deadline, encoded)
    if status >= _FAULT or status == _TOO_MANY:
        raise OSError("the daemon cannot take it now")
    return raw if status == _OK else b""


def _posted(
    url: str,
    event: str,
    request: dict[str, Any],
    deadline: float,
    encoded: Callable[[dict[str, Any]], bytes],
) -> tuple[int, bytes]:
    """Return the status and the body of the daemon's answer."""
    place = _place(url)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(place.netloc, timeout=max(0.001, deadline - time.monotonic()))
    headers = {"Content-Type": "application/json"}
    token = _token()
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        connection.connect()
        # Not once more the whole time: the connection took some of it.
        connection.sock.settimeout(max(0.001, deadline - time.monotonic()))
        connection.request("POST", f"/api/hooks/{event}", encoded(request), headers)
        reply = connection.getresponse()
        return reply.status, reply.read(ANSWER_LIMIT_BYTES)
    except (OSError, http.client.HTTPException, ValueError) as error:
        # A plain OSError: the other kinds would start a local daemon.
        raise OSError("the daemon cannot be reached") from error
    finally:
        connection.close()


def _place(url: str) -> SplitResult:
    place = urlsplit(url)
    if place.scheme not in ("http", "https") or not place.hostname:
        raise OSError(f"invalid address of a daemon: {url[:80]!r}")
    return place


def _token() -> str:
    token = os.environ.get("MERITORY_TOKEN", "").strip()
    return token if token.isascii() and token.isprintable() else ""


def request_for(event: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the request of an event, with the repository and the transcript instead of paths."""
    return _with_transcript(event, {**body, "cwd": repository(str(body.get("cwd", "")))})


def _with_transcript(event: str, body: dict[str, Any]) -> dict[str, Any]:
    request = {**body}
    path = request.pop("transcript_path", "")
    if event in _WITH_TRANSCRIPT and path:
        text = _tail(str(path))
        if text:
            request["transcript"] = text
    return request


# -- what is kept while the daemon cannot be reached -----------------------------------------


def kept(url: str, body: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return the daemon's folder in the spool, the data folder, and an event as it is kept.

    The repository is read now, because the folder may be gone later.
    """
    home = url.partition("#")[2]
    return _address(url), home, {**body, "cwd": repository(str(body.get("cwd", "")))}


def has_kept(url: str) -> bool:
    """Return whether an event is kept for this daemon."""
    home = url.partition("#")[2]
    if not os.path.isdir(os.path.join(home, _SPOOL, _FOLDERS)):
        return False
    try:
        names = os.listdir(os.path.join(home, _SPOOL, _address(url)))
    except OSError:
        return False
    return any(name.endswith(".json") for name in names)


def send_kept(
    url: str,
    event: str,
    body: dict[str, Any],
    deadline: float,
    encoded: Callable[[dict[str, Any]], bytes],
) -> None:
    """Send what is kept for this daemon after one that it took, oldest first; stop if it fails.

    The end of a session that goes on with this event does not count.
    """
    going_on = "" if event in ("session-end", "stop") else body["session_key"]
    try:
        folder = os.path.join(url.partition("#")[2], _SPOOL, _address(url))
        for name in sorted(os.listdir(folder), key=lambda name: name.lstrip(".")):
            claim = _claimed(folder, name) if name.endswith(".json") else ""
            if not claim:
                continue
            ending = _left(url, claim, going_on, deadline, encoded)
            if not ending:
                os.unlink(claim)
                continue
            os.rename(claim, os.path.join(folder, name.lstrip(".").removesuffix(".json") + ending))
            if ending == ".json":
                return
        os.rmdir(folder)
        os.rmdir(os.path.dirname(folder))
    except OSError:
        # Another hook sends or keeps something there.
        pass


def _address(url: str) -> str:
    """Return a daemon's folder in the spool; another token may be another user's."""
    import hashlib

    place = _place(url)
    whose = f"{place.scheme}://{place.netloc.lower()}\n{_token()}".encode("utf-8", "replace")
    host = "".join(one for one in str(place.hostname)[:80] if one.isascii() and one.isalnum())
    return f"{_FOLDERS}/{host}-{hashlib.sha256(whose).hexdigest()[:16]}"


def _claimed(folder: str, name: str) -> str:
    """Return the path of a kept event that only this process sends; empty if another one does."""
    bare = name.lstrip(".")
    path, claim = os.path.join(folder, bare), os.path.join(folder, f".{bare}")
    try:
        if bare != name:
            if time.time() - os.stat(claim).st_mtime < CLAIM_LIMIT_S:
                return ""
            os.rename(claim, path)
        os.utime(path)
        os.rename(path, claim)
    except FileNotFoundError:
        return ""
    return claim


def _left(
    url: str,
    claim: str,
    going_on: str,
    deadline: float,
    encoded: Callable[[dict[str, Any]], bytes],
) -> str:
    """Send a kept event; return the ending of its file: .json to try it again, .failed, none."""
    import json

    try:
        with open(claim, "rb") as file:
            content = json.loads(file.read(_KEPT_LIMIT_BYTES))
        event, body = content["event"], dict(content["body"])
        if event == "session-end":
            if body["session_key"] == going_on:
                return ""
            kept_at_ns = int(os.path.basename(claim)[1:].partition("-")[0])
            body["kept_ms"] = max(0, time.time_ns() - kept_at_ns) // 1_000_000
        status, raw = _posted(url, event, _with_transcript(event, body), deadline, encoded)
    except (ValueError, TypeError, KeyError, RecursionError):
        return ".failed"
    except OSError:
        return ".json"
    if status == _OK:
        # A network's page for signing in has this status as well.
        return "" if raw.startswith(b"{") else ".json"
    is_later = status in (_UNAUTHORIZED, _TOO_MANY) or status > _FAULT
    return ".json" if is_later else ".failed"


# -- what is sent instead of paths -----------------------------------------------------------


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
