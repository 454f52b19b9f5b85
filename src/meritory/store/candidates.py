"""What a session's candidates are gathered from, and what ranking needs to know of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from meritory.store.base import Search

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gathering:
    """A search for a session's candidates: trusted memories only, from more than two sides.

    `rows` and `ids` are wanted besides what the searches find, as far as the scope may see them.
    """

    search: Search
    effective_limit: int
    rows: IntArray
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a gathering found as parallel arrays, rows ascending; `by_` lists are best first."""

    rows: IntArray
    text: FloatArray
    # NaN without a vector; `centred` is what is left without what all memories share.
    cosine: FloatArray
    centred: FloatArray
    provenance: IntArray
    confidence: FloatArray
    demotion: IntArray
    # Unit vectors, zero where there is none.
    vectors: FloatArray
    by_effective: IntArray
    by_cosine: IntArray
    by_text: IntArray
    row_of_id: Mapping[str, int]


class Trait(NamedTuple):
    """What ranking needs to know of a memory; moments are days of the epoch."""

    id: str
    kind: str
    project: str | None
    importance: float
    pinned: bool
    # When it began to hold: `valid_from` or, without one, its creation.
    since_days: float
    created_days: float
    # The beginning of its text, which its title is read from.
    opening: str
    access_count: int
    usefulness: float
