"""The curves of a stream as a picture: how well each ranking does, and how much is left to it."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from bench.streams_outcome import Outcome
from bench.streams_rows import BASELINE, PREDICTOR, SERVED

WINDOW = 25
_COLOURS = {BASELINE: "#7f7f7f", PREDICTOR: "#1f77b4", SERVED: "#2ca02c"}


def plot(outcome: Outcome, folder: Path) -> Path:
    """Writes `streams-<name>.png`: running NDCG@10 above, alpha below."""
    folder.mkdir(parents=True, exist_ok=True)
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(8, 5), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    for method, colour in _COLOURS.items():
        above.plot(_running(outcome.ndcg[method]), color=colour, label=method, linewidth=1.6)
    above.set_ylabel(f"NDCG@10, mean of {WINDOW} sessions")
    above.set_title(f"{outcome.name}: {len(outcome.pool_recall)} sessions, learning as it goes")
    above.legend(loc="lower right")
    below.step(range(len(outcome.alpha)), outcome.alpha, where="post", color="#d62728")
    below.set_ylabel("alpha")
    below.set_ylim(-0.03, 1.05)
    below.set_xlabel("session")
    for axis in (above, below):
        axis.grid(alpha=0.25)
    path = folder / f"streams-{outcome.name}.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _running(values: list[float]) -> list[float]:
    """The mean of the sessions up to here, at most so many of them."""
    known = np.array(values)
    return [float(np.nanmean(known[max(0, at - WINDOW + 1) : at + 1])) for at in range(len(known))]
