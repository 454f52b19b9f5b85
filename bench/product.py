"""The product's row: one function that stores a corpus and answers its questions."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.datasets import MAX_MEMORY_CHARS, Corpus, Doc
from bench.plain import Embedder, TextIndex, typed_words
from meritory import Memory
from meritory.domain.policy import EmbedderSpec
from meritory.rank.hybrid import (
    HybridWeights,
    Legs,
    Links,
    ScopeStats,
    Scores,
    centred_cosine,
    hybrid_scores,
    match_sessions,
    store_mean,
    with_neighbours,
)
from meritory.settings import Settings, load_settings
from meritory.text.terms import fts_query, query_terms
from meritory.text.words import STOP_WORDS

TEXT_LIMIT = 200
# What the assistant derived counts less than what the user stated.
ASSISTANT_WEIGHT = 0.7


def rankings(
    corpus: Corpus, embedder: Embedder, depth: int, spec: EmbedderSpec | None = None
) -> list[list[str]]:
    """Return for every question the judged ids, best first, through the library itself."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory(Path(folder) / "bench.db", settings=_settings(Path(folder), spec)) as memory,
    ):
        docs_of = _remember(memory, corpus)
        return [_answer(memory, corpus, docs_of, query.text, depth) for query in corpus.queries]


def _settings(folder: Path, spec: EmbedderSpec | None) -> Settings:
    """Return the defaults, whatever the machine's own configuration says, with this embedder."""
    used = spec or EmbedderSpec()
    chosen = {"embedder.kind": used.kind, "embedder.model": used.model}
    return load_settings(folder, {}).vary(chosen)


def formula_rankings(corpus: Corpus, embedder: Embedder, depth: int) -> list[list[str]]:
    """Return the same rankings from the pure formula, without a store."""
    searcher = Formula(corpus, embedder)
    return [searcher.ranking(query.text, depth) for query in corpus.queries]


def _remember(memory: Memory, corpus: Corpus) -> dict[str, list[Doc]]:
    """Store every document and return which documents each memory stands for."""
    parts = [(doc, part) for doc in corpus.docs for part in _parts(doc.text)]
    items = [
        {
            "content": part,
            "source": {"session_key": doc.session_key, "turn": str(doc.turn)},
            "provenance": "assistant_derived" if is_derived(corpus, doc) else "user_stated",
            "created_at": doc.at,
            "on_similar": "keep",
        }
        for doc, part in parts
    ]
    docs_of: dict[str, list[Doc]] = {}
    for (doc, _), result in zip(parts, memory.remember_many(items), strict=True):
        if result.memory is None:
            raise RuntimeError(f"{doc.id} was not stored: {result.reason or result.error}")
        docs_of.setdefault(result.memory.id, []).append(doc)
    return docs_of


def _answer(
    memory: Memory, corpus: Corpus, docs_of: dict[str, list[Doc]], question: str, depth: int
) -> list[str]:
    # The order is measured here, not the cut: `bench.abstain` has that.
    hits = memory.recall(question, depth, min_score=0.0)
    found = [doc for hit in hits for doc in docs_of[hit.id]]
    ids = (doc.session_key if corpus.judged == "session" else doc.id for doc in found)
    return list(dict.fromkeys(ids))


def _parts(text: str) -> list[str]:
    """Split what is longer than a memory may be."""
    return [text[at : at + MAX_MEMORY_CHARS] for at in range(0, len(text), MAX_MEMORY_CHARS)]


def is_derived(corpus: Corpus, doc: Doc) -> bool:
    """Say whether a machine said it; in LoCoMo both speakers are people."""
    return corpus.judged == "session" and doc.role == "assistant"


@dataclass(frozen=True, slots=True)
class Ingredients:
    """What the formula uses; each can be left out to see what it is worth."""

    weights: HybridWeights = field(default_factory=HybridWeights)
    pairs: bool = True
    centred: bool = True
    provenance: bool = True
    # Whether an answer lends to the turns beside it, too.
    weaker_lend: bool = False


