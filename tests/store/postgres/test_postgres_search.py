"""Both stores find alike: the same texts, the same questions, nearly the same answers."""

from __future__ import annotations

import itertools
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psycopg
import pytest

from contract.builders import EMBEDDER, NOW, indexed, insert, record, unit, words_search
from meritory.domain.memory import Scope, Source
from meritory.store.contract.memories import Gathering, Indexed, NeighbourProbe, Search
from meritory.store.contract.store import Store, Transaction
from meritory.store.postgres import search_index, vectors
from meritory.store.postgres.store import PostgresStore
from meritory.store.search import cache
from meritory.store.sqlite.store import SqliteStore
from meritory.text.terms import query_terms
from postgres_kit import Server

DOCS = Path(__file__).resolve().parents[3] / "docs"
SCOPE = Scope()
TEXT_COUNT, QUESTION_COUNT = 400, 40


_INDEXES = """SELECT i.indexrelid, i.indisvalid FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname LIKE 'memory\\_vectors\\_1\\_%'"""


def sentences() -> list[str]:
    """Real sentences: those of our own documentation."""
    text = "\n".join(path.read_text("utf-8") for path in sorted(DOCS.rglob("*.md")))
    found = (" ".join(one.split()) for one in re.split(r"(?<=[.:])\s|\n\n|\|", text))
    return list(dict.fromkeys(one for one in found if 40 < len(one) < 300))[:TEXT_COUNT]


def memories(texts: list[str]) -> list[Indexed]:
    chance = np.random.default_rng(3)
    return [
        indexed(
            record(
                number, text, sources=(Source(session_key=f"s{number // 9}", turn=str(number)),)
            ),
            vectors={EMBEDDER.name: unit(*chance.normal(0.3, 1.0, 4))},
        )
        for number, text in enumerate(texts, 1)
    ]


def questions(texts: list[str]) -> list[Search]:
    chance, numbers = random.Random(5), np.random.default_rng(5)
    found = []
    for text in chance.sample(texts, QUESTION_COUNT):
        words = text.split()
        asked = " ".join(chance.sample(words, min(6, len(words))))
        terms = query_terms(asked, 16)
        phrases = tuple(f"{a} {b}" for a, b in itertools.pairwise(terms))
        vector = unit(*numbers.normal(0.3, 1.0, 4))
        found.append(
            Search(
                SCOPE,
                terms,
                EMBEDDER.name,
                vector,
                phrases=phrases,
                hit_limit=20,
                text_limit=30,
                vector_limit=30,
            )
        )
    return found


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return sentences()


@pytest.fixture(scope="module")
def address(postgres: Server) -> str:
    # Not given back: an index is made in it.
    return postgres.fresh()


@pytest.fixture(scope="module")
def stores(
    address: str, texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, Store]]:
    pair: tuple[Store, Store] = (
        SqliteStore(tmp_path_factory.mktemp("search") / "meritory.db"),
        PostgresStore(address),
    )
    for store in pair:
        store.register_embedder(EMBEDDER)
        insert(store, *memories(texts))
    yield pair
    for store in pair:
        store.close()


def best(store: Store, scores: np.ndarray, rows: np.ndarray, count: int = 10) -> list[str]:
    """Ids of the best by a score, best first."""
    order = [int(at) for at in np.lexsort((rows, -scores)) if scores[at] > 0][:count]
    kept = store.fetch(SCOPE, rows[order], NOW)
    return [kept[int(rows[at])].id for at in order]


def test_the_words_find_the_same_with_the_same_scores(
    stores: tuple[Store, Store], texts: list[str]
) -> None:
    assert len(texts) == TEXT_COUNT
    shares = []
    for question in questions(texts):
        (one, other) = (store.search(question) for store in stores)
        first, second = best(stores[0], one.text, one.rows), best(stores[1], other.text, other.rows)
        shares.append(len(set(first) & set(second)) / max(len(first), 1))
        assert float(other.text.max()) == pytest.approx(float(one.text.max()), rel=1e-4)
        assert len(one.rare_hits) == len(other.rare_hits)
    assert np.mean(shares) >= 0.98


def test_the_vectors_find_the_same(stores: tuple[Store, Store], texts: list[str]) -> None:
    for question in questions(texts):
        (one, other) = (store.search(question) for store in stores)
        for name in ("raw_cosine", "cosine"):
            ours, theirs = getattr(one, name), getattr(other, name)
            assert np.sort(theirs)[::-1][:10] == pytest.approx(np.sort(ours)[::-1][:10], abs=1e-3)
        assert other.mean_cosine == pytest.approx(one.mean_cosine, abs=0.02)
        assert other.session_count == one.session_count
        assert other.mean_length_chars == pytest.approx(one.mean_length_chars)


def test_a_gathering_brings_the_same(stores: tuple[Store, Store], texts: list[str]) -> None:
    nothing = np.empty(0, np.int64)
    for question in questions(texts)[:10]:
        (one, other) = (
            store.gather(Gathering(question, 20, nothing, (record(3).id,))) for store in stores
        )
        # At the end of a list the last bit decides who is in it.
        assert len(set(other.rows.tolist()) & set(one.rows.tolist())) >= 0.95 * len(one.rows)
        assert other.by_cosine.tolist()[:10] == one.by_cosine.tolist()[:10]
        assert other.by_effective.tolist() == one.by_effective.tolist()
        shared, at, their = np.intersect1d(one.rows, other.rows, return_indices=True)
        assert len(shared) and other.row_of_id == one.row_of_id
        for name in ("vectors", "cosine", "centred", "provenance", "confidence", "demotion"):
            ours, theirs = getattr(one, name)[at], getattr(other, name)[their]
            assert theirs == pytest.approx(ours, abs=2e-3), name


