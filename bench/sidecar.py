"""What the predictor costs: `python -m bench.sidecar`.

Scores of 150 candidates through its own process, when nothing else runs and while a training
does; what that process needs; and how long both scorers take to learn from 500 sessions.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import numpy as np

from bench.sessions import POOL_SIZE, Row, Timed, finish
from bench.texts import memories
from meritory.api.memory import Memory
from meritory.domain.place import Place
from meritory.domain.world import World
from meritory.model import ranker
from meritory.model.attention import Attention
from meritory.model.base import BUCKETS, Floats, Gradient, RankingQuery, TrainingExample
from meritory.model.checkpoint import Checkpoint, CheckpointFlags
from meritory.model.fit import FitPlan as Epochs
from meritory.model.fit import fit
from meritory.ports.scorer import BASE_VERSION, ModelFolders, ScoreRequest, base_weights
from meritory.ports.sidecar import SidecarScorer, SidecarSpec
from meritory.rank.features import FEATURE_VERSION, FEATURES

USER = "bench"
VECTOR_WIDTH = 256
WORDS = 14
CANDIDATES = 80
READY_WITHIN_S = 60.0
ATTENTION_VERSION = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured, and from where on a figure is too high."""

    rounds: int = 7
    scores_per_round: int = 150
    starts: int = 5
    sessions: int = 500
    candidates: int = CANDIDATES
    epochs: int = 50
    score_p50_ms: float = 3.0
    score_p95_ms: float = 10.0
    rss_mb: float = 150.0
    features_s: float = 3.0
    attention_s: float = 20.0


# -- the process ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stock:
    """A store with as many memories as a session has candidates."""

    folder: Path
    memory_ids: tuple[str, ...]
    embedder: str


def stocked(folder: Path) -> Stock:
    """Fills a new store, and puts an attention model beside it."""
    with Memory(folder / "meritory.db", user=USER, background=False) as memory:
        items = [{"content": text, "on_similar": "keep"} for text in memories(POOL_SIZE)]
        kept = [result.memory for result in memory.remember_many(items)]
        embedder = memory.services.embedding.serving_name() or ""
    made = Stock(folder, tuple(one.id for one in kept if one is not None), embedder)
    _put_attention(made)
    return made


def request(stock: Stock, seed: int, version: int = BASE_VERSION) -> ScoreRequest:
    """What a session asks, with made up numbers."""
    rng = np.random.default_rng(seed)
    return ScoreRequest(
        session_key="bench",
        memory_ids=stock.memory_ids,
        features=rng.standard_normal((len(stock.memory_ids), len(FEATURES))),
        feature_version=FEATURE_VERSION,
        user=USER,
        version=version,
        embedder=stock.embedder,
        context=rng.standard_normal(VECTOR_WIDTH).astype(np.float32),
        context_text="where does the daemon keep the models of its users " * 20,
        project_slot=7,
    )


@contextmanager
def running(folder: Path) -> Iterator[tuple[SidecarScorer, float]]:
    """A process that is ready to score, and how many milliseconds that took."""
    shelves = ModelFolders(folder / "models", base_weights())
    spec = SidecarSpec(
        store=Place(file=folder / "meritory.db"), shelves=shelves, score_timeout_ms=5_000.0
    )
    scorer = SidecarScorer(spec, "features", World())
    try:
        began = time.perf_counter()
        scorer.warm()
        while not scorer.facts.is_ready:
            if time.perf_counter() - began > READY_WITHIN_S:
                raise RuntimeError(f"it did not come up: {scorer.facts.last_error}")
            time.sleep(0.001)
        yield scorer, (time.perf_counter() - began) * 1e3
    finally:
        scorer.close()


def score_times(scorer: SidecarScorer, asked: Sequence[ScoreRequest], plan: Plan) -> Timed:
    """Scores one after the other, as a session start waits for them."""
    times = Timed()
    scorer.score(asked[0])
    before_ms = _cpu_ms(scorer)
    for _ in range(plan.rounds):
        taken = []
        for number in range(plan.scores_per_round):
            began = time.perf_counter()
            scorer.score(asked[number % len(asked)])
            taken.append((time.perf_counter() - began) * 1e3)
        times.rounds.append(taken)
    times.cpu_ms = _cpu_ms(scorer) - before_ms
    return times


