"""Memory that is free goes back to the system, where the system has a way."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest

from meritory.server.serve import MallocTrimmer


def is_glibc() -> bool:
    return sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not is_glibc(), reason="another C library")
def test_free_pages_between_others_are_given_back() -> None:
    heap = MallocTrimmer()
    assert heap.keep_together()
    # Small enough not to be pages of their own; the last one keeps the others in the heap.
    made = [bytearray(b"x" * 60_000) for _ in range(1_000)]
    del made[:-1]
    before = resident_bytes()
    assert heap.trim()
    assert before - resident_bytes() > 30_000_000


def test_a_system_without_such_a_heap_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: None) -> None:
        raise OSError

    monkeypatch.setattr("ctypes.CDLL", fail)
    heap = MallocTrimmer()
    assert not heap.keep_together()
    assert not heap.trim()
