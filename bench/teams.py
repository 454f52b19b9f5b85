"""A team's store at a million memories: `python -m bench.teams`; it takes long, so it runs alone.

A PostgreSQL server of its own is filled with tenants of very different sizes, and one process
serves them all. `--keep FOLDER` leaves the filled database there for the next run. The machine may
be shared and noisy: beside times stand ratios to an SQLite file with the same memories, measured
in the same minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from bench import report
from bench.postgres import Unavailable, kept_server
from bench.speed import show
from bench.teams_fill import SETTINGS, Tenant, fill, tenants
from bench.teams_measure import Plan, as_json, measured
from bench.teams_ratio import Amount, Ratio, bulk_ratio, ratios
from bench.texts import sentences

MEMORIES, TENANTS = 1_000_000, 100
RECALL_P95_MS, START_P95_MS = 50.0, 120.0
MISSED_SHARE = 0.05
# One of the tenants that are compared has about so many.
MIDDLING = 10_000
# Many memories at once: so many times what a file takes for the same ones.
BULK_RATIO = 2.5

Row = tuple[str, float, float | None, str]


def rows_of(found: dict[str, Any], filled: dict[str, float], size_mb: float) -> list[Row]:
    """What was measured, with the bars it is held to."""
    values = found["values"]
    rows: list[Row] = []
    for name in ("by size", "all alike"):
        for kind, bar in (("recall", RECALL_P95_MS), ("session start", START_P95_MS)):
            own, server = (values[f"{kind}, {name} {side} CPU"] for side in ("own", "server"))
            note = f"CPU {own:.1f} ms, of the server {server:.1f} ms"
            rows.append((f"{kind}, {name}, p50 ms", values[f"{kind}, {name} p50"], None, note))
            rows.append((f"{kind}, {name}, p95 ms", values[f"{kind}, {name} p95"], bar, ""))
    cold = sorted(found["cold"])
    times = [took for _, took in cold]
    rows += [
        ("first touch of a tenant, p50 ms", float(np.median(times)), None, ""),
        ("first touch of the largest, ms", cold[-1][1], None, f"{cold[-1][0]:,} memories"),
    ]
    for name in ("recall", "session start"):
        key = f"recall@10 of the index, {name}"
        if key in values:
            note = f"recall@10 {values[key]:.3f}, worst {values[f'worst of them, {name}']:.1f}"
            label = f"missed by the index, {name}"
            rows.append((label, 1.0 - values[key], MISSED_SHARE, note))
    rows += [
        ("RSS with all tenants, MB", values["rss at the end, MB"], None,
         f"{values['rss before any tenant, MB']:.0f} before any"),
        ("database, MB", size_mb, None, ""),
        ("filling, us each", filled.get("load_us_each", float("nan")), None,
         f"made ready in {filled.get('prepare_us_each', float('nan')):.0f} us"),
        ("indexes of large tenants, s", filled.get("index_s", float("nan")), None, ""),
    ]  # fmt: skip
    return rows


def show_ratios(tables: dict[str, list[Ratio]]) -> None:
    """What the database takes, as a multiple of the file's time."""
    print(f"\n{'ratio to SQLite':<40}{'file ms':>10}{'shared ms':>11}{'ratio':>8}")
    for title, found in tables.items():
        print(title)
        for one in found:
            name = f"  {one.name}"
            print(f"{name:<40}{one.file_ms:>10.2f}{one.database_ms:>11.2f}{one.ratio:>8.2f}")


def _inside(options: argparse.Namespace, url: str, home: Path) -> dict[str, Any]:
    """Measured by a process of its own, in which nothing else takes memory."""
    command = [sys.executable, "-m", "bench.teams", "--inside", url, "--keep", str(home)]
    command += ["--memories", str(options.memories), "--tenants", str(options.tenants)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _database_mb(url: str) -> float:
    with psycopg.connect(url) as connection:
        (size,) = connection.execute("SELECT pg_database_size(current_database())").fetchone() or (
            0,
        )
    return float(size) / 1e6


def _forget_sessions(url: str) -> None:
    """Sessions of the bench itself would be the past of the next run."""
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM meritory.sessions WHERE key LIKE 'bench-%'")
        connection.execute("DELETE FROM meritory.sessions WHERE key LIKE 'warm-%'")


def run(options: argparse.Namespace, home: Path) -> int:
    """Fills, measures, compares, prints and stores."""
    wanted = tenants(options.tenants, options.memories)
    with kept_server(home / "server", SETTINGS) as url:
        filled = fill(home, url, wanted, options.processes)
        found = _inside(options, url, home)
        middling = min(wanted, key=lambda tenant: abs(tenant.size - MIDDLING))
        tables: dict[str, list[Ratio]] = {}
        for tenant in {middling.number: middling, wanted[0].number: wanted[0]}.values():
            tables[f"{tenant.size:,} memories"] = ratios(home, url, tenant, Amount())
        bulk = bulk_ratio(home, url, Amount())
        tables["a new tenant"] = [bulk]
        _forget_sessions(url)
        size_mb = _database_mb(url)
    rows = rows_of(found, filled, size_mb)
    note = f"{bulk.database_ms:.2f} ms each, for a new tenant"
    rows.append(("bulk write, times a file's", bulk.ratio, BULK_RATIO, note))
    missed = show(rows)
    show_ratios(tables)
    report.write(_figures(options, rows, found, tables), options.json)
    return 1 if missed else 0


def _figures(
    options: argparse.Namespace,
    rows: Sequence[Row],
    found: dict[str, Any],
    tables: dict[str, list[Ratio]],
) -> dict[str, object]:
    return {
        "memories": options.memories,
        "tenants": options.tenants,
        "texts": sentences()[1],
        "server": list(SETTINGS),
        "load_average": round(os.getloadavg()[0], 2),
        "rows": [
            {"name": name, "value": round(value, 3), "bar": bar, "note": note}
            for name, value, bar, note in rows
        ],
        "measured": {name: round(value, 3) for name, value in found["values"].items()},
        "cold_ms": [[size, round(took, 1)] for size, took in sorted(found["cold"])],
        "ratios": {
            title: [{**asdict(one), "ratio": round(one.ratio, 3)} for one in some]
            for title, some in tables.items()
        },
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.teams", description=__doc__)
    parser.add_argument("--memories", type=int, default=MEMORIES)
    parser.add_argument("--tenants", type=int, default=TENANTS)
    parser.add_argument("--processes", type=int, default=2, help="that fill the database")
    parser.add_argument("--keep", type=Path, help="leave the database here, or use the one that is")
    parser.add_argument("--json", type=Path, default=Path("teams.json"), help="result file")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and stores; says which bars were missed by the exit code."""
    options = _options(arguments)
    if options.inside:
        wanted: list[Tenant] = tenants(options.tenants, options.memories)
        print(json.dumps(as_json(measured(options.keep / "home", options.inside, wanted, Plan()))))
        return 0
    with contextlib.ExitStack() as held:
        home = options.keep
        if home is None:
            home = Path(held.enter_context(tempfile.TemporaryDirectory()))
            # The server may run under another account than ours.
            home.chmod(0o755)
        try:
            return run(options, home)
        except Unavailable as reason:
            print(f"there is no PostgreSQL here, so nothing is measured: {reason}")
            return 0


if __name__ == "__main__":
    sys.exit(main())
