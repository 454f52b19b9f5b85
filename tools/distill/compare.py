"""Compare finished embedders on the bench's data sets: NDCG@10 of vectors alone and of the sum.

    python tools/distill/compare.py static wordllama:FOLDER onnx:FILE

`static` is the table in the package, `static:FOLDER` another one, `wordllama:FOLDER` an unpacked
wheel of that package (needs `tokenizers` and `safetensors`). Run with `src` and the repository's
root on the import path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from bench.datasets import ADVERSARIAL, Corpus, load
from bench.plain import Embedder, TextIndex
from numpy.typing import NDArray

from meritory.ports.embedder import EmbedderSpec, StaticEmbedder, open_embedder
from meritory.rank.metrics import ndcg_at

SETS = ("locomo", "longmemeval", "beam")
WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
NEIGHBOUR = 0.25
Floats = NDArray[np.float64]


class Wordllama:
    """Reads wordllama's two files directly: its own loader wants a network."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        (table,) = load_file(next(folder.rglob("*_256.safetensors"))).values()
        self._table = table.astype(np.float32)
        self._pieces = Tokenizer.from_file(str(next(folder.rglob("l2_supercat_tok*.json"))))
        self._pieces.no_truncation()
        self._pieces.no_padding()

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), self._table.shape[1]), np.float32)
        found = self._pieces.encode_batch(list(texts), add_special_tokens=False)
        for at, one in enumerate(found):
            if one.ids:
                rows[at] = self._table[one.ids].mean(axis=0)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self.embed_documents([text])[0]
        return row


def opened(name: str) -> Embedder:
    """Return the embedder a command-line word names."""
    kind, _, place = name.partition(":")
    if kind == "static":
        return StaticEmbedder(Path(place) if place else None)
    if kind == "wordllama":
        return Wordllama(Path(place))
    return open_embedder(EmbedderSpec(kind="onnx", model=place))


def _units(corpus: Corpus) -> tuple[list[str], NDArray[np.int64], list[str]]:
    """Return what is ranked: ids, the unit of each document, the text of each unit."""
    keys = [doc.session_key if corpus.judged == "session" else doc.id for doc in corpus.docs]
    ids = list(dict.fromkeys(keys))
    number = {key: at for at, key in enumerate(ids)}
    texts = [""] * len(ids)
    for doc, key in zip(corpus.docs, keys, strict=True):
        texts[number[key]] += doc.text + "\n"
    return ids, np.array([number[key] for key in keys]), texts


def _neighbours(corpus: Corpus) -> Callable[[Floats], Floats]:
    sessions = np.array([doc.session_key for doc in corpus.docs])
    same = sessions[1:] == sessions[:-1]

    def add(scores: Floats) -> Floats:
        out = scores.copy()
        out[:-1] += NEIGHBOUR * scores[1:] * same
        out[1:] += NEIGHBOUR * scores[:-1] * same
        return out

    return add


def measure(corpus: Corpus, embedder: Embedder, found: dict[str, list[float]]) -> None:
    """Add the NDCG@10 of every question to its method's list."""
    ids, unit, texts = _units(corpus)
    index = TextIndex(texts)
    rows = embedder.embed_documents([doc.text for doc in corpus.docs])
    add = _neighbours(corpus) if corpus.judged == "doc" else None
    for query in corpus.queries:
        if query.category == ADVERSARIAL:
            continue
        cosine = np.full(len(ids), -1.0)
        np.maximum.at(cosine, unit, rows @ embedder.embed_query(query.text))
        text = index.scores(query.text)
        text = text / max(text.max(initial=0.0), 1e-9)
        methods = {f"{w:.1f}": w * cosine + (1 - w) * text for w in WEIGHTS}
        if add is not None:
            methods.update({f"{name} + n": add(scores) for name, scores in methods.items()})
        methods["vectors"] = cosine
        for name, scores in methods.items():
            ranking = [ids[at] for at in np.argsort(-scores, kind="stable")[:10]]
            gains = {key: 1.0 for key in query.relevant}
            found.setdefault(name, []).append(ndcg_at(ranking, gains, 10) or 0.0)


def main() -> None:
    """Print one line per embedder and data set."""
    for name in sys.argv[1:]:
        embedder = opened(name)
        for which in SETS:
            found: dict[str, list[float]] = {}
            for corpus in load(which):
                measure(corpus, embedder, found)
            means = {method: float(np.mean(values)) for method, values in found.items()}
            line = f"{Path(name).name[:24]:24s} {which:12s} vectors {means['vectors']:.3f}"
            for mark in ("", " + n") if which == "locomo" else ("",):
                best = max(WEIGHTS, key=lambda w, mark=mark: means[f"{w:.1f}{mark}"])
                line += f" | 0.7{mark} {means[f'0.7{mark}']:.3f}"
                line += f", best {means[f'{best:.1f}{mark}']:.3f} at {best}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
