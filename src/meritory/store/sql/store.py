"""The store and the transaction: every noun's reads and writes put together.

`store.x` and `transaction.x` are implemented in the module of their noun: `memories`,
`memory_writes`, `sessions`, `predictor`, `feedback`, `rules`, `quality`, `jobs` or `dashboard`.
Embedders and small values of a user are here: tokens, consent, counters, the predictor's state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import cached_property
from typing import Any

from meritory.domain.access import AccessToken, Consent
from meritory.domain.errors import Corrupt, InputError
from meritory.domain.folder import ProjectFolder
from meritory.domain.memory import EmbedderInfo, EmbeddingState, MemoryRecord, Scope
from meritory.domain.world import moment_text
from meritory.store.contract.memories import (
    Gathered,
    Gathering,
    IntArray,
    NeighbourProbe,
    Search,
    SearchPool,
    Trait,
)
from meritory.store.search import search as searches
from meritory.store.search import spelling
from meritory.store.search.cache import ByUser, Traits, Wordings
from meritory.store.search.index import Nearest
from meritory.store.sql.dashboard import SqlDashboardReads
from meritory.store.sql.feedback import SqlFeedbackReads, SqlFeedbackWrites
from meritory.store.sql.injections import SqlInjectionReads, SqlInjectionWrites
from meritory.store.sql.jobs import SqlJobReads, SqlJobWrites
from meritory.store.sql.links import SqlLinkReads, SqlLinkWrites
from meritory.store.sql.mapper import RecordTable, SqlConnection, SqlEngine, SqlReader
from meritory.store.sql.memories import SqlMemoryReads
from meritory.store.sql.memory_writes import SqlMemoryWrites
from meritory.store.sql.predictor import SqlPredictorWrites, TaughtReader
from meritory.store.sql.quality import SqlQualityReads, SqlQualityWrites
from meritory.store.sql.rules import SqlRuleReads, SqlRuleWrites
from meritory.store.sql.searches import SqlSearchReads, SqlSearchWrites
from meritory.store.sql.session_rows import SqlSessionRowReads, SqlSessionRowWrites
from meritory.store.sql.sessions import SqlSessionReads
from meritory.store.sql.visibility import visible_scopes

_EMBEDDERS = RecordTable("embedders", EmbedderInfo)
_TOKENS = RecordTable("access_tokens", AccessToken)
_FOLDERS = RecordTable("project_folders", ProjectFolder, owner=("user",))
_CONSENTS = RecordTable("consents", Consent, owner=("user",))
# Counters of durations, which are figures of the machine and not of the user.
_DURATION_PREFIX = "took."


class SqlUserReads(SqlReader):
    """Tokens, consent and the predictor's state of a user, for a store and for a transaction.

    A token has the hash of its secret; the secret itself is shown once, when it is made.
    """

    def access_token(self, user: str, token_id: str) -> AccessToken | None:
        """Return the token of a user with exactly this id, valid or not."""
        return self._record(_TOKENS, user, "user = ? AND id = ?", (user, token_id))

    def access_tokens(self, user: str) -> Sequence[AccessToken]:
        """Return all tokens of a user, valid or not, oldest first."""
        return self._records(_TOKENS, user, "user = ? ORDER BY created_at, id", (user,))

    def consent(self, user: str) -> Consent | None:
        """Return the consent of a user; None before the first start."""
        return self._record(_CONSENTS, user, "user = ?", (user,))

    def project_folder(self, user: str, identity: str) -> ProjectFolder | None:
        """Return the project of the folder with this identity."""
        return self._record(_FOLDERS, user, "user = ? AND identity = ?", (user, identity))

    def project_folders(self, user: str) -> Sequence[ProjectFolder]:
        """Return all folders that were used, by identity, oldest first."""
        return self._records(_FOLDERS, user, "user = ? ORDER BY at, identity", (user,))

    def has_session_in(self, user: str, project: str, path: str) -> bool:
        """Return whether a session of a project ran in a folder or below it."""
        found = self._one(
            user,
            """SELECT 1 FROM sessions WHERE user = :user AND project = :project
                AND (cwd = :path OR substr(cwd, 1, :length) = :below) LIMIT 1""",
            {
                "user": user,
                "project": project,
                "path": path,
                "below": f"{path}/",
                "length": len(path) + 1,
            },
        )
        return found is not None

    def predictor_state(self, user: str) -> str | None:
        """Return the encoded state; None before it was set."""
        row = self._one(user, "SELECT state FROM predictor_state WHERE user = ?", (user,))
        return None if row is None else str(row[0])

    @cached_property
    def _secret(self) -> bytes:
        row = self._one(None, "SELECT value FROM meta WHERE key = 'secret'", ())
        if row is None:
            raise Corrupt("the store has lost its secret", hint="restore a backup")
        return bytes.fromhex(row[0])

    def secret(self) -> bytes:
        """Return the store's secret, from which the codes of injections are made."""
        return self._secret


