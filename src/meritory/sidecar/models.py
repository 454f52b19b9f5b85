"""The models that were asked for lately, and vectors read from the store, both in bounds."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import BadCheckpoint
from meritory.domain.world import World
from meritory.model import checkpoint, ranker
from meritory.model.base import Model
from meritory.model.checkpoint import Checkpoint, CheckpointFlags
from meritory.ports.scorer import BASE_VERSION, ModelFolders
from meritory.rank.features import FEATURE_VERSION, FEATURES

if TYPE_CHECKING:
    from meritory.domain.place import Place
    from meritory.domain.session import ModelRows
    from meritory.store.opening import TaughtReader

MODEL_LIMIT = 8
VECTOR_LIMIT_BYTES = 24 << 20
# Vectors change with what a memory says; after this long they are read again.
VECTOR_AGE_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is ready to score."""

    kept: Checkpoint
    model: Model

    @property
    def is_trained(self) -> bool:
        """Whether anybody ever trained it; the base counts."""
        return bool(self.kept.flags)

    @property
    def reads_content(self) -> bool:
        """Whether it looks at vectors and words beside the features."""
        return self.model.kind != ranker.KIND


class Models:
    """Loads models when they are asked for and keeps the last few."""

    def __init__(self, shelves: ModelFolders, own: Path | None) -> None:
        self._shelves = shelves
        self._own = own
        # Called by scoring and by orders of a training.
        self._lock = Lock()
        self._kept: OrderedDict[tuple[Path, int, int], Loaded] = OrderedDict()

    def get(self, user: str, version: int | None) -> Loaded:
        """The model of a version; without one the latest that is of use."""
        if version is not None:
            return self._read(self._path(user, version), version)
        for path in self._choices(user):
            try:
                return self._read(path, None)
            except BadCheckpoint:
                continue
        return _untrained()

    def _path(self, user: str, version: int) -> Path:
        if version == BASE_VERSION:
            return self._shelves.base
        return self._shelves.of(user).path_of(version)

    def _choices(self, user: str) -> list[Path]:
        shelf = self._shelves.of(user)
        own = [] if self._own is None else [self._own]
        return [*own, *map(shelf.path_of, shelf.versions()), self._shelves.base]

    def _read(self, path: Path, version: int | None) -> Loaded:
        try:
            found = os.stat(path)
        except OSError as error:
            raise BadCheckpoint(
                f"there is no model {path.name}: {error.strerror}", hint="train it"
            ) from error
        # Another file under the same name is another model.
        loaded = self._remembered((path, found.st_ino, found.st_mtime_ns))
        if version not in (None, BASE_VERSION, loaded.kept.model_version):
            raise BadCheckpoint(
                f"{path.name} holds version {loaded.kept.model_version}",
                hint="give it back its own name",
            )
        return loaded

    def _remembered(self, key: tuple[Path, int, int]) -> Loaded:
        with self._lock:
            loaded = self._kept.get(key)
            if loaded is None:
                loaded = _loaded(checkpoint.read(key[0]))
                self._kept[key] = loaded
                while len(self._kept) > MODEL_LIMIT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return loaded


def unfit(loaded: Loaded, embedder: str | None) -> str | None:
    """Why a model is of no use for vectors of an embedder; None when it is."""
    own = loaded.kept.embedder if embedder is None else embedder
    return checkpoint.fits(loaded.kept, own, FEATURES, FEATURE_VERSION)


def _loaded(kept: Checkpoint) -> Loaded:
    reason = checkpoint.fits(kept, kept.embedder, FEATURES, FEATURE_VERSION)
    if reason is not None:
        raise BadCheckpoint(f"model {kept.model_version} is not usable: {reason}")
    if kept.kind == ranker.KIND:
        # Without loading the other kind, which few choose.
        known = {ranker.KIND: lambda one: ranker.Ranker(one.params)}
        return Loaded(kept, checkpoint.restored(kept, known))
    return Loaded(kept, checkpoint.restored(kept))


