"""Features as the scorers see them: each column compared with the other candidates at hand."""

from __future__ import annotations

from typing import Final

import numpy as np

from meritory.errors import InputError
from meritory.model.base import Floats, Rows
from meritory.rank.features import EXPOSURE, FEATURES, LARGEST

COMPOSITE: Final = FEATURES.index("composite")
# Values further out say no more than this many standard deviations.
FARTHEST: Final = 5.0
# Columns that spread less than this differ by rounding alone.
_LEAST_SPREAD: Final = 1e-9
# Who learns from how often a memory was shown learns the old ranking, not what helps.
_HIDDEN: Final = sorted(FEATURES.index(name) for name in EXPOSURE)


def standardised(features: Floats, starts: Rows | None = None) -> Floats:
    """Z-scores of every column within a session, 0 for constant and for exposure columns.

    All are clipped but the composite's, whose order is kept. `starts` says at which row
    each of several stacked sessions begins; none of them may be empty.
    """
    table = np.asarray(features, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(FEATURES):
        raise InputError(
            f"features of the shape {table.shape} do not fit",
            hint=f"give one row per candidate and {len(FEATURES)} columns",
        )
    if not len(table):
        return np.empty_like(table)
    begins = np.zeros(1, np.int64) if starts is None else starts
    counts = np.diff(begins, append=len(table))
    known = np.clip(np.nan_to_num(table, nan=0.0), -LARGEST, LARGEST)
    spread = np.maximum.reduceat(known, begins) - np.minimum.reduceat(known, begins)
    is_flat = spread <= _LEAST_SPREAD
    # The slightest difference in the composite is a difference in the baseline's order.
    is_flat[:, COMPOSITE] = spread[:, COMPOSITE] == 0.0
    is_flat[:, _HIDDEN] = True
    away = known - np.repeat(np.add.reduceat(known, begins) / counts[:, None], counts, axis=0)
    deviation = np.sqrt(np.add.reduceat(away * away, begins) / counts[:, None])
    # A spread too small to be squared still has an order.
    deviation = np.where(deviation > 0.0, deviation, np.maximum(spread, np.finfo(float).tiny))
    scale = np.where(is_flat, 0.0, 1.0 / np.where(is_flat, 1.0, deviation))
    found: Floats = away * np.repeat(scale, counts, axis=0)
    composite = found[:, COMPOSITE].copy()
    np.clip(found, -FARTHEST, FARTHEST, out=found)
    found[:, COMPOSITE] = composite
    return found
