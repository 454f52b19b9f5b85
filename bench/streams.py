"""The proof: replay streams of real sessions and compare rankings. python -m bench.streams

Every session runs through the library in time order. The memories known by then are stored, the
session is served, its ranking is compared with the memories that it really used, and only then
the library receives evidence. It starts from an empty store with its default settings and learns
on the way. Base weights are never trained on a stream that they are judged by.

`--regime` chooses the evidence: `complete` (every use, exactly), `ratings` (noisy ratings of the
shown memories) or `transcripts` (the transcript alone). `--control` replaces it by evidence
without truth: the served ranking must then not fall behind plain text, and the model must do no
harm. The bench exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from bench import report
from bench.datasets import MissingData
from bench.streams_ablate import ablations
from bench.streams_bars import RATED_STREAMS, TRANSCRIPT_STREAM, bars, missed
from bench.streams_data import (
    LOCOMO_STREAMS,
    REALMEM_STREAMS,
    STREAMS,
    TRANSCRIPT_STREAMS,
    load,
)
from bench.streams_figures import Figures
from bench.streams_outcome import Outcome
from bench.streams_regimes import CONTROLS, REGIMES, Regime
from bench.streams_replay import Run, replay
from bench.streams_report import served_figures, show, show_all, summary

SEEDS = 3
# Controls draw with other seeds than the runs with true evidence.
CONTROL_SEED = 1_000
REPORTED = (
    *("agent_specstory", "agent_calibrate", "agent_entire_s"),
    *("git_datasette_2h", "git_simonw3_2h"),
)
# The streams that have bars.
STREAMS_BY_REGIME: Mapping[Regime, tuple[str, ...]] = {
    "complete": REPORTED,
    "ratings": RATED_STREAMS,
    "transcripts": (TRANSCRIPT_STREAM,),
}
# Trained on the agents' streams. The shipped base weights are trained on a git history.
AGENTS_BASE = Path(__file__).parent / "results" / "base-agents.sgpt"
WORKERS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and return 0, or 1 when a bar is missed."""
    options = _options(arguments)
    names = options.stream or STREAMS_BY_REGIME[options.regime]
    jobs = [(name, _run(name, seed, options)) for name in names for seed in range(options.seeds)]
    try:
        with ProcessPoolExecutor(options.workers) as pool:
            outcomes = list(pool.map(_replayed, jobs))
    except MissingData as missing:
        print(missing)
        return 0
    return _finish(
        [Figures([one for one in outcomes if one.name == name]) for name in names], options
    )


def _run(name: str, seed: int, options: argparse.Namespace) -> Run:
    settings: dict[str, object] = {"predictor.scorer": options.scorer}
    base = options.base or (AGENTS_BASE if name.startswith("git_") else None)
    if base is not None:
        settings["predictor.base_weights"] = str(base)
    return Run(
        seed=seed if options.control is None else CONTROL_SEED + seed,
        limit=options.limit,
        regime=options.regime,
        control=options.control,
        settings=settings,
        keep=options.ablate and seed == 0,
    )


def _replayed(job: tuple[str, Run]) -> Outcome:
    name, run = job
    outcome = replay(load(name), run)
    show(outcome)
    return outcome


def _finish(figures: Sequence[Figures], options: argparse.Namespace) -> int:
    """Print and store the figures; return 1 when a bar is missed."""
    for one in figures:
        show_all(one)
    entries = [summary(one) for one in figures]
    if options.ablate:
        for one, entry in zip(figures, entries, strict=True):
            entry["ablations"] = _ablated(one)
    misses = _misses(figures, options)
    if options.plots:
        from bench.streams_plot import plot

        for one in figures:
            plot(one.outcomes[0], options.plots)
    if _is_whole(options) or options.json:
        report.write(
            {
                "streams": entries,
                "missed": misses,
                "limit": options.limit,
                "scorer": options.scorer,
            },
            options.json or _result_name(options),
        )
    return 1 if misses else 0


def _misses(figures: Sequence[Figures], options: argparse.Namespace) -> list[str]:
    """Print and return the missed bars. A part of a stream has none, except in a control."""
    if not _is_whole(options) and options.control is None:
        return []
    complete = served_figures(options.complete) if options.complete else {}
    misses = []
    for one in figures:
        known = complete.get(one.name)
        if known is not None:
            print(f"{one.name}: served in the regime complete {known:.4f}")
        misses += missed(one, known)
    for miss in misses:
        print("MISSED", miss)
    if not misses and any(bars(one) for one in figures):
        print("All bars are met.")
    return misses


def _ablated(figures: Figures) -> dict[str, tuple[float, float]]:
    found = ablations(figures.outcomes[0].kept)
    for name, (whole, later) in found.items():
        print(f"  {figures.name:18s} {name:28s} {whole:.3f}  second half {later:.3f}")
    return found


def _is_whole(options: argparse.Namespace) -> bool:
    return options.limit is None and options.scorer == "features"


def _result_name(options: argparse.Namespace) -> Path:
    """Return the default name of the result file: `streams-<regime>-<control>.json`."""
    parts = ["streams"]
    if options.regime != "complete" or options.control:
        parts.append(options.regime)
    if options.control:
        parts.append(options.control)
    return Path(f"{'-'.join(parts)}.json")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    every = (*STREAMS, *REALMEM_STREAMS, *LOCOMO_STREAMS)
    controls = sorted({control for known in CONTROLS.values() for control in known})
    parser.add_argument("--regime", choices=REGIMES, default="complete", help="the evidence")
    parser.add_argument("--control", choices=controls, help="evidence without truth")
    parser.add_argument("--stream", nargs="+", choices=every, help="default: those with a bar")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of runs per stream")
    parser.add_argument("--limit", type=int, help="replay only the first sessions")
    parser.add_argument("--workers", type=int, default=WORKERS, help="number of processes")
    parser.add_argument("--scorer", choices=("features", "attention"), default="features")
    parser.add_argument("--base", type=Path, help="base weights for all streams")
    parser.add_argument("--ablate", action="store_true", help="leave kinds of features out")
    parser.add_argument("--plots", type=Path, help="folder for the curves")
    parser.add_argument("--complete", type=Path, help="result file of the regime complete")
    parser.add_argument("--json", type=Path, help="result file; default: one per regime")
    options = parser.parse_args(arguments)
    if options.control is not None and options.control not in CONTROLS[options.regime]:
        known = ", ".join(CONTROLS[options.regime])
        parser.error(f"the regime {options.regime} has no control {options.control}: use {known}")
    silent = [one for one in options.stream or () if one not in TRANSCRIPT_STREAMS]
    if options.regime == "transcripts" and silent:
        parser.error(f"{', '.join(silent)}: no transcripts; use {', '.join(TRANSCRIPT_STREAMS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
