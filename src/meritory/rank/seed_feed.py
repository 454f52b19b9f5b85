"""The composite as the seed feeds it, computed again from features on record. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from meritory.rank import scores

Floats = NDArray[np.float64]


def seed_composite(known: Mapping[str, Floats], sources: scores.SourceWeights) -> Floats:
    """The five weights fed with the raw cosine, the creation time and the stored usefulness.

    `known` are recorded features by name. How often a memory was demoted is not recorded; a
    demotion is rare, and moves one step.
    """
    weight = scores.source_weight(
        known["provenance"].astype(np.intp),
        known["confidence"],
        np.zeros(len(known["cosine"]), np.intp),
        sources,
    )
    return scores.explain(
        scores.relevance(known["cosine"], weight),
        scores.recency(np.expm1(known["log_age_days"])),
        known["stored_usefulness"],
        known["confidence"],
        known["frequency"],
    ).composite
