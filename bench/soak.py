"""A year of use on a fake clock: `python -m bench.soak`, or `make soak`.

Sessions and memories are spread evenly over the days. Each session starts, is prompted, rated and
ended with a transcript; the daemon's daily and weekly jobs run every morning. Measured are the size
of the store, the CPU time of session starts, the work of retention, and the health of the store.

Starts are compared at the end: the store as it was after the first month and as it is now start
sessions in turn, so that a busy machine slows both alike.

`--size small` takes a minute, `--size tenth` about ten, the whole year about one hour and a half.
`--home DIR` keeps the store, and a later run continues there; `--minutes N` stops early and prints
the figures so far. `--control` switches retention off: the store must then miss its size.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

# As in the daemon. More threads than cores to spare would count as work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from bench.authority import Report
from bench.texts import memories, sentences
from meritory import Memory
from meritory.engine.quality import maintenance
from meritory.settings import Settings, load_settings

START = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
PROJECTS = ("shop", "website", "warehouse")
PROMPTS_PER_SESSION = 2
# A training after every session, the default, would take hours of the soak.
TRAIN_EVERY_SESSIONS = 25
# Characters of a transcript; the store keeps at most 12,000.
TRANSCRIPT_CHARS = 4_000
START_RATIO_MAX = 1.3
MONTH_DAYS = 30
# Starts of each store. A daemon runs for months, so the first ones fill its caches.
COMPARED_STARTS, WARM_STARTS = 200, 1_500
_MB = 1_000_000
_RETENTION = ("retention.", "sessions.")


@dataclass(frozen=True, slots=True)
class SoakSize:
    """How much happens in how many days, and the largest store that passes."""

    sessions: int
    memories: int
    days: float
    store_mb: float


SIZES = {
    "small": SoakSize(sessions=40, memories=160, days=8, store_mb=2.5),
    "tenth": SoakSize(sessions=500, memories=2_000, days=36.5, store_mb=15),
    "full": SoakSize(sessions=5_000, memories=20_000, days=365, store_mb=150),
}


class FakeClock:
    """The time of day of the soak."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@dataclass(slots=True)
class Progress:
    """What has run so far; it is stored, so that a later run continues."""

    sessions: int = 0

    @classmethod
    def load(cls, file: Path) -> Progress:
        """Return the progress of an earlier run, or none."""
        return cls(**json.loads(file.read_text())) if file.exists() else cls()


