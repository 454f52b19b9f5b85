"""Load a checkpoint in a process of its own and score with it: `python -m meritory.model.fresh`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from meritory.domain.errors import MeritoryError
from meritory.model.base import RankingQuery
from meritory.model.checkpoint import read, restored
from meritory.rank.features import FEATURES

_CANDIDATES = 8


def main(path: str) -> int:
    """0 when the model loads and gives different, finite scores to different candidates."""
    try:
        model = restored(read(Path(path)))
    except MeritoryError:
        return 1
    drawn = np.random.default_rng(1).standard_normal((_CANDIDATES, len(FEATURES)))
    scores = model.score(RankingQuery(features=drawn))
    return 0 if np.isfinite(scores).all() and np.ptp(scores) > 0.0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
