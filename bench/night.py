"""The nightly search for missed pairs in a large store: `python -m bench.night [--memories N]`.

The memories are stored without the gate, as an import does it, with planted pairs far apart from
each other. The search runs night by night until one round is complete. CPU time, so that other
work on the machine does not count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.sessions import Row, finish
from bench.texts import memories
from meritory import Memory
from meritory.engine.quality import missed_pairs, review

MEMORIES = 20_000
BATCH = 500
# No night may keep a processor busy for longer.
NIGHT_BAR_S = 10.0
PLANTED = (
    ("Quentin leads the glaciology group", "The glaciology group is led by Quentin"),
    ("We never ship the kayak firmware on Fridays", "Don't ship the kayak firmware on Fridays"),
    ("I prefer oolong in the observatory", "In the observatory I prefer oolong"),
    ("The ferret database listens on port 5432", "The ferret database listens on port 6543"),
    ("The zeppelin repository is on GitLab", "The zeppelin repository is on GitHub"),
    ("The marzipan quota is 20 crates", "The marzipan quota is 35 crates"),
    ("The harpsichord is on floor 3", "The harpsichord is on floor 5"),
    ("The planetarium closes at 6 pm", "The planetarium closes at 9 pm"),
)


def fill(memory: Memory, count: int) -> list[tuple[str, str]]:
    """Store texts without the gate; return the ids of the planted pairs."""
    texts = memories(count - 2 * len(PLANTED))
    first, second = zip(*PLANTED, strict=True)
    items = [*first, *texts, *second]
    ids: list[str] = []
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for at in range(0, len(items), BATCH):
        since = (start + timedelta(days=at / BATCH)).isoformat()
        batch = [
            {"content": text, "on_similar": "keep", "valid_from": since}
            for text in items[at : at + BATCH]
        ]
        ids += [one.memory.id for one in memory.remember_many(batch) if one.memory]
    return list(zip(ids[: len(PLANTED)], ids[-len(PLANTED) :], strict=True))


def rows(memory: Memory, count: int) -> list[Row]:
    """Search night by night until every memory was looked at once."""
    planted = fill(memory, count)
    memory.recall("warm up")
    services, user = memory.services, memory.scope.user
    nights: list[float] = []
    opened, left = [], count
    while left > 0:
        began = time.process_time()
        examined = missed_pairs.search(services, user).examined
        # The list is full: the round cannot end.
        left -= examined or left
        review.prune(services, user)
        nights.append(time.process_time() - began)
        opened.append(memory.review(1).total)
    links = {
        (one.older_id, one.newer_id)
        for one in services.store.links_of(user, [older for older, _ in planted])
    }
    found = sum(pair in links for pair in planted)
    most = float(missed_pairs.OPEN_LIMIT)
    return [
        ("nights of a round", float(len(nights)), None, f"{count:,} memories"),
        ("CPU of a night, mean s", sum(nights) / len(nights), None, ""),
        ("CPU of a night, most s", max(nights), NIGHT_BAR_S, ""),
        ("open pairs, most", float(max(opened)), most, "every night"),
        ("planted pairs missed", float(len(planted) - found), 0.0, f"of {len(planted)}"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and store; 1 when a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.night", description=__doc__)
    parser.add_argument("--memories", type=int, default=MEMORIES)
    parser.add_argument("--json", type=Path, help="result file")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory(Path(folder) / "meritory.db", background=False, project="bench") as memory,
    ):
        found = rows(memory, options.memories)
    return finish(found, options.json or Path("pairs.json"), {})


if __name__ == "__main__":
    sys.exit(main())
