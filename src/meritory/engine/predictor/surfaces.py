"""The models of recall and of prompts: a few weights each, kept in the predictor's state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import BadCheckpoint
from meritory.engine.predictor.state import PredictorState
from meritory.model.ranker import KIND, Ranker, baseline_weights
from meritory.ports.scorer import BASE_VERSION
from meritory.rank.search_features import SEARCH_FEATURE_VERSION, SEARCH_FEATURES, SEARCH_LAYOUT

Floats = NDArray[np.float64]
# Trained on public data (decision 38); a bench may name another file.
BASE_FILE = Path(str(files("meritory.data") / "search-base.json"))
# The base that is served before anything was learned: it knows nothing of age.
FIRST_BASE = "timeless"


def base_weights(name: str = FIRST_BASE) -> Floats:
    """Return weights that learning may start from."""
    return bases()[name]


def bases() -> Mapping[str, Floats]:
    """Return the weights that learning may start from; only those that fit the features."""
    return _read(BASE_FILE)


@cache
def _read(path: Path) -> Mapping[str, Floats]:
    found = json.loads(path.read_text("utf-8"))
    if found["feature_version"] != SEARCH_FEATURE_VERSION:
        return {FIRST_BASE: baseline_weights(SEARCH_LAYOUT)}
    return {
        name: np.array([float(weights.get(feature, 0.0)) for feature in SEARCH_FEATURES])
        for name, weights in found["bases"].items()
    }


def weights_of(state: PredictorState, version: int) -> Floats:
    """Return the weights of a model of a surface; raise BadCheckpoint if it is not there."""
    if version == BASE_VERSION:
        return base_weights()
    weights = np.array(state.models.get(str(version), ()), np.float64)
    if weights.shape != (SEARCH_LAYOUT.width,) or not np.isfinite(weights).all():
        raise BadCheckpoint(f"model {version} is not there", hint="the formula ranks alone")
    return weights


def usable(state: PredictorState) -> PredictorState:
    """Return a state whose model has today's features: one of others gives way to the base.

    The base then serves without influence, and its searches are recorded, so learning goes on.
    """
    weights = state.models.get(str(state.version))
    if weights is None or len(weights) == SEARCH_LAYOUT.width:
        return state
    return state.rolled_back(BASE_VERSION, KIND)


def ranker_of(state: PredictorState) -> Ranker:
    """Return the model of a surface that serves."""
    weights = weights_of(state, state.version)
    return Ranker({"weights": weights, "prior": base_weights()}, SEARCH_LAYOUT)


def versions_of(state: PredictorState) -> list[int]:
    """Return the versions that can serve, latest first; the base is always the last."""
    return [*sorted((int(version) for version in state.models), reverse=True), BASE_VERSION]
