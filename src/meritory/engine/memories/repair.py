"""The repair of a damaged store: rows that follow from other rows are made again."""

from __future__ import annotations

import contextlib
import os
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path

from meritory.domain.errors import MeritoryError
from meritory.domain.place import Place
from meritory.engine.memories.embedding import Progress
from meritory.engine.memories.write import BATCH_LIMIT, indexed
from meritory.engine.services import Services
from meritory.store import open_store
from meritory.store.contract.memories import Indexed
from meritory.store.contract.store import Transaction
from meritory.store.sqlite.backup import hold, snapshot


def find_damage(place: Place) -> list[str]:
    """Return the findings of the deep check."""
    with contextlib.closing(open_store(place)) as store:
        return store.check(deep=True)


def copy_damaged(file: Path, folder: Path, now: datetime) -> Path:
    """Copy a store file into a folder before its repair; raise Busy if it is in use."""
    # Another process would not know of the repair.
    hold(Path(os.path.realpath(file)), alone=True).close()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    copy = folder / f"before-repair-{now:%Y%m%dT%H%M%S%f}Z.damaged"
    snapshot(file, copy)
    return copy


def repair(services: Services, progress: Progress) -> list[str]:
    """Repair the store; return what was done, one sentence each."""
    done = services.store.repair()
    for step in (_reindex, _reembed):
        try:
            done.append(step(services, progress))
        except MeritoryError as error:
            done.append(f"not finished: {error.message}")
    return done


def _reindex(services: Services, progress: Progress) -> str:
    store, count = services.store, 0
    for user in store.users():
        walk = (indexed(record, {}) for record in store.walk(user))
        while batch := list(islice(walk, BATCH_LIMIT)):
            store.write(user, partial(_write, batch))
            count += len(batch)
    return f"memories whose words and entities were indexed again: {count}"


def _write(batch: list[Indexed], transaction: Transaction) -> None:
    for memory in batch:
        transaction.reindex(memory)


def _reembed(services: Services, progress: Progress) -> str:
    store, embedding = services.store, services.embedding
    if embedding.is_off:
        return "no vectors made: the embedder is off (embedder.kind = none)"
    name = embedding.wanted().name
    before = store.embedding_state(name).embedded_count
    embedding.reembed(progress, lambda: False)
    return f"vectors made again: {store.embedding_state(name).embedded_count - before}"
