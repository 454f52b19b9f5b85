"""Embedders: the contract, how one is opened, the check of vectors, and the default embedder."""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module, resources
from importlib.abc import Traversable
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meritory.domain.errors import BadReply, InputError, PortError
from meritory.domain.policy import EmbedderSpec
from meritory.text.tokens import WordPiece

Vectors = NDArray[np.float32]

# A vector whose largest number is below this has no direction worth keeping.
MIN_PEAK = 1e-9
MAX_BATCH = 64
STATIC_NAME = "static-minilm-256-v1"
STATIC_DIMENSION = 256
TABLE_FILE = "static-256.npy"
VOCABULARY_FILE = "vocab.txt"
# Each row ends with its own scale, a little-endian float32, so that one file holds everything.
SCALE_BYTES = 4
STATIC_MAX_BATCH = 1024


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
    """Return the embedder that the spec names; nothing of the others is imported."""
    if spec.timeout_ms <= 0:
        raise InputError("the embedder's timeout_ms must be above 0", hint="e.g. 10000")
    if spec.kind == "static":
        if spec.dimension not in (None, STATIC_DIMENSION):
            raise InputError(
                f"the static embedder has {STATIC_DIMENSION} dimensions, not {spec.dimension}",
                hint="leave the embedder's dimension unset",
            )
        return StaticEmbedder()
    if spec.kind == "none":
        return NoEmbedder()
    if spec.kind not in _CLASSES:
        kinds = ("static", *_CLASSES, "none")
        raise InputError(
            f"unknown embedder kind {spec.kind!r}", hint="choose one of " + ", ".join(kinds)
        )
    module, _, name = _CLASSES[spec.kind].partition(":")
    opener: Callable[[EmbedderSpec], Embedder] = getattr(import_module(module), name)
    return opener(spec)


_CLASSES = {
    "encoder": "meritory.ports.encoder:EncoderEmbedder",
    "openai": "meritory.ports.embed_http:HttpEmbedder",
    "fastembed": "meritory.ports.embed_extras:FastembedEmbedder",
    "sentence-transformers": "meritory.ports.embed_extras:SentenceTransformersEmbedder",
    "onnx": "meritory.ports.embed_extras:OnnxEmbedder",
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


# Kinds that read local files: they open quickly and need no network.
FILE_KINDS = frozenset({"static", "encoder"})
ENCODER_PREFIX = "encoder:"


def identity(kind: str, spec: EmbedderSpec) -> str:
    """Return the name of a model's vectors; a document prefix changes them and counts."""
    name = f"{kind}:{spec.model}"
    if spec.document_prefix:
        name += "+" + hashlib.sha256(spec.document_prefix.encode()).hexdigest()[:8]
    return name


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
        starts = range(0, len(texts), self.max_batch)
        rows = np.concatenate(
            [self._embed_batch(texts[start : start + self.max_batch]) for start in starts]
        )
        self._dimension = rows.shape[1]
        return rows

    @abstractmethod
    def _embed_batch(self, texts: Sequence[str]) -> Vectors:
        """The checked rows of one batch."""


# -- the default embedder: a table of word-piece vectors inside the package --------------------


class VectorTable(NamedTuple):
    """The loaded table: rows stay int8 and are widened only when gathered."""

    rows: NDArray[np.int8]
    scales: NDArray[np.float32]
    pieces: WordPiece


class StaticEmbedder:
    """Adds up the vectors of a text's word pieces; the table is mapped at the first use."""

    name = STATIC_NAME
    dimension = STATIC_DIMENSION
    max_batch = STATIC_MAX_BATCH

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._table: VectorTable | None = None
        self._lock = threading.Lock()

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        table = self._table
        if table is None:
            with self._lock:
                table = self._table = self._table or load_table(self._folder)
        sums = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            counts = Counter(table.pieces.encode(text))
            if counts:
                ids = np.fromiter(counts.keys(), np.intp, len(counts))
                # The square root keeps a word repeated all through a long text from drowning the
                # others.
                weights = np.sqrt(np.fromiter(counts.values(), np.float32, len(counts)))
                rows = table.rows[ids].astype(np.float32)
                np.dot(weights * table.scales[ids], rows, out=sums[row])
        return checked(sums, len(texts), self.dimension, self.name)

    def embed_query(self, text: str) -> Vectors:
        row: Vectors = self.embed_documents([text])[0]
        return row


@cache
def load_table(folder: Path | None) -> VectorTable:
    """Return the table of a folder, or that of the package."""
    home: Traversable | Path = folder or resources.files("meritory") / "data"
    try:
        vocabulary = (home / VOCABULARY_FILE).read_text(encoding="utf-8").split("\n")
        file = home / TABLE_FILE
        if isinstance(file, Path):
            packed: NDArray[np.int8] = np.load(file, mmap_mode="r", allow_pickle=False)
        else:
            # Inside a zip archive there is nothing to map.
            with file.open("rb") as stream:
                packed = np.load(stream, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise PortError(
            f"the static embedder's table cannot be read: {error}",
            hint="the installation is damaged; install meritory again",
        ) from error
    expected = (len(vocabulary), STATIC_DIMENSION + SCALE_BYTES)
    if packed.dtype != np.int8 or packed.shape != expected:
        raise PortError(
            f"the static embedder's table is {packed.dtype} {packed.shape}, expected {expected}",
            hint="the installation is damaged; install meritory again",
        )
    scales = np.ascontiguousarray(packed[:, STATIC_DIMENSION:]).view("<f4")[:, 0]
    return VectorTable(
        packed[:, :STATIC_DIMENSION], scales.astype(np.float32), WordPiece(vocabulary)
    )
