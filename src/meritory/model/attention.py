"""Cross-attention over the candidates: how well they match the context, in addition to features.

    encoded(text) = layer norm of the vector projected down, or else of the mean of its words' rows
    match         = (encoded(context) + project) · query · key · encoded(candidate)
    attended      = the candidates' values, weighted by the softmax of their matches
    score         = composite + gate · [value × attended, match, features]

The features are z-scores within the session, so the composite's order is the starting point and
the gate contains the corrections to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from meritory.domain.errors import InputError
from meritory.model import base
from meritory.model.base import (
    BUCKETS,
    Floats,
    Gradient,
    RankingQuery,
    Rows,
    TrainingExample,
    by_table,
    pooled,
)
from meritory.model.ranker import COMPOSITE, standardised
from meritory.rank.features import FEATURES

KIND: Final = "attention"
INNER: Final = 64
VALUES: Final = 32
PROJECTS: Final = 32
LOSSES: Final[Mapping[str, base.Loss]] = MappingProxyType(
    {"list_net": base.list_net, "cross_entropy": base.cross_entropy}
)
# Products with the inner matrices are means over their inputs, for the reason given in `fresh`.
_MEAN: Final = 1.0 / INNER
# The scale of the attention's logits.
_SCALE: Final = 1.0 / np.sqrt(INNER)
# Keeps a text whose words cancel out from being scaled up.
_LEAST_VARIANCE: Final = 1e-5
_MATCH: Final = VALUES
_GATE: Final = VALUES + 1 + len(FEATURES)
_INNER_MATRICES: Final = ("query", "key", "value")
_PATHS: Final = ("vector", "word")

# An array in the precision in which the model computes.
Array: TypeAlias = NDArray[Any]
# The result of a layer norm before scale and shift, and its divisor.
_Normed: TypeAlias = tuple[Array, Array]


def shapes(width: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters by name, in stored order, for vectors of a width."""
    norms = {f"{path}_{part}": (INNER,) for path in _PATHS for part in ("scale", "shift")}
    return {
        "down": (width, INNER),
        "table": (BUCKETS, INNER),
        **norms,
        "query": (INNER, INNER),
        "key": (INNER, INNER),
        "value": (INNER, VALUES),
        "projects": (PROJECTS, INNER),
        "gate": (_GATE,),
    }


@dataclass(frozen=True, slots=True)
class Attention:
    """The scorer of seed 001; untrained it ranks exactly as the composite."""

    params: Mapping[str, Floats]
    # One of `LOSSES`.
    loss: str = "cross_entropy"
    # float32 is faster and exact enough; tests check gradients in float64.
    precision: DTypeLike = np.float32

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InputError(f"there is no loss {self.loss!r}", hint=f"use one of {set(LOSSES)}")
        given = {name: np.shape(value) for name, value in self.params.items()}
        width = given.get("down", (0,))[0]
        if list(given.items()) != list(shapes(width).items()):
            raise InputError(
                "the parameters are not those of an attention scorer",
                hint="start from Attention.fresh or from a checkpoint of this kind",
            )

    @classmethod
    def fresh(
        cls, width: int, rng: np.random.Generator, *, loss: str = "cross_entropy"
    ) -> Attention:
        """Return an untrained scorer for vectors of this width."""
        params = {name: np.zeros(shape) for name, shape in shapes(width).items()}
        # The gate is zero, so the score is the composite's. Its gradient is not zero: it consists
        # of values and matches of random projections, which all differ, so no two units stay
        # equal. After one step the gate lets gradients through to the other parameters.
        # The project embeddings are added to a context that is not zero, so they can start at zero.

        # The layer norm removes the length of a row, so long rows only turn more slowly: the same
        # learning rate then suits wide layers and the gate.
        params["down"] = rng.standard_normal((width, INNER)) * np.sqrt(width)
        params["table"] = rng.standard_normal((BUCKETS, INNER)) * np.sqrt(INNER)
        for path in _PATHS:
            params[f"{path}_scale"] = np.ones(INNER)
        # With equal matrices a match begins as the similarity of context and candidate.
        params["query"] = np.eye(INNER) * INNER
        params["key"] = np.eye(INNER) * INNER
        params["value"] = rng.standard_normal((INNER, VALUES)) * np.sqrt(INNER)
        return cls(params, loss)

    @property
    def kind(self) -> str:
        """The kind of scorer, as checkpoints store it."""
        return KIND

    @property
    def width(self) -> int:
        """The length of a vector."""
        return len(self.params["down"])

    def with_params(self, params: Mapping[str, Floats]) -> Attention:
        """Return the same scorer with other parameters of the same shapes."""
        return Attention(params, self.loss, self.precision)

    def score(self, query: RankingQuery) -> Floats:
        """Return one score per candidate, the higher the better; always finite."""
        if not query.count:
            return np.empty(0)
        batch = _batch((query,), self.width, self.precision)
        with np.errstate(over="ignore", invalid="ignore"):
            correction = _forward(self.params, batch).correction
        is_known = np.isfinite(correction)
        return batch.composite + np.where(is_known, correction, 0.0)

    def loss_and_grads(self, lesson: TrainingExample) -> tuple[float, dict[str, Gradient]]:
        """Return the loss of one session times its weight, and its gradient by every parameter."""
        return self.loss_and_grads_of((lesson,))

    def loss_and_grads_of(
        self, lessons: Sequence[TrainingExample]
    ) -> tuple[float, dict[str, Gradient]]:
        """Return the sum of `loss_and_grads` over several sessions, much faster than one by one."""
        known = [lesson for lesson in lessons if lesson.query.count]
        if not known:
            return 0.0, {}
        batch = _batch([lesson.query for lesson in known], self.width, self.precision)
        with np.errstate(over="ignore", invalid="ignore"):
            seen = _forward(self.params, batch)
            scores = batch.composite + seen.correction
            total, end, by_score = 0.0, 0, np.empty(len(scores))
            for lesson in known:
                start, end = end, end + lesson.query.count
                lost, slope = LOSSES[self.loss](scores[start:end], lesson.labels, lesson.weights)
                total += lesson.weight * lost
                by_score[start:end] = lesson.weight * slope
            return total, _backward(self.params, batch, seen, by_score)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttentionBatch:
    """Several stacked sessions; the items are all candidates, then all contexts."""

    composite: Floats
    features: Array
    counts: Rows
    starts: Rows
    slots: Rows
    # The vectors and their items.
    vectors: Array
    with_vector: Rows
    # The words of the items without a vector, in sequence.
    words: Rows
    word_counts: Rows
    with_words: Rows

    def spread(self, values: Array) -> Array:
        """Repeat the row of each session for its candidates."""
        return np.repeat(values, self.counts, axis=0)

    def summed(self, values: Array) -> Array:
        """Sum the rows of candidates within each session."""
        return np.add.reduceat(values, self.starts, axis=0)


