"""All benches, one after the other: `python -m bench`; exits non-zero when a bar is missed."""

from __future__ import annotations

import argparse
import sys

from bench import (
    dashboard,
    extraction,
    feedback,
    gate,
    guard,
    hook,
    judge,
    mcp,
    migrate,
    retrieval,
    scale,
    sessions,
    sidecar,
    speed,
    streams,
    teams,
    writes,
)

# Quality first, then speed, when nothing else keeps the machine busy.
BENCHES = {
    "retrieval": retrieval,
    "gate": gate,
    "judge": judge,
    "extraction": extraction,
    "guard": guard,
    "streams": streams,
    "speed": speed,
    "scale": scale,
    "sidecar": sidecar,
    "sessions": sessions,
    "feedback": feedback,
    "hook": hook,
    "mcp": mcp,
    "dashboard": dashboard,
}
# What needs a PostgreSQL server, which they start themselves.
TEAM_BENCHES = {"writes": writes, "migrate": migrate, "teams": teams}


def main() -> int:
    """Runs every bench even if one misses its bar."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--load", action="store_true", help="many sessions at once as well (slow)")
    parser.add_argument("--teams", action="store_true", help="a million in PostgreSQL (20 minutes)")
    options = parser.parse_args()
    failed = 0
    chosen = {**BENCHES, **(TEAM_BENCHES if options.teams else {})}
    for name, bench in chosen.items():
        print(f"\n=== {name} ===\n", flush=True)
        failed |= bench.main([])
    if options.load:
        print("\n=== load ===\n", flush=True)
        failed |= sessions.main(["--load"])
    return failed


if __name__ == "__main__":
    sys.exit(main())
