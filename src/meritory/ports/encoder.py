"""Sentence encoders in numpy: a BERT-like network read from an encoder file."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.policy import EmbedderSpec
from meritory.ports.embedder import (
    BatchEmbedder,
    Vectors,
    checked,
    identity,
    load_table,
)
from meritory.ports.encoder_file import SCALE, EncoderShape, read_encoder
from meritory.text.tokens import WordPiece

BUNDLED_FILE = "compact-6x256.encoder"
START_PIECE, END_PIECE = "[CLS]", "[SEP]"
# How many pieces go through at once: their numbers should stay in the processor's cache.
CHUNK_PIECES = 512
NORM_EPSILON = 1e-12
# GELU by its usual approximation with tanh.
_GELU_INNER, _GELU_CUBIC = 0.7978845608, 0.044715

Floats = NDArray[np.float32]
Ids = NDArray[np.intp]


class Encoder:
    """The network: pieces in, one row per text out. Texts are concatenated, not padded."""

    def __init__(self, shape: EncoderShape, arrays: dict[str, NDArray[Any]]) -> None:
        self.shape = shape
        self._pieces: NDArray[np.int8] = arrays["pieces"]
        self._piece_scale: Floats = arrays["pieces" + SCALE]
        # The layers are widened once: numpy multiplies float32 many times faster than int8.
        self._w: dict[str, Floats] = {
            name: _widened(name, array, arrays)
            for name, array in arrays.items()
            if not name.startswith("pieces") and not name.endswith(SCALE)
        }

    def encode(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Return one row per text, in order; none is longer than the shape allows."""
        out = np.zeros((len(texts), self.shape.dimension), np.float32)
        for rows in _chunks([len(ids) for ids in texts]):
            out[rows] = self._forward([texts[row] for row in rows])
        return out

    def _forward(self, texts: Sequence[Sequence[int]]) -> Floats:
        sizes = np.array([len(ids) for ids in texts])
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        ids = np.concatenate([np.asarray(ids, np.intp) for ids in texts])
        places = np.arange(len(ids)) - np.repeat(starts, sizes)
        x = self._pieces[ids].astype(np.float32) * self._piece_scale[ids, None]
        x = self._norm(x + self._w["places"][places], "start")
        spans = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        for at in range(self.shape.layers):
            x = self._layer(x, spans, f"{at}.")
        rows = np.add.reduceat(x, starts, axis=0)
        rows /= sizes[:, None].astype(np.float32)
        return self._linear(rows, "out") if "out" in self._w else rows

    def _layer(self, x: Floats, spans: Sequence[slice], name: str) -> Floats:
        mixed = self._attend(self._linear(x, name + "heads"), spans)
        x = self._norm(x + self._linear(mixed, name + "joined"), name + "middle")
        wide = _gelu(self._linear(x, name + "wide"))
        return self._norm(x + self._linear(wide, name + "narrow"), name + "end")

    def _attend(self, three: Floats, spans: Sequence[slice]) -> Floats:
        heads, width = self.shape.heads, three.shape[1] // 3
        size = width // heads
        # Pieces, (query, key, value), heads, numbers.
        split = three.reshape(len(three), 3, heads, size)
        out = np.empty((len(three), heads, size), np.float32)
        scale = np.float32(size**-0.5)
        for span in spans:
            query, key, value = split[span].transpose(1, 2, 0, 3)
            share = np.matmul(query * scale, key.transpose(0, 2, 1))
            share -= share.max(axis=-1, keepdims=True)
            np.exp(share, out=share)
            share /= share.sum(axis=-1, keepdims=True)
            out[span] = np.matmul(share, value).transpose(1, 0, 2)
        return out.reshape(len(three), width)

    def _linear(self, x: Floats, name: str) -> Floats:
        found: Floats = x @ self._w[name].T
        found += self._w[name + ".bias"]
        return found

    def _norm(self, x: Floats, name: str) -> Floats:
        x -= x.mean(axis=1, keepdims=True)
        power = np.einsum("ij,ij->i", x, x) / np.float32(x.shape[1])
        x *= (1.0 / np.sqrt(power + np.float32(NORM_EPSILON)))[:, None]
        x *= self._w[name + ".gain"]
        x += self._w[name + ".bias"]
        return x


def _widened(name: str, array: NDArray[Any], arrays: dict[str, NDArray[Any]]) -> Floats:
    if array.dtype != np.int8:
        return np.asarray(array, np.float32)
    scaled: Floats = array.astype(np.float32) * arrays[name + SCALE][:, None]
    return scaled


def _gelu(x: Floats) -> Floats:
    inner = x * x
    inner *= np.float32(_GELU_INNER * _GELU_CUBIC)
    inner += np.float32(_GELU_INNER)
    inner *= x
    np.tanh(inner, out=inner)
    inner += np.float32(1.0)
    inner *= x
    inner *= np.float32(0.5)
    return inner


def _chunks(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Yield the rows of texts that go through the network together, short ones first."""
    chunk: list[int] = []
    total = 0
    for row in sorted(range(len(sizes)), key=sizes.__getitem__):
        if chunk and total + sizes[row] > CHUNK_PIECES:
            yield chunk
            chunk, total = [], 0
        chunk.append(row)
        total += sizes[row]
    if chunk:
        yield chunk


class EncoderEmbedder(BatchEmbedder):
    """Runs an encoder file in this process; `model` is the file, empty for the bundled one."""

    def __init__(self, spec: EmbedderSpec) -> None:
        bundled = Path(str(resources.files("meritory") / "data" / BUNDLED_FILE))
        self._file = Path(spec.model).expanduser() if spec.model else bundled
        shape, _ = read_encoder(self._file)
        super().__init__(spec, identity("encoder", replace(spec, model=shape.name)))
        self._dimension = shape.dimension
        self._ready: tuple[Encoder, WordPiece, tuple[int, int]] | None = None
        self._lock = threading.Lock()

    def _embed_batch(self, texts: Sequence[str]) -> Vectors:
        encoder, pieces, (start, end) = self._loaded()
        room = encoder.shape.max_pieces - 2
        rows = [[start, *pieces.encode(text)[:room], end] for text in texts]
        out = encoder.encode(rows)
        # A text without any piece has no direction.
        out[[len(row) == 2 for row in rows]] = 0.0
        return checked(out, len(texts), self._dimension, self.name)

    def _loaded(self) -> tuple[Encoder, WordPiece, tuple[int, int]]:
        with self._lock:
            if self._ready is None:
                table = load_table(None)
                words = table.pieces.vocabulary
                shape, arrays = read_encoder(self._file)
                # The bundled encoder reads the pieces of the static table.
                arrays.setdefault("pieces", table.rows)
                ends = words.index(START_PIECE), words.index(END_PIECE)
                self._ready = Encoder(shape, arrays), table.pieces, ends
            return self._ready