def _untrained() -> Loaded:
    model = ranker.Ranker.untrained()
    kept = Checkpoint(
        kind=model.kind,
        params=model.params,
        model_version=BASE_VERSION,
        embedder="",
        features=FEATURES,
        feature_version=FEATURE_VERSION,
        flags=CheckpointFlags(0),
        trained_at=datetime.fromtimestamp(0, UTC),
    )
    return Loaded(kept, model)


class LateModels:
    """Models in a store that is opened when they are first asked for."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def versions(self, user: str) -> list[int]:
        """The versions there are, the latest first."""
        return self._library.model_rows().versions(user)

    def digest(self, user: str, version: int) -> str | None:
        """The SHA-256 of a model; None without one."""
        return self._library.model_rows().digest(user, version)

    def content(self, user: str, version: int) -> bytes | None:
        """A model; None without one."""
        return self._library.model_rows().content(user, version)

    def put(self, user: str, version: int, content: bytes) -> None:
        """Keeps a model under its version."""
        self._library.model_rows().put(user, version, content)

    def drop(self, user: str, version: int) -> None:
        """Removes a model, if it is there."""
        self._library.model_rows().drop(user, version)


class Library:
    """Vectors and texts of memories out of the store, which is opened when it is first needed."""

    def __init__(self, store: Place, world: World) -> None:
        self._store = store
        self._world = world
        self._reader: TaughtReader | None = None
        self._opening = Lock()
        self._kept: OrderedDict[tuple[str, str, str], NDArray[np.float32]] = OrderedDict()
        self._held_bytes = 0
        self._begun_ms = 0.0

    @property
    def models(self) -> LateModels | None:
        """The models that lie in the store itself; None when they are files."""
        return None if self._store.file is not None else LateModels(self)

    @property
    def is_open(self) -> bool:
        """Whether anybody needed the store yet."""
        return self._reader is not None

    def vectors(
        self, user: str, embedder: str, memory_ids: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """The vectors of memories; one without is missing from the answer."""
        if self._world.monotonic_ms() - self._begun_ms > VECTOR_AGE_MS:
            self._forget()
        known = {}
        for one in memory_ids:
            vector = self._kept.get((user, embedder, one))
            if vector is not None:
                known[one] = vector
                self._kept.move_to_end((user, embedder, one))
        missing = [one for one in memory_ids if one not in known]
        if missing:
            found = self._opened().vectors(user, embedder, missing)
            for one, vector in found.items():
                self._keep((user, embedder, one), vector)
            known |= found
        return known

    def texts(self, user: str, memory_ids: Sequence[str]) -> dict[str, str]:
        """What memories say; one that is gone is missing from the answer."""
        return self._opened().texts(user, memory_ids)

    def model_rows(self) -> ModelRows:
        """The models that lie in the store."""
        found = self._opened().models
        if found is None:
            raise BadCheckpoint("this store keeps its models in files")
        return found

    def _opened(self) -> TaughtReader:
        # Scoring and an order of a training may run at the same time.
        with self._opening:
            if self._reader is None:
                # Here, because the default scorer never needs it on a file.
                from meritory.store.opening import open_reader

                self._reader = open_reader(self._store)
            return self._reader

    def _keep(self, key: tuple[str, str, str], vector: NDArray[np.float32]) -> None:
        self._kept[key] = vector
        self._held_bytes += vector.nbytes
        while self._held_bytes > VECTOR_LIMIT_BYTES:
            self._held_bytes -= self._kept.popitem(last=False)[1].nbytes

    def _forget(self) -> None:
        if self._store.file is not None:
            # The file as well: another one may have been put in its place.
            self.close()
        self._kept.clear()
        self._held_bytes = 0
        self._begun_ms = self._world.monotonic_ms()

    def close(self) -> None:
        """Closes the store."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
