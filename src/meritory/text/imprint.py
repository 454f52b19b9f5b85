"""The words of a context as small numbers: enough to tell how much two contexts share."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

MAX_WORDS = 128
# Words are told apart by their beginnings, so that "migrate" and "migration" are one.
_STEM_CHARS = 6
_WORD_BITS = 16
WORD_COUNT = 1 << _WORD_BITS


def imprint(terms: Iterable[str]) -> NDArray[np.uint16]:
    """The distinct numbers of the words, ascending; the same on every machine."""
    stems = dict.fromkeys(term[:_STEM_CHARS] for term in terms)
    numbers = {zlib.crc32(stem.encode()) % WORD_COUNT for stem in list(stems)[:MAX_WORDS]}
    return np.array(sorted(numbers), np.uint16)
