"""The learned ranking's place in the pipe: what scores candidates, here or in its own process."""

from __future__ import annotations

import hashlib
import os
import zlib
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
from meritory.model.base import Model, RankingQuery, Rows
from meritory.model.model_files import ModelFolder, SharedModelFolder
from meritory.model.tokens import words_of
from meritory.rank.features import FEATURE_VERSION, FEATURES

# What memories of a user say, by id; one that is gone is missing from the answer.
Texts = Callable[[str, Sequence[str]], Mapping[str, str]]
BASE_VERSION = 0
_UNIT_BITS = 53
_USER_CHARS = 200
_SLOTS = 32


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """The candidates of one session with their features, exactly as they are recorded."""

    session_key: str
    memory_ids: tuple[str, ...]
    features: NDArray[np.float64]
    feature_version: int
    user: str = ""
    # The model that is to score.
    version: int = BASE_VERSION
    embedder: str | None = None
    context: NDArray[np.float32] | None = None
    context_text: str = ""
    project: str | None = None
    # A row per candidate, zeros where a memory has no vector; only for a scorer in this process.
    vectors: NDArray[np.float32] | None = field(default=None, repr=False)


class Scorer(Protocol):
    """Something that scores candidates; the higher, the more useful it expects them to be."""

    @property
    def name(self) -> str:
        """What kind it is, kept with what it scored."""

    def score(self, request: ScoreRequest) -> NDArray[np.float64]:
        """One score per candidate; PortError or PortTimeout when it cannot say."""

    def warm(self, wait_s: float = 0.0) -> None:
        """Gets ready; nobody waits for it longer than that."""

    def close(self) -> None:
        """Ends what it holds open; safe to call twice."""


class RandomScorer:
    """A stand-in that knows nothing: the pipe is proved with it without a model."""

    name = "random"

    def __init__(self, world: World) -> None:
        self._world = world

    def score(self, request: ScoreRequest) -> NDArray[np.float64]:
        """One random score per candidate."""
        drawn = [self._world.random_bits(_UNIT_BITS) for _ in request.memory_ids]
        return np.array(drawn, np.float64) / 2.0**_UNIT_BITS

    def warm(self, wait_s: float = 0.0) -> None:
        """There is nothing to get ready."""

    def close(self) -> None:
        """There is nothing to end."""


class LocalScorer:
    """The models of a store, loaded into this process when they are first asked for."""

    reads_models = True

    def __init__(self, shelves: ModelFolders, name: str, texts: Texts | None = None) -> None:
        self.name = name
        self._shelves = shelves
        self._texts = texts
        self._lock = Lock()
        self._loaded: dict[str, tuple[int, Model]] = {}

    def score(self, request: ScoreRequest) -> NDArray[np.float64]:
        """One score per candidate, by the version that is asked for."""
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
                project_slot=project_slot(request.project),
            )
        )

    def _words(self, request: ScoreRequest) -> tuple[Rows, ...]:
        """The words of the candidates that have no vector; of the others none are read."""
        vectors, ids = request.vectors, request.memory_ids
        lacks = [True] * len(ids) if vectors is None else [not row.any() for row in vectors]
        wanted = [one for one, lack in zip(ids, lacks, strict=True) if lack]
        known = self._texts(request.user, wanted) if self._texts and wanted else {}
        return tuple(words_of(known.get(one, "")) for one in ids)

    def _model(self, request: ScoreRequest) -> Model:
        with self._lock:
            loaded = self._loaded.get(request.user)
            if loaded is None or loaded[0] != request.version:
                loaded = (request.version, self._shelves.model(request))
                self._loaded[request.user] = loaded
            return loaded[1]

    def warm(self, wait_s: float = 0.0) -> None:
        """A model of some numbers is read when it is asked for."""

    def close(self) -> None:
        """Lets the models go."""
        with self._lock:
            self._loaded.clear()


@dataclass(frozen=True, slots=True)
class Soundness:
    """Whether a model's file can be used here, whatever the vectors; its kind, and whose it reads.

    `fault` says why not.
    """

    fault: str | None
    kind: str = ""
    embedder: str = ""

    def fault_with(self, embedder: str) -> str | None:
        """Why it cannot serve beside vectors of an embedder; None when it can."""
        if self.fault is None and self.kind != "features" and self.embedder != embedder:
            return f"it was trained on vectors of {self.embedder!r}, not of {embedder!r}"
        return self.fault


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """Where the models of a store's users are, and the base they start from."""

    folder: Path
    base: Path
    # The store that has the models, if the folder only has copies of them.
    rows: ModelRows | None = field(default=None, compare=False, repr=False)
    # Files that were read once are not read again before they change.
    _examined: dict[Path, tuple[tuple[int, ...], Soundness]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def of(self, user: str) -> ModelFolder:
        """The shelf of one user; names are no file names, so they are written as numbers."""
        name = user.encode().hex()
        if len(name) > _USER_CHARS:
            name = hashlib.sha256(user.encode()).hexdigest()
        if self.rows is None:
            return ModelFolder(self.folder / name)
        return SharedModelFolder(self.folder / name, user, self.rows)

    def checkpoint(self, user: str, version: int) -> checkpoint.Checkpoint:
        """A model with what must be known to use it."""
        if version == BASE_VERSION:
            return checkpoint.read(self.base)
        return self.of(user).get(version)

    def soundness(self, user: str, version: int) -> Soundness:
        """Whether a model is there and whole; a file that did not change is not read again."""
        path = self.base if version == BASE_VERSION else self.of(user).path_of(version)
        try:
            about = os.stat(path)
            mark: tuple[int, ...] = (about.st_ino, about.st_mtime_ns, about.st_size)
        except OSError as error:
            return Soundness(f"{path.name}: {str(error.strerror).lower()}")
        known = self._examined.get(path)
        if known is None or known[0] != mark:
            known = self._examined[path] = (mark, self._examine(user, version))
        return known[1]

    def _examine(self, user: str, version: int) -> Soundness:
        try:
            kept = self.checkpoint(user, version)
            fault = checkpoint.fits(kept, kept.embedder, FEATURES, FEATURE_VERSION)
            checkpoint.restored(kept)
        except BadCheckpoint as error:
            return Soundness(error.message)
        return Soundness(fault, kept.kind, kept.embedder)

    def model(self, request: ScoreRequest) -> Model:
        """The model a request asks for, if it goes with what the request holds."""
        if request.feature_version != FEATURE_VERSION:
            raise PortError("the features are of another version than this installation computes")
        try:
            kept = self.checkpoint(request.user, request.version)
            reason = checkpoint.fits(kept, request.embedder or "", FEATURES, FEATURE_VERSION)
            if reason is not None:
                raise BadCheckpoint(f"model {request.version} is of no use here: {reason}")
            return checkpoint.restored(kept)
        except BadCheckpoint as error:
            raise PortError(error.message, hint=error.hint) from error


def base_weights(named: str = "") -> Path:
    """What models start from: the file that is named, else the one that comes with the package."""
    if named:
        return Path(named).expanduser()
    return Path(__file__).parent.parent / "data" / "base.sgpt"


def project_slot(project: str | None) -> int:
    """A small number of a project, the same on every machine; 0 for none."""
    return 0 if project is None else 1 + zlib.crc32(project.encode()) % (_SLOTS - 1)
