"""Cross-attention over the candidates: what the context asks for, beside all features.

    encoded(text) = layer norm of the vector projected down, or else of the mean of its words' rows
    match         = (encoded(context) + project) · query · key · encoded(candidate)
    attended      = the candidates' values, weighted by the softmax of their matches
    score         = composite + gate · [value × attended, match, features]

The features are z-scores within the session, so the composite's order is the starting point and
the gate holds the corrections to it.
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
from meritory.model.base import Floats, Gradient, RankingQuery, Rows, TrainingExample
from meritory.model.ranker import COMPOSITE, standardised
from meritory.model.tokens import BUCKETS, by_table, pooled
from meritory.rank.features import FEATURES

KIND: Final = "attention"
INNER: Final = 64
VALUES: Final = 32
PROJECTS: Final = 32
LOSSES: Final[Mapping[str, base.Loss]] = MappingProxyType(
    {"list_net": base.list_net, "cross_entropy": base.cross_entropy}
)
# Products with the inner matrices are means over their inputs, for the same reason as `fresh` has.
_MEAN: Final = 1.0 / INNER
# Of the attention's logits.
_SCALE: Final = 1.0 / np.sqrt(INNER)
# Keeps a text whose words cancel out from being blown up.
_LEAST_VARIANCE: Final = 1e-5
_MATCH: Final = VALUES
_GATE: Final = VALUES + 1 + len(FEATURES)
_INNER_MATRICES: Final = ("query", "key", "value")
_PATHS: Final = ("vector", "word")

# In the precision in which the model computes.
Array: TypeAlias = NDArray[Any]


def shapes(width: int) -> dict[str, tuple[int, ...]]:
    """The parameters by name, in the order in which they are stored, for vectors of a width."""
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
    """Seed 001's scorer; untrained it ranks exactly as the composite."""

    params: Mapping[str, Floats]
    # One of `LOSSES`.
    loss: str = "cross_entropy"
    # In which it computes: this one is quicker and exact enough, tests check gradients in float64.
    precision: DTypeLike = np.float32

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InputError(f"there is no loss {self.loss!r}", hint=f"use one of {set(LOSSES)}")
        found = {name: np.shape(value) for name, value in self.params.items()}
        width = found.get("down", (0,))[0]
        if list(found.items()) != list(shapes(width).items()):
            raise InputError(
                "the parameters are not those of an attention scorer",
                hint="start from Attention.fresh or from a checkpoint of this kind",
            )

    @classmethod
    def fresh(
        cls, width: int, rng: np.random.Generator, *, loss: str = "cross_entropy"
    ) -> Attention:
        """An untrained scorer for vectors of this width."""
        params = {name: np.zeros(shape) for name, shape in shapes(width).items()}
        # The gate alone is zero and so the score is the composite's. Its own gradient is not, for
        # it is made of what it weighs: values and matches of random projections, all different,
        # so no two units stay twins. One step later the gate lets gradients through to the rest.
        # The project embeddings are added to a context that is not zero, so zero is as good as any.

        # The layer norm forgets how long a row is, so long rows only turn more slowly: one rate of
        # learning then suits wide layers and the gate alike.
        params["down"] = rng.standard_normal((width, INNER)) * np.sqrt(width)
        params["table"] = rng.standard_normal((BUCKETS, INNER)) * np.sqrt(INNER)
        for path in _PATHS:
            params[f"{path}_scale"] = np.ones(INNER)
        # With both alike a match begins as the likeness of context and candidate.
        params["query"] = np.eye(INNER) * INNER
        params["key"] = np.eye(INNER) * INNER
        params["value"] = rng.standard_normal((INNER, VALUES)) * np.sqrt(INNER)
        return cls(params, loss)

    @property
    def kind(self) -> str:
        """The scorer's name in checkpoints."""
        return KIND

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return len(self.params["down"])

    def with_params(self, params: Mapping[str, Floats]) -> Attention:
        """The same scorer with other parameters of the same shapes."""
        return Attention(params, self.loss, self.precision)

    def score(self, query: RankingQuery) -> Floats:
        """A score per candidate, the higher the better; always finite."""
        if not query.count:
            return np.empty(0)
        batch = _batch((query,), self.width, self.precision)
        with np.errstate(over="ignore", invalid="ignore"):
            correction = _forward(self.params, batch).correction
        is_known = np.isfinite(correction)
        return batch.composite + np.where(is_known, correction, 0.0)

    def loss_and_grads(self, lesson: TrainingExample) -> tuple[float, dict[str, Gradient]]:
        """The loss over one session times its weight, and its gradient by every parameter."""
        return self.loss_and_grads_of((lesson,))

    def loss_and_grads_of(
        self, lessons: Sequence[TrainingExample]
    ) -> tuple[float, dict[str, Gradient]]:
        """The sum of `loss_and_grads` over several sessions, much quicker than one by one."""
        known = [lesson for lesson in lessons if lesson.query.count]
        if not known:
            return 0.0, {}
        batch = _batch([lesson.query for lesson in known], self.width, self.precision)
        with np.errstate(over="ignore", invalid="ignore"):
            seen = _forward(self.params, batch)
            total, by_score = self._losses(known, batch.composite + seen.correction)
            return total, _backward(self.params, batch, seen, by_score)

    def _losses(self, lessons: Sequence[TrainingExample], scores: Floats) -> tuple[float, Floats]:
        total = 0.0
        by_score = np.empty(len(scores))
        end = 0
        for lesson in lessons:
            start, end = end, end + lesson.query.count
            lost, slope = LOSSES[self.loss](scores[start:end], lesson.labels, lesson.weights)
            total += lesson.weight * lost
            by_score[start:end] = lesson.weight * slope
        return total, by_score


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttentionBatch:
    """Several sessions stacked: all their candidates, then (as items) their contexts."""

    composite: Floats
    features: Array
    counts: Rows
    starts: Rows
    slots: Rows
    # Vectors, and which items they belong to.
    vectors: Array
    with_vector: Rows
    # The words of the items without a vector, one after another.
    words: Rows
    word_counts: Rows
    with_words: Rows

    def spread(self, values: Array) -> Array:
        """A row per session as a row per candidate."""
        return np.repeat(values, self.counts, axis=0)

    def summed(self, values: Array) -> Array:
        """Rows of candidates added up within each session."""
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
        word_counts=np.array([len(found) for found in words], np.int64),
        with_words=with_words,
    )


