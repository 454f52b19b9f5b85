"""The models of all tenants in PostgreSQL, so that any daemon can serve any tenant."""

from __future__ import annotations

import hashlib
from typing import Any

from meritory.store.postgres.engine import Engine


class ModelTable:
    """The table `models`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def versions(self, user: str) -> list[int]:
        """The versions there are, the latest first."""
        with self._engine.read() as connection:
            found = connection.execute(
                "SELECT version FROM models WHERE user = ? ORDER BY version DESC", (user,)
            )
            return [version for (version,) in found]

    def digest(self, user: str, version: int) -> str | None:
        """The SHA-256 of a model; None without one."""
        found = self._one("digest", user, version)
        return None if found is None else str(found)

    def content(self, user: str, version: int) -> bytes | None:
        """A model; None without one."""
        found = self._one("content", user, version)
        return None if found is None else bytes(found)

    def _one(self, column: str, user: str, version: int) -> Any:
        with self._engine.read() as connection:
            found = connection.execute(
                f"SELECT {column} FROM models WHERE user = ? AND version = ?",  # noqa: S608 - ours
                (user, version),
            ).fetchone()
        return found[0] if found else None

    def put(self, user: str, version: int, content: bytes) -> None:
        """Keeps a model under its version, in the place of one that is there."""
        digest = hashlib.sha256(content).hexdigest()
        self._engine.write(
            lambda connection: connection.execute(
                """INSERT INTO models (user, version, content, digest) VALUES (?, ?, ?, ?)
                    ON CONFLICT (user, version)
                    DO UPDATE SET content = excluded.content, digest = excluded.digest""",
                (user, version, content, digest),
            )
        )

    def drop(self, user: str, version: int) -> None:
        """Removes a model, if it is there."""
        self._engine.write(
            lambda connection: connection.execute(
                "DELETE FROM models WHERE user = ? AND version = ?", (user, version)
            )
        )
