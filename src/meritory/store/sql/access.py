"""Access tokens, consent to telemetry and the secret of a store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property

from meritory.domain.access import AccessToken, Consent
from meritory.domain.errors import Corrupt
from meritory.domain.world import moment_text
from meritory.store.sql.connection import SqlConnection, SqlReader
from meritory.store.sql.mapper import RecordTable

_TOKENS = RecordTable("access_tokens", AccessToken)
_CONSENTS = RecordTable("consents", Consent, owner=("user",))


class SqlAccessReads(SqlReader):
    """Tokens and consent, for a store and for a transaction."""

    def access_token(self, user: str, token_id: str) -> AccessToken | None:
        row = self._one(user, f"{_TOKENS.select} WHERE user = ? AND id = ?", (user, token_id))
        return None if row is None else _TOKENS.decode(row)

    def access_tokens(self, user: str) -> Sequence[AccessToken]:
        rows = self._all(user, f"{_TOKENS.select} WHERE user = ? ORDER BY created_at, id", (user,))
        return [_TOKENS.decode(row) for row in rows]

    def consent(self, user: str) -> Consent | None:
        row = self._one(user, f"{_CONSENTS.select} WHERE user = ?", (user,))
        return None if row is None else _CONSENTS.decode(row)

    @cached_property
    def _secret(self) -> bytes:
        row = self._one(None, "SELECT value FROM meta WHERE key = 'secret'", ())
        if row is None:
            raise Corrupt("the store has lost its secret", hint="restore a backup")
        return bytes.fromhex(row[0])

    def secret(self) -> bytes:
        return self._secret


class SqlAccessWrites(SqlAccessReads):
    """Changes of tokens and consent."""

    connection: SqlConnection

    def put_access_token(self, token: AccessToken) -> None:
        self.connection.execute(_TOKENS.upsert("user", "id"), _TOKENS.values(token))

    def note_access(self, user: str, token_id: str, at: datetime) -> None:
        self.connection.execute(
            """UPDATE access_tokens SET last_used_at = :at WHERE user = :user AND id = :id
                AND (last_used_at IS NULL OR last_used_at < :at)""",
            {"user": user, "id": token_id, "at": moment_text(at)},
        )

    def put_consent(self, user: str, consent: Consent) -> None:
        self.connection.execute(_CONSENTS.upsert("user"), _CONSENTS.values(consent, user=user))
