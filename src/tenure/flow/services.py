"""What every verb is handed: the store, the embedder, the world and the chosen limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tenure.flow.embedding import Embedding
from tenure.rank.hybrid import HybridWeights
from tenure.rank.scores import RELEVANCE_FLOOR, SourceWeights
from tenure.store.base import Store
from tenure.world import World


@dataclass(frozen=True, slots=True)
class Policy:
    """Choices a user may make; surfaces read the settings and fill this in."""

    gate_enabled: bool = True
    # None: the value calibrated for the embedder in use.
    gate_threshold: float | None = None
    secrets: Literal["refuse", "redact"] = "refuse"
    relevance_floor: float = RELEVANCE_FLOOR
    hybrid: HybridWeights = field(default_factory=HybridWeights)
    sources: SourceWeights = field(default_factory=SourceWeights)


@dataclass(frozen=True, slots=True)
class Services:
    """One open engine."""

    store: Store
    embedding: Embedding
    world: World
    policy: Policy
    actor: str
    user: str
