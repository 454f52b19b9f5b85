"""Whether somebody is there to score: asked of the scorer itself, in this process or apart."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from meritory.domain.codec import moment_text, parse_moment
from meritory.domain.errors import Busy, StorageError
from meritory.domain.predictor import TIE, TrainingRun
from meritory.domain.session import Event
from meritory.engine.observe.observer import publish
from meritory.engine.services import Services
from meritory.ports.scorer import BASE_VERSION, Scorer
from meritory.rank.composite import Trust
from meritory.rank.history_proof import HistoryProof
from meritory.rank.influence import InfluenceState
from meritory.store.contract.store import Transaction
from meritory.text import render


@dataclass(frozen=True, slots=True)
class Liveness:
    """Whether somebody is there to score, and how often it died; one in this process is there."""

    is_alive: bool = True
    is_ready: bool = True
    pid: int | None = None
    uptime_s: float | None = None
    crash_count: int = 0
    is_crash_disabled: bool = False

    @property
    def is_dead(self) -> bool:
        """Whether it died and is not back; one that nobody needed yet is not dead."""
        return self.is_crash_disabled or (not self.is_alive and self.crash_count > 0)


def liveness(services: Services) -> Liveness:
    """What the scorer says of its own life."""
    if services.scorer is None:
        return Liveness(is_alive=False, is_ready=False)
    facts = getattr(services.scorer, "facts", None)
    if facts is None:
        return Liveness()
    return Liveness(
        is_alive=facts.is_alive,
        is_ready=facts.is_ready,
        pid=facts.pid,
        uptime_s=facts.uptime_s,
        crash_count=facts.crash_count,
        is_crash_disabled=facts.is_disabled,
    )


# -- the model ------------------------------------------------------------------------------


# -- speed ----------------------------------------------------------------------------------


# -- the judge ------------------------------------------------------------------------------


TRAIN_JOB = "train-predictor"
TRAIN_KEY = "predictor"
# The scorer that is quick enough to be fitted once more for each part of the sessions.
REPLAYED_SCORER = "features"
# Sessions that a scorer of another kind is watched before it is served.
SHADOW_SESSIONS = 5
# A new model whose share of wins over its first sessions is lower gives its place back.
TRIAL_SESSIONS = 10
TRIAL_WIN_SHARE = 0.3
# People are asked about the judge again after so many sessions that it spoke about.
CALIBRATE_EVERY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorState:
    """All that is known about a user's predictor; kept as one text in the store."""

    standing: InfluenceState = field(default_factory=InfluenceState)
    # The model that serves and its kind, and the same of the one before it.
    version: int = BASE_VERSION
    scorer: str = "features"
    previous: int | None = None
    previous_scorer: str = "features"
    # The highest number that was ever given, and the best model on the shelf by its canaries.
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
    # Of the model that serves: sessions it is still only watched in, those judged, and its wins.
    shadow_left: int = 0
    trial_sessions: int = 0
    trial_wins: float = 0.0
    # How far the labels are valid and history is trusted.
    history: HistoryProof = field(default_factory=HistoryProof)
    # Sessions that a judge spoke about since people were last asked about some.
    uncalibrated: int = 0
    # How often a model was lost and an earlier one took its place, and what the last one lacked
    # as long as nothing better has come.
    fallbacks: int = 0
    lost: str | None = None

    @property
    def alpha(self) -> float:
        """The weight of the baseline that is served."""
        return self.standing.alpha if self.is_enabled and not self.shadow_left else 1.0

    @property
    def trust(self) -> Trust:
        """How far history counts in the baseline."""
        return self.history.trust

    def encoded(self) -> str:
        """As the store keeps it."""
        known = asdict(self)
        if self.last_trained_at is not None:
            known["last_trained_at"] = moment_text(self.last_trained_at)
        return json.dumps(known)


def decoded(text: str | None) -> PredictorState:
    """The state as it was kept; the first one when nothing was."""
    if text is None:
        return PredictorState()
    # What a later version of Meritory added says nothing to this one.
    names = {item.name for item in fields(PredictorState)}
    known: dict[str, Any] = {k: v for k, v in json.loads(text).items() if k in names}
    at = known.get("last_trained_at")
    return PredictorState(
        **{
            **known,
            "standing": InfluenceState(**known["standing"]),
            "history": _proof(known.get("history")),
            "last_trained_at": None if at is None else parse_moment(at),
        }
    )


def _proof(known: dict[str, Any] | None) -> HistoryProof:
    if known is None:
        return HistoryProof()
    return HistoryProof(**{**known, "trust": Trust(**known["trust"])})


def known_state(services: Services, user: str) -> PredictorState:
    """A user's predictor as it is kept, whether or not its model can serve."""
    return decoded(services.store.predictor_state(user))


def state_of(services: Services, user: str) -> PredictorState:
    """A user's predictor by now; a model that is lost or damaged gives way to an earlier one."""
    state = known_state(services, user)
    fault = model_fault(services, user, state.version)
    return state if fault is None else _fallen_back(services, user, state, fault)


