"""What every verb is handed: the store, the embedder, the world and the chosen limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from meritory.domain.world import World
from meritory.engine.memories.embedding import Embedding
from meritory.engine.memories.retrieval_counts import Counter
from meritory.engine.observe.observer import Observer
from meritory.ports.extractor import Extractor, RulesExtractor
from meritory.ports.judge import Judge, RulesJudge
from meritory.ports.scorer import ModelFolders, Scorer
from meritory.ports.trainer_process import Trainer
from meritory.rank.candidates import CANDIDATE_POOL_SIZE
from meritory.rank.composite import RELEVANCE_FLOOR, SourceWeights
from meritory.rank.exploration import EXPLORATION_RATE
from meritory.rank.fusion import RRF_K
from meritory.rank.hybrid import HybridWeights
from meritory.rank.influence import Rule
from meritory.rank.labels import LabelWeights
from meritory.rank.packing import BUDGET_TOKENS
from meritory.store.contract.store import Store

PROMPT_BUDGET_TOKENS = 500
START_MEMORY_LIMIT = 15
PROMPT_MEMORY_LIMIT = 5
MIN_TRAINING_SESSIONS = 10
# A fit takes milliseconds, so the default scorer learns after every session.
TRAIN_INTERVAL_SESSIONS = 1
DRIFT_RESET_WINDOW = 10
SCORE_TIMEOUT_MS = 120


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """Choices about what a session is served and asked."""

    pool_size: int = CANDIDATE_POOL_SIZE
    start_tokens: int = BUDGET_TOKENS
    prompt_tokens: int = PROMPT_BUDGET_TOKENS
    start_limit: int = START_MEMORY_LIMIT
    prompt_limit: int = PROMPT_MEMORY_LIMIT
    # Whether the agent is told to store what it learns; it needs the tool for that.
    invite: bool = False
    composite: Literal["living", "seed"] = "living"
    rrf_k: int = RRF_K
    exploration_rate: float = EXPLORATION_RATE
    # Which kind of model is trained, how it earns its influence, and how often it learns.
    scorer: str = "features"
    influence: Rule = "replay"
    train_interval_sessions: int = TRAIN_INTERVAL_SESSIONS
    drift_reset_window: int = DRIFT_RESET_WINDOW
    min_training_sessions: int = MIN_TRAINING_SESSIONS
    score_timeout_ms: int = SCORE_TIMEOUT_MS
    labels: LabelWeights = field(default_factory=LabelWeights)


@dataclass(frozen=True, slots=True)
class JanitorPolicy:
    """After how many active months without being shown a memory is demoted, and what then."""

    enabled: bool = True
    user_stated_months: int = 12
    episode_summary_months: int = 6
    assistant_derived_months: int = 3
    cull: bool = False


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """For how many days what was recorded beside memories is kept; 0 is for ever."""

    transcript_days: int = 90
    event_days: int = 90
    action_days: int = 90
    refusal_days: int = 365
    feedback_days: int = 0


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
    session: SessionPolicy = field(default_factory=SessionPolicy)
    # Whether a finished session is kept as a memory as well.
    summaries: bool = False
    janitor: JanitorPolicy = field(default_factory=JanitorPolicy)
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)


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
    judge: Judge | None = field(default_factory=RulesJudge)
    extractor: Extractor | None = field(default_factory=RulesExtractor)
    scorer: Scorer | None = None
    trainer: Trainer | None = None
    # Where the trained models are; None when there is no place for any.
    shelves: ModelFolders | None = None
    # Counts what searches by others found; without one nothing is counted.
    counter: Counter | None = None
    # Where numbers are kept if the user agreed; None when there is no place for any.
    telemetry_file: Path | None = None
