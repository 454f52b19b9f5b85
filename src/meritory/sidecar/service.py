"""The service of the predictor's process: its models and vectors, and the methods to call."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import BadCheckpoint, Conflict, InputError
from meritory.domain.place import Place
from meritory.domain.world import World
from meritory.model import checkpoint, ranker
from meritory.model.base import Model, SparseRows, TrainingExample
from meritory.model.checkpoint import Checkpoint, CheckpointFlags
from meritory.model.fit import Adam, FitPlan
from meritory.ports.scorer import BASE_VERSION, ModelFolders
from meritory.ports.trainer_process import SpawnedTrainer, TrainOrder
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.sidecar.requests import (
    INTERNAL_ERROR,
    Count,
    Desk,
    Method,
    RequestCandidates,
    RpcFault,
    ScoreOutcome,
    read_params,
)

if TYPE_CHECKING:
    from meritory.store.sql.predictor import TaughtReader

MODEL_LIMIT = 8
VECTOR_LIMIT_BYTES = 24 << 20
# Vectors change with what a memory says; after this long they are read again.
VECTOR_AGE_MS = 60_000.0
SLOW = frozenset({"train_from_store", "train_from_db"})
DRAFT_LIMIT = 4
_CANARY_NAMES = ("ndcg", "ndcg_delta", "score_variance", "topk_churn")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is ready to score."""

    kept: Checkpoint
    model: Model

    @property
    def is_trained(self) -> bool:
        """Whether anybody ever trained it; the base counts."""
        return bool(self.kept.flags)

    @property
    def reads_content(self) -> bool:
        """Whether it looks at vectors and words beside the features."""
        return self.model.kind != ranker.KIND


class Models:
    """Loads models when they are asked for and keeps the last few."""

    def __init__(self, shelves: ModelFolders, own: Path | None) -> None:
        self._shelves = shelves
        self._own = own
        # Called by scoring and by orders of a training.
        self._lock = Lock()
        self._kept: OrderedDict[tuple[Path, int, int], Loaded] = OrderedDict()

    def get(self, user: str, version: int | None) -> Loaded:
        """The model of a version; without one the latest that is of use."""
        if version is not None:
            return self._read(self._shelves.path_of(user, version), version)
        folder = self._shelves.of(user)
        own = [] if self._own is None else [self._own]
        for path in (*own, *map(folder.path_of, folder.versions()), self._shelves.base):
            try:
                return self._read(path, None)
            except BadCheckpoint:
                continue
        model = ranker.Ranker.untrained()
        kept = Checkpoint(
            kind=model.kind,
            params=model.params,
            model_version=BASE_VERSION,
            embedder="",
            features=FEATURES,
            feature_version=FEATURE_VERSION,
            flags=CheckpointFlags(0),
            trained_at=datetime.fromtimestamp(0, UTC),
        )
        return Loaded(kept, model)

    def _read(self, path: Path, version: int | None) -> Loaded:
        try:
            found = os.stat(path)
        except OSError as error:
            raise BadCheckpoint(
                f"there is no model {path.name}: {error.strerror}", hint="train it"
            ) from error
        # Another file under the same name is another model.
        key = (path, found.st_ino, found.st_mtime_ns)
        with self._lock:
            loaded = self._kept.get(key)
            if loaded is None:
                stored = checkpoint.read(path)
                reason = checkpoint.fits(stored, stored.embedder, FEATURES, FEATURE_VERSION)
                if reason is not None:
                    raise BadCheckpoint(f"model {stored.model_version} is not usable: {reason}")
                # The other kind, which few choose, is loaded only if it is needed.
                known = {ranker.KIND: lambda one: ranker.Ranker(one.params)}
                own = known if stored.kind in known else None
                loaded = self._kept[key] = Loaded(stored, checkpoint.restored(stored, own))
                while len(self._kept) > MODEL_LIMIT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
        if version not in (None, BASE_VERSION, loaded.kept.model_version):
            raise BadCheckpoint(
                f"{path.name} holds version {loaded.kept.model_version}",
                hint="give it back its own name",
            )
        return loaded


