"""Text to vectors: the contract, how one is opened, and the one check of what it gives."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.errors import BadReply, InputError
from meritory.domain.policy import EmbedderSpec

Vectors = NDArray[np.float32]

# A vector whose largest number is below this has no direction worth keeping.
MIN_PEAK = 1e-9


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def name(self) -> str:
        """The identity stored beside every vector; it changes whenever the vectors change."""
        ...

    @property
    def dimension(self) -> int:
        """The length of every vector; 0 when there are none."""
        ...

    @property
    def max_batch(self) -> int:
        """How many texts one call of the underlying model takes; longer lists are split."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return one unit row per text; a text without any known word gives a row of zeros."""
        ...

    def embed_query(self, text: str) -> Vectors:
        """Return the unit vector of a question, or zeros when it has no known word."""
        ...


class NoEmbedder:
    """The embedder of a store that searches by words only."""

    name = "none"
    dimension = 0
    max_batch = 1

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return np.zeros((len(texts), 0), np.float32)

    def embed_query(self, text: str) -> Vectors:
        return np.zeros(0, np.float32)


def open_embedder(spec: EmbedderSpec) -> Embedder:
    """Return the embedder the spec names; nothing of the others is imported."""
    if spec.timeout_ms <= 0:
        raise InputError("the embedder's timeout_ms must be above 0", hint="e.g. 10000")
    opener = _OPENERS.get(spec.kind)
    if opener is None:
        raise InputError(
            f"unknown embedder kind {spec.kind!r}", hint="choose one of " + ", ".join(_OPENERS)
        )
    return opener(spec)


def _open_static(spec: EmbedderSpec) -> Embedder:
    from meritory.ports.embed_static import StaticEmbedder

    embedder = StaticEmbedder()
    if spec.dimension not in (None, embedder.dimension):
        raise InputError(
            f"the static embedder has {embedder.dimension} dimensions, not {spec.dimension}",
            hint="leave the embedder's dimension unset",
        )
    return embedder


def _open_http(spec: EmbedderSpec) -> Embedder:
    from meritory.ports.embed_http import HttpEmbedder

    return HttpEmbedder(spec)


def _open_fastembed(spec: EmbedderSpec) -> Embedder:
    from meritory.ports.embed_extras import FastembedEmbedder

    return FastembedEmbedder(spec)


def _open_sentence_transformers(spec: EmbedderSpec) -> Embedder:
    from meritory.ports.embed_extras import SentenceTransformersEmbedder

    return SentenceTransformersEmbedder(spec)


def _open_onnx(spec: EmbedderSpec) -> Embedder:
    from meritory.ports.embed_extras import OnnxEmbedder

    return OnnxEmbedder(spec)


_OPENERS: dict[str, Callable[[EmbedderSpec], Embedder]] = {
    "static": _open_static,
    "openai": _open_http,
    "fastembed": _open_fastembed,
    "sentence-transformers": _open_sentence_transformers,
    "onnx": _open_onnx,
    "none": lambda spec: NoEmbedder(),
}


def checked(raw: ArrayLike, count: int, dimension: int | None, name: str) -> Vectors:
    """Return what an embedder gave as unit float32 rows, or say what is wrong with it."""
    try:
        rows = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadReply(f"embedder {name} gave something that is no table of numbers") from error
    if rows.ndim != 2 or len(rows) != count:
        raise BadReply(f"embedder {name} gave shape {rows.shape} for {count} texts")
    if rows.shape[1] == 0 or (dimension is not None and rows.shape[1] != dimension):
        raise BadReply(
            f"embedder {name} gave vectors of length {rows.shape[1]}, not {dimension}",
            hint="if the model was changed on purpose, set its dimension and embed again",
        )
    if not np.isfinite(rows).all():
        raise BadReply(f"embedder {name} gave a number that is not finite")
    # Divided by its largest number first, so that squares can neither overflow nor vanish.
    peaks = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    level = np.divide(rows, peaks, out=np.zeros_like(rows), where=peaks > MIN_PEAK)
    unit = level / np.maximum(np.linalg.norm(level, axis=1, keepdims=True), 1.0)
    found: Vectors = unit.astype(np.float32)
    return found


def identity(kind: str, spec: EmbedderSpec) -> str:
    """Return the name of a model's vectors; a document prefix changes them and counts."""
    name = f"{kind}:{spec.model}"
    if spec.document_prefix:
        name += "+" + hashlib.sha256(spec.document_prefix.encode()).hexdigest()[:8]
    return name


def embed_in_batches(
    texts: Sequence[str], max_batch: int, embed: Callable[[Sequence[str]], Vectors]
) -> Vectors:
    """Return the rows of all texts, asking for at most `max_batch` at a time."""
    parts = [embed(texts[at : at + max_batch]) for at in range(0, len(texts), max_batch)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


MAX_BATCH = 64


class BatchEmbedder(ABC):
    """Texts go to the model with their prefix, at most `max_batch` at a time."""

    max_batch = MAX_BATCH

    def __init__(self, spec: EmbedderSpec, name: str) -> None:
        self._spec = spec
        self._dimension = spec.dimension
        self.name = name

    @property
    def dimension(self) -> int:
        """The length of the vectors; runs the model once when it was not given."""
        if self._dimension is None:
            return int(self.embed_documents(["dimension"]).shape[1])
        return self._dimension

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text."""
        prefix = self._spec.document_prefix
        return self._embed([prefix + text for text in texts])

    def embed_query(self, text: str) -> Vectors:
        """The unit vector of a question."""
        row: Vectors = self._embed([self._spec.query_prefix + text])[0]
        return row

    def _embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        rows = embed_in_batches(texts, self.max_batch, self._embed_batch)
        self._dimension = rows.shape[1]
        return rows

    @abstractmethod
    def _embed_batch(self, texts: Sequence[str]) -> Vectors:
        """The checked rows of one batch."""