def _batch(queries: Sequence[RankingQuery], width: int, precision: DTypeLike) -> _AttentionBatch:
    counts = np.array([query.count for query in queries], np.int64)
    starts = np.cumsum(counts) - counts
    features = standardised(np.concatenate([query.features for query in queries]), starts)
    vectors, with_vector = _vectors(queries, starts, width)
    words, with_words = _words(queries, starts, with_vector)
    return _AttentionBatch(
        composite=features[:, COMPOSITE],
        features=features.astype(precision),
        counts=counts,
        starts=starts,
        slots=np.array([query.project_slot % PROJECTS for query in queries], np.int64),
        vectors=vectors.astype(precision, copy=False),
        with_vector=with_vector,
        words=np.concatenate([np.empty(0, np.int64), *words]) % BUCKETS,
        word_counts=np.array([len(own) for own in words], np.int64),
        with_words=with_words,
    )


def _vectors(queries: Sequence[RankingQuery], starts: Rows, width: int) -> tuple[Array, Rows]:
    """Return all usable vectors and their items."""
    first_context = int(starts[-1]) + queries[-1].count
    blocks: list[Array] = [np.empty((0, width), np.float32)]
    items: list[Rows] = [np.empty(0, np.int64)]
    for number, (query, start) in enumerate(zip(queries, starts, strict=True)):
        if query.vectors is not None:
            blocks.append(query.vectors)
            items.append(np.arange(start, start + query.count))
        if query.context is not None:
            blocks.append(query.context[None])
            items.append(np.array([first_context + number]))
    if any(block.ndim != 2 or block.shape[1] != width for block in blocks):
        raise InputError(
            f"the scorer was made for vectors of {width} numbers",
            hint="start afresh after a change of the embedder",
        )
    vectors, item = np.concatenate(blocks), np.concatenate(items)
    length = np.einsum("ij,ij->i", vectors, vectors)
    is_known = np.isfinite(length) & (length > 0.0)
    return (vectors, item) if is_known.all() else (vectors[is_known], item[is_known])


