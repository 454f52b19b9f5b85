"""What the learned order of recall is worth: python -m bench.recall_learning [--person NAME ...].

Every question of a RealMem person is a session of its own: the memories known by then are stored,
the question is recalled within the session, what came back is compared with what the reply really
used, and only then the library gets evidence. The same questions are asked of a store that does
not learn. Base weights come from the two people that choices are made on; the other three are
reported.

Rows: `base` learns from the shipped base weights, `alone` from the formula's own, so from this
person only. Regimes: `complete` (all uses, exactly) and `ratings` (an agent rates what it got, in
half of the sessions, with 15% errors). The control shuffles the evidence: learning must then do no
harm. Exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from bench import report
from bench.datasets import MissingData
from bench.realmem import DEVELOPED, PEOPLE, PREFIX, REPORTED_PEOPLE
from bench.streams_data import load
from bench.streams_regimes import Control, Occasion, Regime, Reporter, Shown
from bench.streams_replay import SETTINGS, Clock, Keeper
from bench.streams_rows import labelled
from bench.streams_types import StreamMemory, StreamSession
from meritory import Memory
from meritory.domain.predictor import TaughtSession
from meritory.domain.world import SeededWorld
from meritory.engine.jobs.runner import JobRunner
from meritory.engine.pipeline import LEARN, job_handler
from meritory.engine.predictor import surfaces
from meritory.engine.predictor.state import known_state
from meritory.engine.predictor.train import lesson_of
from meritory.engine.sessions.ratings import LEARN_JOB
from meritory.model.base import RankingQuery
from meritory.model.ranker import baseline_weights, fitted
from meritory.rank.metrics import ndcg_at
from meritory.rank.search_features import (
    SEARCH_FEATURE_VERSION,
    SEARCH_FEATURES,
    SEARCH_LAYOUT,
)
from meritory.settings import load_settings

Start = Literal["base", "alone", "formula"]
DEPTH = 10
SEEDS = 3
CONTROL_SEED = 1_000
# The strength with which base weights are held to the formula's.
BASE_STRENGTH = 20.0
# By base the features that it may not know. Age says much about a live agent and misleads where
# questions come at the end, so learning chooses between the two by the user's own searches.
BASES: dict[str, tuple[str, ...]] = {"timeless": ("log_age_days",), "recent": ()}
SHIPPED_BASE = surfaces.BASE_FILE
NAME = "recall-learning.json"
# By row and regime, the least that learning must reach as a multiple of the formula, and where.
BARS: dict[tuple[Start, Regime], tuple[str, float]] = {
    ("base", "complete"): ("all", 1.2),
    ("alone", "complete"): ("last quarter", 1.05),
    ("base", "ratings"): ("all", 1.08),
}
HARM_BAR = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One replay of one person."""

    person: str
    start: Start
    regime: Regime = "complete"
    control: Control | None = None
    seed: int = 0
    limit: int | None = None
    # Other base weights than the shipped ones.
    base: Path | None = None


@dataclass(slots=True)
class Served:
    """The NDCG@10 of each question as it was served, and the weight of the formula in it."""

    plan: Plan
    ndcg: list[float] = field(default_factory=list)
    alpha: list[float] = field(default_factory=list)
    taught: list[TaughtSession] = field(default_factory=list)


class SourcedKeeper(Keeper):
    """Stores memories with the dialogue they come from, as extraction does."""

    def _item(self, one: StreamMemory, text: str) -> dict[str, Any]:
        key, _, turn = one.id.rpartition("/")
        return {**super()._item(one, text), "source": {"session_key": key, "turn": turn}}


