"""All benches, one after the other: `python -m bench`; exits non-zero when a bar is missed."""

from __future__ import annotations

import sys

from bench import gate, retrieval, speed


def main() -> int:
    """Runs every bench even if one misses its bar."""
    failed = 0
    for name, bench in (("retrieval", retrieval), ("gate", gate), ("speed", speed)):
        print(f"\n=== {name} ===\n", flush=True)
        failed |= bench.main([])
    return failed


if __name__ == "__main__":
    sys.exit(main())
