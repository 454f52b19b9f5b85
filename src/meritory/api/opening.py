"""Opens an engine by its settings: where the store is, which embedder, judge and limits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from meritory.domain.errors import InputError
from meritory.domain.place import Place, is_address
from meritory.domain.world import World
from meritory.engine.memories.embedding import Embedding
from meritory.engine.memories.retrieval_counts import Counter
from meritory.engine.observe.llm_spend import StoreLedger
from meritory.engine.observe.observer import Observer
from meritory.engine.services import Services
from meritory.model.model_files import models_beside
from meritory.ports.budget import Budget, Meter
from meritory.ports.extractor import Extractor, open_extractor
from meritory.ports.judge import Judge, LlmJudge, RulesJudge
from meritory.ports.llm import Llm, open_llm
from meritory.ports.scorer import LocalScorer, ModelFolders, RandomScorer, Scorer, base_weights
from meritory.ports.sidecar import SidecarScorer, SidecarSpec
from meritory.ports.trainer_process import SpawnedTrainer, Trainer
from meritory.settings import Settings, prepare_home
from meritory.settings.home import COPIED_MODELS_NAME, TELEMETRY_NAME
from meritory.store.contract.store import Store
from meritory.store.opening import open_store


def open_services(
    place: Place, settings: Settings, world: World, actor: str, *, apart: bool = False
) -> Services:
    """One open engine on a store; `apart` has the model score in a process of its own."""
    store = open_store(place)
    try:
        scorer = _scorer(store, settings, world, apart=apart)
        return _services(store, settings, world, actor, scorer)
    except BaseException:
        store.close()
        raise


def _services(
    store: Store, settings: Settings, world: World, actor: str, scorer: Scorer | None
) -> Services:
    observer = Observer(world)
    return Services(
        store=store,
        embedding=Embedding(store, settings.embedder, world),
        world=world,
        policy=settings.policy,
        actor=actor,
        user=settings.user,
        observer=observer,
        judge=_judge(store, settings, world),
        extractor=_extractor(store, settings, world),
        scorer=scorer,
        trainer=_trainer(store, settings),
        shelves=shelves(store, settings),
        telemetry_file=settings.home / TELEMETRY_NAME,
        counter=Counter(store, world, observer),
    )


def shelves(store: Store, settings: Settings) -> ModelFolders:
    """Where the models of a store are kept, and what they start from."""
    base = base_weights(settings.predictor.base_weights)
    return ModelFolders(models_folder(store.place, settings), base, store.models)


def models_folder(place: Place, settings: Settings) -> Path:
    """The folder of models beside a store's file, or of copies of those in a database."""
    if place.file is not None:
        return models_beside(place.file)
    return settings.home / COPIED_MODELS_NAME


def _scorer(store: Store, settings: Settings, world: World, *, apart: bool) -> Scorer | None:
    chosen = settings.predictor
    if not chosen.enabled:
        return None
    if chosen.scorer == "random":
        return RandomScorer(world)
    if not apart:
        return LocalScorer(shelves(store, settings), chosen.scorer, partial(_texts, store))
    spec = SidecarSpec(
        store=store.place,
        shelves=shelves(store, settings),
        score_timeout_ms=chosen.score_timeout_ms,
    )
    return SidecarScorer(spec, chosen.scorer, world)


def _texts(store: Store, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
    return {one: record.content for one, record in store.memories(user, memory_ids).items()}


def _trainer(store: Store, settings: Settings) -> Trainer | None:
    chosen = settings.predictor
    if not chosen.enabled or chosen.scorer == "random":
        return None
    return SpawnedTrainer(store.place, shelves(store, settings))


def _judge(store: Store, settings: Settings, world: World) -> Judge | None:
    """The judge that the settings name; a model's calls are counted in the store."""
    if settings.judge.kind == "none":
        return None
    if settings.judge.kind == "rules":
        return RulesJudge()
    return LlmJudge(metered_llm(store, settings, world, "judge"), world)


def _extractor(store: Store, settings: Settings, world: World) -> Extractor | None:
    """The extractor that the settings name; a model's calls share the judge's budget."""
    kind = settings.extraction.kind
    if kind == "none":
        return None
    llm = metered_llm(store, settings, world, "extract") if kind == "llm" else None
    return open_extractor(kind, llm, world)


def metered_llm(store: Store, settings: Settings, world: World, purpose: str) -> Llm:
    """The model of the settings, its calls written down in the store under their purpose."""
    spec = settings.llm
    budget = Budget(
        calls_per_hour=spec.calls_per_hour,
        calls_per_day=spec.calls_per_day,
        cost_per_day=spec.cost_per_day,
    )
    ledger = StoreLedger(store, settings.user, purpose=purpose)
    return open_llm(spec, Meter(budget, ledger, world.now))


def chosen_place(path: str | os.PathLike[str] | None, settings: Settings) -> Place:
    """Where a store lies: the file or database that is named, else where the settings say.

    The data folder is made ready in any case but the first.
    """
    if isinstance(path, str) and is_address(path):
        return Place(url=path)
    if path is not None:
        return Place(file=_named_file(path))
    prepare_home(settings.home)
    return settings_place(settings)


def settings_place(settings: Settings) -> Place:
    """Where the settings say that the store lies; nothing is touched."""
    if settings.database.url:
        return Place(url=settings.database.url)
    return Place(file=settings.store_file)


def _named_file(path: str | os.PathLike[str]) -> Path:
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
    return file
