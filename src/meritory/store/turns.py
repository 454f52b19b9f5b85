"""What several processes on one store could do at once, and one of them is enough for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Turns(Protocol):
    """Whose turn it is."""

    def turn(self, what: str) -> AbstractContextManager[bool]:
        """Has the turn at something for the length of the block; False when another has it.

        Whoever dies has it no more. A store that has one process by its nature always gives it.
        """