def _words(
    queries: Sequence[RankingQuery], starts: Rows, with_vector: Rows
) -> tuple[list[Rows], Rows]:
    """Return the words of each item that has words but no vector, and these items."""
    first_context = int(starts[-1]) + queries[-1].count
    lacks_vector = np.ones(first_context + len(queries), np.bool_)
    lacks_vector[with_vector] = False
    words: list[Rows] = []
    items: list[int] = []
    for number, (query, start) in enumerate(zip(queries, starts, strict=True)):
        if query.words and len(query.words) != query.count:
            raise InputError("words are given for some candidates only", hint="give them for all")
        lacking = np.flatnonzero(lacks_vector[start : start + query.count]) if query.words else ()
        pairs = [(int(start + index), query.words[index]) for index in lacking]
        if lacks_vector[first_context + number]:
            pairs.append((first_context + number, query.context_words))
        words += [own for _, own in pairs if len(own)]
        items += [item for item, own in pairs if len(own)]
    return words, np.array(items, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The results of a forward pass that the backward pass needs."""

    correction: Floats
    vectors: _Normed
    words: _Normed
    # Candidates, then contexts with their project's embedding.
    encoded: Array
    contexts: Array
    queries: Array
    asked: Array
    values: Array
    match: Array
    attention: Array
    attended: Array


def _forward(params: Mapping[str, Floats], batch: _AttentionBatch) -> _Seen:
    precision = batch.features.dtype
    use = _used(params, precision)
    vectors = _normed(batch.vectors @ use["down"])
    words = _normed(pooled(params["table"], batch.words, batch.word_counts, precision))
    items = np.zeros((len(batch.features) + len(batch.counts), INNER), precision)
    items[batch.with_vector] = vectors[0] * use["vector_scale"] + use["vector_shift"]
    items[batch.with_words] = words[0] * use["word_scale"] + use["word_shift"]
    encoded = items[: len(batch.features)]
    contexts = items[len(batch.features) :] + use["projects"][batch.slots]
    queries = contexts @ use["query"]
    # The key is applied to the few contexts, not to the many candidates: the product is the same.
    asked = queries @ use["key"].T * precision.type(_SCALE)
    match = np.einsum("ij,ij->i", encoded, batch.spread(asked))
    raised = np.exp(match - batch.spread(np.maximum.reduceat(match, batch.starts)))
    attention = raised / batch.spread(batch.summed(raised))
    values = encoded @ use["value"]
    attended = batch.summed(attention[:, None] * values)
    gate = use["gate"]
    correction = np.einsum("ij,ij->i", values, batch.spread(attended * gate[:VALUES]))
    correction += match * gate[_MATCH] + batch.features @ gate[_MATCH + 1 :]
    return _Seen(
        correction=correction.astype(np.float64),
        vectors=vectors,
        words=words,
        encoded=encoded,
        contexts=contexts,
        queries=queries,
        asked=asked,
        values=values,
        match=match,
        attention=attention,
        attended=attended,
    )


def _backward(
    params: Mapping[str, Floats], batch: _AttentionBatch, seen: _Seen, by_score: Floats
) -> dict[str, Gradient]:
    precision = batch.features.dtype
    use = _used(params, precision)
    gate, scale, mean = use["gate"], precision.type(_SCALE), precision.type(_MEAN)
    slope = by_score.astype(precision)
    wanted = batch.summed(slope[:, None] * seen.values)
    by_attended = gate[:VALUES] * wanted
    given = batch.spread(by_attended)
    by_values = slope[:, None] * batch.spread(seen.attended * gate[:VALUES])
    by_values += seen.attention[:, None] * given
    by_attention = np.einsum("ij,ij->i", seen.values, given)
    level = batch.spread(batch.summed(seen.attention * by_attention))
    by_match = slope * gate[_MATCH] + seen.attention * (by_attention - level)
    by_asked = batch.summed(by_match[:, None] * seen.encoded)
    by_queries = by_asked @ use["key"] * scale
    by_contexts = by_queries @ use["query"].T
    by_encoded = by_values @ use["value"].T + by_match[:, None] * batch.spread(seen.asked)
    by_items = np.concatenate([by_encoded, by_contexts])
    by_gate = (np.sum(seen.attended * wanted, 0), [seen.match @ slope], slope @ batch.features)
    projects = np.zeros((PROJECTS, INNER))
    np.add.at(projects, batch.slots, by_contexts)
    vector = by_items[batch.with_vector]
    word = by_items[batch.with_words]
    dense = {
        "down": batch.vectors.T @ _unnormed(vector * use["vector_scale"], seen.vectors),
        "vector_scale": np.sum(vector * seen.vectors[0], 0),
        "vector_shift": np.sum(vector, 0),
        "word_scale": np.sum(word * seen.words[0], 0),
        "word_shift": np.sum(word, 0),
        "query": seen.contexts.T @ by_queries * mean,
        "key": by_asked.T @ seen.queries * scale * mean,
        "value": seen.encoded.T @ by_values * mean,
        "projects": projects,
        "gate": np.concatenate(by_gate),
    }
    grads: dict[str, Gradient] = {
        name: np.asarray(value, np.float64) for name, value in dense.items()
    }
    by_words = _unnormed(word * use["word_scale"], seen.words)
    return {**grads, "table": by_table(by_words, batch.words, batch.word_counts)}


def _used(params: Mapping[str, Floats], precision: DTypeLike) -> dict[str, Array]:
    """Return the parameters in this precision, without the table, of which few rows are used."""
    return {
        name: (value * _MEAN if name in _INNER_MATRICES else value).astype(precision)
        for name, value in params.items()
        if name != "table"
    }


def _normed(rows: Array) -> _Normed:
    away = rows - rows.mean(1, keepdims=True)
    deviation = np.sqrt(np.mean(away * away, 1, keepdims=True) + rows.dtype.type(_LEAST_VARIANCE))
    return away / deviation, deviation


def _unnormed(by_normed: Array, normed: _Normed) -> Array:
    """Return the gradient by the input of a layer norm from the gradient by its result."""
    values, deviation = normed
    along = np.mean(by_normed * values, 1, keepdims=True)
    level = by_normed.mean(1, keepdims=True)
    return np.asarray((by_normed - level - values * along) / deviation)