def _cpu_ms(scorer: SidecarScorer) -> float:
    parts = Path(f"/proc/{scorer.facts.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) * 1e3 / os.sysconf("SC_CLK_TCK")


def _rss_mb(scorer: SidecarScorer) -> float:
    lines = Path(f"/proc/{scorer.facts.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


@contextmanager
def training(plan: Plan) -> Iterator[None]:
    """Meanwhile another process trains, as long as the block lasts."""
    command = [sys.executable, "-m", "bench.sidecar", "--train-on", str(plan.sessions)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"training\n":
            raise RuntimeError("the training did not begin")
        yield
        if process.poll() is not None:
            raise RuntimeError("the training ended while it was needed")
    finally:
        process.kill()
        process.communicate()


def process_rows(folder: Path, plan: Plan) -> list[Row]:
    """Everything about the process."""
    stock, begun = stocked(folder), []
    asked = [request(stock, seed) for seed in range(8)]
    for _ in range(plan.starts):
        with running(folder) as (_, start_ms):
            begun.append(start_ms)
    note = f"least {min(begun):.0f} ms"
    rows: list[Row] = [("start until ready, ms", statistics.median(begun), None, note)]
    with running(folder) as (scorer, _):
        rows += _score_rows(score_times(scorer, asked, plan), "", plan)
        rows.append(("RSS, features, MB", _rss_mb(scorer), plan.rss_mb, ""))
        with training(plan):
            rows += _score_rows(score_times(scorer, asked, plan), " while training", plan)
        asked = [replace(one, version=ATTENTION_VERSION) for one in asked]
        times = score_times(scorer, asked, plan)
        note = f"process CPU {times.cpu_each_ms:.2f} ms"
        rows.append((f"score {POOL_SIZE} by attention, p50 ms", times.p50, None, note))
        rows.append(("RSS with attention, MB", _rss_mb(scorer), plan.rss_mb, ""))
        faults = scorer.facts.crash_count + scorer.facts.timeout_count
        told = f"{scorer.facts.scores_processed} scored"
        rows.append(("crashes and timeouts", float(faults), 0.0, told))
    return rows


def _score_rows(times: Timed, when: str, plan: Plan) -> list[Row]:
    note = f"process CPU {times.cpu_each_ms:.2f} ms"
    return [
        (f"score {POOL_SIZE}{when}, p50 ms", times.p50, plan.score_p50_ms, note),
        (f"score {POOL_SIZE}{when}, p95 ms", times.p95, plan.score_p95_ms, ""),
    ]


def _put_attention(stock: Stock) -> None:
    model = Attention.fresh(VECTOR_WIDTH, np.random.default_rng(1))
    ModelFolders(stock.folder / "models", base_weights()).of(USER).put(
        Checkpoint(
            kind=model.kind,
            params=model.params,
            model_version=ATTENTION_VERSION,
            embedder=stock.embedder,
            features=FEATURES,
            feature_version=FEATURE_VERSION,
            flags=CheckpointFlags.FINE_TUNED,
            trained_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
    )


# -- training -------------------------------------------------------------------------------


def lessons(sessions: int, candidates: int) -> list[TrainingExample]:
    """Sessions in which a few candidates helped, for reasons that can be learned."""
    rng = np.random.default_rng(2)
    truth = rng.standard_normal(len(FEATURES))
    made = []
    for _ in range(sessions):
        table = rng.standard_normal((candidates, len(FEATURES)))
        noisy = table @ truth + rng.gumbel(size=candidates) * 3.0
        labels = np.where(noisy >= np.sort(noisy)[-3], 1.0, 0.0)
        query = RankingQuery(
            features=table,
            context=rng.standard_normal(VECTOR_WIDTH).astype(np.float32),
            vectors=rng.standard_normal((candidates, VECTOR_WIDTH)).astype(np.float32),
            context_words=rng.integers(0, BUCKETS, WORDS),
            words=tuple(rng.integers(0, BUCKETS, (candidates, WORDS))),
        )
        made.append(TrainingExample(query=query, labels=labels, weights=np.ones(candidates)))
    return made


def newton_passes(known: Sequence[TrainingExample], count: int) -> None:
    """Make this many passes over all sessions, although a fit stops long before."""
    with (
        mock.patch.object(ranker, "NEWTON_STEPS", count),
        mock.patch.object(ranker, "_CLOSE_ENOUGH", -1.0),
    ):
        ranker.fitted(known, ranker.baseline_weights())


class BatchRanker(ranker.Ranker):
    """The linear scorer, trained by gradients for comparison."""

    def with_params(self, params: Mapping[str, Floats]) -> BatchRanker:
        return BatchRanker(params)

    def loss_and_grads_of(
        self, lessons: Sequence[TrainingExample]
    ) -> tuple[float, dict[str, Gradient]]:
        """Return the sums over several sessions."""
        pairs = [self.loss_and_grads(lesson) for lesson in lessons]
        weights = np.sum([np.asarray(grads["weights"]) for _, grads in pairs], 0)
        return sum(loss for loss, _ in pairs), {"weights": weights}


def adam_epochs(known: Sequence[TrainingExample], count: int, *, attention: bool) -> None:
    """The same by gradients, batch after batch."""
    rng = np.random.default_rng(3)
    weights = ranker.baseline_weights()
    linear = BatchRanker({"weights": weights, "prior": weights})
    model = Attention.fresh(VECTOR_WIDTH, rng) if attention else linear
    _, losses = fit(model, known, Epochs(epochs=count), rng, lambda: False)
    if len(losses) != count or not np.isfinite(losses).all():
        raise RuntimeError(f"the training ended after {len(losses)} epochs")


def training_rows(plan: Plan) -> list[Row]:
    """How long learning takes."""
    known = lessons(plan.sessions, plan.candidates)
    size = f"{plan.sessions} x {plan.candidates}"
    timed = {
        "features, fit to the end": lambda: ranker.fitted(known, ranker.baseline_weights()),
        f"features, {plan.epochs} full passes": lambda: newton_passes(known, plan.epochs),
        f"features, {plan.epochs} epochs of Adam": lambda: adam_epochs(
            known, plan.epochs, attention=False
        ),
        f"attention, {plan.epochs} epochs": lambda: adam_epochs(known, plan.epochs, attention=True),
    }
    # The default scorer is never trained by Adam; that row is there to compare.
    bars = [plan.features_s, plan.features_s, None, plan.attention_s]
    return [
        _train_row(f"train {size}, {name}, s", work, bar)
        for (name, work), bar in zip(timed.items(), bars, strict=True)
    ]


def _train_row(name: str, work: Callable[[], object], bar: float | None) -> Row:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    taken, used = time.perf_counter() - began, time.process_time() - cpu
    # Others may have had the machine meanwhile, or there were two threads: the smaller is right.
    return name, min(taken, used), bar, f"{taken:.2f} s by the clock, CPU {used:.2f} s"


def _train_for_ever(sessions: int) -> None:
    known = lessons(sessions, CANDIDATES)
    print("training", flush=True)
    while True:
        adam_epochs(known, 1, attention=True)
        ranker.fitted(known, ranker.baseline_weights())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and stores; says which bars were missed by the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.sidecar", description=__doc__)
    parser.add_argument("--json", type=Path, help="result file")
    parser.add_argument("--train-on", type=int, metavar="N", help="only train, until it is killed")
    options = parser.parse_args(arguments)
    if options.train_on:
        _train_for_ever(options.train_on)
    plan = Plan()
    with tempfile.TemporaryDirectory() as folder:
        rows = process_rows(Path(folder), plan)
    rows += training_rows(plan)
    return finish(rows, options.json or Path("sidecar.json"), {})


if __name__ == "__main__":
    sys.exit(main())
