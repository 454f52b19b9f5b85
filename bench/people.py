"""Measure recall on RealMem as it is used, in order of time: python -m bench.people [--people P].

Before each query only the memories of earlier dialogues are stored. Choices are made on the people
of `realmem.DEVELOPED`; the figures of the others are reported.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from bench.datasets import MissingData, _checked, data_root
from bench.plain import FUSIONS, Embedder, TextIndex, unit_rows
from bench.realmem import DEVELOPED, PEOPLE, REPORTED_PEOPLE, load_person
from bench.retrieval import DEPTH, PRODUCT, Outcome, Table, _figures, _top, missed_bars, show
from meritory import Memory
from meritory.domain.policy import EmbedderSpec
from meritory.ports.embedder import open_embedder
from meritory.settings import load_settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and return 1 when the product is behind a plain alternative."""
    parser = argparse.ArgumentParser(prog="python -m bench.people", description=__doc__)
    parser.add_argument("--people", choices=("developed", "reported"), default="reported")
    options = parser.parse_args(arguments)
    people = DEVELOPED if options.people == "developed" else REPORTED_PEOPLE
    embedder = open_embedder(EmbedderSpec())
    rows: dict[str, list[Table]] = {}
    categories: list[str] = []
    try:
        for person in people:
            for category, figures in _measured(person, embedder):
                categories.append(category)
                for method, row in figures.items():
                    rows.setdefault(method, []).append(np.array(row))
    except MissingData as missing:
        print(missing)
        return 0
    methods = {method: np.array(table) for method, table in rows.items()}
    outcome = Outcome(f"realmem, {options.people}", np.array(categories), methods)
    show(outcome)
    misses = missed_bars(outcome)
    for miss in misses:
        print("MISSED", miss)
    return 1 if misses else 0


def _measured(person: str, embedder: Embedder) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Yield the category of each query and the figures of every method."""
    stream = load_person(person, data_root())
    kinds = _categories(person)
    waiting = sorted(stream.memories, key=lambda one: one.created_at)
    ids: list[str] = []
    texts: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory(
            Path(folder) / "bench.db",
            settings=load_settings(Path(folder), {}, {"secrets.policy": "redact"}),
        ) as memory,
    ):
        known: dict[str, list[str]] = {}
        for session in stream.sessions:
            fresh = [one for one in waiting[len(ids) :] if one.created_at < session.at]
            if fresh:
                results = memory.remember_many(
                    {
                        "content": one.versions[0].text,
                        "source": dict(
                            zip(("session_key", "turn"), one.id.split("/"), strict=True)
                        ),
                        "created_at": one.created_at,
                        "on_similar": "keep",
                    }
                    for one in fresh
                )
                for one, result in zip(fresh, results, strict=True):
                    if result.memory is not None:
                        known.setdefault(result.memory.id, []).append(one.id)
                ids += [one.id for one in fresh]
                texts += [one.versions[0].text for one in fresh]
                index = TextIndex(texts)
                vectors = unit_rows(embedder.embed_documents(texts))
            if not session.gains:
                continue
            relevant = frozenset(session.gains)
            text = index.scores(session.context)
            cosine = np.asarray(vectors @ embedder.embed_query(session.context), np.float64)
            figures = {
                method: _figures(_top(fuse(text, cosine), ids), relevant)
                for method, fuse in FUSIONS.items()
            }
            found = [
                one
                for hit in memory.recall(session.context, limit=DEPTH, min_score=0.0)
                for one in known[hit.id]
            ]
            figures[PRODUCT] = _figures(found, relevant)
            yield kinds.get(session.context, ""), figures


def _categories(person: str) -> dict[str, str]:
    dialogues = json.loads(_checked(data_root() / "realmem" / PEOPLE[person]))["dialogues"]
    return {
        turn["content"]: turn.get("category_name", "")
        for dialogue in dialogues
        for turn in dialogue["dialogue_turns"]
        if turn["is_query"]
    }


if __name__ == "__main__":
    sys.exit(main())