def replay(plan: Plan) -> Served:
    """Ask all questions of a person in time order, with evidence after each."""
    stream = load(f"{PREFIX}{plan.person}")
    rng = np.random.default_rng(plan.seed)
    reporter = Reporter(stream, plan.regime, plan.control, rng)
    clock, served = Clock(stream.sessions[0].at), Served(plan)
    with tempfile.TemporaryDirectory() as place:
        # A worker replays several plans: none may keep the base of the one before.
        surfaces.BASE_FILE = plan.base or SHIPPED_BASE
        if plan.start == "alone":
            surfaces.BASE_FILE = _formula_base(Path(place))
        chosen = {**SETTINGS, "predictor.enabled": plan.start != "formula"}
        with Memory(
            Path(place) / "recall.db",
            clock=SeededWorld(plan.seed, clock),
            settings=load_settings(Path(place), {}).vary(chosen),
            everywhere=True,
            background=False,
        ) as memory:
            keeper = SourcedKeeper(memory, stream)
            for number, asked in enumerate(stream.sessions[: plan.limit]):
                clock.at = asked.at
                keeper.catch_up(asked.at)
                _step(memory, keeper, reporter, served, (number, asked))
            user = memory.scope.user
            served.taught = memory.services.store.taught_searches(
                user, "recall", SEARCH_FEATURE_VERSION, len(stream.sessions)
            )
    return served


def _step(
    memory: Memory,
    keeper: Keeper,
    reporter: Reporter,
    served: Served,
    question: tuple[int, StreamSession],
) -> None:
    """Ask one question, measure the answer, and deliver the evidence."""
    number, asked = question
    if not asked.context.strip():
        return
    gains = {keeper.ids[one]: gain for one, gain in asked.gains.items()}
    plan, services = served.plan, memory.services
    key = f"{plan.seed}-{number}-{asked.key}"
    session = memory.session(key)
    served.alpha.append(known_state(services, memory.scope.user).surface("recall").alpha)
    hits = memory.recall(asked.context, DEPTH, session=key, min_score=0.0)
    found = ndcg_at([hit.id for hit in hits], labelled(gains), DEPTH)
    served.ndcg.append(np.nan if found is None else found)
    if plan.start == "formula":
        return
    shown = [Shown(hit.id, hit.memory.content) for hit in hits]
    stored = [keeper.ids[one] for one in sorted(keeper.ids)]
    reporter.evidence(Occasion(number, asked.context, shown, gains, stored)).deliver(session)
    # The models of session starts, which train in processes of their own, are not measured here.
    handlers = {LEARN_JOB: job_handler(services, LEARN)}
    JobRunner(services.store, services.world, handlers).drain()


def _formula_base(folder: Path) -> Path:
    path = folder / "base.json"
    weights = {SEARCH_FEATURES[SEARCH_LAYOUT.baseline]: 1.0}
    path.write_text(
        json.dumps({"feature_version": SEARCH_FEATURE_VERSION, "bases": {"timeless": weights}}),
        "utf-8",
    )
    return path


# -- the base weights -------------------------------------------------------------------------


def make_base(out: Path, people: Sequence[str], workers: int) -> None:
    """Fit base weights to the searches of each of some people, and write their means."""
    plans = [Plan(person=person, start="alone") for person in people]
    with ProcessPoolExecutor(workers) as pool:
        taught = [served.taught for served in pool.map(replay, plans)]
    bases = {}
    for name, withheld in BASES.items():
        fits = [_base_fit(searches, withheld) for searches in taught]
        mean = (round(weight, 4) for weight in np.mean(fits, axis=0).tolist())
        bases[name] = dict(zip(SEARCH_FEATURES, mean, strict=True))
    text = json.dumps({"feature_version": SEARCH_FEATURE_VERSION, "bases": bases}, indent=1)
    out.write_text(f"{text}\n", "utf-8")
    print(f"{sum(map(len, taught))} searches of {', '.join(people)}\n{text}")


def _base_fit(searches: Sequence[TaughtSession], withheld: Sequence[str]) -> NDArray[np.float64]:
    """Return the weights that fit one person, who starts from the formula."""
    hidden = [SEARCH_FEATURES.index(name) for name in withheld]
    lessons = []
    for one in searches:
        table = one.features.copy()
        table[:, hidden] = 0.0
        lessons.append(lesson_of(one, RankingQuery(features=table)))
    prior = baseline_weights(SEARCH_LAYOUT)
    return fitted(lessons, prior, BASE_STRENGTH, layout=SEARCH_LAYOUT)[0].weights


