"""The proof: replay streams of real sessions and see who ranks better. python -m bench.streams

Every session runs through the library in the order of time: what was known by then is stored, the
session is served, its ranking is held against what was really used, and only then is the library
told. It learns as it goes, on its default configuration, from an empty store. Base weights are
never trained on the stream they are judged by.

`--shuffled N` tells it about memories drawn by chance instead, N times: what is served must then
not fall behind the baseline. Exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from bench import report
from bench.datasets import MissingData
from bench.streams_ablate import ablations
from bench.streams_bars import Figures, missed, missed_shuffled
from bench.streams_data import LOCOMO_STREAMS, STREAMS, load
from bench.streams_replay import BASELINE, PREDICTOR, SERVED, Outcome, Run, replay
from tenure.rank.metrics import bootstrap_interval, paired_bootstrap

SEED = 20261115
SEEDS = 3
REPORTED = ("agent_specstory", "agent_calibrate", "git_datasette_2h", "git_simonw3_2h")
# Trained on the agents' streams; the shipped base knows one git history, and is not judged by it.
AGENTS_BASE = Path(__file__).parent / "results" / "base-agents.sgpt"
WORKERS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and return 0, or 1 when a bar is missed."""
    options = _options(arguments)
    names = options.stream or REPORTED
    jobs = [(name, _run(name, seed, options)) for name in names for seed in range(options.seeds)]
    try:
        with ProcessPoolExecutor(WORKERS) as pool:
            if options.shuffled:
                return _shuffled(pool, names, options)
            outcomes = list(pool.map(_replayed, jobs))
    except MissingData as missing:
        print(missing)
        return 0
    return _finish({name: [one for one in outcomes if one.name == name] for name in names}, options)


def _run(name: str, seed: int, options: argparse.Namespace) -> Run:
    settings: dict[str, object] = {"predictor.scorer": options.scorer}
    base = options.base or (AGENTS_BASE if name.startswith("git_") else None)
    if base is not None:
        settings["predictor.base_weights"] = str(base)
    return Run(seed=seed, limit=options.limit, settings=settings, keep=seed == 0)


def _replayed(job: tuple[str, Run]) -> Outcome:
    name, run = job
    outcome = replay(load(name), run)
    show(outcome)
    return outcome


def _harmed(job: tuple[str, Run]) -> tuple[float, bool]:
    """What chance credit cost, beside the same run without a predictor; and whether it was heard.

    Where the predictor was not heard the two serve the same, but for ids that break ties by chance.
    """
    name, run = job
    heard = replay(load(name), run)
    if heard.first_influence is None:
        return 0.0, False
    alone = replay(load(name), replace(run, settings={"predictor.enabled": False}))
    margins = np.array(alone.ndcg[SERVED]) - np.array(heard.ndcg[SERVED])
    margins[np.array(heard.alpha) >= 1.0] = 0.0
    return float(np.nanmean(margins)), True


# -- what is printed and kept ---------------------------------------------------------------


def _finish(by_name: dict[str, list[Outcome]], options: argparse.Namespace) -> int:
    figures = [Figures.of(outcomes) for outcomes in by_name.values()]
    told = [summary(outcomes) for outcomes in by_name.values()]
    for one in figures:
        print(one.line())
    if options.ablate:
        for outcomes, entry in zip(by_name.values(), told, strict=True):
            found = ablations(outcomes[0].kept)
            entry["ablations"] = found
            for name, (whole, later) in found.items():
                print(f"  {entry['name']:18s} {name:28s} {whole:.3f}  second half {later:.3f}")
    is_whole = options.limit is None and options.scorer == "features"
    misses = [miss for one in figures for miss in missed(one)] if is_whole else []
    for miss in misses:
        print("MISSED", miss)
    if figures and is_whole and not misses:
        print("All bars are met.")
    if options.plots:
        from bench.streams_plot import plot

        for outcomes in by_name.values():
            plot(outcomes[0], options.plots)
    if is_whole or options.json != Path("streams.json"):
        report.write(
            {"streams": told, "missed": misses, "limit": options.limit, "scorer": options.scorer},
            options.json,
        )
    return 1 if misses else 0


