"""The default embedder: a table of word-piece vectors inside the package."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from importlib.abc import Traversable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import PortError
from meritory.ports.embedder import Vectors, checked
from meritory.text.tokens import WordPiece

STATIC_NAME = "static-minilm-256-v1"
STATIC_DIMENSION = 256
TABLE_FILE = "static-256.npy"
VOCABULARY_FILE = "vocab.txt"
# Each row ends with its own scale, a little-endian float32, so that one file holds everything.
SCALE_BYTES = 4
MAX_BATCH = 1024


class VectorTable(NamedTuple):
    """The loaded table: rows stay int8 and are widened only when gathered."""

    rows: NDArray[np.int8]
    scales: NDArray[np.float32]
    pieces: WordPiece


class StaticEmbedder:
    """Adds up the vectors of a text's word pieces; the table is mapped at the first use."""

    name = STATIC_NAME
    dimension = STATIC_DIMENSION
    max_batch = MAX_BATCH

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._table: VectorTable | None = None
        self._lock = threading.Lock()

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        table = self._loaded()
        sums = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            _add_up(table, text, sums[row])
        return checked(sums, len(texts), self.dimension, self.name)

    def embed_query(self, text: str) -> Vectors:
        row: Vectors = self.embed_documents([text])[0]
        return row

    def _loaded(self) -> VectorTable:
        table = self._table
        if table is None:
            with self._lock:
                table = self._table = self._table or _load(self._folder)
        return table


def _add_up(table: VectorTable, text: str, out: Vectors) -> None:
    counts = Counter(table.pieces.encode(text))
    if not counts:
        return
    ids = np.fromiter(counts.keys(), np.intp, len(counts))
    # The square root keeps a word repeated all through a long text from drowning the others.
    weights = np.sqrt(np.fromiter(counts.values(), np.float32, len(counts)))
    np.dot(weights * table.scales[ids], table.rows[ids].astype(np.float32), out=out)


def _load(folder: Path | None) -> VectorTable:
    home: Traversable | Path = folder or resources.files("meritory") / "data"
    try:
        vocabulary = (home / VOCABULARY_FILE).read_text(encoding="utf-8").split("\n")
        packed = _open_array(home / TABLE_FILE)
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


def _open_array(file: Traversable | Path) -> NDArray[np.int8]:
    if isinstance(file, Path):
        mapped: NDArray[np.int8] = np.load(file, mmap_mode="r", allow_pickle=False)
        return mapped
    # Inside a zip archive there is nothing to map.
    with file.open("rb") as stream:
        read: NDArray[np.int8] = np.load(stream, allow_pickle=False)
    return read
