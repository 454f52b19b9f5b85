"""Recorded sessions of an agent, ranked again with another half-life or another floor."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bench.calibrate_rule import Floats, Sweep, Table
from bench.calibrate_score import DEPTH, FLOOR, HALF_LIFE, HALF_LIFE_DAYS, MEASURES
from bench.streams_data import load
from bench.streams_kept import Kept
from bench.streams_replay import Run, replay
from meritory.domain.policy import SessionPolicy, SourceWeights
from meritory.rank import composite, hybrid
from meritory.rank.features import FEATURES

AGENTS = ("agent_specstory", "agent_calibrate")
_CLOSE = 1e-6

Columns = Mapping[str, Floats]


def tables(names: Sequence[str] = AGENTS) -> dict[str, dict[str, Table]]:
    """The tables of every stream by sweep, from one replay each without a predictor.

    What a session really used does not depend on what it was shown, so that another order of the
    candidates on record is what another setting would have served; only the counts of what was
    shown, a twentieth of the composite, would differ.
    """
    found: dict[str, dict[str, Table]] = {FLOOR.name: {}, HALF_LIFE.name: {}}
    for name in names:
        outcome = replay(load(name), Run(keep=True, settings={"predictor.enabled": False}))
        found[FLOOR.name][name] = table(name, outcome.kept, FLOOR, _above)
        found[FLOOR.name][f"{name}, prompt"] = table(name, outcome.kept, FLOOR, _prompted)
        found[HALF_LIFE.name][name] = table(name, outcome.kept, HALF_LIFE, with_half_life)
    return found


def table(
    name: str, kept: Sequence[Kept], sweep: Sweep, rule: Callable[[Columns, float], Floats]
) -> Table:
    """What each setting makes of each session; -inf leaves a candidate out."""
    rows, tuning = [], []
    for number, session in enumerate(kept):
        if session.ideal <= 0.0:
            continue
        known = dict(zip(FEATURES, session.features.T, strict=True))
        rows.append([_figures(session, rule(known, value)) for value in sweep.values])
        tuning.append(hashlib.sha256(f"{name}/{number}".encode()).digest()[0] % 2 == 0)
    return Table(MEASURES[:-1], np.array(rows).transpose(1, 0, 2), np.array(tuning))


def with_half_life(known: Columns, half_life_days: float) -> Floats:
    """The composite as it was recorded, but for how fast what was of use grows old."""
    used = known["log_useful_count"] > 0.0
    since = np.expm1(np.where(used, known["log_days_since_useful"], known["log_age_days"]))
    fresh = composite.recency(since)
    # How far history is trusted is not on record; it is what recency was multiplied by.
    at = int(np.argmax(fresh))
    trust = known["recency"][at] / fresh[at]
    if not np.allclose(trust * fresh, known["recency"], atol=_CLOSE):
        raise RuntimeError("the recency on record is not the one the composite is made from")
    aged = trust * composite.recency(since * HALF_LIFE_DAYS / half_life_days)
    others = (known[name] for name in ("usefulness", "confidence", "frequency"))
    return composite.explain(known["relevance"], aged, *others).composite


def _above(known: Columns, floor: float) -> Floats:
    """The recorded composite of what may be shown when a session begins."""
    shares = (known["centred_cosine"] >= floor) | (known["text"] > 0.0)
    always = (known["is_pinned"] > 0.0) | (known["is_constraint"] > 0.0)
    worth = shares | always | (known["log_useful_count"] > 0.0)
    return np.where(worth, known["composite"], -np.inf)


def _prompted(known: Columns, floor: float) -> Floats:
    """How well what is above the floor goes with what the session is about, as with a prompt.

    Which words are rare is not on record, so that more is left out here than would be.
    """
    none = np.zeros(len(known["cosine"]), np.intp)
    codes = known["provenance"].astype(np.intp)
    weight = hybrid.source_weight(codes, known["confidence"], none, SourceWeights())
    near = (hybrid.relevance(known["cosine"], weight) >= floor) & (known["text"] > 0.0)
    values = np.where(near, known["hybrid"], -np.inf)
    values[np.argsort(-values, kind="stable")[SessionPolicy().prompt_limit :]] = -np.inf
    return values


def _figures(session: Kept, values: Floats) -> list[float]:
    order = np.lexsort((session.baseline_ranks, -values))
    gains = session.gains[order[np.isfinite(values[order])]][:DEPTH]
    helped = np.flatnonzero(gains > 0.0)
    first = int(helped[0]) + 1 if helped.size else 0
    return [
        float(0 < first <= 3),
        1.0 / first if first else 0.0,
        float((gains / np.log2(np.arange(len(gains)) + 2.0)).sum()) / session.ideal,
    ]
