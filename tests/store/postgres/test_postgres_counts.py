"""What a tenant's row counts, and what is held in memory by it, after all that can happen."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from contract.builders import (
    NOW,
    found,
    insert,
    numbers,
    record,
    update,
    words_search,
)
from contract.rules import ACTION
from meritory.domain.memory import Scope, Source
from meritory.domain.rule import ActionQuery
from meritory.store.postgres import write
from meritory.store.postgres.store import PostgresStore
from meritory.store.sqlite.store import SqliteStore
from postgres_kit import execute_raw


def test_texts_that_come_go_and_come_back_are_counted_right(address: str) -> None:
    """A text is weighed by how long it is beside all others that can be found."""
    store = PostgresStore(address)
    first, second, third = (record(n, f"basalt {'tower ' * n}") for n in range(1, 4))
    insert(store, first, second, third)
    gone, longer = replace(first, deleted_at=NOW), replace(second, content="basalt and some more")
    there = """SELECT count(*), coalesce(sum(length), 0)::bigint FROM
        (SELECT DISTINCT row, token_count AS length FROM memory_terms) texts"""
    for count, work in (
        (2, lambda: update(store, first, gone)),
        (2, lambda: update(store, second, longer)),
        (3, lambda: update(store, gone, first)),
        (2, lambda: store.write("default", lambda t: t.purge("default", third.id))),
    ):
        work()
        counted = execute_raw(address, "SELECT document_count, token_count FROM tenants")
        assert counted == execute_raw(address, there)
        assert counted[0][0] == count
    assert numbers(found(store, words_search(Scope(), "basalt"))) == [1, 2]
    store.close()


def test_what_is_gone_by_one_daemon_is_known_to_another(address: str) -> None:
    """It must not stand in the way of anything else."""
    stores = PostgresStore(address), PostgresStore(address)
    first, second, third = (record(n, f"basalt {n}") for n in range(1, 4))

    def held() -> list[list[int]]:
        """The rows that each of both holds in memory."""
        rows = []
        for store in stores:
            with store._engine.read("default") as connection:
                index = store._views.index(connection, "default")
            rows.append(np.flatnonzero(index._slot_of_row >= 0).tolist())
        return rows

    insert(stores[0], first, second, third)
    assert held() == [[1, 2, 3]] * 2
    stores[1].write("default", lambda t: t.purge("default", second.id))
    assert held() == [[1, 3]] * 2
    update(stores[0], first, replace(first, deleted_at=NOW))
    assert held() == [[3]] * 2
    for store in stores:
        store.close()


def test_so_many_actions_are_kept(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "ACTION_LIMIT", 3)
    store = PostgresStore(address)
    for user in ("ann", "bob"):
        for _ in range(5):
            store.write(user, lambda t, user=user: t.add_action(user, ACTION))
        assert [one.number for one in store.actions(user, ActionQuery())] == [5, 4, 3]
    store.close()


def test_both_stores_hold_the_same_in_memory(address: str, store: SqliteStore) -> None:
    database = PostgresStore(address)
    fields: list[dict[str, Any]] = [
        {"trust": "untrusted"},
        {"valid_until": NOW + timedelta(days=3)},
        {"sources": (Source(session_key="s", turn="0"),)},
        {"sources": (Source(session_key="s"),)},
        {"provenance": "inferred", "confidence": 0.5, "importance": 0.25},
        {"created_at": NOW - timedelta(days=40), "project": "shop"},
    ]
    texts = [record(n, "basalt ☃ " * n, **one) for n, one in enumerate(fields, 1)]
    held = []
    for one in (store, database):
        insert(one, *texts)
        with one._engine.read("default") as connection:
            index = (
                one._views.index(connection, "default")
                if isinstance(one, PostgresStore)
                else one._index(connection, "default", None)
            )
        names = ("turn_key", "session", "length_chars", "provenance", "demotion", "confidence")
        columns = (*names, "standing", "until_day", "alive", "trusted")
        held.append({n: getattr(index._columns, n)[: len(index)].tolist() for n in columns})
    assert held[0] == held[1]
    database.close()
