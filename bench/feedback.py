"""What it costs to keep a report: `python -m bench.feedback`.

Two stores with the same memories, one with 1,000 reports and one with 100,000, are asked the same
in turn, so that what else the machine does meanwhile falls on both alike. The ratio of the two says
whether a report costs more when there are more of them.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.sessions import Row, Timed, finish
from bench.texts import memories
from meritory.api.memory import Memory
from meritory.domain.feedback import FeedbackEvent, Testimony
from meritory.domain.world import World
from meritory.store.contract.store import Transaction

MEMORIES = 1_000
FEW, MANY = 1_000, 100_000
BATCH = 5_000
CAPTURE_MS = 10.0
RATIO = 1.5
TOOLS = ("Bash", "Edit", "Read", "Write")
DOMAINS = ("git", "testing", "data", "ui", "general")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    rounds: int = 5
    calls_per_round: int = 40


Kind = Callable[[Memory, str], object]


def fresh(memory: Memory, text: str) -> object:
    """A mistake that nobody told before."""
    return memory.capture_feedback("down", text, last_action={"tool": "Bash"}, tags="bench")


def again(memory: Memory, text: str) -> object:
    """A mistake that was told before."""
    return memory.capture_feedback("down", "The release notes forgot the breaking change in v2")


def unclear(memory: Memory, text: str) -> object:
    """A bare thumbs down."""
    return memory.capture_feedback("down", "wrong")


def remembered(memory: Memory, text: str) -> object:
    """For comparison: the same text stored as a plain memory."""
    return memory.remember(f"For comparison: {text}")


KINDS: dict[str, Kind] = {
    "a new lesson": fresh,
    "a recurrence": again,
    "unclear": unclear,
    "plain memory": remembered,
}


def fill(memory: Memory, count: int, texts: Sequence[str]) -> None:
    """The memories, and so many reports, by direct inserts."""
    memory.remember_many([{"content": text, "on_similar": "keep"} for text in texts])
    known = [record.id for record in memory.page(100)]
    events = list(made_up(count, texts, known))
    for start in range(0, count, BATCH):
        part = events[start : start + BATCH]
        memory.services.store.write(
            "default", lambda transaction, part=part: put(transaction, part)
        )


def put(transaction: Transaction, events: Sequence[FeedbackEvent]) -> None:
    """Stores reports as capturing them would have."""
    for number, event in enumerate(events):
        transaction.add_feedback(event)
        transaction.put_wording(event.scope, event.id, f"lesson-{number % 997}")
        transaction.count_report(event.user, f"lesson-{number % 997}", event.polarity, event.at)
        said = Testimony(event.at, "person", float(event.polarity))
        transaction.add_testimony(event.user, event.id, {event.memory_ids[0]: said})


def made_up(count: int, texts: Sequence[str], known: Sequence[str]) -> Iterator[FeedbackEvent]:
    """Reports over the last two years, two of three of them negative."""
    source, world = random.Random(3), World()
    now = datetime.now(UTC)
    for number in range(count):
        text = source.choice(texts)
        yield FeedbackEvent(
            id=world.new_id(),
            at=now - timedelta(days=730) * (1 - number / count),
            signal="down",
            polarity=-1 if number % 3 else 1,
            status="promoted" if number % 4 else "clarification_required",
            user="default",
            context=text,
            what_went_wrong=text,
            tags=(source.choice(DOMAINS), "bench"),
            domain=source.choice(DOMAINS),
            last_action={"tool": source.choice(TOOLS)},
            quality=0.5,
            memory_ids=(source.choice(known),),
            memory_id=f"lesson-{number % 997}",
            occurrence=1,
        )


def capture_rows(stores: dict[int, Memory], texts: Sequence[str], plan: Plan) -> list[Row]:
    """How long each kind of report takes, in both stores by turns."""
    times = {(kind, count): Timed() for kind in KINDS for count in stores}
    said = iter(texts)
    for number in range(plan.rounds):
        for kind, capture in KINDS.items():
            wanted = [f"{next(said)} Round {number}." for _ in range(plan.calls_per_round)]
            taken: dict[int, list[float]] = {count: [] for count in stores}
            for text in wanted:
                for count, memory in stores.items():
                    began = time.perf_counter()
                    capture(memory, text)
                    taken[count].append((time.perf_counter() - began) * 1e3)
            for count in stores:
                times[kind, count].rounds.append(taken[count])
    rows: list[Row] = []
    plain = times["plain memory", MANY].p50
    for kind in KINDS:
        few, many = times[kind, FEW], times[kind, MANY]
        note = f"p95 {many.p95:.1f} ms; {many.p50 / plain:.2f} of a plain memory"
        bar = None if KINDS[kind] is remembered else CAPTURE_MS
        rows.append((f"{kind}, at {MANY:,} reports, p50 ms", many.p50, bar, note))
        rows.append((f"{kind}, ratio to {FEW:,} reports", many.p50 / few.p50, RATIO, ""))
    return rows


def read_rows(memory: Memory) -> list[Row]:
    """What people ask for; nobody waits for it who reports."""
    rows: list[Row] = []
    for name, read in (
        ("summary", memory.feedback_summary),
        ("risk", memory.feedback_risk),
        ("list", memory.feedback_events),
        ("pairs", memory.feedback_pairs),
    ):
        taken = []
        for _ in range(3):
            began = time.perf_counter()
            read()
            taken.append((time.perf_counter() - began) * 1e3)
        rows.append((f"{name} of {MANY:,} reports, ms", min(taken), None, ""))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and stores; says which bars were missed by the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.feedback", description=__doc__)
    parser.add_argument("--json", type=Path, help="result file")
    options = parser.parse_args(arguments)
    for name in [name for name in os.environ if name.startswith("MERITORY_")]:
        del os.environ[name]
    plan = Plan()
    texts = memories(MEMORIES + 2 * plan.rounds * plan.calls_per_round * len(KINDS))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        os.environ["MERITORY_HOME"] = folder
        stores = {
            count: stack.enter_context(Memory(Path(folder) / f"{count}.db", background=False))
            for count in (FEW, MANY)
        }
        for count, memory in stores.items():
            fill(memory, count, texts[:MEMORIES])
        rows = capture_rows(stores, texts[MEMORIES:], plan)
        rows += read_rows(stores[MANY])
    return finish(rows, options.json or Path("feedback.json"), {})


if __name__ == "__main__":
    sys.exit(main())
