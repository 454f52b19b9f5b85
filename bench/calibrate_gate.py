"""The thresholds of the similarity gate on the same two halves, over a part of its own bench."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.calibrate_rule import Sweep, Table
from bench.gate import SHIPPED_THRESHOLD, Judged, _judge_all, _observations, sentences
from meritory.domain.policy import EmbedderSpec
from meritory.engine.memories.gate import COMPARE_THRESHOLD
from meritory.ports.embedder import Embedder, open_embedder

MERGING = Sweep(
    "gate_threshold", SHIPPED_THRESHOLD, (0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.96)
)
CHANGES = Sweep("compare_threshold", COMPARE_THRESHOLD, (0.4, 0.45, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9))
# Of each collection; `python -m bench.gate` takes up to 2,500.
SENTENCES = 200


def tables(root: Path) -> dict[str, dict[str, Table]]:
    """The tables of both thresholds, by sweep."""
    embedder = open_embedder(EmbedderSpec(kind="static"))
    part = {name: texts[:SENTENCES] for name, texts in sentences(root).items()}
    judged = _judge_all(part, embedder)
    merging = {
        "paraphrases by hand": _right(judged["by hand"], MERGING, "merges"),
        "paraphrases made": _right(judged["made"], MERGING, "merges"),
        "different values": _right(judged["values"], MERGING, "merges", wanted=False),
        "locomo observations": _quiet(_texts(root), MERGING, embedder),
    }
    changes = {
        "changes by hand": _right(judged["changes by hand"], CHANGES, "supersedes"),
        "changes made": _right(judged["changes made"], CHANGES, "supersedes"),
        "no changes": _right(judged["no changes"], CHANGES, "supersedes", wanted=False),
    }
    return {MERGING.name: merging, CHANGES.name: changes}


def _right(group: Judged, sweep: Sweep, verdict: str, *, wanted: bool = True) -> Table:
    """By threshold and pair, whether the gate does what it should."""
    fires: NDArray[np.bool_] = getattr(group, verdict)
    near = group.cosine[None, :] >= np.array(sweep.values)[:, None]
    right = (near & fires) == wanted
    halves = np.array([_is_tuning(f"{pair.old}\n{pair.new}") for pair in group.pairs])
    return Table(("right",), right.astype(np.float64)[:, :, None], halves)


def _quiet(groups: Sequence[Sequence[str]], sweep: Sweep, embedder: Embedder) -> Table:
    """By threshold and text, whether no earlier text is held against it and reported as similar."""
    nearest: list[float] = []
    halves: list[bool] = []
    for texts in groups:
        vectors = embedder.embed_documents(list(texts))
        cosine = np.tril(vectors @ vectors.T, -1)
        nearest += cosine.max(axis=1).tolist()
        halves += [_is_tuning(texts[0])] * len(texts)
    quiet = np.array(nearest)[None, :] < np.array(sweep.values)[:, None]
    return Table(("quiet",), quiet.astype(np.float64)[:, :, None], np.array(halves))


def _texts(root: Path) -> list[list[str]]:
    samples = json.loads((root / "locomo" / "locomo10.json").read_text(encoding="utf-8"))
    return [list(_observations(sample)) for sample in samples]


def _is_tuning(key: str) -> bool:
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 0
