"""Every error Meritory raises on purpose.

MeritoryError                     the base; catch this one
├── InputError                  the input cannot be accepted               422
│   ├── TooLarge                over a stated limit                        413
│   ├── SecretFound             a key, token or password in the text       422
│   └── SettingsError           a setting is unknown, mistyped or out of bounds
├── NotFound                    no such memory in this scope               404
├── Conflict                    the state does not allow it                409
├── PersonOnly                  an agent asked for a person's decision     403
├── Busy                        another process is writing; try again      503
├── StorageError                the store could not do it                  503
│   ├── DiskFull                no space left                              507
│   ├── ReadOnlyStore           the files cannot be written                503
│   ├── StoreReplaced           its files were moved, replaced or deleted  503
│   ├── Corrupt                 the database is damaged                    503
│   ├── SchemaTooNew            written by a newer Meritory                503
│   └── BadCheckpoint           a file of a learned model is not sound     503
└── PortError                   something outside the process failed       502
    ├── PortTimeout             it did not answer in time                  504
    ├── BadReply                it answered nonsense                       502
    ├── BudgetSpent             the money or the calls for now are used up 429
    └── MissingExtra            an optional dependency is not installed    503
"""

from __future__ import annotations

import errno
from pathlib import Path


class MeritoryError(Exception):
    """The base of all errors, with a stable code, an HTTP status and a hint on what to do."""

    code = "error"
    status = 500

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InputError(MeritoryError):
    """The input cannot be accepted."""

    code = "invalid_input"
    status = 422


class TooLarge(InputError):
    """The input is over a stated limit."""

    code = "too_large"
    status = 413


class SecretFound(InputError):
    """The text holds a key, a token or a password."""

    code = "secret_found"


class SettingsError(InputError):
    """A setting is unknown, mistyped or out of bounds."""

    code = "bad_setting"


class NotFound(MeritoryError):
    """Not in this scope; foreign, unknown and malformed ids get the same reply."""

    code = "not_found"
    status = 404


class Conflict(MeritoryError):
    """The current state does not allow it."""

    code = "conflict"
    status = 409


class PersonOnly(MeritoryError):
    """Only a person may do this, and the caller is an agent or has a token for agents."""

    code = "person_only"
    status = 403


class Busy(MeritoryError):
    """Another process holds the store; try again later."""

    code = "busy"
    status = 503


class StorageError(MeritoryError):
    """The store could not complete the operation; its operator can help, another request cannot."""

    code = "storage"
    status = 503


class DiskFull(StorageError):
    """The disk is full; nothing was stored and nothing was lost."""

    code = "disk_full"
    status = 507


class ReadOnlyStore(StorageError):
    """The store's files cannot be written."""

    code = "read_only"


class StoreReplaced(StorageError):
    """A file of the store was moved, replaced or deleted while the store was open."""

    code = "store_replaced"


class Corrupt(StorageError):
    """The database is damaged; it is left unchanged."""

    code = "corrupt"


class SchemaTooNew(StorageError):
    """The database was written by a newer Meritory."""

    code = "schema_too_new"


class BadCheckpoint(StorageError):
    """A file does not hold a valid model; it is left unchanged."""

    code = "bad_checkpoint"


class PortError(MeritoryError):
    """Something outside the process failed."""

    code = "port"
    status = 502


class PortTimeout(PortError):
    """An external service did not answer in time."""

    code = "port_timeout"
    status = 504


class BadReply(PortError):
    """An external service sent an invalid reply."""

    code = "bad_reply"


class BudgetSpent(PortError):
    """The budget is spent; the work waits `retry_after_s` and is not lost."""

    code = "budget_spent"
    status = 429

    def __init__(
        self, message: str, *, hint: str | None = None, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class MissingExtra(PortError):
    """An optional dependency is not installed."""

    code = "missing_extra"
    status = 503


def translate_system(error: OSError, path: Path) -> MeritoryError:
    """Return the typed error, with a hint, for an error of the operating system."""
    path = Path(str(error.filename or path))  # which may be the target of a backup
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no space left to write {path.name}", hint="free some space and try again")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyStore(f"{path} cannot be written", hint="check its owner and permissions")
    return StorageError(f"{path}: {error.strerror}", hint="check the path")
