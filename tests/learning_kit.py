"""What tests of the predictor have in common: many quick sessions, models, and its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from meritory.api.memory import Memory
from meritory.engine.predictor.state import PredictorState, known_state
from meritory.model.checkpoint import Checkpoint, CheckpointFlags
from meritory.model.ranker import baseline_weights
from meritory.rank.features import FEATURE_VERSION, FEATURES

WORDS = (
    *("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet"),
    *("kilo", "lima", "mike", "november", "oscar", "papa", "quebec", "romeo", "sierra", "tango"),
)


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def go(self, **span: float) -> None:
        """Lets time pass."""
        self.now += timedelta(**span)


def noted(memory: Memory, **fields: Any) -> list[str]:
    """Stores a note for each word and returns their ids."""
    items = [
        {
            "content": f"The {word} service has port {4000 + n}; team {WORDS[-n - 1]} runs it",
            "on_similar": "keep",
            **fields,
        }
        for n, word in enumerate(WORDS)
    ]
    made = [result.memory for result in memory.remember_many(items)]
    return [record.id for record in made if record is not None]


def lived(
    memory: Memory, clock: Clock, ids: list[str], count: int, project: str | None = None
) -> list[str]:
    """Sessions that a program knows the outcome of, some hours apart; returns their keys."""
    keys = []
    for n in range(count):
        clock.go(hours=5)
        key = f"{project or 'run'}-{clock.now:%d-%H}-{n}"
        context = f"fix the {WORDS[n % 7]} service for {WORDS[n * 3 % 20]}"
        session = memory.session(key, project, context)
        session.end(used={ids[n % 3]: 1.0, ids[n * 3 % len(ids)]: 0.5})
        memory.drain()
        keys.append(key)
    return keys


def lost(memory: Memory, version: int) -> None:
    """Takes a model off the shelf."""
    assert memory.services.shelves is not None
    memory.services.shelves.of(memory.scope.user).drop(version)


def damaged(memory: Memory, version: int, change: Callable[[bytes], bytes]) -> None:
    """Changes what a model is kept as, in its file or in its row."""
    assert memory.services.shelves is not None
    user = memory.scope.user
    path = memory.services.shelves.of(user).path_of(version)
    content = change(path.read_bytes())
    rows = memory.services.store.models
    if rows is None:
        path.write_bytes(content)
    else:
        rows.put(user, version, content)


def shelved(memory: Memory, version: int, weight: float = 0.5, session_count: int = 12) -> None:
    """Puts a sound model on the shelf, as a training would."""
    weights = baseline_weights()
    weights[FEATURES.index("cosine")] = weight
    shelves = memory.services.shelves
    assert shelves is not None
    shelves.of(memory.scope.user).put(
        Checkpoint(
            kind="features",
            params={"weights": weights, "prior": np.zeros_like(weights)},
            model_version=version,
            embedder="",
            features=FEATURES,
            feature_version=FEATURE_VERSION,
            flags=CheckpointFlags.FINE_TUNED,
            trained_at=memory.services.world.now(),
            session_count=session_count,
        )
    )


def state(memory: Memory) -> PredictorState:
    """The predictor of the memory's user, as it is kept."""
    return known_state(memory.services, memory.scope.user)


def change(memory: Memory, **changes: Any) -> None:
    """Changes the predictor's state; `standing` takes what is to change in it."""
    before = state(memory)
    standing = replace(before.standing, **changes.pop("standing", {}))
    after = replace(before, standing=standing, **changes).encoded()
    user = memory.scope.user
    memory.services.store.write(user, lambda t: t.set_predictor_state(user, after))
