"""Calibrate the similarity gate: python -m bench.gate [--samples N] [--json FILE].

Prints, for a sweep of cosine thresholds, how many paraphrases are merged and how many pairs that
differ in a value would be lost: by cosine alone, by cosine and equal values, and by the shipped
rule. Exits with 1 when the shipped rule merges any pair that differs in a value.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from bench import report
from bench.datasets import MissingData, data_root, load
from bench.gate_made import (
    Pair,
    change_pairs,
    other_subject_pairs,
    paraphrase_pairs,
    value_pairs,
    word_pairs,
)
from bench.gate_pairs import CHANGES, DISTINCT, NOT_CHANGES, PARAPHRASES
from meritory.domain.policy import EmbedderSpec
from meritory.engine.memories.gate import COMPARE_THRESHOLD, gate_threshold
from meritory.ports.embedder import Embedder, open_embedder
from meritory.text.claims.compare import Relation, compare
from meritory.text.claims.read import protected_values

SHIPPED_THRESHOLD = gate_threshold("static-minilm-256-v1")
THRESHOLDS = (
    0.40,
    COMPARE_THRESHOLD,
    0.50,
    0.55,
    0.60,
    0.65,
    0.70,
    0.75,
    0.80,
    0.85,
    0.88,
    0.90,
    0.92,
    0.94,
    0.96,
    0.98,
)
NEIGHBOURS = 8
MAX_SENTENCES = 2500
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class Judged:
    """A set of pairs with the cosine and the verdicts of each."""

    name: str
    pairs: list[Pair]
    cosine: NDArray[np.float32]
    merges: NDArray[np.bool_]
    supersedes: NDArray[np.bool_]
    same_values: NDArray[np.bool_]


def sentences(root: Path) -> dict[str, list[str]]:
    """Return short statements of fact from the data sets, by collection."""
    samples = json.loads((root / "locomo" / "locomo10.json").read_text(encoding="utf-8"))
    observed = [text for sample in samples for text in _observations(sample)]
    summed = [
        part
        for sample in samples
        for summary in sample["session_summary"].values()
        for part in _SENTENCE.split(summary)
    ]
    said = [doc.text for doc in load("longmemeval", root)[0].docs if doc.role == "user"]
    asked = [doc.text for corpus in load("beam", root) for doc in corpus.docs]
    return {
        "locomo observations": _statements(observed),
        "locomo summaries": _statements(summed),
        "longmemeval user": _statements(part for text in said for part in _SENTENCE.split(text)),
        "beam user": _statements(part for text in asked for part in _SENTENCE.split(text)),
    }


def judge(name: str, pairs: Sequence[Pair], embedder: Embedder) -> Judged:
    """Return the pairs with their cosines and what each rule says about them."""
    olds = embedder.embed_documents([pair.old for pair in pairs])
    news = embedder.embed_documents([pair.new for pair in pairs])
    verdicts = [compare(pair.old, pair.new).relation for pair in pairs]
    return Judged(
        name,
        list(pairs),
        np.einsum("ij,ij->i", olds, news),
        np.array([verdict == "merge" for verdict in verdicts]),
        np.array([verdict == "supersede" for verdict in verdicts]),
        np.array([_same_values(pair) for pair in pairs]),
    )


def neighbours(texts: Sequence[str], embedder: Embedder, least: float) -> Iterator[Pair]:
    """Yield each text beside the earlier texts that the gate would hold it against."""
    vectors = embedder.embed_documents(list(texts))
    for place in range(1, len(texts)):
        cosine = vectors[:place] @ vectors[place]
        for near in np.argsort(-cosine, kind="stable")[:NEIGHBOURS]:
            if cosine[near] >= least:
                yield Pair(texts[near], texts[place], f"{cosine[near]:.3f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the calibration and return 1 when a value would be lost."""
    parser = argparse.ArgumentParser(prog="python -m bench.gate", description=__doc__)
    parser.add_argument("--samples", type=int, default=0, help="print so many real merges")
    parser.add_argument("--json", type=Path, default=Path("gate.json"), help="result file")
    chosen = parser.parse_args(arguments)
    embedder = open_embedder(EmbedderSpec(kind="static"))
    try:
        collections = sentences(data_root())
        real = dict(_real_texts())
    except (MissingData, FileNotFoundError) as missing:
        print(f"{missing}; only the hand-made pairs are used")
        collections, real = {}, {}
    judged = _judge_all(collections, embedder)
    figures: dict[str, Any] = {"embedder": embedder.name, "shipped_threshold": SHIPPED_THRESHOLD}
    figures["sweep"] = _print_sweep(judged)
    figures["by_kind"] = _print_kinds(judged["values"])
    figures["real"] = [
        _print_real(name, groups, embedder, chosen.samples) for name, groups in real.items()
    ]
    report.write(figures, chosen.json)
    return _exit_code(judged)


