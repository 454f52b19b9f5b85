"""What PostgreSQL reports, as typed errors with advice; a password is never part of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from meritory.domain.errors import (
    Busy,
    Corrupt,
    DiskFull,
    InputError,
    MeritoryError,
    ReadOnlyStore,
    StorageError,
)
from meritory.store.postgres.schema import SCHEMA
from meritory.store.postgres.tenancy import APP, STEWARD
from meritory.store.sql.connection import SqlConnection
from meritory.store.sql.memories import SELECT_RECORD, damaged_history, decode_memory

if TYPE_CHECKING:
    import psycopg


_PASSWORD = re.compile(r"(?i)(password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)|(?<=//)([^:/@\s]*):[^@\s]*@")
_OF_ADDRESSES = re.compile(r"percent-encoded|\bURI\b|connection (option|info string)")
_ENCODE = "in user and password write %25 for %, %40 for @, %2F for / and %3A for :"
# By the first letters of SQLSTATE: the more exact ones first.
_BY_STATE: tuple[tuple[str, type[MeritoryError], str, str], ...] = (
    ("53100", DiskFull, "the database server has no space left", "free some space and try again"),
    ("53300", Busy, "the database server takes no more connections",
     "try again, or raise max_connections"),
    ("53", Busy, "the database server lacks resources", "try again in a moment"),
    ("25006", ReadOnlyStore, "the database is read-only",
     "is this a replica? give the address of the primary"),
    ("28", StorageError, "the database server refuses the login",
     "check user and password in the address, and pg_hba.conf"),
    ("3D000", StorageError, "there is no such database", "create it, or check the address"),
    ("25P03", Busy, "the database waited too long in the middle of a change", "try again"),
    ("42501", StorageError, "the login may not do that",
     "it must own the database and be a member of two roles:"
     " `GRANT meritory_app, meritory_steward TO LOGIN`"),
    ("40", Busy, "others wrote the same rows at the same time", "try again"),
    ("55P03", Busy, "somebody else holds the tenant's rows", "try again"),
    ("57014", Busy, "the database took too long", "try again; look at the server's load"),
    ("57P", Busy, "the database server is going down or coming up", "try again in a moment"),
    ("08", Busy, "the connection to the database was lost",
     "try again; what was being written may have been stored"),
    ("XX", Corrupt, "the database reports an internal error", "look into the server's log"),
    ("58", StorageError, "the database server had trouble with its files",
     "look into the server's log"),
)  # fmt: skip

_ADVICE = {start: (kind, message, hint) for start, kind, message, hint in _BY_STATE}
_BY_WORDS: tuple[tuple[tuple[str, ...], tuple[type[MeritoryError], str, str]], ...] = (
    (("password", "authentication", 'role "', "pg_hba"), _ADVICE["28"]),
    (("does not exist",), _ADVICE["3D000"]),
    (("too many", "remaining connection slots"), _ADVICE["53300"]),
    (("starting up", "shutting down"), _ADVICE["57P"]),
    (("consuming input failed",), _ADVICE["08"]),
)


def without_password(text: str) -> str:
    """The text with passwords in addresses and connection strings taken out."""
    return _PASSWORD.sub(lambda m: f"{m[1]}***" if m[1] else f"{m[3]}:***@", text)


def translate_error(error: psycopg.Error) -> MeritoryError:
    """The typed error, with advice, for what PostgreSQL or its driver reported."""
    import psycopg

    told = without_password(str(error)).strip().splitlines()
    said = told[0] if told else type(error).__name__
    state = error.sqlstate or ""
    for start, kind, message, hint in _BY_STATE:
        if state.startswith(start):
            return kind(f"{message}: {said}", hint=hint)
    if not state and _OF_ADDRESSES.search(said):
        # Not told: whoever cannot read an address quotes from it, and maybe from the password.
        return InputError("the address of the database cannot be read", hint=_ENCODE)
    if isinstance(error, psycopg.errors.PipelineAborted):
        # Somebody passed over the error that came first, and went on.
        return StorageError("an earlier error took the whole change back")
    if isinstance(error, psycopg.OperationalError):
        return _unreachable(said)
    return StorageError(f"PostgreSQL: {said}")


def _unreachable(said: str) -> MeritoryError:
    """Who is not let in gets no code, only words."""
    for words, (kind, message, hint) in _BY_WORDS:
        if any(word in said for word in words):
            return kind(f"{message}: {said}", hint=hint)
    return Busy(
        f"the database server cannot be reached: {said}",
        hint="check that it runs, and host and port in the address",
    )


LATE = (
    "a pooler stands in between: daemons look for each other's work every 15 s only;"
    " give them the server's own address"
)
# Together the two roles see all rows and all columns; one at a time they do not. An administrator
# stands above all walls anyway.
_LOGIN = f"""SELECT quote_ident(session_user),
        current_setting('server_version_num')::integer >= 160000,
        pg_has_role(session_user, '{APP}', 'USAGE')
            AND pg_has_role(session_user, '{STEWARD}', 'USAGE')
            AND NOT (rolsuper OR rolbypassrls),
        r.oid = (SELECT nspowner FROM pg_namespace WHERE nspname = '{SCHEMA}')
    FROM pg_roles r WHERE rolname = session_user"""  # noqa: S608 - names of ours


def about_login(connection: SqlConnection) -> list[str]:
    """Whether the daemon's password opens the texts of all tenants, without Meritory."""
    login, can_tell_apart, is_open, is_owner = connection.execute(_LOGIN).fetchone()
    if not is_open:
        return []
    closing = f"ALTER ROLE {login} NOINHERIT"
    if can_tell_apart:
        closing = f"GRANT {APP}, {STEWARD} TO {login} WITH INHERIT FALSE"
    if not is_owner:
        # Without the roles' rights it has to be let in by itself, to look which version there is.
        closing = (
            f"GRANT USAGE ON SCHEMA {SCHEMA} TO {login};"
            f" GRANT SELECT ON {SCHEMA}.schema_version TO {login}; {closing}"
        )
    return [f"the password of {login} opens all tenants' rows in `psql`; `{closing}` ends that"]


