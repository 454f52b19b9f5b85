"""How far the move of one user came, as the target notes it with every batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# Beside the other things that a store knows of itself.
_PREFIX = "moving "


def key_of(user: str) -> str:
    """Under which name the target notes it."""
    return _PREFIX + user


@dataclass(frozen=True, slots=True)
class Standing:
    """The numbers by which a user's rows are known to have changed, or not."""

    change: int = 0
    purge: int = 0
    learned: int = 0
    # By the table that gives numbers the highest that was ever given.
    given: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """What was done for a user, and from where."""

    source: str
    user: str
    standing: Standing
    # By the table that gives numbers what is added to each on the way.
    raised: Mapping[str, int] = field(default_factory=dict)
    # The part that was last written to and the key of its last row, None when it is done.
    part: str | None = None
    after: tuple[Any, ...] | None = None
    copied: Mapping[str, int] = field(default_factory=dict)
    document_count: int = 0
    token_count: int = 0
    is_complete: bool = False

    def encoded(self) -> str:
        """As the target keeps it."""
        return json.dumps(asdict(self))


def decoded(text: str) -> Progress:
    """What `encoded` wrote."""
    known: dict[str, Any] = json.loads(text)
    after = known.pop("after")
    return Progress(
        standing=Standing(**known.pop("standing")),
        after=None if after is None else tuple(after),
        **known,
    )
