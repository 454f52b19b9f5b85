"""Calibrate the shipped defaults: python -m bench.calibrate [--json FILE] [--only SWEEP,...].

Each default is swept on one half of LoCoMo, LongMemEval and recorded sessions of an agent; the
best value found there is held against the shipped one on the other half, by the rule stated in
`bench.calibrate_rule`. Exits with 1 when that rule says that a shipped default should change.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from bench import calibrate_gate, calibrate_streams, report
from bench.calibrate_data import locomo, longmemeval, noisy
from bench.calibrate_gate import CHANGES, MERGING
from bench.calibrate_rule import Decision, Sweep, Table, decide
from bench.calibrate_score import (
    DERIVED,
    FLOOR,
    HALF_LIFE,
    SLOPE,
    SUMMARY,
    Drafts,
    measure,
)
from bench.datasets import MissingData, data_root
from meritory.rank.metrics import Paired

RECALLED = (DERIVED, SUMMARY, SLOPE, FLOOR, HALF_LIFE)
SWEEPS = {sweep.name: sweep for sweep in (*RECALLED, MERGING, CHANGES)}

Tables = dict[str, dict[str, Table]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every sweep with its decision and return 1 when a default should change."""
    options = _options(arguments)
    wanted = [SWEEPS[name] for name in options.only.split(",")]
    try:
        found = measured(wanted)
    except (MissingData, FileNotFoundError) as missing:
        print(missing)
        return 0
    decisions = [decide(sweep, found[sweep.name]) for sweep in wanted]
    for decision in decisions:
        show(decision, found[decision.sweep.name])
    if options.json is not None:
        told = {one.sweep.name: summary(one, found[one.sweep.name]) for one in decisions}
        report.write({"defaults": told}, options.json)
    return verdict(decisions)


def measured(wanted: Sequence[Sweep]) -> Tables:
    """Every table that the sweeps need, each collection stored and searched once."""
    root = data_root()
    drafts: Drafts = {}
    recalled = [sweep for sweep in wanted if sweep in RECALLED]
    if recalled:
        talks = locomo(root)
        others = [question for talk in talks for question in talk.questions]
        for talk in talks:
            measure(drafts, talk, recalled)
        for talk in noisy(talks, root):
            measure(drafts, talk, [one for one in recalled if one in (DERIVED, SUMMARY)])
        pooled = [sweep for sweep in recalled if sweep is not SUMMARY]
        if pooled:
            measure(drafts, longmemeval(root, others), pooled)
    found: Tables = {
        name: {data: draft.table() for data, draft in rows.items()} for name, rows in drafts.items()
    }
    if FLOOR in wanted or HALF_LIFE in wanted:
        _merge(found, calibrate_streams.tables())
    if MERGING in wanted or CHANGES in wanted:
        _merge(found, calibrate_gate.tables(root))
    return found


def verdict(decisions: Sequence[Decision]) -> int:
    """Say what should change, 1 if anything should."""
    changes = [one for one in decisions if one.verdict == "change"]
    for one in changes:
        print(f"CHANGE {one.sweep.name} {one.sweep.shipped} -> {one.candidate}: {one.reason}")
    if not changes:
        print("\nNo shipped default should change.")
    return 1 if changes else 0


def show(decision: Decision, tables: Mapping[str, Table]) -> None:
    """Print one sweep: the tuning half by value, then both values on the reporting half."""
    sweep = decision.sweep
    print(f"\n== {sweep.name}, shipped {sweep.shipped:g}: tuning half")
    print(" " * 54 + "".join(f"{value:>9g}" for value in sweep.values))
    for data, table in tables.items():
        count = int(table.is_tuning.sum())
        for place, name in enumerate(table.measures):
            means = "".join(f"{value:9.4f}" for value in table.means(True)[:, place])
            print(f"  {data:34s} {name:9s}{count:7d} {means}")
    print(f"  candidate {decision.candidate:g}: {decision.verdict}, {decision.reason}")
    for row in decision.rows:
        gap = row.reported
        print(
            f"  {row.data:34s} {row.measure:9s}{gap.count:7d} {row.shipped:9.4f}"
            f"{row.candidate:9.4f}  {gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"
            f"  {gap.verdict}"
        )


def summary(decision: Decision, tables: Mapping[str, Table]) -> dict[str, Any]:
    """Return one sweep as plain values for the JSON report."""
    sweep = decision.sweep
    return {
        "shipped": sweep.shipped,
        "candidate": decision.candidate,
        "verdict": decision.verdict,
        "reason": decision.reason,
        "values": list(sweep.values),
        "tuning": {data: _halves(table) for data, table in tables.items()},
        "reporting": [
            {
                "data": row.data,
                "measure": row.measure,
                "shipped": round(row.shipped, 4),
                "candidate": round(row.candidate, 4),
                "difference": _gap(row.reported),
                "difference_tuning": _gap(row.tuned),
            }
            for row in decision.rows
        ],
    }


def _halves(table: Table) -> dict[str, Any]:
    means = table.means(True)
    return {
        "questions_tuning": int(table.is_tuning.sum()),
        "questions_reporting": int((~table.is_tuning).sum()),
        **{
            name: [round(float(value), 4) for value in means[:, place]]
            for place, name in enumerate(table.measures)
        },
    }


def _gap(gap: Paired) -> dict[str, Any]:
    return {
        "mean": round(gap.mean, 4),
        "interval": [round(gap.low, 4), round(gap.high, 4)],
        "questions": gap.count,
        "verdict": gap.verdict,
    }


def _merge(found: Tables, more: Tables) -> None:
    for name, tables in more.items():
        found.setdefault(name, {}).update(tables)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.calibrate", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--only", default=",".join(SWEEPS), help="defaults, by comma")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
