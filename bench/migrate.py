"""What moving a store costs, held against copying its file: `python -m bench.migrate`.

A file of 50,000 memories with vectors, history and some sessions goes into a PostgreSQL server of
our own that waits for the disk, is compared with it once more, and comes back into a new file.
What a plain copy costs is measured in the same round: the file copied and examined with SQLite's
own integrity check, and rewritten by `VACUUM INTO` and examined. A move makes full-text indexes
anew and reads every row of both sides, which a copy does not: the ratios say what that costs, and
a busy machine slows both of a round alike. The figure is the median over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg

from bench import report
from bench.postgres import address_of, throw_away_server
from bench.stock import fill, settings_of
from bench.texts import memories, questions
from meritory.domain.place import Place
from meritory.engine.transfer.backup import ModelFiles
from meritory.engine.transfer.migrate import MigrationReport, MigrationRequest, counts, move, verify
from meritory.store.migrate.endpoint import Endpoint
from meritory.store.migrate.postgres_endpoint import PostgresEndpoint
from meritory.store.migrate.sqlite_endpoint import SqliteEndpoint

MEMORIES = 50_000
SESSIONS = 20
ROUNDS = 3
STEPS = {"there": "into the database", "compare": "compared alone", "back": "back into a file"}


@contextlib.contextmanager
def side(place: Place, *, is_target: bool = False) -> Iterator[Endpoint]:
    """One side of a move."""
    opened: Endpoint
    if place.file is None:
        opened = PostgresEndpoint(place)
    else:
        opened = SqliteEndpoint(place.file, ModelFiles(place.file), is_target=is_target)
    with contextlib.closing(opened):
        yield opened


def moved(source: Place, target: Place) -> MigrationReport:
    """Moves a store, and demands that all of it came over."""
    with side(source) as one, side(target, is_target=True) as other:
        return _equal(move(one, other, MigrationRequest(), lambda done, total: None))


def compared(source: Place, target: Place) -> MigrationReport:
    """Compares two stores, and demands that they are the same."""
    with side(source) as one, side(target) as other:
        return _equal(verify(one, other, MigrationRequest(), lambda done, total: None))


def _equal(found: MigrationReport) -> MigrationReport:
    if not found.is_equal:
        raise RuntimeError(f"rows came out otherwise: {found.differences}")
    return found


def copied(source: Path, target: Path) -> None:
    """A plain copy, on the disk and examined."""
    shutil.copyfile(source, target)
    _synced_and_examined(target)


def rewritten(source: Path, target: Path) -> None:
    """A copy by SQLite itself, on the disk and examined."""
    with contextlib.closing(sqlite3.connect(source)) as raw:
        raw.execute("VACUUM INTO ?", (str(target),))
    _synced_and_examined(target)


def _synced_and_examined(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    with contextlib.closing(sqlite3.connect(path)) as raw:
        if raw.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise RuntimeError(f"{path} is damaged")


def took_s(work: Callable[[], object]) -> float:
    """How long something takes."""
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def one_round(file: Path, database: Place, folder: Path) -> dict[str, float]:
    """Seconds of each step, within the same minute."""
    here, back = Place(file=file), Place(file=folder / "back.db")
    return {
        "copy": took_s(lambda: copied(file, folder / "copy.db")),
        "there": took_s(lambda: moved(here, database)),
        "compare": took_s(lambda: compared(here, database)),
        "back": took_s(lambda: moved(database, back)),
        "vacuum": took_s(lambda: rewritten(file, folder / "vacuum.db")),
    }


def fresh(url: str, number: int) -> Place:
    """A new database on the server."""
    name = f"round_{number}"
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(f"CREATE DATABASE {name}".encode())
        parts = raw.info.get_parameters()
    return Place(url=address_of({**parts, "dbname": name}))


def measured(home: Path, rounds: int) -> dict[str, float]:
    """Medians over the rounds, and how many rows there are."""
    file = settings_of(home).store_file
    with side(Place(file=file)) as one, one.reading() as reading:
        rows = sum(sum(counts(reading, user).values()) for user in reading.users())
    times: list[dict[str, float]] = []
    # Without the settings that let a server forget: a team's waits for the disk.
    with throw_away_server(()) as url:
        for number in range(rounds):
            with tempfile.TemporaryDirectory(dir=home) as folder:
                times.append(one_round(file, fresh(url, number), Path(folder)))
    figures = {"rows": float(rows), "file_mib": file.stat().st_size / 2**20}
    for name in times[0]:
        figures[f"{name}_s"] = statistics.median(one[name] for one in times)
    for name in STEPS:
        figures[f"{name}_rows_per_s"] = rows / figures[f"{name}_s"]
        for plain in ("copy", "vacuum"):
            ratio = statistics.median(one[name] / one[plain] for one in times)
            figures[f"{name}_to_{plain}"] = ratio
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and stores."""
    parser = argparse.ArgumentParser(prog="python -m bench.migrate", description=__doc__)
    parser.add_argument("--memories", type=int, default=MEMORIES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, default=Path("migrate.json"))
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        fill(home, memories(options.memories), questions(SESSIONS))
        found = measured(home, options.rounds)
    print(f"{found['rows']:,.0f} rows, {found['file_mib']:.0f} MiB, median of {options.rounds}")
    print(f"cp and integrity_check           {found['copy_s']:6.2f} s")
    print(f"VACUUM INTO and integrity_check  {found['vacuum_s']:6.2f} s")
    for name, words in STEPS.items():
        print(
            f"{words:<18} {found[f'{name}_s']:6.2f} s, {found[f'{name}_rows_per_s']:>8,.0f} rows/s,"
            f" {found[f'{name}_to_copy']:5.1f} times cp,"
            f" {found[f'{name}_to_vacuum']:5.1f} times VACUUM INTO"
        )
    figures: dict[str, object] = {name: round(value, 3) for name, value in found.items()}
    report.write({"memories": options.memories, "rounds": options.rounds, **figures}, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
