"""Round a trained student to int8: `python student_file.py student.npz LAYERS NAME OUT`."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

import numpy as np

from meritory.ports.embedder import STATIC_DIMENSION, TABLE_FILE
from meritory.ports.encoder_file import SCALE, EncoderShape, with_int8, write_encoder

HEADS, MAX_PIECES = 8, 256
# The student reads the table's rows at this length (`student.py`).
PIECE_LENGTH = 4.0


def main() -> None:
    """Write the encoder's file; its pieces are the table in the package."""
    trained, layers, name, out = sys.argv[1:]
    with np.load(trained) as arrays:
        weights = {
            key: arrays[key].astype(np.float32)
            for key in arrays.files
            # Only for training.
            if not key.startswith("rows")
        }
    table = np.load(str(resources.files("meritory") / "data" / TABLE_FILE), mmap_mode="r")
    rows = table[:, :STATIC_DIMENSION].astype(np.float32)
    lengths = np.maximum(np.linalg.norm(rows, axis=1), 1e-9)
    scale = np.where(rows.any(axis=1), PIECE_LENGTH / lengths, 0.0).astype(np.float32)
    shape = EncoderShape(name, int(layers), HEADS, STATIC_DIMENSION, MAX_PIECES)
    write_encoder(Path(out), shape, {"pieces" + SCALE: scale, **with_int8(weights)})


if __name__ == "__main__":
    main()
