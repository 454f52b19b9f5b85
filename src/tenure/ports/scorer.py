"""The learned ranking's place in the pipe: what scores candidates, and a stand-in for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tenure.world import World

_UNIT_BITS = 53


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """The candidates of one session with their features, exactly as they are recorded."""

    session_key: str
    memory_ids: tuple[str, ...]
    features: NDArray[np.float64]
    feature_version: int


class Scorer(Protocol):
    """Something that scores candidates; the higher, the more useful it expects them to be."""

    @property
    def name(self) -> str:
        """The model's name and version, kept with what it scored."""

    def score(self, request: ScoreRequest) -> NDArray[np.float64]:
        """One score per candidate; PortError or PortTimeout when it cannot say."""


class RandomScorer:
    """A stand-in that knows nothing: the pipe is proved with it before there is a model."""

    name = "random"

    def __init__(self, world: World) -> None:
        self._world = world

    def score(self, request: ScoreRequest) -> NDArray[np.float64]:
        """One random score per candidate."""
        drawn = [self._world.random_bits(_UNIT_BITS) for _ in request.memory_ids]
        return np.array(drawn, np.float64) / 2.0**_UNIT_BITS
