"""Types of records are described by one thread at a time."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Six threads decode a type that msgspec has not seen, two hundred times.
_RACE = """
import sys, threading
from dataclasses import make_dataclass
import msgspec
from meritory.domain.codec import prepared

describe = prepared if sys.argv[1] == "prepared" else lambda kind: kind
sys.setswitchinterval(1e-6)
for number in range(200):
    inner = make_dataclass(f"Inner{number}", [(f"a{i}", int) for i in range(10)])
    kind = make_dataclass(f"Outer{number}", [(f"b{i}", int) for i in range(10)] + [("c", inner)])
    raw = msgspec.json.encode(kind(*range(10), inner(*range(10))))
    ready, decoded = threading.Barrier(6), []

    def decode() -> None:
        ready.wait()
        decoded.append(msgspec.json.decode(raw, type=describe(kind)))

    threads = [threading.Thread(target=decode) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [value.c.a9 for value in decoded] == [9] * 6
"""


@pytest.mark.parametrize(("way", "is_sound"), [("prepared", True), ("bare", False)])
def test_threads_may_decode_a_new_type_at_once(way: str, is_sound: bool) -> None:
    done = subprocess.run([sys.executable, "-c", _RACE, way], capture_output=True, check=False)
    assert (done.returncode == 0) is is_sound, done.stderr[-500:]