class SqlUserWrites(SqlUserReads):
    """Changes of tokens, consent and the predictor's state."""

    connection: SqlConnection

    def put_access_token(self, token: AccessToken) -> None:
        """Store a token in place of the one with its id."""
        self.connection.execute(_TOKENS.upsert("user", "id"), _TOKENS.values(token))

    def note_access(self, user: str, token_id: str, at: datetime) -> None:
        """Record the use of a token, unless a later use is recorded."""
        self.connection.execute(
            """UPDATE access_tokens SET last_used_at = :at WHERE user = :user AND id = :id
                AND (last_used_at IS NULL OR last_used_at < :at)""",
            {"user": user, "id": token_id, "at": moment_text(at)},
        )

    def put_project_folders(self, user: str, folders: Sequence[ProjectFolder]) -> None:
        """Store the projects of folders; one that is known keeps its project."""
        self.connection.executemany(
            f"{_FOLDERS.insert} ON CONFLICT (user, identity) DO NOTHING",
            [_FOLDERS.values(folder, user=user) for folder in folders],
        )

    def put_consent(self, user: str, consent: Consent) -> None:
        """Store the consent of a user in place of the former one."""
        self.connection.execute(_CONSENTS.upsert("user"), _CONSENTS.values(consent, user=user))

    def set_predictor_state(self, user: str, state: str) -> None:
        """Store the state in place of the former one."""
        self.connection.execute(
            """INSERT INTO predictor_state VALUES (?, ?)
                ON CONFLICT (user) DO UPDATE SET state = excluded.state""",
            (user, state),
        )


