"""Train the bundled encoder on one GPU: `python student.py WORK_FOLDER SECONDS RATE [--resume]`.

The student has six layers of width 256 on the rows of the static table. It learns MiniLM's vectors
(mapped to their 256 main axes), MiniLM's rows of every piece, which texts of a batch MiniLM finds
alike, and a little which texts come from one document. The work folder holds `texts.jsonl` (the
documents of `corpus.py`, all sources) and `minilm.encoder` (`meritory embedder get minilm`). The
shipped one was trained for 505 s at 1e-3 with a smaller sister, and again for 560 s at 7e-4.
Afterwards `student_file.py` rounds it to int8.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import time
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from made_texts import made_documents

from meritory.ports.embedder import load_table
from meritory.ports.encoder_file import SCALE, read_encoder

LAYERS, HEADS, WIDTH, WIDE, PLACES = 6, 8, 256, 1024, 256
TEACHER_LAYERS, TEACHER_HEADS, TEACHER_WIDTH = 6, 12, 384
# Rows of the table are read at this length: their own says how rare a piece is.
PIECE_LENGTH = 4.0
# Pieces in a batch; by length of its texts, how often it is drawn and the most sentences of a text.
BATCH_PIECES = 65_536
LENGTHS = {16: (0.2, 1), 32: (0.3, 2), 64: (0.25, 4), 128: (0.15, 8), 256: (0.1, 24)}
TEMPERATURE = 0.05
WARM_UP_STEPS = 800
PARTS = 64
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
Tensor = torch.Tensor
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Corpus:
    """All pieces in one row, with the ends of sentences and documents."""

    pieces: Tensor
    starts: Tensor
    ends: Tensor
    # By sentence its document; by document its first sentence and the one behind its last.
    document: Tensor
    first: Tensor
    last: Tensor


def read_pieces(documents: list[list[str]]) -> tuple[list[int], list[int], list[int]]:
    """Return the pieces of documents, the sizes of their sentences and how many each has."""
    pieces, ids, sizes, counts = load_table(None).pieces, [], [], []
    for texts in documents:
        found = [pieces.encode(one) for text in texts for one in _SENTENCE_END.split(text)]
        found = [one for one in found if one]
        ids += [piece for one in found for piece in one]
        sizes += map(len, found)
        counts += [len(found)] if found else []
    return ids, sizes, counts


def load_corpus(home: Path, device: str) -> Corpus:
    """Cut all documents, and as many made ones as a third of them, into pieces."""
    with (home / "texts.jsonl").open(encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    documents = [[row["title"], *row["passages"]] for row in rows]
    documents += made_documents(home, len(documents) // 3)
    with Pool() as pool:
        parts = pool.map(read_pieces, [documents[at::PARTS] for at in range(PARTS)])
    ids, sizes, counts = (
        torch.tensor([one for part in parts for one in part[at]], device=device) for at in range(3)
    )
    ends, last = sizes.cumsum(0), counts.cumsum(0)
    document = torch.repeat_interleave(torch.arange(len(counts), device=device), counts)
    return Corpus(ids, ends - sizes, ends, document, last - counts, last)


def draw(corpus: Corpus, length: int, markers: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return ids and mask of a batch; text i and text i + half come from one document."""
    count, device = BATCH_PIECES // length, corpus.pieces.device
    some = torch.randint(0, len(corpus.starts), (count // 2,), device=device)
    home = corpus.document[some]
    span = corpus.last[home] - corpus.first[home]
    beside = corpus.first[home] + (torch.rand(len(some), device=device) * span).long()
    some, home = torch.cat([some, beside]), torch.cat([home, home])
    more = torch.randint(0, LENGTHS[length][1], (count,), device=device)
    start, end = corpus.starts[some], corpus.ends[torch.minimum(some + more, corpus.last[home] - 1)]
    # Three in ten end anywhere, and some of those begin anywhere.
    is_loose = torch.rand(count, device=device) < 0.3
    begins_late = is_loose & (torch.rand(count, device=device) < 0.4)
    late = (torch.rand(count, device=device) * (corpus.ends[some] - start) * 0.7).long()
    start = torch.where(begins_late, start + late, start)
    room = length - 2
    size = torch.randint(max(2, room // 4), room + 1, (count,), device=device)
    cut = torch.minimum(start + size, corpus.ends[corpus.last[home] - 1])
    size = (torch.where(is_loose, cut, end) - start).clamp(1, room)[:, None]
    at = torch.arange(length, device=device)[None]
    found = corpus.pieces[(start[:, None] + at - 1).clamp(0, len(corpus.pieces) - 1)]
    closed = torch.where(at == size + 1, markers[1], 0)
    ids = torch.where(at == 0, markers[0], torch.where(at <= size, found, closed))
    return ids, at < size + 2


def encode(weights: Weights, x: Tensor, mask: Tensor, layers: int, heads: int) -> Tensor:
    """Return the rows of the last layer; `x` is the sum of pieces and places."""
    width = x.shape[-1]

    def norm(rows: Tensor, name: str) -> Tensor:
        gain, bias = weights[name + ".gain"], weights[name + ".bias"]
        return F.layer_norm(rows.float(), (width,), gain, bias, 1e-12).bfloat16()

    def linear(rows: Tensor, name: str) -> Tensor:
        return F.linear(rows, weights[name].bfloat16(), weights[name + ".bias"].bfloat16())

    x = norm(x, "start")
    for at in range(layers):
        name = f"{at}."
        three = linear(x, name + "heads").view(*x.shape[:2], 3, heads, width // heads)
        query, key, value = three.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None])
        x = norm(
            x + linear(mixed.transpose(1, 2).reshape(x.shape), name + "joined"), name + "middle"
        )
        wide = F.gelu(linear(x, name + "wide"), approximate="tanh")
        x = norm(x + linear(wide, name + "narrow"), name + "end")
    return x


def mean(rows: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over each text's own pieces."""
    weight = mask[..., None].float()
    return (rows.float() * weight).sum(1) / weight.sum(1)


def fresh(device: str) -> Weights:
    """Return an untrained student."""

    def some(*shape: int, scale: float) -> Tensor:
        return torch.randn(*shape, device=device) * scale

    def norm(name: str) -> Weights:
        ones, zeros = torch.ones(WIDTH, device=device), torch.zeros(WIDTH, device=device)
        return {name + ".gain": ones, name + ".bias": zeros}

    found = {"places": some(PLACES, WIDTH, scale=0.02), **norm("start")}
    for at in range(LAYERS):
        shapes = {"heads": (3 * WIDTH, WIDTH, 1.0), "joined": (WIDTH, WIDTH, 0.5)}
        shapes |= {"wide": (WIDE, WIDTH, 1.0), "narrow": (WIDTH, WIDE, 0.5)}
        for part, (rows, columns, scale) in shapes.items():
            found[f"{at}.{part}"] = some(rows, columns, scale=scale * columns**-0.5)
            found[f"{at}.{part}.bias"] = torch.zeros(rows, device=device)
        found |= {**norm(f"{at}.middle"), **norm(f"{at}.end")}
    found["out"] = torch.eye(WIDTH, device=device) + some(WIDTH, WIDTH, scale=0.01)
    found["out.bias"] = torch.zeros(WIDTH, device=device)
    # Only for training: from the student's rows to the teacher's.
    found["rows"] = some(TEACHER_WIDTH, WIDTH, scale=0.06)
    found["rows.bias"] = torch.zeros(TEACHER_WIDTH, device=device)
    return {name: array.requires_grad_() for name, array in found.items()}


class Lesson:
    """The teacher, the student and what one batch costs."""

    def __init__(self, home: Path, device: str) -> None:
        _, arrays = read_encoder(home / "minilm.encoder")
        self._teacher = {
            name: torch.from_numpy(
                array.astype(np.float32)
                * (arrays[name + SCALE][:, None] if array.dtype == np.int8 else 1)
            ).to(device)
            for name, array in arrays.items()
            if not name.endswith(SCALE)
        }
        rows = torch.from_numpy(np.array(load_table(None).rows, np.float32)).to(device)
        self._table = F.normalize(rows, dim=-1) * PIECE_LENGTH
        self.student = fresh(device)
        self.axes = torch.zeros(TEACHER_WIDTH, WIDTH, device=device)

    @torch.no_grad()
    def teach(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the teacher's rows and its unit vectors."""
        x = self._teacher["pieces"][ids] + self._teacher["places"][: ids.shape[1]]
        rows = encode(self._teacher, x, mask, TEACHER_LAYERS, TEACHER_HEADS)
        return rows.float(), F.normalize(mean(rows, mask), dim=-1)

    def learn(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the student's guess of the teacher's rows, and its unit vectors."""
        w = self.student
        rows = encode(w, self._table[ids] + w["places"][: ids.shape[1]], mask, LAYERS, HEADS)
        guess = F.linear(rows, w["rows"].bfloat16(), w["rows.bias"].bfloat16()).float()
        return guess, F.normalize(F.linear(mean(rows, mask), w["out"], w["out.bias"]), dim=-1)

    def loss(self, ids: Tensor, mask: Tensor, share: float) -> tuple[Tensor, float]:
        """Return the loss, and the mean cosine to the teacher; `share` of the time is over."""
        rows, wanted = self.teach(ids, mask)
        guess, found = self.learn(ids, mask)
        near = (found * F.normalize(wanted @ self.axes, dim=-1)).sum(-1).mean()
        own = torch.eye(len(ids), device=ids.device, dtype=torch.bool)
        alike = (wanted @ wanted.T / TEMPERATURE).masked_fill(own, -1e4)
        guessed = (found @ found.T / TEMPERATURE).masked_fill(own, -1e4).log_softmax(-1)
        relation = (alike.softmax(-1) * (alike.log_softmax(-1) - guessed)).sum(-1).mean()
        half = len(ids) // 2
        pairs = (wanted[:half] @ wanted[half:].T / TEMPERATURE).softmax(-1) * 0.5
        pairs.diagonal().add_(0.5)
        told = (found[:half] @ found[half:].T / TEMPERATURE).log_softmax(-1)
        weight = mask[..., None].float()
        power = (rows.pow(2) * weight).sum()
        by_piece = ((guess - rows).pow(2) * weight).sum() / power
        total = 4 * (1 - near) + 0.5 * relation - 0.02 * (pairs * told).sum(-1).mean()
        return total + by_piece * (1 - 0.7 * share), float(near.detach())


def train(lesson: Lesson, corpus: Corpus, seconds: float, peak: float) -> None:
    """Take steps until the time is over; the rate rises, then falls as a cosine."""
    words = load_table(None).pieces.vocabulary
    markers = words.index("[CLS]"), words.index("[SEP]")
    shown = [
        lesson.teach(*draw(corpus, length, markers))[1] for length in LENGTHS for _ in range(6)
    ]
    lesson.axes = torch.linalg.svd(torch.cat(shown), full_matrices=False)[2][:WIDTH].T.contiguous()
    weights = list(lesson.student.values())
    groups = [
        {"params": [one for one in weights if one.ndim == 2], "weight_decay": 0.02},
        {"params": [one for one in weights if one.ndim == 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.98))
    rng, begun, step = random.Random(3), time.monotonic(), 0
    while (share := (time.monotonic() - begun) / seconds) < 1:
        rise = min(1.0, (step + 1) / WARM_UP_STEPS)
        for group in adam.param_groups:
            group["lr"] = peak * rise * (0.02 + 0.49 * (1 + math.cos(math.pi * share)))
        (length,) = rng.choices(list(LENGTHS), [often for often, _ in LENGTHS.values()])
        loss, near = lesson.loss(*draw(corpus, length, markers), share)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        adam.step()
        step += 1
        if step % 500 == 0:
            print(f"step {step}, texts of {length}: cosine {near:.4f}", flush=True)


def main() -> None:
    """Train and keep the student's weights in the work folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("rate", type=float)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(7 + given.resume)
    kept = given.home / "student.npz"
    corpus = load_corpus(given.home, "cuda")
    lesson = Lesson(given.home, "cuda")
    if given.resume:
        with np.load(kept) as arrays:
            for name in arrays.files:
                lesson.student[name].data.copy_(torch.from_numpy(arrays[name]))
    train(lesson, corpus, given.seconds, given.rate)
    arrays = {name: array.detach().cpu().numpy() for name, array in lesson.student.items()}
    np.savez(kept, **arrays)


if __name__ == "__main__":
    main()
