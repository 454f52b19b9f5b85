"""The searches of a session against its labels, and the influence that their models gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from meritory.domain.job import Job
from meritory.domain.policy import PredictorPolicy
from meritory.domain.predictor import RankedSearch, Surface
from meritory.engine.jobs.runner import After, Effect, no_effect
from meritory.engine.learning.compare import count_trial
from meritory.engine.learning.judge import read_session
from meritory.engine.observe.observer import make_events, publish
from meritory.engine.predictor.state import PredictorState, decoded
from meritory.engine.services import Services
from meritory.model.ranker import KIND
from meritory.rank import influence
from meritory.rank.influence import HistoryProof, Margins
from meritory.rank.search_features import SEARCH_FEATURE_VERSION, SEARCH_LAYOUT
from meritory.store.contract.store import Transaction
from meritory.store.sql.searches import taught_search

_COUNTED_BEFORE = "counted before"


def compare_searches(services: Services, job: Job) -> Effect:
    """Compare the orders of every search of a session, and adjust the influence of the models."""
    store, user, key = services.store, job.user, job.key
    found = store.searches(user, key)
    if not found:
        return no_effect
    session, memories, score = read_session(store, job)
    excluded = "not judged" if score is None else score.excluded
    labels = {one.memory_id: one.label for one in memories if one.label is not None}
    used = store.used(user, key)
    labelled = [_labelled(one, labels, used) for one in found]
    surfaces: list[Surface] = list(dict.fromkeys(one.surface for one in found))
    limit = influence.RECORD_SESSIONS
    margins = {one: store.search_record(user, one, limit) for one in surfaces}
    proofs: dict[Surface, HistoryProof] = {}
    for surface in surfaces:
        taught = store.taught_searches(
            user, surface, SEARCH_FEATURE_VERSION, influence.PROOF_SESSIONS
        )
        known = [one for one in taught if one.key.rpartition("#")[0] != key]
        fresh = [taught_search(one, key, session.project) for one in labelled]
        chosen = [
            *known,
            *(
                one
                for one, search in zip(fresh, labelled, strict=True)
                if search.surface == surface
            ),
        ]
        proofs[surface] = influence.prove_labels(
            chosen if excluded is None else known, SEARCH_LAYOUT.baseline
        )

    def effect(transaction: Transaction) -> After:
        whole = decoded(transaction.predictor_state(user))
        details: dict[str, dict[str, object]] = {}
        records = dict(margins)
        for search in labelled:
            surface = search.surface
            before = replace(whole.surface(surface), history=proofs[surface])
            compared, outcome = _compared(search, excluded, services.policy.predictor)
            if search.predictor_won is not None:
                # The session was labelled again. Its searches must not count twice.
                state = before
                compared = replace(compared, reason=compared.reason or _COUNTED_BEFORE)
            else:
                state = _counted(services.policy.predictor, before, compared, outcome, records)
                compared = replace(
                    compared,
                    success_rate=state.standing.success_rate,
                    alpha_after=state.alpha,
                )
            transaction.put_search(user, key, compared)
            whole = whole.with_surface(surface, state)
            details |= {f"predictor.{surface}": _details(compared)}
        for surface in surfaces:
            transaction.trim_searches(user, surface)
        transaction.set_predictor_state(user, whole.encoded())
        events = make_events(details, services.world.now(), key)
        transaction.log_events(user, events)
        return partial(publish, services, events)

    return effect


def _labelled(
    search: RankedSearch, labels: Mapping[str, float], used: Mapping[str, float] | None
) -> RankedSearch:
    """Return a search with the labels of its candidates; a program that knows, knows all."""
    unknown = None if used is None else 0.0
    known = labels if used is None else {**labels, **used}
    return replace(search, labels=tuple(known.get(one, unknown) for one in search.memory_ids))


def _compared(
    search: RankedSearch, excluded: str | None, policy: PredictorPolicy
) -> tuple[RankedSearch, influence.ComparisonOutcome | None]:
    """Return a search with the comparison of both orders; without one if it does not count."""
    values = np.array(search.labels, np.float64)
    was_shown = np.isin(np.arange(len(values)), search.shown)
    chosen = np.flatnonzero(influence.comparable(values, was_shown))
    outcome = influence.compare(
        chosen + 1, np.array(search.predictor_ranks)[chosen], values[chosen], policy.rrf_k
    )
    reason = excluded
    if reason is None and outcome is None:
        reason = "nothing helped" if len(chosen) else "no label"
    compared = replace(
        search,
        reason=reason,
        predictor_ndcg=outcome.predictor_ndcg if outcome else None,
        baseline_ndcg=outcome.baseline_ndcg if outcome else None,
        predictor_won=outcome.won if outcome and reason is None else None,
        replay_ndcg=outcome.ndcg if outcome else (),
        replay_log_rank=outcome.log_rank if outcome else (),
    )
    return compared, outcome if reason is None else None


def _counted(
    policy: PredictorPolicy,
    before: PredictorState,
    search: RankedSearch,
    outcome: influence.ComparisonOutcome | None,
    margins: dict[Surface, Margins],
) -> PredictorState:
    """Return the state of a surface after one more search."""
    if outcome is None:
        return before
    standing, has_drifted = influence.judged(
        before.standing, outcome.won, policy.drift_reset_window
    )
    record = margins[search.surface]
    record = Margins(
        np.vstack([record.ndcg, outcome.ndcg]), np.vstack([record.log_rank, outcome.log_rank])
    )
    margins[search.surface] = record
    weighings = influence.weigh(record, before.history)
    standing = influence.weighed(
        standing, weighings, policy.influence, policy.min_training_sessions
    )
    state = replace(
        before,
        standing=standing,
        scorer=KIND,
        fresh_sessions=before.fresh_sessions + 1,
        order_reason="drift" if has_drifted else before.order_reason,
    )
    if search.model_version == state.version:
        state, _ = count_trial(state, outcome.won)
    return state


def _details(search: RankedSearch) -> dict[str, object]:
    names = ("number", "predictor_ndcg", "baseline_ndcg", "predictor_won", "reason", "alpha_after")
    return {name: getattr(search, name) for name in names}
