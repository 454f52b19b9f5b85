"""Scorers of candidates, and the folders of their models."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import BadCheckpoint, PortError
from meritory.domain.session import ModelRows
from meritory.domain.world import World
from meritory.model import checkpoint, ranker
from meritory.model.base import Model, RankingQuery, Rows, words_of
from meritory.model.checkpoint import ModelFolder, SharedModelFolder
from meritory.rank.features import FEATURE_VERSION, FEATURES

# Returns the texts of a user's memories by id; deleted ones are missing.
Texts = Callable[[str, Sequence[str]], Mapping[str, str]]
BASE_VERSION = 0
_UNIT_BITS = 53
_USER_CHARS = 200


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """The candidates of one session with their features, exactly as they are recorded."""

    session_key: str
    memory_ids: tuple[str, ...]
    features: NDArray[np.float64]
    feature_version: int
    user: str = ""
    # The version of the model.
    version: int = BASE_VERSION
    embedder: str | None = None
    context: NDArray[np.float32] | None = None
    context_text: str = ""
    project_slot: int = 0
    # A row per candidate, zeros where a memory has no vector; only for a scorer in this process.
    vectors: NDArray[np.float32] | None = field(default=None, repr=False)


class Scorer(Protocol):
    """Scores candidates; a higher score means more useful."""

    @property
    def name(self) -> str:
        """Its kind, stored with its scores."""

    def score(self, request: ScoreRequest) -> NDArray[np.float64]:
        """Return one score per candidate; PortError or PortTimeout on failure."""

    def warm(self, wait_s: float = 0.0) -> None:
        """Get ready, and wait at most this long."""

    def close(self) -> None:
        """Release resources; safe to call twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerFacts:
    """The state of a scorer's process; a scorer in this process is always alive and ready."""

    is_alive: bool = True
    # It has answered its first request.
    is_ready: bool = True
    pid: int | None = None
    uptime_s: float | None = None
    crash_count: int = 0
    # It crashed too often and does not restart for a while.
    is_disabled: bool = False
    scores_processed: int = 0
    timeout_count: int = 0
    last_latency_ms: float | None = None
    # Of the last crash.
    last_error: str | None = None

    @property
    def is_dead(self) -> bool:
        """Whether it crashed and did not restart; one that never started is not dead."""
        return self.is_disabled or (not self.is_alive and self.crash_count > 0)


class RandomScorer:
    """Random scores, to test the pipeline without a model."""

    name = "random"

    def __init__(self, world: World) -> None:
        self._world = world

    def score(self, request: ScoreRequest) -> NDArray[np.float64]:
        """Return one random score per candidate."""
        drawn = [self._world.random_bits(_UNIT_BITS) for _ in request.memory_ids]
        return np.array(drawn, np.float64) / 2.0**_UNIT_BITS

    def warm(self, wait_s: float = 0.0) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class LocalScorer:
    """Scores in this process; models are loaded on first use."""

    reads_models = True

    def __init__(self, shelves: ModelFolders, name: str, texts: Texts | None = None) -> None:
        self.name = name
        self._shelves = shelves
        self._texts = texts
        self._lock = Lock()
        self._loaded: dict[str, tuple[int, Model]] = {}

    def score(self, request: ScoreRequest) -> NDArray[np.float64]:
        """Return one score per candidate, by the requested version."""
        model = self._model(request)
        if model.kind == ranker.KIND:
            return model.score(RankingQuery(features=request.features))
        return model.score(
            RankingQuery(
                features=request.features,
                context=request.context,
                vectors=request.vectors,
                context_words=words_of(request.context_text),
                words=self._words(request),
                project_slot=request.project_slot,
            )
        )

    def _words(self, request: ScoreRequest) -> tuple[Rows, ...]:
        """Return the words of the candidates without a vector; the others need none."""
        vectors, ids = request.vectors, request.memory_ids
        lacks = [True] * len(ids) if vectors is None else [not row.any() for row in vectors]
        wanted = [memory_id for memory_id, lack in zip(ids, lacks, strict=True) if lack]
        texts = self._texts(request.user, wanted) if self._texts and wanted else {}
        return tuple(words_of(texts.get(memory_id, "")) for memory_id in ids)

    def _model(self, request: ScoreRequest) -> Model:
        with self._lock:
            loaded = self._loaded.get(request.user)
            if loaded is None or loaded[0] != request.version:
                loaded = (request.version, self._shelves.model(request))
                self._loaded[request.user] = loaded
            return loaded[1]

    def warm(self, wait_s: float = 0.0) -> None:
        """Do nothing: models are small and read on first use."""

    def close(self) -> None:
        """Release the models."""
        with self._lock:
            self._loaded.clear()


@dataclass(frozen=True, slots=True)
class Soundness:
    """Whether a model file is usable: the fault if not, its kind and its embedder."""

    fault: str | None
    kind: str = ""
    embedder: str = ""
    # The file when it was examined: inode, time and size.
    path: Path = Path()
    mark: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """The model files of a store's users, and the base weights."""

    folder: Path
    base: Path
    # The store of the models, if the folder only caches copies.
    rows: ModelRows | None = field(default=None, compare=False, repr=False)
    # The models that were examined, by user and version.
    examined: dict[tuple[str, int], Soundness] = field(
        default_factory=dict, compare=False, repr=False
    )

    def of(self, user: str) -> ModelFolder:
        """Return the model folder of one user; names are hex-encoded to be safe file names."""
        name = user.encode().hex()
        if len(name) > _USER_CHARS:
            name = hashlib.sha256(user.encode()).hexdigest()
        if self.rows is None:
            return ModelFolder(self.folder / name)
        return SharedModelFolder(self.folder / name, user, self.rows)

    def checkpoint(self, user: str, version: int) -> checkpoint.Checkpoint:
        """Return a model with its metadata."""
        if version == BASE_VERSION:
            return checkpoint.read(self.base)
        return self.of(user).get(version)

    def path_of(self, user: str, version: int) -> Path:
        """Return the file of a model, whether or not it exists."""
        return self.base if version == BASE_VERSION else self.of(user).path_of(version)

    def examine(self, user: str, version: int, mark: tuple[int, ...]) -> Soundness:
        """Read a model and return whether it is intact."""
        fault, kind, embedder = None, "", ""
        try:
            stored = self.checkpoint(user, version)
            fault = checkpoint.fits(stored, stored.embedder, FEATURES, FEATURE_VERSION)
            checkpoint.restored(stored)
            kind, embedder = stored.kind, stored.embedder
        except BadCheckpoint as error:
            fault = error.message
        sound = Soundness(fault, kind, embedder, self.path_of(user, version), mark)
        self.examined[user, version] = sound
        return sound

    def model(self, request: ScoreRequest) -> Model:
        """Return the requested model; PortError if it does not fit the request."""
        if request.feature_version != FEATURE_VERSION:
            raise PortError("the features are of another version than this installation computes")
        try:
            kept = self.checkpoint(request.user, request.version)
            reason = checkpoint.fits(kept, request.embedder or "", FEATURES, FEATURE_VERSION)
            if reason is not None:
                raise BadCheckpoint(f"model {request.version} is not usable: {reason}")
            return checkpoint.restored(kept)
        except BadCheckpoint as error:
            raise PortError(error.message, hint=error.hint) from error


def base_weights(named: str = "") -> Path:
    """Return the path of the base weights: the given file, else the packaged one."""
    if named:
        return Path(named).expanduser()
    return Path(__file__).parent.parent / "data" / "base.sgpt"