def _judge_all(collections: dict[str, list[str]], embedder: Embedder) -> dict[str, Judged]:
    made: list[Pair] = []
    changes: list[Pair] = []
    others: list[Pair] = []
    values: list[Pair] = [Pair(old, new, "by hand") for old, new in DISTINCT]
    values += [Pair(new, old, "by hand, turned") for old, new in DISTINCT]
    for texts in collections.values():
        made += paraphrase_pairs(texts)
        values += value_pairs(texts)
        values += word_pairs(texts)
        changes += change_pairs(texts)
        others += other_subject_pairs(texts)
    groups = {
        "by hand": _by_hand(PARAPHRASES),
        "changes by hand": _by_hand(CHANGES),
        "changes made": changes,
        "no changes": [*_by_hand(NOT_CHANGES), *others],
    }
    return {
        name: judge(name, pairs, embedder)
        for name, pairs in {**groups, "made": made, "values": values}.items()
        if pairs
    }


def _by_hand(pairs: Sequence[tuple[str, str]]) -> list[Pair]:
    return [Pair(old, new, "by hand") for old, new in pairs]


def _observations(sample: dict[str, Any]) -> Iterator[str]:
    for session in sample["observation"].values():
        for entries in session.values():
            for entry in entries:
                yield entry[0]


def _statements(texts: Sequence[str] | Iterator[str]) -> list[str]:
    kept: dict[str, None] = {}
    for text in texts:
        clean = " ".join(text.split())
        if 4 <= len(clean.split()) <= 30 and clean.endswith(".") and clean[0].isalpha():
            kept.setdefault(clean)
        if len(kept) == MAX_SENTENCES:
            break
    return list(kept)


