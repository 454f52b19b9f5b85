"""Models in the database: any daemon serves what another one trained."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from meritory.domain.errors import BadCheckpoint
from meritory.domain.place import Place
from meritory.engine.predictor.state import soundness
from meritory.model.checkpoint import Checkpoint, CheckpointFlags
from meritory.model.ranker import KIND, Ranker
from meritory.ports.scorer import ModelFolders, base_weights
from meritory.rank.features import FEATURE_VERSION, FEATURES
from meritory.store import open_store
from postgres_kit import Server


def model(version: int, weight: float = 0.0) -> Checkpoint:
    """A model that is told apart by one number."""
    params = {name: value + weight for name, value in Ranker.untrained().params.items()}
    return Checkpoint(
        kind=KIND,
        params=params,
        model_version=version,
        embedder="",
        features=FEATURES,
        feature_version=FEATURE_VERSION,
        flags=CheckpointFlags.FINE_TUNED,
        trained_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def same(one: Checkpoint, other: Checkpoint) -> bool:
    equal = all((one.params[name] == other.params[name]).all() for name in one.params)
    return equal and one.model_version == other.model_version and one.flags == other.flags


@pytest.fixture
def two(postgres: Server, tmp_path: Path) -> Iterator[tuple[ModelFolders, ModelFolders]]:
    """The shelves of two daemons on one database, each with its own folder."""
    address = postgres.fresh()
    stores = [open_store(Place(url=address)) for _ in range(2)]
    folders = [tmp_path / name for name in ("one", "two")]
    yield tuple(  # type: ignore[misc]
        ModelFolders(folder, base_weights(), store.models)
        for store, folder in zip(stores, folders, strict=True)
    )
    for store in stores:
        store.close()
    postgres.give_back(address)


def test_what_one_daemon_trained_another_serves(two: tuple[ModelFolders, ModelFolders]) -> None:
    here, there = two
    here.of("ann").put(model(1))
    assert there.of("ann").versions() == [1]
    assert soundness(there, "ann", 1).fault is None
    assert same(there.checkpoint("ann", 1), model(1))


def test_a_copy_that_is_not_what_the_database_has_is_made_anew(
    two: tuple[ModelFolders, ModelFolders],
) -> None:
    here, there = two
    here.of("ann").put(model(1))
    copy = there.of("ann").path_of(1)
    copy.write_bytes(b"damaged")
    assert same(there.checkpoint("ann", 1), model(1))
    # Two that trained at once: the last to write it down is what everybody serves.
    here.of("ann").put(model(1, 0.5))
    assert same(there.checkpoint("ann", 1), model(1, 0.5))
    assert same(here.checkpoint("ann", 1), model(1, 0.5))
    copy.unlink()
    assert same(there.checkpoint("ann", 1), model(1, 0.5))


def test_what_is_gone_from_the_database_serves_nobody(
    two: tuple[ModelFolders, ModelFolders],
) -> None:
    here, there = two
    here.of("ann").put(model(1))
    there.of("ann").path_of(1)
    here.of("ann").drop(1)
    with pytest.raises(BadCheckpoint):
        there.checkpoint("ann", 1)
    assert soundness(there, "ann", 1).fault is not None


def test_old_ones_go_for_everybody(two: tuple[ModelFolders, ModelFolders]) -> None:
    here, there = two
    for version in range(1, 8):
        here.of("ann").put(model(version))
    removed = there.of("ann").prune(7, best=2)
    assert removed == [3, 1]
    assert here.of("ann").versions() == [7, 6, 5, 4, 2]


def test_models_of_one_tenant_are_nobody_elses(two: tuple[ModelFolders, ModelFolders]) -> None:
    here, there = two
    here.of("ann").put(model(1))
    assert there.of("bob").versions() == []
    with pytest.raises(BadCheckpoint):
        there.checkpoint("bob", 1)
    there.of("bob").drop(1)
    assert here.of("ann").versions() == [1]
