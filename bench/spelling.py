"""Measure recall with typos, abbreviations and inflections: python -m bench.spelling."""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench import report
from meritory import Memory
from meritory.settings import load_settings

PAIRS = Path(__file__).parent / "labels" / "spelling.tsv"
DEPTH = 10
# Memories with every word of a query but the one in question: else the other words would do.
DECOYS = ("{0} of the other team, as agreed", "A question came up about {0}")
# On the half that is kept apart: the first place, and the gain over the search without corrections.
BAR_FIRST = 0.75
BAR_GAIN = 0.10


@dataclass(frozen=True, slots=True)
class Pair:
    """A query and the memory that answers it."""

    kind: str
    query: str
    memory: str

    @property
    def is_tuning(self) -> bool:
        """Whether the pair belongs to the half on which choices were made."""
        return hashlib.sha256(self.memory.encode()).digest()[0] % 2 == 0


def load_pairs() -> list[Pair]:
    """Read the pairs."""
    lines = [line for line in PAIRS.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    return [Pair(**row) for row in csv.DictReader(lines, delimiter="\t")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.spelling", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    pairs = load_pairs()
    rows = {
        "with corrections": measure(pairs, corrects=True),
        "without (control)": measure(pairs, corrects=False),
    }
    figures: dict[str, dict[str, list[float]]] = {}
    for half, wanted in (("tuning", True), ("reported", False)):
        for kind in ("all", *sorted({pair.kind for pair in pairs})):
            chosen = [
                at
                for at, pair in enumerate(pairs)
                if pair.is_tuning is wanted and kind in ("all", pair.kind)
            ]
            print(f"{half} half, {kind} (n = {len(chosen)})")
            for name, places in rows.items():
                first, mrr = _figures(np.array([places[at] for at in chosen]))
                print(f"  {name:20s} first {first:.3f}  MRR {mrr:.3f}")
                figures.setdefault(f"{half}/{kind}", {})[name] = [round(first, 4), round(mrr, 4)]
    (first, _), (control, _) = figures["reported/all"].values()
    missed = []
    if first < BAR_FIRST:
        missed.append(f"first place {first:.3f} is below {BAR_FIRST}")
    if first - control < BAR_GAIN:
        missed.append(f"the gain over the control {first - control:+.3f} is below {BAR_GAIN}")
    for miss in missed:
        print("MISSED", miss)
    if options.json is not None:
        report.write({"pairs": len(pairs), "figures": figures, "missed": missed}, options.json)
    return 1 if missed else 0


def measure(pairs: Sequence[Pair], *, corrects: bool) -> list[float]:
    """Return the place of each pair's memory, infinity if it is not found."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory(Path(folder) / "bench.db", settings=load_settings(Path(folder), {})) as memory,
    ):
        services = memory.services
        recall = replace(services.policy.recall, corrects_words=corrects)
        object.__setattr__(services, "policy", replace(services.policy, recall=recall))
        texts = list(dict.fromkeys(pair.memory for pair in pairs))
        decoys = [line.format(_around(pair)) for pair in pairs for line in DECOYS]
        contents = [*texts, *dict.fromkeys(decoys)]
        memory.remember_many({"content": text, "on_similar": "keep"} for text in contents)
        return [_place(memory, pair) for pair in pairs]


def _place(memory: Memory, pair: Pair) -> float:
    found = [hit.content for hit in memory.recall(pair.query, limit=DEPTH)]
    return found.index(pair.memory) + 1.0 if pair.memory in found else float("inf")


def _around(pair: Pair) -> str:
    """Return the words of the query that the memory has as well."""
    known = set(pair.memory.lower().split())
    return " ".join(word for word in pair.query.split() if word in known) or "it"


def _figures(places: np.ndarray) -> tuple[float, float]:
    return float((places == 1.0).mean()), float((1.0 / places).mean())


if __name__ == "__main__":
    sys.exit(main())