_DAMAGE_LIMIT = 20
_UNIT_TOLERANCE = 0.01
_COUNTS = """SELECT (SELECT count(*) FROM memories WHERE user = :user),
    (SELECT count(*) FROM memories m JOIN memory_stats t ON t.row = m.row WHERE m.user = :user)"""
_BAD_VECTORS = """SELECT v.row FROM memory_vectors v JOIN embedders e ON e.embedder = v.embedder
    WHERE v.user = ? AND v.vector IS NOT NULL AND (length(v.vector) <> 4 * e.dimension
        OR abs(vector_norm(v.vector) - 1) > ?) ORDER BY v.row LIMIT ?"""


def check_tenant(connection: SqlConnection, user: str) -> list[str]:
    """Reads every row of a tenant and its hash."""
    damage = list(itertools.islice(_damaged_records(connection, user), _DAMAGE_LIMIT))
    damage += itertools.islice(damaged_history(connection, user), _DAMAGE_LIMIT)
    bad = connection.execute(_BAD_VECTORS, (user, _UNIT_TOLERANCE, _DAMAGE_LIMIT))
    damage += [f"the vector of row {row} is damaged" for (row,) in bad]
    stored, joined = connection.execute(_COUNTS, {"user": user}).fetchone()
    if joined != stored:
        damage.append(f"{stored - joined} memories lack their counters")
    return damage


def _damaged_records(connection: SqlConnection, user: str) -> Iterator[str]:
    for row in connection.execute(f"{SELECT_RECORD} WHERE m.user = ?", (user,)):
        try:
            decode_memory(row)
        except Corrupt as error:
            yield error.message
