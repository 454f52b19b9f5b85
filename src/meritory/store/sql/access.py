"""Tokens in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from meritory.domain.access import AccessToken
from meritory.domain.codec import moment_text
from meritory.store.sql.rows import SqlConnection, SqlReader, moment

_COLUMNS = tuple(item.name for item in fields(AccessToken))
_MOMENTS = frozenset(name for name in _COLUMNS if name.endswith("_at"))
_CHANGEABLE = tuple(name for name in _COLUMNS if name not in ("user", "id"))
# Names of ours alone.
_PUT = (
    f"INSERT INTO access_tokens ({', '.join(_COLUMNS)})"  # noqa: S608
    f" VALUES ({', '.join(':' + name for name in _COLUMNS)}) ON CONFLICT (user, id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _CHANGEABLE)
)
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM access_tokens WHERE user = ?"  # noqa: S608


class SqlAccess:
    """What a transaction can do with tokens, and ask about them."""

    connection: SqlConnection

    def put_access_token(self, token: AccessToken) -> None:
        self.connection.execute(_PUT, {name: _plain(getattr(token, name)) for name in _COLUMNS})

    def note_access(self, user: str, token_id: str, at: datetime) -> None:
        self.connection.execute(
            """UPDATE access_tokens SET last_used_at = :at WHERE user = :user AND id = :id
                AND (last_used_at IS NULL OR last_used_at < :at)""",
            {"user": user, "id": token_id, "at": moment_text(at)},
        )

    def access_token(self, user: str, token_id: str) -> AccessToken | None:
        return _one(self.connection, user, token_id)

    def access_tokens(self, user: str) -> Sequence[AccessToken]:
        return _all(self.connection, user)


class SqlAccessReads:
    """What can be asked of a store about tokens."""

    _engine: SqlReader

    def access_token(self, user: str, token_id: str) -> AccessToken | None:
        with self._engine.read() as connection:
            return _one(connection, user, token_id)

    def access_tokens(self, user: str) -> Sequence[AccessToken]:
        with self._engine.read() as connection:
            return _all(connection, user)


def _one(connection: SqlConnection, user: str, token_id: str) -> AccessToken | None:
    found = connection.execute(f"{_SELECT} AND id = ?", (user, token_id)).fetchone()
    return None if found is None else _token(found)


def _all(connection: SqlConnection, user: str) -> list[AccessToken]:
    found = connection.execute(f"{_SELECT} ORDER BY created_at, id", (user,))
    return [_token(row) for row in found]


def _plain(value: Any) -> Any:
    return moment_text(value) if isinstance(value, datetime) else value


def _token(row: Sequence[Any]) -> AccessToken:
    values = dict(zip(_COLUMNS, row, strict=True))
    for name in _MOMENTS:
        values[name] = None if values[name] is None else moment(values[name])
    return AccessToken(**{**values, "digest": bytes(values["digest"])})
