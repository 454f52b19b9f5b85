"""The file of a sentence encoder: int8 weights with a scale per row, mapped into memory.

The file starts with the length of its header, eight bytes, little-endian. The header is JSON: the
encoder's shape, and for each array its type, shape and place. The arrays follow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import PortError

FORMAT = "meritory-encoder-1"
# Arrays start at multiples of this, so that they can be used in place.
_ALIGN = 64
_LENGTH_BYTES = 8
_TYPES = ("|i1", "<f4")
_INT8_MAX = 127.0
# The suffix of the array with the scales of an array's rows.
SCALE = ".scale"

Floats = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """What a file's arrays make up."""

    # The identity of its vectors; a new name for new weights.
    name: str
    layers: int
    heads: int
    # The length of the vectors.
    dimension: int
    # The longest text, in word pieces, with the two markers.
    max_pieces: int


def quantized(weights: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Return rows of int8 and their scales."""
    scale = np.abs(weights).max(axis=1, initial=0.0) / _INT8_MAX
    rows = np.round(weights / np.maximum(scale, 1e-12)[:, None]).astype(np.int8)
    return rows, scale.astype(np.float32)


def with_int8(weights: Mapping[str, Floats]) -> dict[str, NDArray[Any]]:
    """Return the arrays to write: matrices as int8 rows with scales, vectors as they are."""
    found: dict[str, NDArray[Any]] = {}
    for name, array in weights.items():
        if array.ndim == 2:
            found[name], found[name + SCALE] = quantized(array)
        else:
            found[name] = array.astype(np.float32)
    return found


def write_encoder(path: Path, shape: EncoderShape, arrays: Arrays) -> None:
    """Write the file atomically."""
    places: dict[str, dict[str, Any]] = {}
    end = 0
    for name, array in arrays.items():
        places[name] = {"type": array.dtype.str, "shape": list(array.shape), "start": end}
        end += -(-array.nbytes // _ALIGN) * _ALIGN
    head = json.dumps({"format": FORMAT, "shape": asdict(shape), "arrays": places}).encode()
    head += b" " * (-(len(head) + _LENGTH_BYTES) % _ALIGN)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as stream:
        stream.write(len(head).to_bytes(_LENGTH_BYTES, "little") + head)
        for array in arrays.values():
            stream.write(array.tobytes())
            stream.write(b"\0" * (-array.nbytes % _ALIGN))
    part.replace(path)


def read_encoder(path: Path) -> tuple[EncoderShape, dict[str, NDArray[Any]]]:
    """Map the file and return its shape and its arrays; nothing is copied."""
    try:
        return _read(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PortError(
            f"the encoder's file {path.name} cannot be read: {error}",
            hint="get it again with `meritory embedder get`",
        ) from error


def _read(path: Path) -> tuple[EncoderShape, dict[str, NDArray[Any]]]:
    whole = np.memmap(path, np.uint8, "r")
    start = _LENGTH_BYTES + int.from_bytes(whole[:_LENGTH_BYTES].tobytes(), "little")
    if start > len(whole):
        raise ValueError("it is cut off")
    head = json.loads(whole[_LENGTH_BYTES:start].tobytes())
    if head["format"] != FORMAT:
        raise ValueError(f"its format is {head['format']!r}, expected {FORMAT!r}")
    arrays: dict[str, NDArray[Any]] = {}
    for name, place in head["arrays"].items():
        if place["type"] not in _TYPES:
            raise ValueError(f"{name} has type {place['type']}")
        kind, shape = np.dtype(place["type"]), tuple(place["shape"])
        begin = start + place["start"]
        size = int(np.prod(shape)) * kind.itemsize
        if begin + size > len(whole):
            raise ValueError("it is cut off")
        arrays[name] = whole[begin : begin + size].view(kind).reshape(shape)
    return EncoderShape(**head["shape"]), arrays
