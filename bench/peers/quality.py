"""How well each system ranks: every question of a data set, through its own search call."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets import Doc, Query
from bench.measures import mrr, recall_at
from bench.peers.client import Client, with_vectors
from bench.peers.minilm import Encoder
from bench.peers.timelines import Timeline
from bench.plain import FUSIONS, TextIndex
from meritory.rank.metrics import interval, ndcg_at

METRICS = ("NDCG@10", "R@5", "R@10", "MRR")
DEPTH = 100
BATCH = 500
# The rows that anyone can build, by their name in bench.plain.
PLAIN = {
    "fts5": "FTS5 alone",
    "cosine": "cosine alone, MiniLM",
    "rrf k=60": "FTS5 + cosine, RRF k=60, MiniLM",
    "sum 0.7/0.3": ".7 cosine + .3 FTS5, MiniLM",
}

Table = NDArray[np.float64]
Call = Callable[..., dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Answers:
    """What a system ranked for every question of a data set, and what it did not store."""

    rankings: list[list[str]]
    queries: list[Query]
    # Where each store's questions begin and end.
    parts: list[tuple[int, int]]
    not_stored: int


class Peer:
    """A worker that answers the questions of a data set."""

    def __init__(self, client: Client, encoder: Encoder | None, call: Call) -> None:
        self._client, self._encoder, self._call = client, encoder, call
        self._docs_of: dict[str, list[Doc]] = {}
        self._not_stored = 0

    def answers(self, stores: Sequence[Timeline]) -> Answers:
        """Run every store of a data set."""
        rankings: list[list[str]] = []
        queries: list[Query] = []
        parts = []
        for timeline in stores:
            start = len(rankings)
            rankings += self._ask(timeline)
            queries += timeline.queries()
            parts.append((start, len(rankings)))
        return Answers(rankings, queries, parts, self._not_stored)

    def _ask(self, timeline: Timeline) -> Iterator[list[str]]:
        with tempfile.TemporaryDirectory() as folder:
            self._call(self._client, "open", folder=folder)
            self._docs_of = {}
            for step in timeline.steps:
                self._store(step.docs, timeline)
                if step.query is not None:
                    yield judged(self._search(step.query.text, step.at), timeline)
            self._call(self._client, "close")

    def _search(self, text: str, at: datetime | None) -> list[Doc]:
        row = None if self._encoder is None else self._encoder.embed([text])
        (request,) = with_vectors([{"text": text}], row)
        moment = at.isoformat() if at else None
        found = self._call(self._client, "search", **request, limit=DEPTH, at=moment)
        return [doc for one in found["ids"] for doc in self._docs_of.get(one, ())]

    def _store(self, docs: Sequence[Doc], timeline: Timeline) -> None:
        for start in range(0, len(docs), BATCH):
            part = docs[start : start + BATCH]
            items = [item(doc, timeline) for doc in part]
            rows = None
            if self._encoder is not None:
                rows = self._encoder.embed([doc.text for doc in part])
            reply = self._call(self._client, "store", items=with_vectors(items, rows))
            for one, doc in zip(reply["ids"], part, strict=True):
                if one is None:
                    self._not_stored += 1
                else:
                    self._docs_of.setdefault(one, []).append(doc)


def item(doc: Doc, timeline: Timeline) -> dict[str, object]:
    """Return a document as a request carries it."""
    return {
        "text": doc.text,
        "session": doc.session_key,
        "turn": doc.turn,
        "role": doc.role,
        "at": doc.at.isoformat() if doc.at else None,
        # Only in LongMemEval a machine speaks; in LoCoMo both speakers are people.
        "derived": doc.role == "assistant" and timeline.judged == "session",
    }


def ask_plain(stores: Sequence[Timeline], encoder: Encoder) -> dict[str, Answers]:
    """Run every store through the plain rows."""
    rankings: dict[str, list[list[str]]] = {name: [] for name in PLAIN}
    queries: list[Query] = []
    parts = []
    for timeline in stores:
        start = len(queries)
        for docs, index, vectors, query in _states(timeline, encoder):
            text = index.scores(query.text)
            cosine = np.asarray(vectors @ encoder.embed([query.text])[0], np.float64)
            for name in PLAIN:
                scores = FUSIONS[name](text, cosine)
                best = np.argsort(-scores, kind="stable")[:DEPTH]
                # FTS5 returns only what matches.
                hits = [docs[row] for row in best if name != "fts5" or scores[row] > 0.0]
                rankings[name].append(judged(hits, timeline))
            queries.append(query)
        parts.append((start, len(queries)))
    return {name: Answers(found, queries, parts, 0) for name, found in rankings.items()}


def _states(
    timeline: Timeline, encoder: Encoder
) -> Iterator[tuple[list[Doc], TextIndex, NDArray[np.float32], Query]]:
    docs: list[Doc] = []
    index, vectors = TextIndex([]), np.zeros((0, 384), np.float32)
    for step in timeline.steps:
        if step.docs:
            docs.extend(step.docs)
            index = TextIndex([doc.text for doc in docs])
            vectors = np.vstack([vectors, encoder.embed([doc.text for doc in step.docs])])
        if step.query is not None:
            yield docs, index, vectors, step.query


def judged(docs: Sequence[Doc], timeline: Timeline) -> list[str]:
    """Return the ids that are judged, each once, best first."""
    if timeline.judged == "session":
        return list(dict.fromkeys(doc.session_key for doc in docs))
    return list(dict.fromkeys(doc.id for doc in docs))


def figures(answers: Answers) -> dict[str, object]:
    """Return every metric with its interval, the control, and NDCG@10 of every question."""
    table = measure(answers.rankings, [query.relevant for query in answers.queries])
    shuffled = measure(answers.rankings, shuffled_labels(answers))
    found: dict[str, object] = {}
    for column, metric in enumerate(METRICS):
        low, high = interval(table[:, column])
        mean = float(table[:, column].mean())
        found[metric] = {"mean": round(mean, 4), "interval": [round(low, 4), round(high, 4)]}
    found["shuffled labels"] = round(float(shuffled[:, 0].mean()), 4)
    found["not stored"] = answers.not_stored
    found["questions"] = " ".join(f"{value:.3g}" for value in table[:, 0])
    return found


def measure(rankings: Sequence[list[str]], relevant: Sequence[frozenset[str]]) -> Table:
    """Return one row of metrics for each question."""
    rows = []
    for ranking, wanted in zip(rankings, relevant, strict=True):
        values = (
            ndcg_at(ranking, dict.fromkeys(wanted, 1.0), 10),
            recall_at(ranking, wanted, 5),
            recall_at(ranking, wanted, 10),
            mrr(ranking, wanted),
        )
        rows.append([0.0 if value is None else value for value in values])
    return np.array(rows).reshape(len(rows), len(METRICS))


def shuffled_labels(answers: Answers) -> list[frozenset[str]]:
    """Return the labels of another question of the same store: half the questions further on."""
    found: list[frozenset[str]] = []
    for start, end in answers.parts:
        labels = [query.relevant for query in answers.queries[start:end]]
        half = len(labels) // 2
        found += [labels[(at + half) % len(labels)] for at in range(len(labels))]
    return found


def per_question(figures: Mapping[str, object]) -> Table:
    """Return NDCG@10 of every question of a row."""
    return np.array([float(value) for value in str(figures["questions"]).split()])
