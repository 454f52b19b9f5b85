"""Train the weights that learning starts from: python -m bench.base_weights [--stream NAME ...].

Streams of real sessions are replayed through the library; the weights that explain best what
helped in them are written as a checkpoint. The wheel's are trained on git_datasette_2h, where much
that helped helps again, and on LongMemEval's questions, where nothing does: every other stream is
left to judge them by.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from bench.realmem import DEVELOPED, PREFIX
from bench.streams_data import LOCOMO_STREAMS, QUESTION_STREAM, STREAMS, load
from bench.streams_kept import Kept, lesson
from bench.streams_replay import Run, replay
from meritory.model import checkpoint, ranker
from meritory.rank.features import FEATURE_VERSION, FEATURES

SHIPPED = Path(__file__).parents[1] / "src" / "meritory" / "data" / "base.sgpt"
DEVELOPED_STREAMS = tuple(f"{PREFIX}{person}" for person in DEVELOPED)
SHIPPED_STREAMS = ("git_datasette_2h", QUESTION_STREAM, *DEVELOPED_STREAMS)
# So many sessions of a stream at most, evenly taken, so that no stream speaks for all. Work has two
# voices to the one of questions: with as many each, it would be ranked worse than by the baseline.
SESSIONS_PER_STREAM = 400
QUESTIONS_PER_STREAM = 200
# Held to the baseline far more strongly than a user's own sessions are to this base.
STRENGTH = 300.0
# The files must be the same whenever they are made.
MADE_AT = datetime(2026, 11, 15, tzinfo=UTC)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, fit and write."""
    options = _options(arguments)
    kept = [one for name in options.stream for one in _evenly(name, _sessions(name, options.limit))]
    model, loss = ranker.fitted([lesson(one) for one in kept], ranker.baseline_weights(), STRENGTH)
    # What is learned here is where learning starts for everyone else.
    model = ranker.Ranker.untrained(model.weights)
    checkpoint.write(
        options.out,
        checkpoint.Checkpoint(
            kind=model.kind,
            params=model.params,
            model_version=0,
            embedder="",
            features=FEATURES,
            feature_version=FEATURE_VERSION,
            flags=checkpoint.CheckpointFlags.PRETRAINED,
            trained_at=MADE_AT,
            session_count=len(kept),
        ),
    )
    print(f"{len(kept)} sessions of {', '.join(options.stream)}, loss {loss:.4f}")
    order = np.argsort(-np.abs(model.weights))
    for place in order[: options.show]:
        print(f"  {FEATURES[place]:28s}{model.weights[place]:+.4f}")
    return 0


def _sessions(name: str, limit: int | None) -> list[Kept]:
    outcome = replay(load(name), Run(limit=limit, keep=True, settings={"predictor.enabled": False}))
    return [one for one in outcome.kept if (one.labels > 0.0).any()]


def _evenly(name: str, sessions: list[Kept]) -> list[Kept]:
    limit = QUESTIONS_PER_STREAM if name == QUESTION_STREAM else SESSIONS_PER_STREAM
    places = np.linspace(0, len(sessions) - 1, min(len(sessions), limit))
    return [sessions[place] for place in np.unique(places.astype(int)).tolist()]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.base_weights", description=__doc__)
    parser.add_argument(
        "--stream",
        nargs="+",
        choices=(*STREAMS, QUESTION_STREAM, *LOCOMO_STREAMS, *DEVELOPED_STREAMS),
        default=SHIPPED_STREAMS,
    )
    parser.add_argument("--out", type=Path, default=SHIPPED, help="the file to write")
    parser.add_argument("--limit", type=int, help="replay only the first sessions")
    parser.add_argument("--show", type=int, default=12, help="how many weights to print")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