# -- figures ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """Learned against formula over some people, all questions and the last quarter of each."""

    start: Start
    regime: Regime
    control: Control | None
    formula: float
    learned: float
    formula_last: float
    learned_last: float
    # The mean loss, not below 0.
    harm: float
    active_share: float

    def line(self) -> str:
        """Return the row as text."""
        control = f" {self.control}" if self.control else ""
        return (
            f"{self.start:6s} {self.regime}{control:10s}"
            f" formula {self.formula:.4f} learned {self.learned:.4f}"
            f" x{self.learned / self.formula:.3f}"
            f"  last quarter {self.formula_last:.4f} {self.learned_last:.4f}"
            f" x{self.learned_last / self.formula_last:.3f}"
            f"  active {self.active_share:.0%}"
        )


def row(runs: Sequence[Served], formula: dict[str, Served]) -> Row:
    """Return the figures of the runs of one kind; every question counts once per seed."""
    plan = runs[0].plan
    pairs = [(np.array(one.ndcg), np.array(formula[one.plan.person].ndcg)) for one in runs]
    lasts = [(a[3 * len(a) // 4 :], b[3 * len(b) // 4 :]) for a, b in pairs]
    learned, base = (float(np.nanmean(np.concatenate(side))) for side in zip(*pairs, strict=True))
    last, base_last = (float(np.nanmean(np.concatenate(side))) for side in zip(*lasts, strict=True))
    alphas = np.concatenate([one.alpha for one in runs])
    return Row(
        plan.start,
        plan.regime,
        plan.control,
        base,
        learned,
        base_last,
        last,
        max(0.0, base - learned),
        float((alphas < 1.0).mean()),
    )


def missed(rows: Iterable[Row]) -> list[str]:
    """Return the bars that were missed."""
    misses = []
    for one in rows:
        name = f"{one.start} {one.regime} {one.control or ''}".strip()
        if one.control is not None and one.harm > HARM_BAR:
            misses.append(f"{name}: harm {one.harm:.4f}, bar {HARM_BAR}")
        bar = BARS.get((one.start, one.regime))
        if one.control is not None or bar is None:
            continue
        where, least = bar
        ratio = one.learned / one.formula
        if where != "all":
            ratio = one.learned_last / one.formula_last
        if ratio < least:
            misses.append(f"{name}: x{ratio:.3f} in {where}, bar x{least}")
    return misses


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures and return 1 when a bar is missed."""
    options = _options(arguments)
    try:
        if options.make_base:
            make_base(options.make_base, options.base_people, options.workers)
            return 0
        kinds: list[tuple[Start, Regime, Control | None]] = [
            *((start, regime, None) for start, regime in BARS),
            ("base", "complete", "shuffled"),
            ("base", "ratings", "shuffled"),
        ]
        plans = [Plan(person=one, start="formula", limit=options.limit) for one in options.person]
        plans += [
            Plan(
                person=person,
                start=start,
                regime=regime,
                control=control,
                seed=seed + (CONTROL_SEED if control else 0),
                limit=options.limit,
            )
            for start, regime, control in kinds
            for person in options.person
            for seed in range(1 if regime == "complete" and control is None else options.seeds)
        ]
        with ProcessPoolExecutor(options.workers) as pool:
            runs = list(pool.map(replay, plans))
    except MissingData as missing:
        print(missing)
        return 0
    formula = {one.plan.person: one for one in runs if one.plan.start == "formula"}
    rows = []
    for kind in kinds:
        of_kind = [
            one for one in runs if (one.plan.start, one.plan.regime, one.plan.control) == kind
        ]
        rows.append(row(of_kind, formula))
        print(rows[-1].line())
    misses = missed(rows)
    for miss in misses:
        print("MISSED", miss)
    if options.json:
        people = list(options.person)
        report.write(
            {"people": people, "rows": [asdict(one) for one in rows], "missed": misses},
            options.json,
        )
    return 1 if misses else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.recall_learning", description=__doc__)
    parser.add_argument("--person", nargs="+", choices=PEOPLE, default=REPORTED_PEOPLE)
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help="runs per person with chance in them"
    )
    parser.add_argument("--limit", type=int, help="ask only the first questions")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="result file")
    parser.add_argument(
        "--make-base", type=Path, metavar="FILE", help="fit the base weights instead"
    )
    parser.add_argument(
        "--base-people", nargs="+", choices=PEOPLE, default=DEVELOPED, help="people of the base"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
