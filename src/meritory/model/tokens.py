"""Words as numbers: each is hashed into one of a fixed number of buckets, so none is unknown.

A text stands for the mean of its words' rows in a table with a row per bucket.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from meritory.model.base import Floats, Rows, SparseRows

BUCKETS: Final = 16_384
# Of one text, the different ones only; what comes later says little about a memory.
MAX_WORDS: Final = 128
# No more of a text is read, however few words are in it.
MAX_CHARS: Final = 8_192
# A sum of more rows than this is taken on its own.
_LONG_SUM: Final = 64

_CHUNK: Final = re.compile(r"\w+")
_UPPER: Final = "A-ZÀ-ÖØ-Þ"
# Beyond Latin-1 capitals and small letters alternate; they are taken for small ones.
_LOWER: Final = "a-zß-öø-ÿ\u0100-\u024f"
_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# Scripts without spaces go letter by letter, identifiers by their humps and numbers.
_PART: Final = re.compile(
    f"[{_UNSPACED}]|[{_UPPER}]+(?![{_LOWER}])|[{_UPPER}]?[{_LOWER}]+|[0-9]+"
    rf"|[^\W0-9_{_UPPER}{_LOWER}{_UNSPACED}]+"
)


def words_of(text: str) -> Rows:
    """The buckets of a text's first `MAX_WORDS` different words, in the order they appear.

    An identifier counts as a whole and by its parts: camelCase is camelcase, camel and case.
    """
    seen: dict[str, None] = {}
    for word in _words(text[:MAX_CHARS]):
        seen[word] = None
        if len(seen) == MAX_WORDS:
            break
    return np.fromiter((_bucket(word) for word in seen), np.int64, len(seen))


def _words(text: str) -> Iterator[str]:
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    for match in _CHUNK.finditer(plain):
        chunk = match.group()
        # Nearly every word is plain, with nothing hidden in it.
        if chunk.isascii() and chunk.isalpha() and (chunk[1:].islower() or len(chunk) == 1):
            yield chunk.lower()
            continue
        whole = chunk.strip("_").casefold()
        if whole:
            yield whole
            yield from (part.casefold() for part in _PART.findall(chunk))


def _bucket(word: str) -> int:
    # Always the same, unlike `hash`; a lone surrogate is a letter like any other.
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) % BUCKETS


def pooled(table: Floats, words: Rows, counts: Rows, precision: DTypeLike) -> NDArray[Any]:
    """The mean row of each text's words, which stand one text after another in these numbers."""
    # Few different words in many places: only their rows are fetched and converted.
    is_used = np.zeros(BUCKETS, np.bool_)
    is_used[words] = True
    place = np.cumsum(is_used) - 1
    total = _summed(table[is_used].astype(precision), place[words], counts)
    return np.asarray(total / counts[:, None].astype(precision))


def by_table(by_pooled: NDArray[Any], words: Rows, counts: Rows) -> SparseRows:
    """The gradient by the table, from that by what `pooled` gave."""
    share = by_pooled / counts[:, None].astype(by_pooled.dtype)
    text = np.repeat(np.arange(len(counts)), counts)
    # Short integers are sorted in linear time.
    order = np.argsort(words.astype(np.int16), kind="stable")
    uses = np.bincount(words, minlength=BUCKETS)
    rows = np.flatnonzero(uses)
    return SparseRows(rows, _summed(share, text[order], uses[rows]).astype(np.float64))


def _summed(rows: NDArray[Any], index: Rows, counts: Rows) -> NDArray[Any]:
    """Rows at the given places, summed in groups that follow each other in these sizes.

    All groups take one more row at a time, the longest first: that is several times quicker than
    numpy's own sums over groups of rows.
    """
    order = np.argsort(-counts, kind="stable")
    sizes = counts[order]
    begins = (np.cumsum(counts) - counts)[order]
    total = np.zeros((len(counts), rows.shape[1]), rows.dtype)
    for step in range(min(int(sizes.max(initial=0)), _LONG_SUM)):
        active = int(np.searchsorted(-sizes, -step))
        total[:active] += rows[index[begins[:active] + step]]
    for place in range(int(np.searchsorted(-sizes, -_LONG_SUM))):
        rest = slice(begins[place] + _LONG_SUM, begins[place] + sizes[place])
        total[place] += rows[index[rest]].sum(0)
    summed = np.empty_like(total)
    summed[order] = total
    return summed
