"""How slow this machine is, so that tests wait longer where everything takes longer."""

from __future__ import annotations

import os
import statistics
import time
from typing import Final

VARIABLE: Final = "MERITORY_TEST_SLOWNESS"
# One round of the loop below on an idle core of 2024, and the largest factor that is believed.
REFERENCE_S: Final = 0.020
SLOWEST: Final = 20.0
_ROUNDS, _STEPS = 7, 300_000


def _measured() -> float:
    rounds = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        sum(number * number for number in range(_STEPS))
        rounds.append(time.perf_counter() - began)
    return factor(statistics.median(rounds))


def factor(round_s: float) -> float:
    """Return how many times slower than the reference a machine is, at least 1."""
    return min(SLOWEST, max(1.0, round_s / REFERENCE_S))


def _known() -> float:
    # Measured once: the workers of a run, which start together, would slow each other down.
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = f"{_measured():.2f}"
    return float(os.environ[VARIABLE])


SLOWNESS: Final = _known()


def patience(seconds: float) -> float:
    """Return how long to wait on this machine for something that takes `seconds` elsewhere."""
    return seconds * SLOWNESS