class LateModels:
    """Models in a store that is opened when they are first asked for."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library.opened().models, name)


class Library:
    """Vectors and texts of memories out of the store, which is opened when it is first needed."""

    def __init__(self, store: Place, world: World) -> None:
        self.store = store
        self._world = world
        self._reader: TaughtReader | None = None
        self._opening = Lock()
        self._kept: OrderedDict[tuple[str, str, str], NDArray[np.float32]] = OrderedDict()
        self._held_bytes = 0
        self._begun_ms = 0.0

    @property
    def models(self) -> LateModels | None:
        """The models that lie in the store itself; None when they are files."""
        return None if self.store.file is not None else LateModels(self)

    @property
    def is_open(self) -> bool:
        """Whether anybody needed the store yet."""
        return self._reader is not None

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """The vectors of memories; one without is missing from the answer."""
        if self._world.monotonic_ms() - self._begun_ms > VECTOR_AGE_MS:
            if self.store.file is not None:
                # The file as well: another one may have been put in its place.
                self.close()
            self._kept.clear()
            self._held_bytes = 0
            self._begun_ms = self._world.monotonic_ms()
        known = {}
        for one in memory_ids:
            vector = self._kept.get((user, embedder, one))
            if vector is not None:
                known[one] = vector
                self._kept.move_to_end((user, embedder, one))
        missing = [one for one in memory_ids if one not in known]
        if missing:
            found = self.opened().vectors(user, embedder, missing)
            for one, vector in found.items():
                self._kept[user, embedder, one] = vector
                self._held_bytes += vector.nbytes
            while self._held_bytes > VECTOR_LIMIT_BYTES:
                self._held_bytes -= self._kept.popitem(last=False)[1].nbytes
            known |= found
        return known

    def texts(self, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """What memories say; one that is gone is missing from the answer."""
        return self.opened().texts(user, memory_ids)

    def opened(self) -> TaughtReader:
        """Return the reader of the store; the first call opens it."""
        # Scoring and an order of a training may run at the same time.
        with self._opening:
            if self._reader is None:
                # Here, because the default scorer never needs it on a file.
                from meritory.store import open_reader

                self._reader = open_reader(self.store)
            return self._reader

    def close(self) -> None:
        """Closes the store."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


# -- the methods ----------------------------------------------------------------------------------


class Whose(msgspec.Struct, frozen=True):
    """A model of a user."""

    user: str = ""
    version: Count | None = None


class Order(msgspec.Struct, frozen=True):
    """What is to be trained; what is left out follows from the models there are."""

    user: str = ""
    scorer: str | None = None
    version: Count | None = None
    incumbent: Count | None = None
    best: Count | None = None
    embedder: str | None = None
    reason: str = "asked"
    after_reset: bool = False


class ModelDraft:
    """A copy of a model that learns step by step, and is not kept before it is saved."""

    def __init__(self, begun: Loaded) -> None:
        self._adam = Adam(begun.model.params, FitPlan())
        self.loaded = begun
        self.steps = 0

    def learn(self, lesson: TrainingExample) -> float:
        """One step; the loss before it."""
        loss, grads = self.loaded.model.loss_and_grads(lesson)
        values = (one.values if isinstance(one, SparseRows) else one for one in grads.values())
        if not np.isfinite(loss) or not all(np.isfinite(one).all() for one in values):
            raise InputError("nothing can be learned from this: the loss is not finite")
        self._adam.step(grads, 1)
        self.steps += 1
        model = self.loaded.model.with_params(self._adam.params)
        self.loaded = Loaded(replace(self.loaded.kept, flags=CheckpointFlags.FINE_TUNED), model)
        return loss


