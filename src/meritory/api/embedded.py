"""The engine of a `Memory` in this process: its store, embedder, judge, extractor and scorer."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from meritory.api.session import Session
from meritory.domain.errors import Busy, InputError, StorageError
from meritory.domain.memory import Scope
from meritory.domain.place import Place, is_address
from meritory.domain.policy import PredictorPolicy
from meritory.domain.session import Spending
from meritory.domain.world import Clock, World
from meritory.engine.memories.embedding import Embedding
from meritory.engine.memories.recall import Counter
from meritory.engine.memories.validate import checked_name
from meritory.engine.observe.observer import Observer
from meritory.engine.services import Services
from meritory.model.checkpoint import models_beside
from meritory.ports.budget import Budget, Meter
from meritory.ports.extractor import open_extractor
from meritory.ports.judge import Judge, LlmJudge, RulesJudge
from meritory.ports.llm import Llm, open_llm
from meritory.ports.scorer import LocalScorer, ModelFolders, RandomScorer, Scorer, base_weights
from meritory.ports.sidecar import SidecarScorer, SidecarSpec
from meritory.ports.trainer_process import SpawnedTrainer
from meritory.settings import Settings, home_folder, load_settings, prepare_home
from meritory.settings.home import COPIED_MODELS_NAME, TELEMETRY_NAME
from meritory.store import open_store
from meritory.store.contract.store import Store

if TYPE_CHECKING:
    from meritory.engine.jobs.runner import Background
    from meritory.engine.sessions.context import StartRequest
    from meritory.store.contract.store import Transaction


def open_embedded(
    path: str | os.PathLike[str] | None,
    settings: Settings | None,
    clock: Clock | World | None,
    *,
    names: tuple[object, object, object],
    actor: str,
    everywhere: bool,
    **options: bool,
) -> EmbeddedBackend:
    """Open a store, or create it; the options are those of `Memory`: background and apart."""
    settings = settings or load_settings(home_folder(os.environ), os.environ)
    scope = checked_scope(settings, *names)
    world = clock if isinstance(clock, World) else World(clock)
    place = chosen_place(path, settings)
    services = open_services(place, settings, world, actor, apart=options["apart"])
    services = replace(services, user=scope.user)
    can_work = options["background"]
    threads = Threads(services)
    # The caller is a person's program; jobs on the threads are not.
    services = replace(services, is_person=True)
    backend = EmbeddedBackend(services, threads, settings, scope, everywhere, can_work)
    if can_work and services.embedding.is_changed():
        backend.works.start_reembedding(lambda done, total: None)
    jobs = services.store.job_counts() if can_work else {}
    if jobs.get("queued") or jobs.get("running"):
        backend.works.nudge()
    return backend


def checked_scope(settings: Settings, user: object, agent: object, project: object) -> Scope:
    """Return the scope of these names; without a user it is the one of the settings."""
    return Scope(
        str(checked_name("user", settings.user if user is None else user)),
        checked_name("agent", agent),
        checked_name("project", project),
    )


class Threads:
    """The background threads of one engine, made when a view needs them first.

    Most programs only remember and recall; they need not load the jobs.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self.started: Background | None = None

    def get(self) -> Background:
        """Return the threads."""
        with self._lock:
            if self.started is None:
                from meritory.engine.jobs.runner import Background
                from meritory.engine.pipeline import job_handlers

                self.started = Background(self._services, job_handlers(self._services))
            return self.started


@dataclass
class EmbeddedBackend:
    """An engine in this process, seen from one scope."""

    # The methods of `Memory` run here.
    send: ClassVar[None] = None

    services: Services
    threads: Threads
    settings: Settings
    scope: Scope
    # Whether ids may name memories of all the user's projects and agents.
    everywhere: bool = False
    # Whether a thread may run jobs.
    can_work: bool = True

    @property
    def works(self) -> Background:
        """Return the background threads."""
        return self.threads.get()

    def view(
        self, user: object, agent: object, project: object, *, everywhere: bool, actor: str | None
    ) -> EmbeddedBackend:
        """Return the same engine for another scope."""
        scope = checked_scope(self.settings, user, agent, project)
        services = replace(self.services, user=scope.user, actor=actor or self.services.actor)
        return replace(self, services=services, scope=scope, everywhere=everywhere)

    def start(self, request: StartRequest) -> Session:
        """Begin a session, or resume it."""
        from meritory.engine import pipeline

        return Session(self, request, pipeline.start(self.services, request))

    def session_ended(self, key: str, is_known: bool) -> None:
        """Learn at once from a session whose outcome is known; a thread learns from others."""
        if is_known:
            self.works.learn(self.scope.user, key)
        if self.can_work:
            self.works.nudge()

    def close(self) -> None:
        """Finish the work in progress and release the store."""
        if self.threads.started is not None:
            self.threads.started.stop()
        if self.services.scorer is not None:
            self.services.scorer.close()
        if self.services.counter is not None:
            self.services.counter.close()
        failures = self.services.embedding.failures

        def count(transaction: Transaction) -> None:
            for name, amount in failures.items():
                transaction.count(self.scope.user, name, amount)

        if failures:
            # A program that is done must not fail because of a count.
            with contextlib.suppress(StorageError, Busy):
                self.services.store.write(self.scope.user, count)
            failures.clear()
        self.services.store.close()
        # Last: a training that is cut off here runs again when the store is opened next.
        if self.services.trainer is not None:
            self.services.trainer.close()


def open_services(
    place: Place, settings: Settings, world: World, actor: str, *, apart: bool = False
) -> Services:
    """Open an engine on a store; with `apart` the model scores in a process of its own."""
    store = open_store(place)
    try:
        observer = Observer(world)
        predictor, extraction = settings.predictor, settings.extraction.kind
        # Models are next to the store's file; those of a database are copied to the data folder.
        file, copied = store.place.file, settings.home / COPIED_MODELS_NAME
        folder = copied if file is None else models_beside(file)
        models = ModelFolders(folder, base_weights(predictor.base_weights), store.models)
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
    user = settings.user

    def record(made: Spending) -> None:
        store.write(user, lambda transaction: transaction.add_spending(user, made))

    return open_llm(spec, Meter(budget, purpose, partial(store.spending, user), record, world.now))


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