def _real_texts() -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the collections a gate would really meet, each as groups that share a scope."""
    samples = json.loads((data_root() / "locomo" / "locomo10.json").read_text(encoding="utf-8"))
    yield "locomo observations", [list(_observations(sample)) for sample in samples]
    yield "locomo turns", [[doc.text for doc in one.docs] for one in load("locomo")]
    said = [doc.text for doc in load("longmemeval")[0].docs if doc.role == "user"]
    yield "longmemeval user turns", [said]
    yield "beam user turns", [[doc.text for doc in one.docs] for one in load("beam")]


def _same_values(pair: Pair) -> bool:
    """Tell whether the two agree on numbers, identifiers, paths, quotes and negation only."""
    old, new = protected_values(pair.old), protected_values(pair.new)
    fields = ("numbers", "identifiers", "paths", "quotes")
    same = all(sorted(getattr(old, name)) == sorted(getattr(new, name)) for name in fields)
    return same and old.negation_count == new.negation_count


def _print_sweep(judged: dict[str, Judged]) -> list[dict[str, float]]:
    counts = ", ".join(f"{name} {len(group.pairs):,}" for name, group in judged.items())
    print(f"pairs: {counts}\n")
    print("                paraphrases merged    value pairs lost by           changes superseded")
    print(
        "  cosine        made    by hand       cosine  +values  shipped      made  by hand  wrongly"
    )
    rows = []
    for least in THRESHOLDS:
        row = _sweep_row(judged, least)
        rows.append(row)
        mark = {SHIPPED_THRESHOLD: "similar", COMPARE_THRESHOLD: "compare"}.get(least, "")
        print(
            f"  {least:.2f} {mark:7}   {row['merged_made']:.3f}      {row['merged_by_hand']:.3f}"
            f"    {row['lost_cosine']:9,} {row['lost_equal_values']:8,} {row['lost_shipped']:8,}"
            f"     {row['superseded_made']:.3f}    {row['superseded_by_hand']:.3f}"
            f" {row['superseded_wrongly']:8,}"
        )
    return rows


def _sweep_row(judged: dict[str, Judged], least: float) -> dict[str, float]:
    def share(name: str, verdict: str) -> float:
        group = judged.get(name)
        if group is None:
            return 0.0
        return float(((group.cosine >= least) & getattr(group, verdict)).mean())

    values, others = judged["values"], judged["no changes"]
    near = values.cosine >= least
    return {
        "threshold": least,
        "merged_made": share("made", "merges"),
        "merged_by_hand": share("by hand", "merges"),
        "lost_cosine": int(near.sum()),
        "lost_equal_values": int((near & values.same_values).sum()),
        "lost_shipped": int((near & values.merges).sum()),
        "superseded_made": share("changes made", "supersedes"),
        "superseded_by_hand": share("changes by hand", "supersedes"),
        "superseded_wrongly": int(((others.cosine >= least) & others.supersedes).sum()),
    }


def _print_kinds(values: Judged) -> dict[str, dict[str, float]]:
    """Print, per kind of change, how many pairs cosine alone would lose at two thresholds."""
    print("\n| change | pairs | median cosine | lost at .92 by cosine alone | shipped rule |")
    table: dict[str, dict[str, float]] = {}
    kinds = np.array([pair.how for pair in values.pairs])
    for kind, count in Counter(kinds.tolist()).most_common():
        mask = kinds == kind
        table[kind] = {
            "pairs": count,
            "median_cosine": float(np.median(values.cosine[mask])),
            "lost_cosine": int((values.cosine[mask] >= 0.92).sum()),
            "lost_shipped": int(values.merges[mask].sum()),
        }
        if count >= 100 or table[kind]["lost_shipped"]:
            row = table[kind]
            print(
                f"| {kind} | {count:,} | {row['median_cosine']:.3f}"
                f" | {row['lost_cosine']:,} | {row['lost_shipped']} |"
            )
    return table


def _print_real(
    name: str, groups: list[list[str]], embedder: Embedder, samples: int
) -> dict[str, Any]:
    found: dict[str, list[Pair]] = {name: [] for name in get_args(Relation)}
    for texts in groups:
        for pair in neighbours(texts, embedder, COMPARE_THRESHOLD):
            found[compare(pair.old, pair.new).relation].append(pair)
    total = sum(len(texts) for texts in groups)
    counts = {relation: len(pairs) for relation, pairs in found.items()}
    print(f"\n{name}: {total:,} texts, neighbours at {COMPARE_THRESHOLD:.2f}: {counts}")
    for relation in ("merge", "supersede", "chain"):
        unequal = [pair for pair in found[relation] if pair.old != pair.new]
        print(f"  {relation}: {len(unequal)} between texts that are not identical")
        step = max(1, len(unequal) // samples) if samples else 1
        for pair in unequal[::step][:samples]:
            print(f"    {pair.how} {pair.old!r} | {pair.new!r}")
    return {"name": name, "texts": total, **counts}


def _exit_code(judged: dict[str, Judged]) -> int:
    values, others = judged["values"], judged["no changes"]
    lost = _wrong(values, values.merges, COMPARE_THRESHOLD)
    replaced = _wrong(others, others.supersedes, COMPARE_THRESHOLD)
    print(f"\n{len(lost)} of {len(values.pairs):,} value pairs merged at {COMPARE_THRESHOLD:.2f}")
    count = f"{len(replaced)} of {len(others.pairs):,}"
    print(f"{count} unchanged claims superseded at {COMPARE_THRESHOLD:.2f}")
    for how, cosine, old, new in [*lost, *replaced][:20]:
        print(f"WRONG {cosine:.3f} {how}: {old!r} | {new!r}")
    return 1 if lost or replaced else 0


def _wrong(
    group: Judged, fired: NDArray[np.bool_], least: float
) -> list[tuple[str, float, str, str]]:
    places = np.flatnonzero((group.cosine >= least) & fired).tolist()
    found = [(group.pairs[place], float(group.cosine[place])) for place in places]
    return [(pair.how, cosine, pair.old, pair.new) for pair, cosine in found]


if __name__ == "__main__":
    sys.exit(main())