def model_fault(services: Services, user: str, version: int) -> str | None:
    """Why a model cannot serve; None when it can, or when nobody needs it."""
    if services.shelves is None or not getattr(services.scorer, "reads_models", False):
        return None
    found = services.shelves.soundness(user, version)
    if found.kind in ("", REPLAYED_SCORER):
        return found.fault
    serving = services.store.serving_embedder()
    return found.fault_with("" if serving is None else serving.name)


def _fallen_back(
    services: Services, user: str, state: PredictorState, fault: str
) -> PredictorState:
    """With the next best model that can serve, written down; as it was when there is none."""
    target = _earlier(services, user, state)
    if target is None or services.shelves is None:
        return state
    kind = services.shelves.soundness(user, target).kind
    now = services.world.now()
    details = {"from": state.version, "to": target, "fault": fault}
    event = Event(at=now, category="predictor", name="predictor.fallback", details=details)

    def moved(current: PredictorState) -> PredictorState:
        told = f"model {state.version}: {fault}"
        after = rolled_back(current, target, kind)
        return replace(after, fallbacks=current.fallbacks + 1, lost=told)

    def work(transaction: Transaction) -> PredictorState:
        current = decoded(transaction.predictor_state(user))
        if current.version != state.version:
            # Somebody else was quicker.
            return current
        after = moved(current)
        transaction.set_predictor_state(user, after.encoded())
        transaction.add_training_run(user, _fallback_run(after, now, fault))
        transaction.log_events(user, [event])
        return after

    try:
        after = services.store.write(user, work)
    except (StorageError, Busy):
        # Who is to be served is served all the same; the next one writes it down.
        return moved(state)
    services.observer.count("predictor_fallback")
    publish(services, [event])
    return after


def _earlier(services: Services, user: str, state: PredictorState) -> int | None:
    """The model that stands in for one that is lost: the one before it, at last the base."""
    if services.shelves is None or state.version == BASE_VERSION:
        return None
    kept = [one for one in services.shelves.of(user).versions() if one < state.version]
    before = [] if state.previous is None else [state.previous]
    choices = (one for one in (*before, *kept, BASE_VERSION) if one != state.version)
    return next((one for one in choices if model_fault(services, user, one) is None), None)


def _fallback_run(after: PredictorState, now: datetime, fault: str) -> TrainingRun:
    return TrainingRun(
        at=now,
        model_version=after.version,
        scorer=after.scorer,
        reason="fallback",
        loss=None,
        sample_count=0,
        skipped_count=0,
        duration_ms=0.0,
        is_accepted=True,
        train_validation_failures=after.failures,
        drift_resets=after.standing.drift_resets,
        error=fault,
    )


def served_kind(scorer: Scorer | None, state: PredictorState) -> str | None:
    """Return the kind of the model that scores, whatever the settings name."""
    if scorer is None:
        return None
    return state.scorer if getattr(scorer, "reads_models", False) else scorer.name


def tried(state: PredictorState, won: float | None) -> tuple[PredictorState, bool]:
    """After one more session of the model that serves; says whether it has to go."""
    if won is None:
        return state, False
    if state.shadow_left:
        state = replace(state, shadow_left=state.shadow_left - 1)
    if state.trial_sessions >= TRIAL_SESSIONS:
        return state, False
    state = replace(
        state,
        trial_sessions=state.trial_sessions + 1,
        trial_wins=state.trial_wins + won,
    )
    is_over = state.trial_sessions == TRIAL_SESSIONS
    share = state.trial_wins / TRIAL_SESSIONS
    has_failed = is_over and share < TRIAL_WIN_SHARE and state.previous is not None
    return state, has_failed


def rolled_back(state: PredictorState, version: int, scorer: str) -> PredictorState:
    """With an earlier model in its place; its trial was passed long ago.

    What the other one had earned goes with it.
    """
    return replace(
        state,
        standing=replace(state.standing, earned_alpha=1.0),
        version=version,
        scorer=scorer,
        previous=None,
        lost=None,
        shadow_left=0,
        trial_sessions=TRIAL_SESSIONS,
        trial_wins=TRIAL_SESSIONS * TIE,
    )


def standing_of(services: Services, user: str, state: PredictorState) -> render.StatusFacts:
    """Where the predictor stands, for the status line; read from state, never assumed."""
    counted, excluded = services.store.judged_counts(user)
    needed = services.policy.predictor.min_training_sessions
    standing = state.standing
    told: render.State = "collecting"
    # Whatever was earned: without a scorer nobody is there to be heard.
    life = liveness(services)
    if services.scorer is None or not state.is_enabled or life.is_crash_disabled:
        told = "disabled"
    elif state.order_reason == "drift":
        told = "retraining"
    elif state.alpha < 1.0:
        told = "active"
    elif counted >= needed:
        told = "warming"
    return render.StatusFacts(
        state=told,
        session_count=counted,
        needed=needed,
        excluded_count=excluded,
        success_rate=standing.success_rate,
        alpha=state.alpha,
        model_version=state.version,
        crashes=life.crash_count if life.is_crash_disabled else 0,
        reason="drift" if told == "retraining" else "switched off",
    )


def status_line(services: Services, user: str, state: PredictorState) -> str:
    """Return the line that tells the agent how far learning has come."""
    return render.status_line(standing_of(services, user, state))
