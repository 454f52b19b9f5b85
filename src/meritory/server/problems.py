"""Errors as application/problem+json, and errors that only HTTP has."""

from __future__ import annotations

import msgspec

from meritory.domain.errors import Busy, InputError, MeritoryError, NotFound

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
_TITLES = {
    "invalid_input": "The input cannot be accepted",
    "too_large": "The input is too large",
    "secret_found": "The text holds a secret",
    "not_found": "Not found",
    "conflict": "The current state does not allow it",
    "busy": "Busy: another process writes, or the database is unavailable",
    "storage": "The store failed",
    "store_replaced": "The files of the store were moved, replaced or deleted",
    "disk_full": "The disk is full",
    "read_only": "The store cannot be written",
    "corrupt": "The database is damaged",
    "person_only": "Only a person may do this",
    "bug": "Internal error",
}


class BadRequest(InputError):
    """The request itself is malformed."""

    code = "bad_request"
    status = 400


class Unauthorized(MeritoryError):
    """The token is missing or wrong; the reply does not say which."""

    code = "unauthorized"
    status = 401

    def __init__(self) -> None:
        super().__init__(
            "the token is missing or wrong",
            hint="send `Authorization: Bearer TOKEN` (programs: MERITORY_TOKEN) with a valid token"
            " of `meritory token create`, or the owner's, which is in the file `token` of the"
            " data folder",
        )


class Forbidden(MeritoryError):
    """The caller is known, but not allowed."""

    code = "forbidden"
    status = 403


class NoRoute(NotFound):
    """There is no route for this path."""

    code = "no_route"


class WrongMethod(MeritoryError):
    """The path has no route for this method."""

    code = "wrong_method"
    status = 405

    def __init__(self, *allowed: str) -> None:
        *first, last = allowed
        names = f"{', '.join(first)} or {last}" if first else last
        super().__init__(f"method not allowed; use {names}")
        self.allowed = ", ".join(allowed)


class SlowBody(MeritoryError):
    """The body did not arrive in time."""

    code = "slow_body"
    status = 408


class NotJson(MeritoryError):
    """The body is not declared as JSON."""

    code = "not_json"
    status = 415


class TooMany(MeritoryError):
    """Too many requests, or too many wrong tokens."""

    code = "too_many"
    status = 429


class Overloaded(Busy):
    """More requests than the daemon can answer in time."""

    code = "overloaded"


class Bug(MeritoryError):
    """An unexpected error; the log has the details, the reply never."""

    code = "bug"
    status = 500


class Problem(msgspec.Struct, omit_defaults=True):
    """The reply of every error: RFC 9457, with a code, a hint and the request's id."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str | None = None
    request_id: str | None = None


def as_problem(error: MeritoryError, request_id: str | None) -> Problem:
    """Return the problem of an error."""
    title = _TITLES.get(error.code)
    if title is None:
        title = (type(error).__doc__ or "An error").split(";")[0].split(".")[0]
    kind = f"urn:meritory:problem:{error.code}"
    return Problem(kind, title, error.status, error.message, error.code, error.hint, request_id)


def extra_headers(error: MeritoryError) -> dict[str, str]:
    """Return the headers that belong to a status."""
    if isinstance(error, Unauthorized):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, WrongMethod):
        return {"allow": error.allowed}
    # Other errors of status 503 last until an operator helps.
    if error.status == 429 or isinstance(error, Busy):
        return {"retry-after": str(RETRY_AFTER_S)}
    return {}


def raw_reply(error: MeritoryError, request_id: str | None, is_kept: bool) -> bytes:
    """Return a complete HTTP reply, for errors below the application."""
    content = msgspec.json.encode(as_problem(error, request_id))
    headers = {
        "content-type": MEDIA_TYPE,
        "content-length": str(len(content)),
        "cache-control": "no-store",
        **extra_headers(error),
    }
    if request_id is not None:
        headers["x-request-id"] = request_id
    if not is_kept:
        headers["connection"] = "close"
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {error.status} Refused\r\n{head}\r\n".encode("ascii") + content
