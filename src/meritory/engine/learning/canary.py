"""Canaries: a model is examined on sessions kept out of training, and in the first it serves."""

from __future__ import annotations

import zlib
from dataclasses import replace
from datetime import datetime

from meritory.engine.predictor.state import TRIAL_SESSIONS, PredictorState
from meritory.store.contract.store import Transaction

# One session in this many is kept out of training, to examine models on.
CANARY_EVERY = 10
CANARY_LIMIT = 25
# A new model with a lower share of wins over its first sessions is rolled back.
TRIAL_WIN_SHARE = 0.3


def is_canary(user: str, key: str) -> bool:
    """Return whether a session is kept out of training, if training can use it at all."""
    return zlib.crc32(f"canary {user} {key}".encode()) % CANARY_EVERY == 0


def update_canary(
    transaction: Transaction, user: str, key: str, now: datetime, *, is_usable: bool
) -> None:
    """Store or drop a session as a canary; its key decides which sessions are."""
    if not is_usable:
        transaction.drop_canary(user, key)
    elif is_canary(user, key):
        transaction.choose_canary(user, key, now, CANARY_LIMIT)


def count_trial(state: PredictorState, won: float | None) -> tuple[PredictorState, bool]:
    """Count one more session of the model that serves; also return whether its trial failed."""
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
    has_lost = state.trial_wins / TRIAL_SESSIONS < TRIAL_WIN_SHARE
    return state, is_over and has_lost and state.previous is not None
