"""In numbers: where the searches of a session had a memory, by the formula and by the model."""

from __future__ import annotations

from typing import Any

from meritory.domain.errors import MeritoryError
from meritory.domain.predictor import RankedSearch
from meritory.domain.world import moment_text
from meritory.engine.predictor.state import known_state
from meritory.engine.predictor.surfaces import base_weights, weights_of
from meritory.engine.services import Services
from meritory.model.ranker import Ranker, standardised
from meritory.rank.search_features import (
    SEARCH_FEATURE_VERSION,
    SEARCH_FEATURES,
    SEARCH_LAYOUT,
)


def searches_of(
    services: Services, user: str, session_key: str, memory_id: str
) -> list[dict[str, Any]]:
    """Return every search of a session that had a memory among its candidates, as JSON values."""
    found = services.store.searches(user, session_key)
    return [_told(services, user, one, memory_id) for one in found if memory_id in one.memory_ids]


def _told(services: Services, user: str, search: RankedSearch, memory_id: str) -> dict[str, Any]:
    place = search.memory_ids.index(memory_id)
    return {
        "surface": search.surface,
        "number": search.number,
        "at": moment_text(search.at),
        "candidates": len(search.memory_ids),
        "formula_rank": place + 1,
        "learned_rank": search.predictor_ranks[place],
        "was_shown": place in search.shown,
        "alpha": search.alpha,
        "model_version": search.model_version,
        "label": search.labels[place] if search.labels else None,
        "features": _features(services, user, search, place),
    }


def _features(
    services: Services, user: str, search: RankedSearch, place: int
) -> list[dict[str, Any]]:
    """Return what each feature added to the model's score, the largest first.

    Without the model, or for features of another version, only what is known.
    """
    if search.feature_version != SEARCH_FEATURE_VERSION:
        return []
    values = search.table[place].tolist()
    within = standardised(search.table, layout=SEARCH_LAYOUT)[place].tolist()
    state = known_state(services, user).surface(search.surface)
    try:
        weights = weights_of(state, search.model_version)
    except MeritoryError:
        columns = zip(SEARCH_FEATURES, values, within, strict=True)
        return [dict(zip(("name", "value", "within_search"), one, strict=True)) for one in columns]
    model = Ranker({"weights": weights, "prior": base_weights()}, SEARCH_LAYOUT)
    added = model.explained(search.table)[place].tolist()
    names = ("name", "value", "within_search", "weight", "adds")
    columns5 = zip(SEARCH_FEATURES, values, within, weights.tolist(), added, strict=True)
    rows: list[dict[str, Any]] = [dict(zip(names, column, strict=True)) for column in columns5]
    return sorted(rows, key=lambda row: -abs(row["adds"]))
