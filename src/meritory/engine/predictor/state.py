"""The state of a user's predictor: which model serves, its influence, and the status line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from meritory.domain.codec import prepared
from meritory.domain.errors import BadCheckpoint, Busy, StorageError
from meritory.domain.folder import NAME_MARK
from meritory.domain.predictor import TIE, Surface, TrainingRun
from meritory.domain.session import Event
from meritory.domain.world import moment_text
from meritory.engine.observe.observer import publish
from meritory.engine.services import Services
from meritory.ports.scorer import BASE_VERSION, ModelFolders, Scorer, ScorerFacts, Soundness
from meritory.rank.influence import HistoryProof, InfluenceState
from meritory.store.contract.store import Transaction
from meritory.text import render

if TYPE_CHECKING:
    from meritory.model.checkpoint import Checkpoint

TRAIN_JOB = "train-predictor"
TRAIN_KEY = "predictor"
# The scorer that is quick enough to be fitted once more for each part of the sessions.
REPLAYED_SCORER = "features"
# Sessions in which a scorer of another kind is watched before it serves.
SHADOW_SESSIONS = 5
# Sessions in which a new model must prove itself, or it is rolled back.
TRIAL_SESSIONS = 10
# People are asked about the judge again after this many judged sessions.
CALIBRATE_EVERY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorState:
    """Everything known about a user's predictor, stored as one text."""

    standing: InfluenceState = field(default_factory=InfluenceState)
    # The model that serves and its kind, and the same of the one before it.
    version: int = BASE_VERSION
    scorer: str = "features"
    previous: int | None = None
    previous_scorer: str = "features"
    # The highest version ever given, and the best model on disk by its canaries.
    latest: int = BASE_VERSION
    best: int = BASE_VERSION
    best_ndcg: float | None = None
    is_enabled: bool = True
    # Judged sessions since the last training, and why the next one was ordered.
    fresh_sessions: int = 0
    order_reason: str | None = None
    last_trained_at: datetime | None = None
    last_loss: float | None = None
    failures: int = 0
    # Of the model that serves: sessions it is still only watched in, judged sessions and wins.
    shadow_left: int = 0
    trial_sessions: int = 0
    trial_wins: float = 0.0
    # How far the labels are valid and history is trusted.
    history: HistoryProof = field(default_factory=HistoryProof)
    # Judged sessions since people were last asked about some.
    uncalibrated: int = 0
    # How often a model was lost and an earlier one replaced it, and what was wrong with the last
    # one until a better model serves.
    fallbacks: int = 0
    lost: str | None = None
    # Of each surface beside session starts. Its models are so small that they are kept here: by
    # version the weights of `rank.search_features`.
    surfaces: Mapping[str, PredictorState] = field(default_factory=dict)
    models: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def alpha(self) -> float:
        """Return the weight of the baseline in the fused ranking."""
        if not self.is_enabled or self.shadow_left or self.standing.active_since is None:
            return 1.0
        return self.standing.earned_alpha

    def rolled_back(self, version: int, scorer: str) -> PredictorState:
        """Return the state with an earlier model, without the influence of the later one."""
        return replace(
            self,
            standing=replace(self.standing, earned_alpha=1.0),
            version=version,
            scorer=scorer,
            previous=None,
            lost=None,
            shadow_left=0,
            # The earlier model passed its trial before.
            trial_sessions=TRIAL_SESSIONS,
            trial_wins=TRIAL_SESSIONS * TIE,
        )

    def surface(self, name: Surface) -> PredictorState:
        """Return the state of a surface; switching the predictor off switches it off, too."""
        known = self.surfaces.get(name) or PredictorState()
        return replace(known, is_enabled=known.is_enabled and self.is_enabled)

    def with_surface(self, name: Surface, state: PredictorState) -> PredictorState:
        """Return this state with another one of a surface."""
        return replace(self, surfaces={**self.surfaces, name: replace(state, is_enabled=True)})

    def encoded(self) -> str:
        """Return the state as the store keeps it."""
        return json.dumps(asdict(self), default=moment_text)


_STATE = prepared(PredictorState)


def decoded(text: str | None) -> PredictorState:
    """Return a stored state, without fields of later versions; the first one if there is none."""
    if text is None:
        return PredictorState()
    return msgspec.convert(json.loads(text), _STATE)


def known_state(services: Services, user: str) -> PredictorState:
    """Return a user's predictor as stored, whether or not its model is usable."""
    return decoded(services.store.predictor_state(user))


def state_of(services: Services, user: str) -> PredictorState:
    """Return a user's predictor; a lost or damaged model is replaced by an earlier one."""
    state = known_state(services, user)
    fault = model_fault(services, user, state.version)
    return state if fault is None else _fall_back(services, user, state, fault)


def model_fault(services: Services, user: str, version: int) -> str | None:
    """Return why a model is not usable; None if it is, or if the scorer reads no models."""
    if services.shelves is None or not getattr(services.scorer, "reads_models", False):
        return None
    sound = soundness(services.shelves, user, version)
    if sound.fault is None and sound.kind != REPLAYED_SCORER:
        serving = services.store.serving_embedder()
        embedder = "" if serving is None else serving.name
        if sound.embedder != embedder:
            return f"it was trained on vectors of {sound.embedder!r}, not of {embedder!r}"
    return sound.fault


