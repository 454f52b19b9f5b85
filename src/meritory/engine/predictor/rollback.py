"""Rollback: a person lets an earlier model serve again."""

from __future__ import annotations

from meritory.domain.errors import BadCheckpoint, Conflict, InputError, NotFound
from meritory.domain.predictor import SURFACES, Surface, TrainingRun
from meritory.domain.session import Event
from meritory.engine.observe.observer import publish
from meritory.engine.predictor.state import decoded, known_state, load_checkpoint, versions
from meritory.engine.predictor.surfaces import versions_of
from meritory.engine.services import Services
from meritory.model import checkpoint
from meritory.model.ranker import KIND
from meritory.ports.scorer import BASE_VERSION
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.store.contract.store import Transaction


def rollback_any(
    services: Services, user: str, surface: str, version: int | None = None
) -> TrainingRun:
    """Let an earlier model of session starts, or of another surface, serve."""
    for one in SURFACES:
        if one == surface:
            return rollback_surface(services, user, one, version)
    return rollback(services, user, version)


def rollback_surface(
    services: Services, user: str, surface: Surface, version: int | None = None
) -> TrainingRun:
    """Let an earlier model of recall or of prompts serve; return the run that records it."""
    state = known_state(services, user).surface(surface)
    available = versions_of(state)
    hint = f"available models: {', '.join(map(str, available))}"
    target = version
    if target is None:
        target = next((one for one in available if one < state.version), None)
    if target is None:
        raise Conflict(f"there is no model before {state.version}", hint=hint)
    if target not in available:
        raise NotFound(f"unknown model: {target}", hint=hint)
    if target == state.version:
        raise Conflict(f"model {target} is already active", hint=hint)
    chosen, now = target, services.world.now()
    run = TrainingRun(
        at=now,
        model_version=chosen,
        scorer=KIND,
        reason="rollback",
        train_validation_failures=state.failures,
        drift_resets=state.standing.drift_resets,
        surface=surface,
    )
    details = {"surface": surface, "from": state.version, "to": chosen}
    event = Event(at=now, category="predictor", name="predictor.rollback", details=details)

    def work(transaction: Transaction) -> None:
        whole = decoded(transaction.predictor_state(user))
        after = whole.surface(surface).rolled_back(chosen, KIND)
        transaction.set_predictor_state(user, whole.with_surface(surface, after).encoded())
        transaction.add_training_run(user, run)
        transaction.log_events(user, [event])

    services.store.write(user, work)
    publish(services, [event])
    return run


def rollback(services: Services, user: str, version: int | None = None) -> TrainingRun:
    """Let the named model serve, or else the one before; return the run that records it."""
    if isinstance(version, bool) or not isinstance(version, int | None):
        raise InputError(f"a version must be a whole number, not {version!r}")
    state = known_state(services, user)
    available = versions(services, user)
    names = (f"{one} (base)" if one == BASE_VERSION else str(one) for one in available)
    hint = f"available models: {', '.join(names)}"
    target = state.previous if version is None else version
    if version is None and target not in available:
        target = next((one for one in available if one < state.version), None)
    if target is None:
        raise Conflict(f"there is no model before {state.version}", hint=hint)
    if target not in available:
        raise NotFound(f"unknown model: {target}", hint=hint)
    if target == state.version:
        raise Conflict(f"model {target} is already active", hint=hint)
    try:
        model = load_checkpoint(services, user, target)
        serving = services.store.serving_embedder()
        embedder = "" if serving is None else serving.name
        reason = checkpoint.fits(model, embedder, FEATURES, FEATURE_VERSION)
    except BadCheckpoint as error:
        reason = error.message
    if reason is not None:
        raise Conflict(f"model {target} is not usable: {reason}", hint=hint)
    now = services.world.now()
    run = TrainingRun(
        at=now,
        model_version=target,
        scorer=model.kind,
        reason="rollback",
        sample_count=model.session_count,
        train_validation_failures=state.failures,
        drift_resets=state.standing.drift_resets,
    )
    details = {"from": state.version, "to": target}
    event = Event(at=now, category="predictor", name="predictor.rollback", details=details)

    def work(transaction: Transaction) -> None:
        current = decoded(transaction.predictor_state(user))
        after = current.rolled_back(run.model_version, model.kind)
        transaction.set_predictor_state(user, after.encoded())
        transaction.add_training_run(user, run)
        transaction.log_events(user, [event])

    services.store.write(user, work)
    publish(services, [event])
    return run
