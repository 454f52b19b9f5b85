"""How a store tells that something was written, by whichever process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Following(Protocol):
    """Somebody is told what happens to a store."""

    def close(self) -> None:
        """Nothing more is told; safe to call twice."""


class FollowReads(Protocol):
    """How to be told."""

    def follow(self, told: Callable[[], None]) -> Following | None:
        """Calls `told` soon after somebody, in any process, has committed something.

        Several commits may be told as one, and one is told where there may have been some. It is
        called on a thread of the store's and must return at once. None when this store cannot tell
        and must be looked at.
        """
