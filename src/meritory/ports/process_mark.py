"""The mark of a process of this machine, by which others can tell that it has ended.

A mark names the machine since its last start, the process and when it began: the system gives the
number of an ended process to another one. Without `/proc` there is no mark, and no process is known
to have ended.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def own_mark() -> str:
    """Return the mark of this process; empty if the system does not tell."""
    machine, began = _machine(), _began(os.getpid())
    return f"{machine}:{os.getpid()}:{began}" if machine and began else ""


def has_ended(mark: str) -> bool:
    """Return whether the process of a mark ran on this machine and has ended."""
    machine, _, process = mark.partition(":")
    number, _, began = process.partition(":")
    if not machine or machine != _machine() or not number.isdecimal() or not began:
        return False
    return _began(int(number)) != began


def _machine() -> str:
    """Return the machine, its last start, and its processes that can see each other."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        # Containers number their processes apart.
        return f"{boot}.{os.stat(_PROC / 'self/ns/pid').st_ino}"
    except (OSError, UnicodeDecodeError):
        return ""


def _began(pid: int) -> str:
    """Return when a process began, in ticks since the machine's start; empty if it has ended."""
    try:
        # The name, in parentheses, may hold anything.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        state, began = fields[0], fields[19].decode("ascii")
    except (OSError, IndexError, UnicodeDecodeError):
        return ""
    # A process that has ended but was not waited for does no more work.
    return "" if state in (b"Z", b"X") else began