class Service:
    """The methods that can be called."""

    def __init__(
        self, library: Library, shelves: ModelFolders, own: Path | None, world: World
    ) -> None:
        """Serve the models in `shelves`; without a version the one in the file `own` scores."""
        self._library, self._shelves, self._own, self._world = library, shelves, own, world
        self._models = Models(shelves, own)
        self._trainer = SpawnedTrainer(library.store, shelves)
        self._drafts: OrderedDict[str, ModelDraft] = OrderedDict()
        self._begun_ms = world.monotonic_ms()
        self._score_count = 0
        self._training_count = 0

    def methods(self) -> dict[str, Method]:
        """All of them by name."""
        return {
            "score": self._score,
            "train": self._train,
            "train_from_store": self._train_from_store,
            "train_from_db": self._train_from_store,
            "status": self._status,
            "save_checkpoint": self._save_checkpoint,
            "shutdown": lambda _: {},
        }

    def close(self) -> None:
        """Ends a training that runs and closes the store."""
        self._trainer.close()
        self._library.close()

    def _score(self, raw: msgspec.Raw) -> dict[str, Any]:
        asked = read_params(raw, RequestCandidates)
        loaded = self._model(asked.user, asked.version)
        desk = self._desk(asked, loaded)
        scores = loaded.model.score(desk.query(reads_content=loaded.reads_content))
        if not np.isfinite(scores).all():
            raise RpcFault(INTERNAL_ERROR, "the model returned a score that is not finite")
        self._score_count += 1
        pairs = zip(asked.ids, scores.tolist(), strict=True)
        return {
            "scores": [{"id": one, "score": score} for one, score in pairs],
            "model_ready": loaded.is_trained,
            "model_version": self._version(loaded, asked.version),
        }

    def _model(self, user: str, version: int | None) -> Loaded:
        draft = self._drafts.get(user)
        if version is None and draft is not None:
            return draft.loaded
        return self._models.get(user, version)

    def _desk(self, asked: RequestCandidates, loaded: Loaded) -> Desk:
        embedder = loaded.kept.embedder if asked.embedder is None else asked.embedder
        reason = checkpoint.fits(loaded.kept, embedder, FEATURES, FEATURE_VERSION)
        if reason is not None:
            raise BadCheckpoint(f"the model is not usable: {reason}")
        return Desk(asked, embedder, self._library)

    def _version(self, loaded: Loaded, asked: int | None) -> int:
        # The base is number 0, whatever number it was made under.
        return loaded.kept.model_version if asked is None else asked

    def _train(self, raw: msgspec.Raw) -> dict[str, Any]:
        asked = read_params(raw, ScoreOutcome)
        if len(asked.labels) != len(asked.ids):
            raise InputError("give one label per candidate")
        draft = self._drafts.get(asked.user) or ModelDraft(
            self._models.get(asked.user, asked.version)
        )
        query = self._desk(asked, draft.loaded).query(reads_content=draft.loaded.reads_content)
        labels = np.array(asked.labels, np.float64)
        lesson = TrainingExample(
            query=query,
            labels=labels,
            weights=np.ones(len(labels)),
            weight=asked.continuity_score,
        )
        loss = draft.learn(lesson)
        self._drafts[asked.user] = draft
        self._drafts.move_to_end(asked.user)
        while len(self._drafts) > DRAFT_LIMIT:
            self._drafts.popitem(last=False)
        return {"loss": loss, "step": draft.steps}

    def _train_from_store(self, raw: msgspec.Raw) -> dict[str, Any]:
        asked = read_params(raw, Order)
        loaded = self._models.get(asked.user, asked.incumbent)
        latest = max(self._shelves.of(asked.user).versions(), default=BASE_VERSION)
        incumbent = latest if asked.incumbent is None else asked.incumbent
        order = TrainOrder(
            user=asked.user,
            scorer=asked.scorer or loaded.kept.kind,
            version=latest + 1 if asked.version is None else asked.version,
            incumbent=incumbent,
            best=incumbent if asked.best is None else asked.best,
            reason=asked.reason,
            at=self._world.now(),
            embedder=asked.embedder or loaded.kept.embedder or None,
            after_reset=asked.after_reset,
        )
        if order.version == BASE_VERSION:
            raise InputError("version 0 is the base, which is never trained")
        report = self._trainer.train(order)
        self._training_count += 1
        return {
            "loss": report.loss,
            "step": self._training_count,
            "samples_used": report.sample_count,
            "samples_skipped": report.skipped_count,
            "duration_ms": report.duration_ms,
            "canary": {
                **{name: getattr(report, f"canary_{name}") for name in _CANARY_NAMES},
                "gates": report.gates,
            },
            "checkpoint_saved": report.is_accepted,
            "model_version": report.version,
        }

    def _status(self, raw: msgspec.Raw) -> dict[str, Any]:
        asked = read_params(raw, Whose)
        draft = self._drafts.get(asked.user)
        steps = 0 if draft is None else draft.steps
        loaded = self._model(asked.user, asked.version)
        kept = loaded.kept
        return {
            "trained": loaded.is_trained,
            "training_pairs": kept.session_count + steps,
            "model_version": self._version(loaded, asked.version),
            "last_trained": kept.trained_at.isoformat() if loaded.is_trained else None,
            "scorer": kept.kind,
            "parameter_count": sum(value.size for value in kept.params.values()),
            "unsaved_steps": steps,
            "is_training": self._trainer.is_training,
            "scores_processed": self._score_count,
            "trainings_completed": self._training_count,
            "has_store_open": self._library.is_open,
            "uptime_s": (self._world.monotonic_ms() - self._begun_ms) / 1e3,
            "pid": os.getpid(),
        }

    def _save_checkpoint(self, raw: msgspec.Raw) -> dict[str, Any]:
        asked = read_params(raw, Whose)
        target = self._own
        if target is None:
            raise Conflict("there is no file to save to: start the process with --checkpoint FILE")
        draft = self._drafts.get(asked.user)
        if draft is None:
            raise Conflict("there is nothing to save", hint="call train before")
        versions = self._shelves.of(asked.user).versions()
        version = max([*versions, draft.loaded.kept.model_version]) + 1
        kept = replace(
            draft.loaded.kept,
            params=draft.loaded.model.params,
            model_version=version,
            flags=CheckpointFlags.FINE_TUNED,
            trained_at=self._world.now(),
            session_count=draft.loaded.kept.session_count + draft.steps,
        )
        if os.path.lexists(target):
            # Only a checkpoint is ever replaced.
            checkpoint.read(target)
        checkpoint.write(target, kept)
        del self._drafts[asked.user]
        return {"checkpoint_saved": True, "model_version": version}