class Soak:
    """A store that is used day by day."""

    def __init__(self, home: Path, size: SoakSize, *, is_control: bool) -> None:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.home, self.size = home / "home", size
        self.first_month = home / "first-month"
        self.clock = FakeClock()
        self._progress_file = home / "soak.json"
        self.progress = Progress.load(self._progress_file)
        self._texts = memories(size.memories)
        self._pool, _ = sentences()
        self._is_control = is_control

    def run(self, minutes: float) -> None:
        """Hold the sessions that are left, until the time is up."""
        until_s = time.monotonic() + minutes * 60.0
        month = round(MONTH_DAYS / self.size.days * self.size.sessions)
        if self.progress.sessions < month <= self.size.sessions:
            self._hold(month, until_s)
            if self.progress.sessions == month:
                shutil.copytree(self.home, self.first_month)
        self._hold(self.size.sessions, until_s)

    def _hold(self, last: int, until_s: float) -> None:
        """Hold sessions up to a number, until the time is up."""
        step = timedelta(days=self.size.days / self.size.sessions)
        first = self.progress.sessions
        self.clock.now = START + first * step
        settings = _settings(self.home)
        with Memory(settings=settings, clock=self.clock, background=False) as memory:
            schedule = maintenance.Schedule(memory.services)
            day = self.clock.now.date()
            for number in range(first, last):
                self.clock.now = START + number * step
                if self.clock.now.date() != day and not self._is_control:
                    day = self.clock.now.date()
                    schedule.look()
                    memory.drain()
                self._session(memory, number)
                self.progress.sessions = number + 1
                if number % 20 == 0:
                    self._save()
                if time.monotonic() > until_s:
                    break
            if not self._is_control:
                self.clock.now += timedelta(days=1)
                schedule.look()
                memory.drain()
        self._save()

    def _save(self) -> None:
        self._progress_file.write_text(json.dumps(asdict(self.progress)))

    def _session(self, memory: Memory, number: int) -> None:
        source = random.Random(number)
        project = source.choice(PROJECTS)
        each = self.size.memories // self.size.sessions
        fresh = self._texts[number * each : (number + 1) * each]
        memory.remember_many([{"content": text, "project": project} for text in fresh])
        topics = source.sample(self._texts[: max(1, (number + 1) * each)], k=PROMPTS_PER_SESSION)
        session = memory.session(f"s{number}", project, context=_question(topics[0]))
        turns: list[dict[str, str]] = []
        for topic in topics:
            self.clock.now += timedelta(minutes=5)
            session.prompt(_question(topic))
            if not turns:
                # The agent answers one request for ratings.
                words = set(topic.lower().split())
                scores = {
                    shown.handle: len(words & set(shown.content.lower().split())) / len(words)
                    for shown in session.memories
                }
                session.rate({handle: round(score, 2) for handle, score in scores.items()})
            turns.append({"role": "user", "text": _question(topic)})
            turns.extend(self._talk(source, topic))
        self.clock.now += timedelta(minutes=5)
        session.end(turns)
        memory.drain()

    def _talk(self, source: random.Random, topic: str) -> Iterator[dict[str, str]]:
        """Yield what the agent does about a topic."""
        length = TRANSCRIPT_CHARS // PROMPTS_PER_SESSION
        yield {"role": "tool", "text": f"grep -rn '{topic[:40]}' src"}
        said = f"{topic} {' '.join(source.sample(self._pool, 10))}"
        yield {"role": "result", "text": "\n".join(source.sample(self._pool, 10))[: length // 2]}
        yield {"role": "assistant", "text": said[: length // 2]}

    # -- figures --------------------------------------------------------------------------

    @property
    def file(self) -> Path:
        """The store's file."""
        return self.home / "meritory.db"

    def store_mb(self) -> float:
        """Return the size of the store with its log."""
        parts = (self.file.with_name(self.file.name + end) for end in ("", "-wal"))
        return sum(part.stat().st_size for part in parts if part.exists()) / _MB

    def start_cpu_ms(self) -> tuple[float, float]:
        """Return the p95 of the CPU time of starts after the first month, and now."""
        stores = (self.first_month, self.home)
        times: dict[Path, list[float]] = {store: [] for store in stores}
        source = random.Random(0)
        known = self._texts[: len(self._texts) * MONTH_DAYS // round(self.size.days)]
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as opened:
            memories_of = {}
            for number, store in enumerate(stores):
                shutil.copytree(store, Path(folder) / str(number))
                settings = load_settings(Path(folder) / str(number), {})
                memory = Memory(settings=settings, clock=self.clock, background=False)
                memories_of[store] = opened.enter_context(memory)
            for number in range(COMPARED_STARTS + WARM_STARTS):
                project, topic = source.choice(PROJECTS), source.choice(known)
                for store, memory in memories_of.items():
                    began = time.process_time()
                    memory.session(f"compared-{number}", project, context=_question(topic))
                    times[store].append((time.process_time() - began) * 1000.0)
        first, now = (float(np.percentile(times[s][WARM_STARTS:], 95)) for s in stores)
        return first, now

    def counters(self) -> dict[str, int]:
        """Return what retention erased, by kind."""
        with Memory(settings=load_settings(self.home, {}), background=False) as memory:
            counted = memory.services.store.counters(memory.scope.user)
            problems = memory.services.store.check(deep=True)
        return {
            **{name: count for name, count in counted.items() if name.startswith(_RETENTION)},
            "problems": len(problems),
        }

    def tables(self) -> list[tuple[str, float]]:
        """Return the size of each table with its indexes in MB, largest first."""
        with sqlite3.connect(self.file) as connection:
            found = connection.execute(
                """SELECT m.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_schema m
                    ON m.name = d.name GROUP BY m.tbl_name ORDER BY 2 DESC"""
            ).fetchall()
        return [(name, size / _MB) for name, size in found]


def _settings(home: Path) -> Settings:
    """Return the settings of the soak: the defaults, but for trainings."""
    settings = load_settings(home, {})
    predictor = replace(settings.predictor, train_interval_sessions=TRAIN_EVERY_SESSIONS)
    return replace(settings, predictor=predictor)


def _question(topic: str) -> str:
    return f"What do we know about {' '.join(topic.split()[:8])}?"


def measure(
    name: str, home: Path, *, is_control: bool = False, minutes: float = 1e6
) -> tuple[Report, list[str]]:
    """Run a soak; return its checks, and lines about what fills the store."""
    size = SIZES[name]
    soak = Soak(home, size, is_control=is_control)
    soak.run(minutes)
    done = soak.progress.sessions
    share = done / size.sessions
    report = Report("soak")
    counted = soak.counters()
    stored_mb = soak.store_mb()
    report.at_most("store, MB", round(stored_mb, 2), round(size.store_mb * share, 2))
    if soak.first_month.exists():
        first_ms, now_ms = soak.start_cpu_ms()
        note = f"CPU {first_ms:.1f} ms after a month, {now_ms:.1f} ms now"
        report.at_most(
            "session start p95, now by first month", now_ms / first_ms, START_RATIO_MAX, note
        )
    report.at_least("sessions packed", counted.get("sessions.packed", 0), 1)
    if name == "full" and share == 1.0:
        report.at_least("sessions thinned", counted.get("sessions.thinned", 0), 1)
        report.at_least("transcripts erased", counted.get("retention.transcripts", 0), 1)
    report.at_most("problems that a deep check finds", counted["problems"], 0)
    lines = [f"{done} sessions, {stored_mb * 1000 / max(1, done):.1f} kB a session"]
    lines += [f"{table:28} {mb:8.2f} MB" for table, mb in soak.tables()[:14]]
    lines += [f"{kind:28} {count:8}" for kind, count in counted.items()]
    return report, lines


def main(arguments: Sequence[str]) -> int:
    """Print the figures; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--size", choices=sorted(SIZES), default="full")
    parser.add_argument("--home", type=Path, help="keep the store here and continue there")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after this time")
    parser.add_argument("--control", action="store_true", help="switch retention off")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder) / "home"
        report, lines = measure(
            options.size, home, is_control=options.control, minutes=options.minutes
        )
    for line in lines:
        print(line)
    for check in report.checks:
        mark = "ok  " if check.is_met else "MISS"
        print(f"{mark} {check.name:44} {check.figure:9.2f} {check.bar:>9}  {check.note}")
    return int(not all(check.is_met for check in report.checks))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
