"""Errors as application/problem+json, and the errors that only HTTP knows."""

from __future__ import annotations

import msgspec

from meritory.domain.errors import Busy, InputError, MeritoryError, NotFound

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
_TITLES = {
    "invalid_input": "The input cannot be accepted",
    "too_large": "The input is too large",
    "secret_found": "The text holds a secret",
    "not_found": "There is no such thing",
    "conflict": "The present state does not allow it",
    "busy": "Not now: somebody else is writing, or the database is away",
    "storage": "The store could not do it",
    "disk_full": "The disk is full",
    "read_only": "The store cannot be written",
    "corrupt": "The database is damaged",
    "bug": "Something went wrong inside",
}


class BadRequest(InputError):
    """The request itself is malformed."""

    code = "bad_request"
    status = 400


class Unauthorized(MeritoryError):
    """No token, or not the right one; nobody learns which."""

    code = "unauthorized"
    status = 401

    def __init__(self) -> None:
        super().__init__(
            "there is no token, or not the right one",
            hint="send `Authorization: Bearer TOKEN` (programs: MERITORY_TOKEN), one of `meritory"
            " token create` that has not ended, or the owner's, which is in the file `token` of the"
            " data folder",
        )


class Forbidden(MeritoryError):
    """Known, but not allowed."""

    code = "forbidden"
    status = 403


class NoRoute(NotFound):
    """Nothing lives under this path."""

    code = "no_route"


class WrongMethod(MeritoryError):
    """The path exists, but not for this method."""

    code = "wrong_method"
    status = 405

    def __init__(self, allowed: str) -> None:
        super().__init__(f"this path knows {allowed} only")
        self.allowed = allowed


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
    """More is under way than the daemon takes on."""

    code = "overloaded"


class Bug(MeritoryError):
    """An error nobody foresaw; its details are in the log, never in the answer."""

    code = "bug"
    status = 500


class Problem(msgspec.Struct, omit_defaults=True):
    """What every error answers: RFC 9457, with our code, a hint and the request's id."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str | None = None
    request_id: str | None = None


def as_problem(error: MeritoryError, request_id: str | None) -> Problem:
    """The problem that an error is told as."""
    title = _TITLES.get(error.code)
    if title is None:
        title = (type(error).__doc__ or "An error").split(";")[0].split(".")[0]
    kind = f"urn:meritory:problem:{error.code}"
    return Problem(kind, title, error.status, error.message, error.code, error.hint, request_id)


def extra_headers(error: MeritoryError) -> dict[str, str]:
    """Headers that belong to a status."""
    if isinstance(error, Unauthorized):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, WrongMethod):
        return {"allow": error.allowed}
    if error.status in (429, 503):
        return {"retry-after": str(RETRY_AFTER_S)}
    return {}


def raw_reply(error: MeritoryError, request_id: str | None, is_kept: bool) -> bytes:
    """A whole answer for whoever answers below the application."""
    content = msgspec.json.encode(as_problem(error, request_id))
    told = {
        "content-type": MEDIA_TYPE,
        "content-length": str(len(content)),
        "cache-control": "no-store",
        **extra_headers(error),
    }
    if request_id is not None:
        told["x-request-id"] = request_id
    if not is_kept:
        told["connection"] = "close"
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"HTTP/1.1 {error.status} Refused\r\n{head}\r\n".encode("ascii") + content