def _vectors(queries: Sequence[RankingQuery], starts: Rows, width: int) -> tuple[Array, Rows]:
    """All usable vectors, and the items they belong to."""
    first_context = int(starts[-1]) + queries[-1].count
    blocks: list[Array] = [np.empty((0, width), np.float32)]
    places: list[Rows] = [np.empty(0, np.int64)]
    for number, (query, start) in enumerate(zip(queries, starts, strict=True)):
        if query.vectors is not None:
            blocks.append(query.vectors)
            places.append(np.arange(start, start + query.count))
        if query.context is not None:
            blocks.append(query.context[None])
            places.append(np.array([first_context + number]))
    if any(block.ndim != 2 or block.shape[1] != width for block in blocks):
        raise InputError(
            f"the scorer was made for vectors of {width} numbers",
            hint="start afresh after a change of the embedder",
        )
    vectors, place = np.concatenate(blocks), np.concatenate(places)
    length = np.einsum("ij,ij->i", vectors, vectors)
    is_known = np.isfinite(length) & (length > 0.0)
    return (vectors, place) if is_known.all() else (vectors[is_known], place[is_known])


def _words(
    queries: Sequence[RankingQuery], starts: Rows, with_vector: Rows
) -> tuple[list[Rows], Rows]:
    """The words of each item that has no vector but words, and which items these are."""
    first_context = int(starts[-1]) + queries[-1].count
    lacks_vector = np.ones(first_context + len(queries), np.bool_)
    lacks_vector[with_vector] = False
    words: list[Rows] = []
    places: list[int] = []
    for number, (query, start) in enumerate(zip(queries, starts, strict=True)):
        if query.words and len(query.words) != query.count:
            raise InputError("words are given for some candidates only", hint="give them for all")
        lacking = np.flatnonzero(lacks_vector[start : start + query.count]) if query.words else ()
        found = [(int(start + place), query.words[place]) for place in lacking]
        if lacks_vector[first_context + number]:
            found.append((first_context + number, query.context_words))
        words += [own for _, own in found if len(own)]
        places += [place for place, own in found if len(own)]
    return words, np.array(places, np.int64)


@dataclass(frozen=True, slots=True)
class _Normed:
    """A layer norm's result before scale and shift, and what was divided by."""

    values: Array
    deviation: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a forward pass leaves behind for the way back."""

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
    items[batch.with_vector] = vectors.values * use["vector_scale"] + use["vector_shift"]
    items[batch.with_words] = words.values * use["word_scale"] + use["word_shift"]
    encoded = items[: len(batch.features)]
    contexts = items[len(batch.features) :] + use["projects"][batch.slots]
    queries = contexts @ use["query"]
    # The key is applied to the few contexts instead of the many candidates: the same product.
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
        "vector_scale": np.sum(vector * seen.vectors.values, 0),
        "vector_shift": np.sum(vector, 0),
        "word_scale": np.sum(word * seen.words.values, 0),
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
    """The parameters as they are computed with, but for the table, of which few rows are needed."""
    return {
        name: (value * _MEAN if name in _INNER_MATRICES else value).astype(precision)
        for name, value in params.items()
        if name != "table"
    }


def _normed(rows: Array) -> _Normed:
    away = rows - rows.mean(1, keepdims=True)
    deviation = np.sqrt(np.mean(away * away, 1, keepdims=True) + rows.dtype.type(_LEAST_VARIANCE))
    return _Normed(away / deviation, deviation)


def _unnormed(by_normed: Array, normed: _Normed) -> Array:
    """The gradient by what went into a layer norm, from that by what came out."""
    along = np.mean(by_normed * normed.values, 1, keepdims=True)
    level = by_normed.mean(1, keepdims=True)
    return np.asarray((by_normed - level - normed.values * along) / normed.deviation)
