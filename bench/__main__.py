"""All benches, one after the other: `python -m bench`; exits non-zero when a bar is missed."""

from __future__ import annotations

import sys

from bench import gate, judge, retrieval, sessions, speed, streams

# Quality first, then speed, when nothing else keeps the machine busy.
BENCHES = {
    "retrieval": retrieval,
    "gate": gate,
    "judge": judge,
    "streams": streams,
    "speed": speed,
    "sessions": sessions,
}


def main() -> int:
    """Runs every bench even if one misses its bar."""
    failed = 0
    for name, bench in BENCHES.items():
        print(f"\n=== {name} ===\n", flush=True)
        failed |= bench.main([])
    return failed


if __name__ == "__main__":
    sys.exit(main())
