"""all-MiniLM-L6-v2 as an encoder file: read from its safetensors, rounded to int8."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meritory.ports.encoder_file import EncoderShape, write_encoder, with_int8

NAME = "minilm-l6-int8-v1"
LAYERS, HEADS, DIMENSION, MAX_PIECES = 6, 12, 384, 256
_LENGTH_BYTES = 8

Floats = NDArray[np.float32]


def read_safetensors(raw: bytes) -> dict[str, Floats]:
    """Return the float32 arrays of a safetensors file."""
    start = _LENGTH_BYTES + int.from_bytes(raw[:_LENGTH_BYTES], "little")
    found: dict[str, Floats] = {}
    for name, entry in json.loads(raw[_LENGTH_BYTES:start]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            flat = np.frombuffer(raw, "<f4", (end - begin) // 4, start + begin)
            found[name] = flat.reshape(entry["shape"])
    return found


def arrays_of(weights: Mapping[str, Floats], layers: int, max_pieces: int) -> dict[str, Floats]:
    """Return the arrays of an encoder under our names from those of a BERT model."""
    base = "embeddings."
    found = {
        "pieces": weights[base + "word_embeddings.weight"],
        # All texts are of the first kind: its vector is part of every place.
        "places": weights[base + "position_embeddings.weight"][:max_pieces]
        + weights[base + "token_type_embeddings.weight"][0],
        "start.gain": weights[base + "LayerNorm.weight"],
        "start.bias": weights[base + "LayerNorm.bias"],
    }
    for at in range(layers):
        bert, own = f"encoder.layer.{at}.", f"{at}."
        three = [f"{bert}attention.self.{part}" for part in ("query", "key", "value")]
        found[own + "heads"] = np.concatenate([weights[name + ".weight"] for name in three])
        found[own + "heads.bias"] = np.concatenate([weights[name + ".bias"] for name in three])
        for ours, theirs in (
            ("joined", "attention.output.dense"),
            ("wide", "intermediate.dense"),
            ("narrow", "output.dense"),
        ):
            found[own + ours] = weights[f"{bert}{theirs}.weight"]
            found[f"{own}{ours}.bias"] = weights[f"{bert}{theirs}.bias"]
        for ours, theirs in (("middle", "attention.output"), ("end", "output")):
            found[f"{own}{ours}.gain"] = weights[f"{bert}{theirs}.LayerNorm.weight"]
            found[f"{own}{ours}.bias"] = weights[f"{bert}{theirs}.LayerNorm.bias"]
    return found


def convert(safetensors: bytes, out: Path) -> EncoderShape:
    """Write the encoder's file and return its shape."""
    arrays = arrays_of(read_safetensors(safetensors), LAYERS, MAX_PIECES)
    shape = EncoderShape(NAME, LAYERS, HEADS, DIMENSION, MAX_PIECES)
    write_encoder(out, shape, with_int8(arrays))
    return shape
