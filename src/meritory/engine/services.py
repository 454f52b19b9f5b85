"""The parts of an open engine that its verbs use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from meritory.domain.policy import Policy
from meritory.domain.world import World
from meritory.engine.memories.embedding import Embedding
from meritory.engine.observe.observer import Observer
from meritory.ports.extractor import Extractor, RulesExtractor
from meritory.ports.judge import Judge, RulesJudge
from meritory.ports.scorer import ModelFolders, Scorer
from meritory.ports.trainer_process import Trainer
from meritory.store.contract.store import Store

if TYPE_CHECKING:
    from meritory.engine.memories.recall import Counter


@dataclass(frozen=True, slots=True)
class Services:
    """One open engine."""

    store: Store
    embedding: Embedding
    world: World
    policy: Policy
    actor: str
    user: str
    observer: Observer
    # Whether a person acts through these services, decided by the surface. Others only propose.
    is_person: bool = False
    judge: Judge | None = field(default_factory=RulesJudge)
    extractor: Extractor | None = field(default_factory=RulesExtractor)
    scorer: Scorer | None = None
    trainer: Trainer | None = None
    # The folders of trained models; None for an engine without models.
    shelves: ModelFolders | None = None
    # Counts retrievals; without one they are not counted.
    counter: Counter | None = None
    # Whether a client has the tools that store memories, by the name of its harness.
    has_tools: Callable[[str], bool] = lambda harness: False
    # The file of figures that the user agreed to; None for an engine without one.
    telemetry_file: Path | None = None

    def invites(self, harness: str | None) -> bool:
        """Return whether an agent is asked at a session's start to store what it learns."""
        wanted = self.policy.session.invite
        return wanted == "on" or (wanted == "auto" and self.has_tools(harness or ""))
