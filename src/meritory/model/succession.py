"""The model that guesses whether a newer text gives another value of an older one's claim.

One hidden layer over the features of `meritory.text.succession`. The weights in the package are
trained by `python -m bench.pair_model`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

WEIGHTS_FILE = "succession.json"
# Of the numbers in the file: enough for the same decisions, and few bytes.
WEIGHT_DECIMALS = 4

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SuccessionModel:
    """The weights, and the score from which two texts are linked as an unsure chain."""

    names: tuple[str, ...]
    mean: Floats
    scale: Floats
    hidden: Floats
    hidden_bias: Floats
    output: Floats
    bias: float
    threshold: float

    def score(self, features: ArrayLike) -> Floats:
        """Return the score of each row of features: above 0, a newer value is likelier than not."""
        level = (np.asarray(features, np.float64) - self.mean) / self.scale
        found: Floats = np.tanh(level @ self.hidden + self.hidden_bias) @ self.output + self.bias
        return found

    def is_likely(self, features: ArrayLike) -> bool:
        """Return whether one pair is likely enough to be linked."""
        return float(self.score(features)) >= self.threshold

    def as_json(self) -> str:
        """Return the content of the file of weights."""

        def plain(values: Any) -> Any:
            return np.round(np.asarray(values, np.float64), WEIGHT_DECIMALS).tolist()

        content = {
            "names": list(self.names),
            "mean": plain(self.mean),
            "scale": plain(self.scale),
            "hidden": plain(self.hidden),
            "hidden_bias": plain(self.hidden_bias),
            "output": plain(self.output),
            "bias": plain(self.bias),
            "threshold": plain(self.threshold),
        }
        lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
        return "{\n" + ",\n".join(lines) + "\n}\n"


@cache
def succession_model() -> SuccessionModel:
    """Return the model of the package, read at the first use."""
    return read_model((get_data("meritory", f"data/{WEIGHTS_FILE}") or b"{}").decode())


def read_model(text: str) -> SuccessionModel:
    """Return the model that a file of weights describes."""
    content = json.loads(text)
    arrays = {
        name: np.array(content[name], np.float64)
        for name in ("mean", "scale", "hidden", "hidden_bias", "output")
    }
    return SuccessionModel(
        names=tuple(content["names"]),
        bias=float(content["bias"]),
        threshold=float(content["threshold"]),
        **arrays,
    )
