"""Show what each ingredient of hybrid recall is worth: python -m bench.ablation [--only L]."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Sequence

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from bench.datasets import ADVERSARIAL, LOADERS, Corpus, MissingData, load
from bench.plain import Embedder
from bench.product import Formula, Ingredients
from meritory.domain.policy import EmbedderSpec
from meritory.ports.embedder import open_embedder
from meritory.rank.hybrid import HybridWeights
from meritory.rank.metrics import ndcg_at

VARIANTS: dict[str, Ingredients] = {
    "as shipped": Ingredients(),
    "without pairs": Ingredients(pairs=False),
    "without centring": Ingredients(centred=False),
    "without agreement": Ingredients(HybridWeights(full_agreement=0.0)),
    "without length floor": Ingredients(HybridWeights(length_floor_chars=0.0)),
    "without neighbours": Ingredients(HybridWeights(near=0.0, far=0.0)),
    "without session": Ingredients(HybridWeights(session=0.0)),
    "without session words": Ingredients(HybridWeights(session_words=0.0)),
    "weaker sources lend too": Ingredients(weaker_lend=True),
    "... and no session words": Ingredients(HybridWeights(session_words=0.0), weaker_lend=True),
    "without provenance": Ingredients(provenance=False),
    "words only": Ingredients(HybridWeights(cosine=0.0)),
    "vectors only": Ingredients(HybridWeights(cosine=1.0, full_agreement=0.0, session_words=0.0)),
    "cosine 0.25": Ingredients(HybridWeights(cosine=0.25)),
    "cosine 0.45": Ingredients(HybridWeights(cosine=0.45)),
}


class Scrambled:
    """An embedder that understands nothing, to see what a bad one costs."""

    name = "scrambled"

    def __init__(self, dimension: int = 256) -> None:
        self._dimension = dimension

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a fixed random direction per text."""
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return a fixed random direction."""
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
        vector = np.random.default_rng(seed).standard_normal(self._dimension)
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def is_tuning(corpus: Corpus, question: str) -> bool:
    """Say whether a question belongs to the half on which constants were chosen."""
    # One pool of sessions can only be split by question, conversations are split whole.
    key = question if corpus.judged == "session" else corpus.name
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 0


def halves(
    corpora: Sequence[Corpus], embedder: Embedder, used: Ingredients
) -> tuple[float, float, float]:
    """Return NDCG@10 over all questions, the tuning half and the reporting half."""
    values: list[float] = []
    tuning: list[bool] = []
    for corpus in corpora:
        searcher = Formula(corpus, embedder, used)
        for query in corpus.queries:
            if query.category != ADVERSARIAL:
                ranking = searcher.ranking(query.text, 10)
                found = ndcg_at(ranking, dict.fromkeys(query.relevant, 1.0), 10)
                values.append(found or 0.0)
                tuning.append(is_tuning(corpus, query.text))
    scores, mask = np.array(values), np.array(tuning)
    return float(scores.mean()), float(scores[mask].mean()), float(scores[~mask].mean())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.ablation", description=__doc__)
    parser.add_argument("--only", default=",".join(LOADERS), help="data sets, by comma")
    options = parser.parse_args(arguments)
    embedder = open_embedder(EmbedderSpec())
    print(f"NDCG@10, all (tuning half, reporting half), embedder {embedder.name}")
    for name in options.only.split(","):
        try:
            corpora = load(name)
        except MissingData as missing:
            print(missing)
            continue
        print(f"\n{name}")
        runs: list[tuple[str, Embedder, Ingredients]]
        runs = [(label, embedder, used) for label, used in VARIANTS.items()]
        runs.append(("scrambled vectors", Scrambled(), VARIANTS["as shipped"]))
        runs.append(("... without agreement", Scrambled(), VARIANTS["without agreement"]))
        for label, chosen, used in runs:
            whole, tuned, reported = halves(corpora, chosen, used)
            print(f"  {label:24s} {whole:.3f} ({tuned:.3f}, {reported:.3f})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
