"""The index in memory: it is rebuilt before dead slots outgrow the living ones."""

from __future__ import annotations

import numpy as np
import pytest

from meritory.api.memory import Memory
from meritory.store.search import index as index_module
from meritory.store.search.index import IndexEntry, MemoryIndex
from meritory.store.sql.mapper import decode_vectors, encode_vector


def entry(row: int, vector: list[float], scope: int = 1) -> IndexEntry:
    blob = encode_vector(np.array(vector, np.float32))
    return IndexEntry(row, scope, "s", row, 10, "user_stated", 0.8, 0, blob)


def stored_rows(vectors: np.ndarray) -> np.ndarray:
    return decode_vectors(b"".join(map(encode_vector, vectors)), vectors.shape[1])


def test_a_changed_row_moves_and_its_old_slot_is_dead() -> None:
    index = MemoryIndex(2)
    index.add([entry(1, [1.0, 0.0]), entry(2, [0.0, 1.0])])
    index.add([entry(1, [0.0, 1.0])])
    (near,) = index.nearest_many(np.array([[1.0, 0.0]], np.float32), 1, 5, 0.5)
    assert near.rows.tolist() == []
    (near,) = index.nearest_many(np.array([[0.0, 1.0]], np.float32), 1, 5, 0.5)
    assert sorted(near.rows.tolist()) == [1, 2]


def test_growing_over_many_blocks_keeps_every_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BLOCK_ROWS", 8)
    random = np.random.default_rng(1)
    vectors = random.normal(size=(50, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = MemoryIndex(4)
    for start in range(0, 50, 7):
        rows = range(start, min(start + 7, 50))
        index.add([entry(row + 1, vectors[row].tolist()) for row in rows])
    raw, _ = index.view([1]).cosines(vectors[33])
    # A number is stored in one byte.
    stored = stored_rows(vectors)
    assert raw == pytest.approx(stored @ vectors[33], abs=1e-6)
    assert raw == pytest.approx(vectors @ vectors[33], abs=1e-2)
    assert index.turns_after(np.array([10]), 1).tolist() == [11]


def test_a_search_reads_the_vectors_of_its_scopes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "BLOCK_ROWS", 8)
    random = np.random.default_rng(2)
    vectors = random.normal(size=(60, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = MemoryIndex(4)
    for start in range(0, 60, 9):
        rows = range(start, min(start + 9, 60))
        index.add([entry(row, vectors[row].tolist(), scope=row % 3) for row in rows])
    assert index.dots(vectors[7], [1], 60).nonzero()[0].tolist() == list(range(1, 60, 3))
    raw, centred = index.view([0, 2]).cosines(vectors[7])
    is_open = np.arange(60) % 3 != 1
    assert np.isfinite(raw).tolist() == np.isfinite(centred).tolist() == is_open.tolist()
    assert raw[is_open] == pytest.approx((vectors @ vectors[7])[is_open], abs=1e-2)
    assert index.vectors(np.array([41, 3, 58])) == pytest.approx(vectors[[41, 3, 58]], abs=1e-2)
    (near,) = index.nearest_many(vectors[7:8], 1, 3, -1.0)
    best = sorted(range(1, 60, 3), key=lambda row: -float(vectors[row] @ vectors[7]))
    assert near.rows.tolist() == best[:3]


def test_an_index_full_of_dead_slots_is_built_anew(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "BLOCK_ROWS", 8)
    made = memory.remember("The badger sleeps")
    for number in range(40):
        memory.update(made.id, content=f"The badger sleeps {number}")
        memory.recall("badger")
    (index,) = memory.services.store._indexes.values()  # type: ignore[attr-defined]
    assert len(index) < 20
    assert [hit.content for hit in memory.recall("badger")] == ["The badger sleeps 39"]


def test_the_products_with_the_mean_are_those_of_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_module, "BLOCK_ROWS", 8)
    vectors = np.random.default_rng(2).normal(size=(30, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = MemoryIndex(4)
    # From the first addition on, the mean is renewed only now and then.
    for start, end in ((0, 25), (25, 26), (26, 27)):
        index.add([entry(row + 1, vectors[row].tolist()) for row in range(start, end)])
    stored = stored_rows(vectors[:27])
    mean_dots = index.view([1]).columns.mean_dot[:27]
    np.testing.assert_allclose(mean_dots, stored @ index.mean, atol=1e-6)
