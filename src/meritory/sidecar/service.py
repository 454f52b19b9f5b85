"""What the predictor's process can do: score, learn, and say how it is."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from meritory.domain.errors import BadCheckpoint, Conflict
from meritory.domain.place import Place
from meritory.domain.world import World
from meritory.model import checkpoint
from meritory.model.base import Gradient, SparseRows, TrainingExample
from meritory.model.checkpoint import CheckpointFlags
from meritory.model.fit import Adam, FitPlan
from meritory.ports.scorer import BASE_VERSION, ModelFolders
from meritory.ports.trainer_process import SpawnedTrainer, TrainOrder, TrainReport
from meritory.sidecar.models import Library, Loaded, Models, unfit
from meritory.sidecar.requests import Count, Desk, RequestCandidates, ScoreOutcome
from meritory.sidecar.rpc import INTERNAL_ERROR, INVALID_PARAMS, Method, RpcFault, read_params

SLOW = frozenset({"train_from_store", "train_from_db"})
DRAFT_LIMIT = 4


@dataclass(frozen=True, slots=True)
class ServiceSetup:
    """Which store and which models it serves."""

    store: Place
    shelves: ModelFolders
    # The file of the model that scores when no version is named.
    checkpoint: Path | None = None


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
        if not np.isfinite(loss) or not all(_is_finite(grad) for grad in grads.values()):
            raise RpcFault(
                INVALID_PARAMS, "nothing can be learned from this: the loss is not finite"
            )
        self._adam.step(grads, 1)
        self.steps += 1
        model = self.loaded.model.with_params(self._adam.params)
        self.loaded = Loaded(replace(self.loaded.kept, flags=CheckpointFlags.FINE_TUNED), model)
        return loss


class Service:
    """The methods that can be called."""

    def __init__(self, setup: ServiceSetup, library: Library, world: World) -> None:
        self._setup = setup
        self._world = world
        self._models = Models(setup.shelves, setup.checkpoint)
        self._library = library
        self._trainer = SpawnedTrainer(setup.store, setup.shelves)
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
        reason = unfit(loaded, asked.embedder)
        if reason is not None:
            raise BadCheckpoint(f"the model is not usable: {reason}")
        embedder = loaded.kept.embedder if asked.embedder is None else asked.embedder
        return Desk(asked, embedder, self._library)

    def _version(self, loaded: Loaded, asked: int | None) -> int:
        # The base is number 0, whatever number it was made under.
        return loaded.kept.model_version if asked is None else asked

    def _train(self, raw: msgspec.Raw) -> dict[str, Any]:
        asked = read_params(raw, ScoreOutcome)
        if len(asked.labels) != len(asked.ids):
            raise RpcFault(INVALID_PARAMS, "give one label per candidate")
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
        latest = max(self._setup.shelves.of(asked.user).versions(), default=BASE_VERSION)
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
            raise RpcFault(INVALID_PARAMS, "version 0 is the base, which is never trained")
        report = self._trainer.train(order)
        self._training_count += 1
        return _told(report, self._training_count)

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
        target = self._setup.checkpoint
        if target is None:
            raise Conflict("there is no file to save to: start the process with --checkpoint FILE")
        draft = self._drafts.get(asked.user)
        if draft is None:
            raise Conflict("there is nothing to save", hint="call train before")
        versions = self._setup.shelves.of(asked.user).versions()
        version = max([*versions, draft.loaded.kept.model_version]) + 1
        kept = replace(
            draft.loaded.kept,
            params=draft.loaded.model.params,
            model_version=version,
            flags=CheckpointFlags.FINE_TUNED,
            trained_at=self._world.now(),
            session_count=draft.loaded.kept.session_count + draft.steps,
        )
        _overwrite(target, kept)
        del self._drafts[asked.user]
        return {"checkpoint_saved": True, "model_version": version}


def _overwrite(path: Path, kept: checkpoint.Checkpoint) -> None:
    """Writes a checkpoint; nothing else that lies there under its name is ever replaced."""
    if os.path.lexists(path):
        checkpoint.read(path)
    checkpoint.write(path, kept)


def _told(report: TrainReport, step: int) -> dict[str, Any]:
    return {
        "loss": report.loss,
        "step": step,
        "samples_used": report.sample_count,
        "samples_skipped": report.skipped_count,
        "duration_ms": report.duration_ms,
        "canary": {
            "ndcg": report.canary_ndcg,
            "ndcg_delta": report.canary_ndcg_delta,
            "score_variance": report.canary_score_variance,
            "topk_churn": report.canary_topk_churn,
            "gates": report.gates,
        },
        "checkpoint_saved": report.is_accepted,
        "model_version": report.version,
    }


def _is_finite(grad: Gradient) -> bool:
    values = grad.values if isinstance(grad, SparseRows) else grad
    return bool(np.isfinite(values).all())