class SqlStore(
    SqlMemoryReads,
    SqlDashboardReads,
    SqlSessionReads,
    SqlInjectionReads,
    SqlSessionRowReads,
    SqlSearchReads,
    TaughtReader,
    SqlFeedbackReads,
    SqlRuleReads,
    SqlQualityReads,
    SqlLinkReads,
    SqlJobReads,
    SqlUserReads,
):
    """The reads that SQLite and PostgreSQL share."""

    _engine: SqlEngine
    # Selects memories without a vector of `:embedder`, from behind the row `:last` of `:user` on.
    _LACKING: str

    def __init__(self) -> None:
        super().__init__()
        self.damaged = set()
        self._traits = ByUser(Traits)
        self._wordings = ByUser(Wordings)

    def _reading(self, user: str | None) -> AbstractContextManager[SqlConnection]:
        return self._engine.read_across() if user is None else self._engine.read(user)

    def damaged_count(self) -> int:
        """Return how many rows were read that do not match their hash."""
        return len(self.damaged)

    def users(self) -> list[str]:
        """Return every user with a memory."""
        rows = self._all(None, "SELECT DISTINCT user FROM memories ORDER BY user", ())
        return [user for (user,) in rows]

    def counters(self, user: str) -> dict[str, int]:
        """Return all named counters of a user."""
        return {
            name: value
            for name, value in self._counts(user)
            if not name.startswith(_DURATION_PREFIX)
        }

    def durations(self, user: str) -> dict[tuple[str, int], int]:
        """Return how often operations outside the daemon took how long, by class of duration."""
        found = {}
        for name, value in self._counts(user):
            operation, _, number = name.removeprefix(_DURATION_PREFIX).rpartition(".")
            if name.startswith(_DURATION_PREFIX) and number.isdecimal():
                found[operation, int(number)] = value
        return found

    def _counts(self, user: str) -> list[Any]:
        return self._all(user, "SELECT name, value FROM counters WHERE user = ?", (user,))

    def import_progress(self, user: str, digest: str) -> int:
        """Return how many lines of the file with this digest were imported."""
        row = self._one(
            user, "SELECT line_count FROM imports WHERE user = ? AND digest = ?", (user, digest)
        )
        return int(row[0]) if row else 0

    # -- search ---------------------------------------------------------------------------

    def search(self, search: Search) -> SearchPool:
        """Run both legs of a search over all memories that the scope may see."""
        with self._reading(search.scope.user) as connection:
            return searches.run(self._ground(connection, search, by_rest=True), search)

    def gather(self, gathering: Gathering) -> Gathered:
        """Return the candidates of a session from all memories that the scope may see."""
        with self._reading(gathering.search.scope.user) as connection:
            ground = self._ground(connection, gathering.search, by_rest=False)
            return searches.gather(ground, gathering)

    @abstractmethod
    def _ground(
        self, connection: SqlConnection, search: Search, *, by_rest: bool
    ) -> searches.Ground:
        """Return the inputs of a search, which ranks by centred (`by_rest`) or raw cosines."""

    def near_words(self, search: Search, typed: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return each typed word that no memory has, with the nearest words of the store."""
        with self._reading(search.scope.user) as connection:
            return spelling.near_words(self._ground(connection, search, by_rest=True), typed)

    def wordings(self, user: str, rows: IntArray) -> dict[int, tuple[str, str]]:
        """Return the text and the kind of a user's memories by their rows."""
        with self._reading(user) as connection:
            change = self._last_change(connection, user)
            return self._wordings.of(user).read(connection, rows, change)

    def traits(self, scope: Scope, rows: IntArray, now: datetime) -> dict[int, Trait]:
        """Return the traits of the live, trusted and valid memories of these rows."""
        with self._reading(scope.user) as connection:
            scopes = visible_scopes(connection, scope)
            change = self._last_change(connection, scope.user)
            return self._traits.of(scope.user).read(connection, rows, scopes, now, change)

    def _last_change(self, connection: SqlConnection, user: str) -> int:
        return searches.numbers(connection)["change"]

    # -- embedders ------------------------------------------------------------------------

    def serve_embedder(self, embedder: str) -> bool:
        """Let an embedder serve if its vectors are complete, and drop all other vectors."""

        def serve(connection: SqlConnection) -> bool:
            ready = connection.execute(
                f"SELECT 1 FROM embedders WHERE name = :embedder AND NOT EXISTS ({self._LACKING})",  # noqa: S608
                {"embedder": embedder, "user": None, "last": 0},
            ).fetchone()
            if ready is None:
                return False
            _set_serving(connection, embedder)
            connection.execute("DELETE FROM embedders WHERE name <> ?", (embedder,))
            return True

        if is_serving := self._engine.write_across(serve):
            self._drop_indexes(embedder)
        return is_serving

    def _position(self, after: MemoryRecord | None) -> tuple[str | None, int]:
        """Return user and row of a memory, those before the first one if it is gone."""
        by_id = "SELECT user, row FROM memories WHERE user = ? AND id = ?"
        row = self._one(after.user, by_id, (after.user, after.id)) if after else None
        return (None, 0) if row is None else (row[0], row[1])

    @abstractmethod
    def _drop_indexes(self, embedder: str) -> None:
        """Drop the in-memory indexes that have vectors of other embedders."""

    def register_embedder(self, embedder: EmbedderInfo) -> None:
        """Add an embedder; in a store without memories it also becomes the serving one."""
        if self.serving_embedder() != embedder:
            self._engine.write_across(lambda connection: _register(connection, embedder))

    def serving_embedder(self) -> EmbedderInfo | None:
        """Return the embedder whose vectors are complete and answer searches."""
        with self._engine.read_across() as connection:
            return _serving(connection)

    def embedding_state(self, embedder: str) -> EmbeddingState:
        """Return how many memories of all users have a vector of this embedder."""
        with self._engine.read_across() as connection:
            (embedded,) = connection.execute(
                "SELECT count(*) FROM memory_vectors WHERE embedder ="
                " (SELECT embedder FROM embedders WHERE name = ?)",
                (embedder,),
            ).fetchone()
            (stored,) = connection.execute("SELECT count(*) FROM memories").fetchone()
        return EmbeddingState(embedded, stored)


class SqlTransaction(
    SqlMemoryWrites,
    SqlInjectionWrites,
    SqlSessionRowWrites,
    SqlSearchWrites,
    SqlPredictorWrites,
    SqlFeedbackWrites,
    SqlRuleWrites,
    SqlQualityWrites,
    SqlLinkWrites,
    SqlJobWrites,
    SqlUserWrites,
):
    """The verbs of one transaction; its reads see its writes."""

    def __init__(
        self,
        connection: SqlConnection,
        find_nearest: Callable[[NeighbourProbe, int], list[Nearest]],
        damaged: set[int] | None = None,
    ) -> None:
        self.connection = connection
        self.damaged = set() if damaged is None else damaged
        self._find_nearest = find_nearest
        # Numbers that this transaction has looked up or taken.
        self._change: int | None = None
        self._scopes: dict[Scope, int] = {}
        self._embedders: dict[str, tuple[int, int] | None] = {}

    def _reading(self, user: str | None) -> AbstractContextManager[SqlConnection]:
        return nullcontext(self.connection)

    def count(self, user: str, name: str, amount: int = 1) -> None:
        """Add to a named counter."""
        self.connection.execute(
            """INSERT INTO counters VALUES (?, ?, ?)
                ON CONFLICT (user, name) DO UPDATE SET value = counters.value + excluded.value""",
            (user, name, amount),
        )

    def count_durations(self, user: str, counts: Mapping[tuple[str, int], int]) -> None:
        """Add to the counts of operations by class of duration."""
        for (operation, number), amount in counts.items():
            self.count(user, f"{_DURATION_PREFIX}{operation}.{number}", amount)

    def set_import_progress(self, user: str, digest: str, line_count: int, at: datetime) -> None:
        """Record how many lines of a file were imported."""
        self.connection.execute(
            """INSERT INTO imports VALUES (?, ?, ?, ?) ON CONFLICT (user, digest)
                DO UPDATE SET line_count = excluded.line_count, at = excluded.at""",
            (user, digest, line_count, moment_text(at)),
        )


def _serving(connection: SqlConnection) -> EmbedderInfo | None:
    row = connection.execute(
        f"""{_EMBEDDERS.select}
            WHERE embedder = (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'serving')"""  # noqa: S608 - our names
    ).fetchone()
    return _EMBEDDERS.decode(row) if row else None


def _register(connection: SqlConnection, embedder: EmbedderInfo) -> None:
    (dimension,) = connection.execute(
        f"{_EMBEDDERS.insert} ON CONFLICT (name) DO UPDATE SET spec = excluded.spec"
        " RETURNING dimension",
        _EMBEDDERS.values(embedder),
    ).fetchone()
    if dimension != embedder.dimension:
        raise InputError(
            f"vectors of {embedder.name} have {dimension} numbers in this store, not"
            f" {embedder.dimension}",
            hint="give the other model another name",
        )
    (memory_count,) = connection.execute("SELECT count(*) FROM memories").fetchone()
    if memory_count == 0 or _serving(connection) is None:
        _set_serving(connection, embedder.name)


def _set_serving(connection: SqlConnection, name: str) -> None:
    connection.execute(
        """INSERT INTO meta SELECT 'serving', CAST(embedder AS TEXT) FROM embedders WHERE name = ?
            ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
        (name,),
    )