def test_a_large_tenant_is_searched_through_the_index(
    stores: tuple[Store, Store], address: str, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way, for more memories than are measured one by one."""
    question = questions(texts)[0]
    exact = stores[1].search(question)
    monkeypatch.setattr(vectors, "EXACT_ROWS", 10)
    stores[1].tidy(lambda: False)
    found = stores[1].search(question)
    ours, theirs = (
        best(stores[1], exact.cosine, exact.rows),
        best(stores[1], found.cosine, found.rows),
    )
    assert ours == theirs
    assert not np.isnan(found.raw_cosine).any()
    with psycopg.connect(address) as connection:
        made = connection.execute("SELECT count(*) FROM pg_indexes WHERE indexdef LIKE '%hnsw%'")
        assert made.fetchone() == (1,)
    assert found.mean_cosine == pytest.approx(exact.mean_cosine, abs=0.02)


def test_an_index_that_was_left_half_made_is_made_again(
    stores: tuple[Store, Store], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "EXACT_ROWS", 10)
    stores[1].tidy(lambda: False)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            """UPDATE pg_index SET indisvalid = false WHERE indexrelid IN
                (SELECT indexrelid FROM pg_stat_user_indexes
                WHERE indexrelname LIKE 'memory\\_vectors\\_1\\_%')"""
        )
        before = connection.execute(_INDEXES).fetchall()
        stores[1].tidy(lambda: False)
        after = connection.execute(_INDEXES).fetchall()
    assert [valid for _, valid in before] == [False]
    assert [valid for _, valid in after] == [True]
    assert before[0][0] != after[0][0]


def test_an_index_is_made_while_somebody_writes(
    stores: tuple[Store, Store], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that came first is waited for, and one that comes meanwhile is not held up."""
    monkeypatch.setattr(vectors, "EXACT_ROWS", 10)
    with psycopg.connect(address, autocommit=True) as connection:
        for (name,) in connection.execute(
            "SELECT indexrelid::regclass::text FROM pg_stat_user_indexes"
            " WHERE indexrelname LIKE 'memory\\_vectors\\_1\\_%'"
        ).fetchall():
            connection.execute(f"DROP INDEX {name}")
    made = threading.Thread(target=lambda: stores[1].tidy(lambda: False))

    def work(transaction: Transaction) -> None:
        transaction.insert(late[0], None)
        assert transaction.has("default", late[0].record.id)
        made.start()
        # Waits for us, in the middle of its work.
        until = time.monotonic() + 20.0
        while time.monotonic() < until and not _is_waiting(address):
            time.sleep(0.01)
        assert _is_waiting(address)
        insert(stores[1], late[1])

    late = memories(["said while it was made"] * (TEXT_COUNT + 2))[-2:]
    late[1] = replace(late[1], record=replace(late[1].record, user="somebody"))
    stores[1].write("default", work)
    made.join(30.0)
    assert not made.is_alive()
    with psycopg.connect(address) as connection:
        assert [valid for _, valid in connection.execute(_INDEXES).fetchall()] == [True]
    stores[1].write("default", lambda t: t.purge("default", late[0].record.id))


def _is_waiting(address: str) -> bool:
    with psycopg.connect(address) as connection:
        waiting = connection.execute(
            "SELECT 1 FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting%'"
        )
        return waiting.fetchone() is not None


def test_copies_of_tenants_are_let_go_of(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tenants one process serves, it keeps so many rows, and finds them all."""
    store = stores[1]
    assert isinstance(store, PostgresStore)
    monkeypatch.setattr(search_index, "ROWS_KEPT", 30)
    monkeypatch.setattr(cache, "USERS_KEPT", 2)
    names = [f"tenant {number}" for number in range(5)]
    for name in names:
        insert(store, *(record(number, user=name) for number in range(1, 13)))
    for _ in range(2):
        for name in names:
            scope = Scope(name)
            found = store.search(words_search(scope, "claim"))
            assert len(found.rows) == 12
            assert len(store.traits(scope, found.rows, NOW)) == 12
            assert sum(map(len, store._views._indexes.values())) <= 30
    assert list(store._views._indexes) == names[-2:]
    assert list(store._traits._caches) == names[-2:]


@pytest.mark.parametrize(("count", "exact_rows"), [(1, 1_000), (6, 1_000), (3, 10)])
def test_the_nearest_are_the_same_whichever_way_they_are_found(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, count: int, exact_rows: int
) -> None:
    monkeypatch.setattr(vectors, "EXACT_ROWS", exact_rows)
    chance = np.random.default_rng(11)
    asked = np.stack([unit(*chance.normal(0.3, 1.0, 4)) for _ in range(count)])
    probe = NeighbourProbe(SCOPE, EMBEDDER.name, asked, 5, 0.8)
    ours, theirs = (store.write(probe.scope.user, lambda t: t.nearest(probe)) for store in stores)
    for one, other in zip(ours, theirs, strict=True):
        assert [near.memory.id for near in other] == [near.memory.id for near in one]
        assert [near.cosine for near in other] == pytest.approx([n.cosine for n in one], abs=1e-3)
    elsewhere = NeighbourProbe(Scope("default", None, "nowhere"), EMBEDDER.name, asked, 5, 0.8)
    assert stores[1].write(elsewhere.scope.user, lambda t: t.nearest(elsewhere)) == [[]] * count
