"""Open an engine by its settings: its store, embedder, judge, extractor and scorer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from meritory.domain.errors import InputError
from meritory.domain.place import Place, is_address
from meritory.domain.policy import PredictorPolicy
from meritory.domain.world import World
from meritory.engine.memories.embedding import Embedding
from meritory.engine.memories.retrieval_counts import Counter
from meritory.engine.observe.llm_spend import StoreLedger
from meritory.engine.observe.observer import Observer
from meritory.engine.services import Services
from meritory.model.model_files import models_beside
from meritory.ports.budget import Budget, Meter
from meritory.ports.extractor import open_extractor
from meritory.ports.judge import Judge, LlmJudge, RulesJudge
from meritory.ports.llm import Llm, open_llm
from meritory.ports.scorer import LocalScorer, ModelFolders, RandomScorer, Scorer, base_weights
from meritory.ports.sidecar import SidecarScorer, SidecarSpec
from meritory.ports.trainer_process import SpawnedTrainer
from meritory.settings import Settings, prepare_home
from meritory.settings.home import COPIED_MODELS_NAME, TELEMETRY_NAME
from meritory.store.contract.store import Store
from meritory.store.opening import open_store


def open_services(
    place: Place, settings: Settings, world: World, actor: str, *, apart: bool = False
) -> Services:
    """Open an engine on a store; with `apart` the model scores in a process of its own."""
    store = open_store(place)
    try:
        observer = Observer(world)
        models = _model_folders(store, settings)
        predictor, extraction = settings.predictor, settings.extraction.kind
        judge: Judge | None = RulesJudge() if settings.judge.kind == "rules" else None
        if settings.judge.kind == "llm":
            judge = LlmJudge(metered_llm(store, settings, world, "judge"), world)
        extractor = None
        if extraction != "none":
            is_llm = extraction == "llm"
            llm = metered_llm(store, settings, world, "extract") if is_llm else None
            extractor = open_extractor(extraction, llm, world)
        can_train = predictor.enabled and predictor.scorer != "random"
        return Services(
            store=store,
            embedding=Embedding(store, settings.embedder, world),
            world=world,
            policy=settings.policy,
            actor=actor,
            user=settings.user,
            observer=observer,
            judge=judge,
            extractor=extractor,
            scorer=_open_scorer(store, predictor, models, world, apart=apart),
            trainer=SpawnedTrainer(store.place, models) if can_train else None,
            shelves=models,
            telemetry_file=settings.home / TELEMETRY_NAME,
            counter=Counter(store, world, observer),
        )
    except BaseException:
        store.close()
        raise


def _model_folders(store: Store, settings: Settings) -> ModelFolders:
    """Return the folder of a store's models: next to its file, or of copies from a database."""
    file = store.place.file
    folder = settings.home / COPIED_MODELS_NAME if file is None else models_beside(file)
    return ModelFolders(folder, base_weights(settings.predictor.base_weights), store.models)


def _open_scorer(
    store: Store, policy: PredictorPolicy, models: ModelFolders, world: World, *, apart: bool
) -> Scorer | None:
    if not policy.enabled:
        return None
    if policy.scorer == "random":
        return RandomScorer(world)
    if apart:
        spec = SidecarSpec(
            store=store.place, shelves=models, score_timeout_ms=policy.score_timeout_ms
        )
        return SidecarScorer(spec, policy.scorer, world)

    def read_texts(user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        records = store.memories(user, memory_ids)
        return {memory_id: record.content for memory_id, record in records.items()}

    return LocalScorer(models, policy.scorer, read_texts)


def metered_llm(store: Store, settings: Settings, world: World, purpose: str) -> Llm:
    """Return the model of the settings; the store records its calls under their purpose."""
    spec = settings.llm
    budget = Budget(
        calls_per_hour=spec.calls_per_hour,
        calls_per_day=spec.calls_per_day,
        cost_per_day=spec.cost_per_day,
    )
    ledger = StoreLedger(store, settings.user, purpose=purpose)
    return open_llm(spec, Meter(budget, ledger, world.now))


def chosen_place(path: str | os.PathLike[str] | None, settings: Settings) -> Place:
    """Return the file or database of a path; without one that of the settings.

    Without a path the data folder is created if it is missing.
    """
    if path is None:
        prepare_home(settings.home)
        return settings_place(settings)
    if isinstance(path, str) and is_address(path):
        return Place(url=path)
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise InputError("the path of a store must be text without a NUL character")
    try:
        file = Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(f"{path}: {error}", hint="give the whole path") from error
    if file.is_dir():
        raise InputError(f"{file} is a folder", hint="name a file in it, e.g. meritory.db")
    if not file.parent.is_dir():
        raise InputError(f"there is no folder {file.parent}", hint="create it first")
    return Place(file=file)


def settings_place(settings: Settings) -> Place:
    """Return the file or database that the settings name, without opening it."""
    if settings.database.url:
        return Place(url=settings.database.url)
    return Place(file=settings.store_file)