def soundness(shelves: ModelFolders, user: str, version: int) -> Soundness:
    """Return whether a model exists and is intact; its file is read again only after a change."""
    known = shelves.examined.get((user, version))
    # Of a shared store the file is a copy, which path_of renews.
    is_local = shelves.rows is None or version == BASE_VERSION
    path = known.path if known is not None and is_local else shelves.path_of(user, version)
    try:
        about = os.stat(path)
    except OSError as error:
        return Soundness(f"{path.name}: {str(error.strerror).lower()}")
    mark = (about.st_ino, about.st_mtime_ns, about.st_size)
    if known is not None and known.mark == mark:
        return known
    return shelves.examine(user, version, mark)


def _fall_back(services: Services, user: str, state: PredictorState, fault: str) -> PredictorState:
    """Switch to the next best usable model, and record that; keep the state if there is none."""
    if services.shelves is None or state.version == BASE_VERSION:
        return state
    # The model before it, then all earlier ones, at last the base.
    earlier = [one for one in services.shelves.of(user).versions() if one < state.version]
    before = [] if state.previous is None else [state.previous]
    choices = (one for one in (*before, *earlier, BASE_VERSION) if one != state.version)
    target = next((one for one in choices if model_fault(services, user, one) is None), None)
    if target is None:
        return state
    kind = soundness(services.shelves, user, target).kind
    now = services.world.now()
    details = {"from": state.version, "to": target, "fault": fault}
    event = Event(at=now, category="predictor", name="predictor.fallback", details=details)

    def moved(current: PredictorState) -> PredictorState:
        after = current.rolled_back(target, kind)
        lost = f"model {state.version}: {fault}"
        return replace(after, fallbacks=current.fallbacks + 1, lost=lost)

    def work(transaction: Transaction) -> PredictorState:
        current = decoded(transaction.predictor_state(user))
        if current.version != state.version:
            # Another process was faster.
            return current
        after = moved(current)
        run = TrainingRun(
            at=now,
            model_version=after.version,
            scorer=after.scorer,
            reason="fallback",
            train_validation_failures=after.failures,
            drift_resets=after.standing.drift_resets,
            error=fault,
        )
        transaction.set_predictor_state(user, after.encoded())
        transaction.add_training_run(user, run)
        transaction.log_events(user, [event])
        return after

    try:
        after = services.store.write(user, work)
    except (StorageError, Busy):
        # The session is served anyway; the next one records the change.
        return moved(state)
    services.observer.count("predictor_fallback")
    publish(services, [event])
    return after


def versions(services: Services, user: str) -> list[int]:
    """Return the versions that can serve, latest first; the base is always the last."""
    stored = services.shelves.of(user).versions() if services.shelves else []
    return [*(version for version in stored if version != BASE_VERSION), BASE_VERSION]


def load_checkpoint(services: Services, user: str, version: int) -> Checkpoint:
    """Return a stored model; raise BadCheckpoint if it is missing or damaged."""
    if services.shelves is None:
        raise BadCheckpoint("this store keeps no models", hint="choose another scorer")
    return services.shelves.checkpoint(user, version)


def served_kind(scorer: Scorer | None, state: PredictorState) -> str | None:
    """Return the kind of the model that scores, whatever the settings name."""
    if scorer is None:
        return None
    return state.scorer if getattr(scorer, "reads_models", False) else scorer.name


# -- the status line --------------------------------------------------------------------------


def scorer_facts(scorer: Scorer | None) -> ScorerFacts:
    """Return the health of the scorer's process."""
    if scorer is None:
        return ScorerFacts(is_alive=False, is_ready=False)
    facts: ScorerFacts = getattr(scorer, "facts", None) or ScorerFacts()
    return facts


def status_facts(services: Services, user: str, state: PredictorState) -> render.StatusFacts:
    """Return the phase of the predictor with the numbers behind it."""
    counted, excluded = services.store.judged_counts(user)
    needed = services.policy.predictor.min_training_sessions
    # Read as a plain value: every prompt shows this line.
    breaker = getattr(services.scorer, "breaker", None)
    is_broken = breaker is not None and services.world.monotonic_ms() < breaker.open_until_ms
    phase: render.State = "collecting"
    if services.scorer is None or not state.is_enabled or is_broken:
        phase = "disabled"
    elif state.order_reason == "drift":
        phase = "retraining"
    elif state.alpha < 1.0:
        phase = "active"
    elif counted >= needed:
        phase = "warming"
    return render.StatusFacts(
        state=phase,
        session_count=counted,
        needed=needed,
        excluded_count=excluded,
        success_rate=state.standing.success_rate,
        alpha=state.alpha,
        model_version=state.version,
        crashes=breaker.crash_count if breaker is not None and is_broken else 0,
        reason="drift" if phase == "retraining" else "switched off",
    )


def status_line(
    services: Services, user: str, state: PredictorState, project: str | None = None
) -> str:
    """Return the line that tells the agent how far learning has come, and in which project.

    A project is named if another folder has the name of its own.
    """
    facts = status_facts(services, user, state)
    named = project if project and NAME_MARK in project else ""
    return render.status_line(replace(facts, project=named))
