"""Write bench results as JSON together with what they depend on."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"


def write(figures: Mapping[str, object], path: Path) -> None:
    """Write figures with commit, date and machine; a bare file name goes to bench/results."""
    target = RESULTS / path if path.parent == Path() else path
    target.parent.mkdir(parents=True, exist_ok=True)
    body = {"context": context(), "figures": dict(figures)}
    target.write_text(json.dumps(body, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def context() -> dict[str, object]:
    """Return commit, date and machine, without host names or paths."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "sqlite": sqlite3.sqlite_version,
    }


def commit() -> str:
    """Return the short commit, marked when the checkout has changes, or "unknown"."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=10, check=False
        )
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def cpu_name() -> str:
    """Return the processor's model name where the system tells it."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
