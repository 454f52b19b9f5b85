"""Fit a token table: pairs must find each other, and texts must be as alike as the teacher says.

A token's row is exp(s) * (v M + b + r): v is the teacher's vector of the token alone, M and b are
shared by all tokens (so rare ones profit), s is its weight, r a small correction of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from meritory.text.tokens import WordPiece

Floats = NDArray[np.float32]
FIRST_REAL_ID = 999  # everything below is a marker or unused
SIF = 1e-4


@dataclass(frozen=True)
class Recipe:
    """The settings of one fit."""

    steps: int = 400
    batch: int = 1024
    temperature: float = 0.05
    # Share of the target that comes from the teacher; the rest is "the pair, and nothing else".
    teacher_share: float = 0.5
    map_rate: float = 1e-3
    weight_rate: float = 1e-2
    own_rate: float = 3e-4
    own_decay: float = 1e-2
    warm_up_steps: int = 20
    seed: int = 0


@dataclass
class Parameters:
    """What is fitted."""

    shared: Floats
    bias: Floats
    log_weight: Floats
    own: Floats

    def table(self, vectors: Floats) -> Floats:
        """Return the finished rows; markers have none."""
        rows = np.exp(self.log_weight)[:, None] * (vectors @ self.shared + self.bias + self.own)
        rows[:FIRST_REAL_ID] = 0
        return rows.astype(np.float32)


class Adam:
    """Adam, for a whole array or for the rows a batch touched."""

    def __init__(self, values: Floats, rate: float) -> None:
        self._values, self._rate, self._count = values, rate, 0
        self._mean, self._square = np.zeros_like(values), np.zeros_like(values)

    def step(self, gradient: Floats, factor: float, rows: NDArray[np.int64] | slice) -> None:
        self._count += 1
        mean = 0.9 * self._mean[rows] + 0.1 * gradient
        square = 0.999 * self._square[rows] + 0.001 * gradient * gradient
        self._mean[rows], self._square[rows] = mean, square
        rate = self._rate * factor * np.sqrt(1 - 0.999**self._count) / (1 - 0.9**self._count)
        self._values[rows] -= rate * mean / (np.sqrt(square) + 1e-8)


def start(vectors: Floats, dimension: int) -> Parameters:
    """Return the untrained table: main axes of the token vectors, weights by rank (Zipf, SIF)."""
    centre = vectors[FIRST_REAL_ID:].mean(axis=0)
    _, _, axes = np.linalg.svd(vectors[FIRST_REAL_ID:] - centre, full_matrices=False)
    shared = np.ascontiguousarray(axes[:dimension].T)
    # BERT's vocabulary is sorted by frequency well enough for Zipf's law.
    share = 1.0 / np.arange(1, len(vectors) + 1)
    share /= share.sum()
    log_weight = np.log(SIF / (SIF + share)).astype(np.float32)
    own = np.zeros((len(vectors), dimension), np.float32)
    return Parameters(shared, -(centre @ shared), log_weight, own)


def bags(texts: Sequence[str], pieces: WordPiece, max_pieces: int) -> sparse.csr_matrix:
    """Return one sparse row per text: the square roots of its token counts."""
    starts, ids, values = [0], [], []
    for text in texts:
        found = np.array(pieces.encode(text)[:max_pieces], np.int64)
        unique, counts = np.unique(found[found >= FIRST_REAL_ID], return_counts=True)
        ids.append(unique)
        values.append(np.sqrt(counts))
        starts.append(starts[-1] + len(unique))
    data = np.concatenate(values).astype(np.float32)
    return sparse.csr_matrix((data, np.concatenate(ids), starts), (len(texts), len(pieces)))


def _softmax(x: Floats) -> Floats:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    found: Floats = e / e.sum(axis=1, keepdims=True)
    return found


def _targets(
    teacher: tuple[NDArray[np.float16], NDArray[np.float16]],
    some: NDArray[np.int64],
    recipe: Recipe,
) -> tuple[Floats, Floats]:
    """Return what each anchor should find and each target should be found by."""
    if some.max() >= len(teacher[0]):
        only = np.eye(len(some), dtype=np.float32)
        return only, only
    left, right = (side[some].astype(np.float32) for side in teacher)
    alike = left @ right.T / recipe.temperature
    exact = np.eye(len(alike), dtype=np.float32) * (1 - recipe.teacher_share)
    share = recipe.teacher_share
    return exact + share * _softmax(alike), exact + share * _softmax(alike.T).T


def fit(
    vectors: Floats,
    bagged: tuple[sparse.csr_matrix, sparse.csr_matrix],
    teacher: tuple[NDArray[np.float16], NDArray[np.float16]],
    recipe: Recipe,
    dimension: int = 256,
) -> Floats:
    """Return the fitted table."""
    rng = np.random.default_rng(recipe.seed)
    fitted = start(vectors, dimension)
    adams = (
        Adam(fitted.shared, recipe.map_rate),
        Adam(fitted.bias, recipe.map_rate),
        Adam(fitted.log_weight, recipe.weight_rate),
        Adam(fitted.own, recipe.own_rate),
    )
    losses: list[float] = []
    began = time.monotonic()
    for step in range(recipe.steps):
        # Every other batch is one the teacher has seen.
        choice = len(teacher[0]) if step % 2 == 0 else bagged[0].shape[0]
        some = rng.choice(choice, recipe.batch, replace=False)
        both = sparse.vstack([bagged[0][some], bagged[1][some]]).tocsc()
        used = np.flatnonzero(np.diff(both.indptr))
        wanted = _targets(teacher, some, recipe)
        loss, gradients = _gradients(
            fitted, vectors[used], (both[:, used].tocsr(), used), wanted, recipe
        )
        losses.append(loss)
        factor = min(1.0, (step + 1) / recipe.warm_up_steps) * (1 - step / recipe.steps)
        for adam, gradient, rows in zip(
            adams, gradients, (slice(None), slice(None), used, used), strict=True
        ):
            adam.step(gradient, factor, rows)
        if step % 50 == 49:
            spent = time.monotonic() - began
            print(
                f"fit: step {step + 1}, loss {np.mean(losses[-50:]):.3f}, {spent:.0f} s", flush=True
            )
    return fitted.table(vectors)


def _gradients(
    fitted: Parameters,
    vectors: Floats,
    texts: tuple[sparse.csr_matrix, NDArray[np.int64]],
    wanted: tuple[Floats, Floats],
    recipe: Recipe,
) -> tuple[float, tuple[Floats, Floats, Floats, Floats]]:
    """Return the loss and the gradients of map, bias, weights and own corrections."""
    both, used = texts
    plain = vectors @ fitted.shared + fitted.bias + fitted.own[used]
    weight = np.exp(fitted.log_weight[used])[:, None]
    rows = weight * plain
    sums = both @ rows
    length = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-6)
    unit = sums / length
    half = len(unit) // 2
    left, right = unit[:half], unit[half:]
    logits = left @ right.T / recipe.temperature
    found, found_by = _softmax(logits), _softmax(logits.T).T
    loss = float(-(wanted[0] * np.log(np.maximum(found, 1e-12))).sum(axis=1).mean())
    slope = ((found - wanted[0]) + (found_by - wanted[1])) / (2 * half * recipe.temperature)
    d_unit = np.concatenate([slope @ right, slope.T @ left])
    d_sums = (d_unit - unit * (d_unit * unit).sum(axis=1, keepdims=True)) / length
    d_rows = both.T @ d_sums
    d_plain = d_rows * weight
    d_own = d_plain + recipe.own_decay / half * fitted.own[used]
    return loss, (
        vectors.T @ d_plain,
        d_plain.sum(axis=0),
        (d_rows * rows).sum(axis=1),
        d_own,
    )
