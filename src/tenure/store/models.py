"""Models inside a store: the contract for databases that many machines share."""

from __future__ import annotations

from typing import Protocol


class ModelRows(Protocol):
    """The models of all users, each under its version; what is in one is not looked into here."""

    def versions(self, user: str) -> list[int]:
        """The versions there are, the latest first."""

    def digest(self, user: str, version: int) -> str | None:
        """The SHA-256 of a model in hexadecimal digits; None without one."""

    def content(self, user: str, version: int) -> bytes | None:
        """A model; None without one."""

    def put(self, user: str, version: int, content: bytes) -> None:
        """Keeps a model under its version, in the place of one that is there."""

    def drop(self, user: str, version: int) -> None:
        """Removes a model, if it is there."""