def _shuffled(pool: ProcessPoolExecutor, names: Sequence[str], options: argparse.Namespace) -> int:
    told: list[dict[str, object]] = []
    misses: list[str] = []
    for name in names:
        runs = (_run(name, 1_000 + number, options) for number in range(options.shuffled))
        found = list(pool.map(_harmed, [(name, replace(one, shuffled=True)) for one in runs]))
        harm, heard = [one[0] for one in found], sum(one[1] for one in found)
        told.append(
            {
                "name": name,
                "runs": len(harm),
                "mean_harm": round(float(np.mean(harm)), 5),
                "worst_harm": round(max(harm), 5),
                "runs_with_influence": heard,
                "harms": [round(value, 5) for value in harm],
            }
        )
        print(
            f"{name:18s} {len(harm)} shuffled runs: mean harm {np.mean(harm):+.4f}, "
            f"worst {max(harm):+.4f}, influence in {heard}"
        )
        misses += missed_shuffled(name, harm)
    for miss in misses:
        print("MISSED", miss)
    report.write({"shuffled": told, "missed": misses, "limit": options.limit}, options.json)
    return 1 if misses else 0


def show(outcome: Outcome) -> None:
    """Print one stream: its pool, and every ranking with its quarters."""
    pool = np.array(outcome.pool_recall)
    counted = f"{len(pool)} sessions, {int(np.isfinite(pool).sum())} scored"
    lines = [
        f"\n{outcome.name}, seed {outcome.seed}: {counted}, pool recall {np.nanmean(pool):.3f}",
        f"  {'NDCG@10':24s}{'all':>8s}{'later':>8s}   by quarter",
    ]
    for method in outcome.ndcg:
        quarters = " ".join(f"{value:.3f}" for value in outcome.quarters(method))
        later = outcome.mean(method, outcome.second_half)
        lines.append(f"  {method:24s}{outcome.mean(method):8.3f}{later:8.3f}   {quarters}")
    lines.append(
        f"  heard from session {outcome.first_influence}, win rate {outcome.win_rate:.2f}, "
        f"models {max(outcome.version)}, alpha at the end {outcome.alpha[-1]:.2f}"
    )
    print("\n".join(lines), flush=True)


def summary(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Return the figures of a stream as plain values for the JSON report."""
    first, rng = outcomes[0], np.random.default_rng(SEED)
    methods = {}
    for method in first.ndcg:
        found = bootstrap_interval(first.ndcg[method], rng)
        methods[method] = {
            "ndcg@10": round(float(np.mean([one.mean(method) for one in outcomes])), 4),
            "interval": [round(found.low, 4), round(found.high, 4)],
            "quarters": [round(value, 4) for value in first.quarters(method)],
            "ratio_second_half": round(float(np.mean([one.ratio(method) for one in outcomes])), 4),
        }
    ahead = {
        name: paired_bootstrap(first.ndcg[name], first.ndcg[BASELINE], rng)
        for name in (SERVED, PREDICTOR)
    }
    return {
        "name": first.name,
        "seeds": len(outcomes),
        "sessions": len(first.pool_recall),
        "scored": int(np.isfinite(first.pool_recall).sum()),
        "pool_recall": round(float(np.nanmean(first.pool_recall)), 4),
        "first_influence": [one.first_influence for one in outcomes],
        "win_rate": [round(one.win_rate, 4) for one in outcomes],
        "ahead_of_baseline": {
            name: [round(value, 4) for value in (found.mean, found.low, found.high)]
            for name, found in ahead.items()
        },
        "methods": methods,
        "alpha": first.alpha,
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    every = (*STREAMS, *LOCOMO_STREAMS)
    parser.add_argument("--stream", nargs="+", choices=every, help="those with a bar, else these")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how often, with other keys")
    parser.add_argument("--limit", type=int, help="replay only the first sessions")
    parser.add_argument("--shuffled", type=int, default=0, help="so many runs with chance credit")
    parser.add_argument("--scorer", choices=("features", "attention"), default="features")
    parser.add_argument("--base", type=Path, help="base weights for all streams")
    parser.add_argument("--ablate", action="store_true", help="leave kinds of features out")
    parser.add_argument("--plots", type=Path, help="folder for the curves")
    parser.add_argument("--json", type=Path, default=Path("streams.json"), help="result file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
