"""The parts that all scorers share: queries and examples, hashed words, and listwise losses.

A word is hashed into one of a fixed number of buckets, so none is unknown. A text is the mean of
its words' rows in a table with one row per bucket.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]

BUCKETS: Final = 16_384
# The most different words of a text; later ones say little about a memory.
MAX_WORDS: Final = 128
# The most characters of a text that are read.
MAX_CHARS: Final = 8_192
# A sum of more rows than this is computed separately.
_LONG_SUM: Final = 64

_CHUNK: Final = re.compile(r"\w+")
_UPPER: Final = "A-ZÀ-ÖØ-Þ"
# Beyond Latin-1 capitals and small letters alternate; all count as small ones.
_LOWER: Final = "a-zß-öø-ÿ\u0100-\u024f"
_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# Scripts without spaces are split into letters, identifiers at capitals and numbers.
_PART: Final = re.compile(
    f"[{_UNSPACED}]|[{_UPPER}]+(?![{_LOWER}])|[{_UPPER}]?[{_LOWER}]+|[0-9]+"
    rf"|[^\W0-9_{_UPPER}{_LOWER}{_UNSPACED}]+"
)
# Of the labels' softmax; sharper where labels are close together.
TEMPERATURE = 0.5
SHARP_TEMPERATURE = 0.3
CLOSE_LABELS = 0.1
_TINY = float(np.finfo(np.float64).tiny)

# Takes scores, labels and weights; returns the loss and its gradient by the scores.
Loss: TypeAlias = Callable[[Floats, Floats, Floats], tuple[float, Floats]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingQuery:
    """The candidates of one session as a model sees them, one row each."""

    # As recorded when the session was served: one column per name in `rank.features`.
    features: Floats
    # The context's vector; None if there are only words.
    context: Vectors | None = None
    # One row per candidate, zeros where a memory has no vector; None if they were not read.
    vectors: Vectors | None = None
    # The hashed words of the context and of each candidate; empty if they were not read.
    context_words: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    words: tuple[Rows, ...] = ()
    # A small number of the project, 0 for none.
    project_slot: int = 0

    @property
    def count(self) -> int:
        """The number of candidates."""
        return len(self.features)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingExample:
    """A finished session to learn from."""

    query: RankingQuery
    # How much each candidate helped, -1..1.
    labels: Floats
    # The weight of each candidate: 1, less if it was not judged, 0 if it is left out.
    weights: Floats
    # The weight of the session.
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class SparseRows:
    """A gradient that is zero except for some rows of a table."""

    rows: Rows
    values: Floats


Gradient: TypeAlias = Floats | SparseRows


class Model(Protocol):
    """A scorer that can be trained; it is never changed while another thread scores."""

    @property
    def kind(self) -> str:
        """The kind of scorer, as checkpoints store it."""

    @property
    def params(self) -> Mapping[str, Floats]:
        """All parameters by name, in the order in which they are stored."""

    def with_params(self, params: Mapping[str, Floats]) -> Model:
        """Return the same scorer with other parameters of the same shapes."""

    def score(self, query: RankingQuery) -> Floats:
        """Return one score per candidate, the higher the better; always finite."""

    def loss_and_grads(self, lesson: TrainingExample) -> tuple[float, dict[str, Gradient]]:
        """Return the loss of one session and its gradient by every trained parameter."""


# -- losses -----------------------------------------------------------------------------------


def list_net(scores: Floats, labels: Floats, weights: Floats) -> tuple[float, Floats]:
    """Return the KL divergence of the softmax of scores from that of labels; 0 for equal labels."""
    counted = np.flatnonzero(weights > 0.0)
    gradient = np.zeros(len(scores))
    spread = float(np.ptp(labels[counted])) if len(counted) else 0.0
    if spread <= 0.0:
        return 0.0, gradient
    temperature = SHARP_TEMPERATURE if spread < CLOSE_LABELS else TEMPERATURE
    weight = weights[counted]
    target = _softmax(labels[counted] / temperature, weight)
    softmax = _softmax(scores[counted], weight)
    with np.errstate(divide="ignore"):
        divergence = target * (np.log(target) - np.log(np.maximum(softmax, _TINY)))
    gradient[counted] = softmax - target
    return float(np.nansum(divergence)), gradient


def cross_entropy(scores: Floats, labels: Floats, weights: Floats) -> tuple[float, Floats]:
    """Return the cross entropy of the softmax of scores with each label's share of the gain.

    The gain is max(0, label). A weight counts a candidate that many times.
    """
    counted = np.flatnonzero(weights > 0.0)
    gradient = np.zeros(len(scores))
    gain = np.maximum(labels[counted], 0.0) * weights[counted]
    if gain.sum() <= 0.0:
        return 0.0, gradient
    target = gain / gain.sum()
    softmax = _softmax(scores[counted], weights[counted])
    logs = np.log(np.maximum(softmax / weights[counted], _TINY))
    gradient[counted] = softmax - target
    return -float(target @ logs), gradient


def _softmax(values: Floats, weights: Floats) -> Floats:
    raised = weights * np.exp(values - values.max())
    return np.asarray(raised / raised.sum())


# -- words ------------------------------------------------------------------------------------


def words_of(text: str) -> Rows:
    """Return the buckets of the first `MAX_WORDS` different words of a text, in their order.

    An identifier counts as a whole and by its parts: camelCase is camelcase, camel and case.
    """
    seen: dict[str, None] = {}
    for word in _words(text[:MAX_CHARS]):
        seen[word] = None
        if len(seen) == MAX_WORDS:
            break
    # Unlike `hash`, CRC is the same in every process; a lone surrogate is a letter like any other.
    codes = (zlib.crc32(word.encode("utf-8", "surrogatepass")) % BUCKETS for word in seen)
    return np.fromiter(codes, np.int64, len(seen))


def _words(text: str) -> Iterator[str]:
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    for match in _CHUNK.finditer(plain):
        chunk = match.group()
        # A fast path for plain words, which nearly all words are.
        if chunk.isascii() and chunk.isalpha() and (chunk[1:].islower() or len(chunk) == 1):
            yield chunk.lower()
            continue
        whole = chunk.strip("_").casefold()
        if whole:
            yield whole
            yield from (part.casefold() for part in _PART.findall(chunk))


def pooled(table: Floats, words: Rows, counts: Rows, precision: DTypeLike) -> NDArray[Any]:
    """Return the mean row of each text; `words` has the texts one after another."""
    # Words repeat: only the rows of the different ones are read and converted.
    is_used = np.zeros(BUCKETS, np.bool_)
    is_used[words] = True
    index = np.cumsum(is_used) - 1
    total = _summed(table[is_used].astype(precision), index[words], counts)
    return np.asarray(total / counts[:, None].astype(precision))


def by_table(by_pooled: NDArray[Any], words: Rows, counts: Rows) -> SparseRows:
    """Return the gradient by the table from the gradient by the result of `pooled`."""
    share = by_pooled / counts[:, None].astype(by_pooled.dtype)
    text = np.repeat(np.arange(len(counts)), counts)
    # Short integers are sorted in linear time.
    order = np.argsort(words.astype(np.int16), kind="stable")
    uses = np.bincount(words, minlength=BUCKETS)
    rows = np.flatnonzero(uses)
    return SparseRows(rows, _summed(share, text[order], uses[rows]).astype(np.float64))


def _summed(rows: NDArray[Any], index: Rows, counts: Rows) -> NDArray[Any]:
    """Return the sums of consecutive groups of rows; `counts` has the size of each group.

    All groups add one row at a time, the longest first: that is several times faster than numpy's
    own sums over groups of rows.
    """
    order = np.argsort(-counts, kind="stable")
    sizes = counts[order]
    begins = (np.cumsum(counts) - counts)[order]
    total = np.zeros((len(counts), rows.shape[1]), rows.dtype)
    for step in range(min(int(sizes.max(initial=0)), _LONG_SUM)):
        active = int(np.searchsorted(-sizes, -step))
        total[:active] += rows[index[begins[:active] + step]]
    for group in range(int(np.searchsorted(-sizes, -_LONG_SUM))):
        rest = slice(begins[group] + _LONG_SUM, begins[group] + sizes[group])
        total[group] += rows[index[rest]].sum(0)
    summed = np.empty_like(total)
    summed[order] = total
    return summed
