"""The past in memory: however it grew, it is what one read at once would give."""

from __future__ import annotations

import random
from dataclasses import fields
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from contract.builders import EMBEDDER, NOW, OTHER_EMBEDDER, insert, memory_id, record, unit
from contract.sessions import USER, begin
from meritory.rank.usage_history import UsedSessions
from meritory.store.search.cache import LESSONS_KEPT, UsageHistory
from meritory.store.sql.mapper import SqlConnection
from meritory.store.sqlite.store import SqliteStore

SESSIONS, STEPS, MEMORIES = 12, 60, 9


def columns(past: UsedSessions) -> dict[str, NDArray[np.generic]]:
    return {item.name: getattr(past, item.name) for item in fields(UsedSessions)}


def same(one: UsedSessions, other: UsedSessions) -> bool:
    pairs = zip(columns(one).values(), columns(other).values(), strict=True)
    return all(np.array_equal(left, right) for left, right in pairs)


def teach(store: SqliteStore, draw: random.Random, key: str) -> None:
    helped = draw.sample(range(1, MEMORIES + 1), draw.randrange(4))
    uses = {memory_id(number): draw.random() for number in helped}
    store.write(USER, lambda t: t.put_labels(USER, key, [], uses))


@pytest.mark.parametrize("kept", [LESSONS_KEPT, 2])
def test_the_past_that_grew_is_the_past_read_at_once(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr("meritory.store.search.cache.LESSONS_KEPT", kept)
    draw = random.Random(11)
    insert(store, *(record(number) for number in range(1, MEMORIES + 1)))
    for number in range(SESSIONS):
        # Some begin at the same moment, some have no vector, or one of another embedder.
        vector, embedder = [
            (unit(1, number, 0, 0), EMBEDDER.name),
            (unit(1, 0, number), OTHER_EMBEDDER.name),
            (None, None),
        ][draw.choice((0, 0, 0, 1, 2))]
        begin(
            store,
            key=f"s{number}",
            started_at=NOW + timedelta(hours=draw.randrange(6)),
            project=draw.choice((None, "p")),
            embedder=embedder,
            context_vector=vector,
        )
    living = {name: UsageHistory(USER) for name in (EMBEDDER.name, OTHER_EMBEDDER.name, None)}
    changing = UsageHistory(USER)
    handed_out: list[tuple[UsedSessions, dict[str, NDArray[np.generic]]]] = []
    for step in range(STEPS):
        # In any order, and some again.
        teach(store, draw, f"s{draw.randrange(SESSIONS)}")
        with store._engine.read("default") as connection:
            for name, index in living.items():
                grown = index.caught_up(connection, name)
                assert same(grown, UsageHistory(USER).caught_up(connection, name))
                handed_out.append((grown, {k: v.copy() for k, v in columns(grown).items()}))
            name = list(living)[step % 3]
            assert same(changing.caught_up(connection, name), handed_out[step % 3 - 3][0])
    # What somebody still looks at has not changed under their eyes.
    for past, then in handed_out:
        assert all(np.array_equal(now, then[name]) for name, now in columns(past).items())
    assert len(handed_out[-1][0].times_days) == SESSIONS
    assert handed_out[-3][0].contexts.shape == (SESSIONS, EMBEDDER.dimension)


def test_what_is_learned_between_two_looks_is_not_missed(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meritory.store.search.cache.LESSONS_KEPT", 1)
    draw = random.Random(3)
    insert(store, *(record(number) for number in range(1, MEMORIES + 1)))
    for number in range(4):
        begin(store, key=f"s{number}", started_at=NOW + timedelta(hours=number))

    class Overtaken(UsageHistory):
        """Others learn right after it has looked, and before it reads old ones again."""

        def _from(self, connection: SqlConnection, position: int) -> list[Any]:
            for key in later.pop(0) if later else ():
                teach(store, draw, key)
            return super()._from(connection, position)

    later: list[tuple[str, ...]] = [(), ("s3", "s1")]
    index = Overtaken(USER)
    for key in ("s1", "s2"):
        teach(store, draw, key)
    with store._engine.read("default") as connection:
        index.caught_up(connection, None)
        teach(store, draw, "s0")
        index.caught_up(connection, None)
        assert not later
        assert same(
            index.caught_up(connection, None), UsageHistory(USER).caught_up(connection, None)
        )
