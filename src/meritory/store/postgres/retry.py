"""Errors of PostgreSQL: typed, with advice and without passwords; conflicts are retried."""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from meritory.domain.errors import (
    Busy,
    Corrupt,
    DiskFull,
    InputError,
    MeritoryError,
    ReadOnlyStore,
    StorageError,
)

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
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
    ("55P03", Busy, "another transaction holds the tenant's rows", "try again"),
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
    """Return the text without the passwords of addresses and connection strings."""
    return _PASSWORD.sub(lambda m: f"{m[1]}***" if m[1] else f"{m[3]}:***@", text)


def translate_error(error: psycopg.Error) -> MeritoryError:
    """Return the typed error, with advice, for an error of PostgreSQL or its driver."""
    import psycopg

    lines = without_password(str(error)).strip().splitlines()
    said = lines[0] if lines else type(error).__name__
    state = error.sqlstate or ""
    for start, kind, message, hint in _BY_STATE:
        if state.startswith(start):
            return kind(f"{message}: {said}", hint=hint)
    if not state and _OF_ADDRESSES.search(said):
        # The message is dropped: it quotes the address, and maybe the password.
        return InputError("the address of the database cannot be read", hint=_ENCODE)
    if isinstance(error, psycopg.errors.PipelineAborted):
        # The caller ignored the first error and went on.
        return StorageError("an earlier error took the whole change back")
    if not isinstance(error, psycopg.OperationalError):
        return StorageError(f"PostgreSQL: {said}")
    # A refused connection has no SQLSTATE, only words.
    for words, (kind, message, hint) in _BY_WORDS:
        if any(word in said for word in words):
            return kind(f"{message}: {said}", hint=hint)
    return Busy(
        f"the database server cannot be reached: {said}",
        hint="check that it runs, and host and port in the address",
    )


WRITE_ATTEMPTS = 5
_BACKOFF_S = 0.02


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn errors of the driver into typed ones."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        # Without its cause: the driver's message may quote the address.
        raise translate_error(error) from None


def retry_on_conflict(attempt: Callable[[], T]) -> T:
    """Run a transaction; if others changed the same rows, run it again, a few times."""
    import psycopg

    conflicts = (
        psycopg.errors.SerializationFailure,
        psycopg.errors.DeadlockDetected,
        # An embedder that was just retired: the lock on the tenant's row protects all else.
        psycopg.errors.ForeignKeyViolation,
    )
    for number in range(1, WRITE_ATTEMPTS):
        try:
            return attempt()
        except (Busy, StorageError) as error:
            if not isinstance(error.__context__, conflicts):
                raise
        time.sleep(_BACKOFF_S * number * (1 + random.random()))  # noqa: S311 - not a secret
    return attempt()
