"""A throw-away copy of a store, and the proof that what is measured on is one."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, cast

from meritory.domain.errors import Conflict, Corrupt, ReadOnlyStore
from meritory.domain.place import Place
from meritory.domain.session import SessionRecord, ShownRow
from meritory.engine.observe.observer import Observer
from meritory.engine.services import Policy, Services
from meritory.engine.transfer.backup import ModelFiles, keep_models
from meritory.store.contract.store import Store
from meritory.store.sqlite.backup import snapshot

COPY_NAME = "copy.db"
_PREFIX = "meritory-eval-"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A private folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as made:
        yield Path(made)


@contextlib.contextmanager
def copied(source: Place, user: str | None = None) -> Iterator[Path]:
    """The file of a copy of a store and its models, for the length of the block.

    Of a database that many share only what is this user's.
    """
    with folder() as made:
        copy = made / COPY_NAME
        if source.file is None:
            _moved_out(source, copy, user)
        else:
            snapshot(source.file, copy)
            # Models lie beside the file itself, whatever link leads to it.
            keep_models(source.file.resolve(), copy)
        yield copy


def _moved_out(source: Place, copy: Path, user: str | None) -> None:
    # Here, because few measure on a database, and its driver takes time to load.
    from meritory.engine.transfer.migrate import MigrationRequest, move
    from meritory.store.migrate.postgres_endpoint import PostgresEndpoint
    from meritory.store.migrate.sqlite_endpoint import SqliteEndpoint

    with (
        contextlib.closing(PostgresEndpoint(source)) as database,
        contextlib.closing(SqliteEndpoint(copy, ModelFiles(copy), is_target=True)) as file,
    ):
        report = move(database, file, MigrationRequest(user=user), lambda done, total: None)
    if not report.is_equal:
        first = report.differences[0]
        raise Corrupt(
            f"a row of {first.table} in {source.name} cannot be copied as it is",
            hint="`meritory migrate --to FILE` names all that come out otherwise",
        )


class FrozenStore:
    """A store that can be read and never written; nothing that is served leaves a trace.

    What is measured first must not change what is measured next. A session may be made known to
    it, so that a prompt can be served in it as in one that was recorded.
    """

    def __init__(self, store: Store, session: SessionRecord | None = None) -> None:
        self._store = store
        self._session = session
        self._shown: tuple[ShownRow, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def with_session(self, session: SessionRecord, shown: Sequence[ShownRow]) -> FrozenStore:
        """The same store, in which this session has begun and was shown these memories."""
        other = FrozenStore(self._store, session)
        other._shown = tuple(shown)
        return other

    def session(self, user: str, key: str) -> SessionRecord:
        """The session that was made known, or one of the copy."""
        made = self._session
        if made is not None and (made.user, made.key) == (user, key):
            return made
        return self._store.session(user, key)

    def shown(self, user: str, key: str) -> list[ShownRow]:
        """What that session was shown."""
        made = self._session
        if made is not None and (made.user, made.key) == (user, key):
            return list(self._shown)
        return self._store.shown(user, key)

    def write(self, work: Callable[[Any], Any]) -> NoReturn:
        """Refuses."""
        raise ReadOnlyStore("nothing is written while something is measured")

    def register_embedder(self, embedder: object) -> NoReturn:
        """Refuses."""
        raise ReadOnlyStore("nothing is written while something is measured")

    def serve_embedder(self, embedder: str) -> NoReturn:
        """Refuses."""
        raise ReadOnlyStore("nothing is written while something is measured")

    def erase_traces(self) -> NoReturn:
        """Refuses."""
        raise ReadOnlyStore("nothing is written while something is measured")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """An engine whose store lies in a throw-away folder; on anything else none can be made."""

    services: Services

    def __post_init__(self) -> None:
        place = self.services.store.place
        inside = Path() if place.file is None else place.file.resolve().parent
        is_ours = inside.name.startswith(_PREFIX)
        if not is_ours or inside.parent != Path(tempfile.gettempdir()).resolve():
            raise Conflict(
                f"{place.name} is no throw-away copy, so nothing is measured on it",
                hint="make one with meritory.lab.sandbox.copied",
            )

    def frozen(self, policy: Policy | None = None) -> tuple[Services, FrozenStore]:
        """The engine with a store that cannot be written, under other choices if given."""
        store = FrozenStore(self.services.store)
        return self.serving(store, policy), store

    def serving(self, store: FrozenStore, policy: Policy | None = None) -> Services:
        """The engine around a frozen store."""
        services = self.services
        chosen = policy or services.policy
        # Chance has no place in a measurement: nothing is shown on trial.
        session = replace(chosen.session, exploration_rate=0.0)
        return replace(
            services,
            store=cast(Store, store),
            policy=replace(chosen, session=session),
            observer=Observer(services.world),
            counter=None,
        )