class Formula:
    """The pure formula over the same legs as the library's, without a store."""

    def __init__(self, corpus: Corpus, embedder: Embedder, used: Ingredients | None = None) -> None:
        self.corpus = corpus
        self._used = used or Ingredients()
        texts = [doc.text for doc in corpus.docs]
        self._embedder = embedder
        self._index = TextIndex(texts)
        self._vectors = np.asarray(embedder.embed_documents(texts), dtype=np.float32)
        mean = store_mean(self._vectors.sum(axis=0), len(texts))
        self._mean = mean if self._used.centred else np.zeros_like(mean)
        self._mean_dots = self._vectors @ self._mean
        self._length = np.array([len(text) for text in texts], dtype=np.float64)
        self._links = links_of(corpus.docs)
        derived = [self._used.provenance and is_derived(corpus, doc) for doc in corpus.docs]
        self._demotion = np.where(derived, ASSISTANT_WEIGHT, 1.0)
        self._leads = leads_of(self._links.session, np.array(derived, np.intp))
        self._session_length = np.bincount(self._links.session, self._length * self._leads)

    def scores(self, query: str) -> Scores:
        """Return the final score of every document."""
        expression = match_expression(query, pairs=self._used.pairs)
        text = keep_best(self._index.scores(query, expression), TEXT_LIMIT)
        vector = np.asarray(self._embedder.embed_query(query), dtype=np.float32)
        cosine = centred_cosine(self._vectors @ vector, self._mean_dots, vector, self._mean)
        stats = ScopeStats(float(cosine.mean()), float(self._length.mean()))
        weights = self._used.weights
        own = hybrid_scores(Legs(text, cosine, self._length), stats, weights)
        links = replace(
            self._links,
            lends=None if self._used.weaker_lend else self._leads,
            session_words=self._session_words(query)[self._links.session],
            session_count=len(self._session_length),
        )
        return with_neighbours(own * self._demotion, links, weights)

    def _session_words(self, query: str) -> Scores:
        hits = []
        for term in query_terms(query):
            found = np.flatnonzero(self._index.scores(query, fts_query([term])))
            hits.append(self._links.session[found[self._leads[found]]])
        return match_sessions(hits, self._session_length)

    def ranking(self, query: str, depth: int) -> list[str]:
        """Return document ids, or session keys in the order of their best turn."""
        best = np.argsort(-self.scores(query), kind="stable")
        docs = self.corpus.docs
        if self.corpus.judged == "doc":
            return [docs[row].id for row in best[:depth]]
        return list(dict.fromkeys(docs[row].session_key for row in best))[:depth]


def match_expression(query: str, *, pairs: bool) -> str:
    """Return words, and pairs of words typed side by side, as one FTS5 expression."""
    words = typed_words(query)
    beside = [
        f"{left} {right}"
        for left, right in pairwise(words)
        if pairs and min(len(left), len(right)) > 1 and not STOP_WORDS & {left, right}
    ]
    return fts_query(dict.fromkeys([*query_terms(query), *beside]))


def keep_best(scores: Scores, limit: int) -> Scores:
    """Return the scores with everything below the best `limit` set to 0."""
    if scores.size <= limit:
        return scores
    out = np.zeros_like(scores)
    rows = np.argsort(-scores, kind="stable")[:limit]
    out[rows] = scores[rows]
    return out


def leads_of(session: NDArray[np.intp], step: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Say for each document whether no stronger source spoke in its session."""
    strongest = np.full(int(session.max(initial=-1)) + 1, step.max(initial=0))
    np.minimum.at(strongest, session, step)
    return np.asarray(step == strongest[session], np.bool_)


def links_of(docs: Sequence[Doc]) -> Links:
    """Return where the previous and next turn of each document are."""
    place = {(doc.session_key, doc.turn): row for row, doc in enumerate(docs)}
    numbers = {key: n for n, key in enumerate(dict.fromkeys(doc.session_key for doc in docs))}

    def beside(step: int) -> NDArray[np.intp]:
        return np.array([place.get((d.session_key, d.turn + step), -1) for d in docs], np.intp)

    session = np.array([numbers[doc.session_key] for doc in docs], np.intp)
    return Links(beside(-1), beside(1), session)
