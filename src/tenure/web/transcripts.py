"""Transcripts that a hook names by path: only where harnesses keep theirs, and only if it is safe.

A path comes from outside. It is followed only for the owner's own socket, into folders that
harnesses are known to write, to a regular file of ours without any link on the way.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.errors import InputError

if TYPE_CHECKING:
    from tenure.web.table import Call

# In the user's home; each is where one harness keeps its sessions.
HARNESS_FOLDERS = (
    ".claude/projects",
    ".codex/sessions",
    ".gemini/tmp",
    ".copilot/session-state",
    ".cursor/projects",
    ".openclaw/agents",
    ".local/share/opencode",
)
# The end is what counts, and what is read of it is cut further on.
TAIL_LIMIT_BYTES = 4 << 20
_PATH_LIMIT_CHARS = 4_096


def told(call: Call, transcript: Any, path: str | None) -> Any:
    """The transcript itself, or what stands in the file that was named instead."""
    if transcript is not None or path is None:
        return transcript
    if call.door != "socket":
        raise InputError(
            "transcript_path is only followed for callers on the Unix socket",
            hint="send the transcript itself",
        )
    return read_file(path, Path.home())


def read_file(path: str, home: Path) -> list[Any]:
    """The lines of a harness's transcript, the latest ones if it is long."""
    file = _checked(path, home)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(file, flags)
    except OSError as error:
        raise InputError(f"the transcript cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as opened:
        about = os.fstat(opened.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            raise InputError("a transcript is a regular file of one's own")
        opened.seek(max(0, about.st_size - TAIL_LIMIT_BYTES))
        raw = opened.read(TAIL_LIMIT_BYTES)
    lines = raw.decode("utf-8", "replace").splitlines()
    # A cut first line is no whole object any more.
    return list(_messages(lines[1:] if about.st_size > TAIL_LIMIT_BYTES else lines))


def _checked(path: str, home: Path) -> Path:
    if not path or "\0" in path or len(path) > _PATH_LIMIT_CHARS:
        raise InputError("transcript_path is no path")
    named = Path(path).expanduser()
    try:
        real = named.resolve(strict=True)
        known = [(home / folder).resolve() for folder in HARNESS_FOLDERS]
    except (OSError, RuntimeError) as error:
        raise InputError("there is no such transcript") from error
    # The same answer for what does not exist and for what may not be looked at.
    if not named.is_absolute() or not any(real.is_relative_to(folder) for folder in known):
        raise InputError("there is no such transcript")
    return real


def _messages(lines: list[str]) -> Iterator[Any]:
    """The messages in JSON lines, out of whatever each harness wraps them in."""
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            # A harness may be writing the last line right now.
            continue
        if not isinstance(entry, dict) or entry.get("isSidechain") or entry.get("isMeta"):
            continue
        inner = next(
            (entry[key] for key in ("message", "payload") if isinstance(entry.get(key), dict)),
            entry,
        )
        if any(key in inner for key in ("role", "content", "text", "arguments", "output")):
            yield inner
