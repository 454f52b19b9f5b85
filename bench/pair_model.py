"""Train the model of unsure chains: `python -m bench.pair_model [--write]`.

It learns from the tune half of `bench.everyday` alone: the labelled pairs, texts that are near each
other in the conversations of that half (usually two claims), and the same change said of another
person. Every figure is of pairs of conversations, and of blocks of the hand-written file, that the
model was not trained on. `--control` trains on shuffled labels, which must find next to nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.datasets import MissingData, data_root
from bench.everyday_cases import Pair, read_pairs
from bench.everyday_mined import LANGUAGE, read_labels, resolve
from bench.gate_made import other_subject_pairs
from meritory.model.succession import WEIGHTS_FILE, SuccessionModel, read_model
from meritory.ports.embedder import StaticEmbedder
from meritory.text.claims.compare import compare
from meritory.text.succession import NAMES, features, sight

SHIPPED = Path(__file__).parents[1] / "src" / "meritory" / "data" / WEIGHTS_FILE
NEWER, NEUTRAL = ("update", "newer"), ("same", "near")
# Texts of the tune half's conversations: see the head of mined_tune.tsv.
REALMEM, BEAM, LOCOMO = ("Kenta_Tanaka", "Kim_Ji_young"), range(1, 11), 5
NEIGHBOURS, NEIGHBOUR_FLOOR, WEAK_PER_SET, MADE = 8, 0.35, 4_000, 600
# A near pair of a conversation is usually two claims, but it has no label.
WEAK_WEIGHT, MINED_WEIGHT, DECIDED_WEIGHT = 0.25, 6.0, 0.3
# Lines of the hand-written file that stand together are about the same classes.
BLOCK, FOLDS = 40, 6
HIDDEN, MEMBERS, EPOCHS, BATCH, RATE, DECAY = 16, 3, 80, 256, 3e-3, 1e-3
# The share of near pairs of conversations that is linked, by the threshold of the model.
LINKED_SHARE = 0.012
SEED = 19

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Example:
    """A pair, where it comes from, and the conversation or block that it belongs to."""

    pair: Pair
    group: str

    @property
    def is_weak(self) -> bool:
        """Whether it has no label."""
        return self.pair.kind in ("neighbour", "made")


def labelled() -> Iterator[Example]:
    """Yield the pairs of the tune half with their groups."""
    for number, pair in enumerate(read_pairs("tune")):
        yield Example(pair, f"hand {number // BLOCK}")
    root = data_root()
    for label in read_labels("tune"):
        if label.form == "pair":
            first, second = (resolve(ref, root) for ref in label.refs)
            ref = label.refs[0]
            pair = Pair(LANGUAGE, label.kind, label.expected, first, second, ref.data_set)
            yield Example(pair, ref.conversation)


def conversations() -> Iterator[tuple[str, list[str]]]:
    """Yield the texts of each conversation of the tune half, in their order."""
    root = data_root()
    for person in REALMEM:
        body = json.loads((root / "realmem" / f"{person}.json").read_text("utf-8"))
        texts = [one["content"] for part in body["dialogues"] for one in part["extracted_memory"]]
        yield f"realmem/{person}.json", texts
    for number in BEAM:
        body = json.loads((root / "beam" / "100K" / str(number) / "chat.json").read_text("utf-8"))
        said = [m for batch in body for group in batch["turns"] for m in group]
        texts = [m["content"].split("->->")[0] for m in said if m["role"] == "user"]
        yield f"beam/100K/{number}", [one for text in texts for one in _sentences(text)]
    for sample in json.loads((root / "locomo" / "locomo10.json").read_text("utf-8"))[:LOCOMO]:
        sessions = sorted(sample["observation"], key=lambda name: int(name.split("_")[1]))
        texts = [
            text
            for session in sessions
            for told in sample["observation"][session].values()
            for text, *_ in told
        ]
        yield f"locomo/{sample['sample_id']}", texts


def _sentences(text: str) -> Iterator[str]:
    for part in re.split(r"(?<=[.!?])\s+|\n+", text):
        sentence = part.strip()
        if 25 <= len(sentence) <= 300 and not sentence.startswith(("```", "#", "|", "-", "{", "<")):
            yield sentence


def neighbours(known: set[tuple[str, str]], embedder: StaticEmbedder) -> Iterator[Example]:
    """Yield near pairs of conversations, and the same change said of another person."""
    found: dict[str, list[Example]] = {}
    source = np.random.default_rng(SEED)
    for group, told in conversations():
        texts = list(dict.fromkeys(told))
        vectors = embedder.embed_documents(texts)
        cosines = np.tril(vectors @ vectors.T, -1)
        name = group.partition("/")[0]
        for later, row in enumerate(cosines):
            for earlier in np.argsort(-row)[:NEIGHBOURS].tolist():
                pair = Pair(LANGUAGE, "neighbour", "other", texts[earlier], texts[later], name)
                if row[earlier] >= NEIGHBOUR_FLOOR and (pair.first, pair.second) not in known:
                    found.setdefault(name, []).append(Example(pair, group))
        if name == "locomo":
            made = list(other_subject_pairs(texts))[: MADE // LOCOMO]
            yield from (
                Example(Pair(LANGUAGE, "made", "other", one.old, one.new, "made"), group)
                for one in made
            )
    for examples in found.values():
        order = source.permutation(len(examples))[:WEAK_PER_SET]
        yield from (examples[index] for index in order.tolist())


@dataclass(frozen=True, slots=True)
class Lessons:
    """The examples as the training reads them: a row of features and a fold for each."""

    examples: tuple[Example, ...]
    rows: Floats
    # Whether the second text may give a newer value at all.
    is_asked: Flags
    is_newer: Flags
    is_neutral: Flags
    is_weak: Flags
    is_hand: Flags
    # Whether word rules leave the pair to the model.
    is_open: Flags
    weights: Floats
    folds: NDArray[np.int64]


def lessons() -> Lessons:
    """Return all examples with their features."""
    embedder = StaticEmbedder()
    own = list(labelled())
    known = {(one.pair.first, one.pair.second) for one in own}
    examples = (*own, *neighbours(known, embedder))
    first, second = (
        embedder.embed_documents([getattr(one.pair, side) for one in examples])
        for side in ("first", "second")
    )
    cosines = np.einsum("ij,ij->i", first, second)
    rows = [
        features(sight(one.pair.first), sight(one.pair.second), float(cosine))
        for one, cosine in zip(examples, cosines, strict=True)
    ]
    relations = [compare(one.pair.first, one.pair.second).relation for one in examples]
    is_weak = np.array([one.is_weak for one in examples])
    is_hand = np.array([one.pair.source == "hand" for one in examples])
    is_open = np.array([relation == "keep_both" for relation in relations])
    weights = np.where(is_weak, WEAK_WEIGHT, np.where(is_hand, 1.0, MINED_WEIGHT))
    return Lessons(
        examples=examples,
        rows=np.array(rows, np.float64),
        is_asked=np.array([sight(one.pair.second).may_be_newer for one in examples]),
        is_newer=np.array([one.pair.expected in NEWER for one in examples]),
        is_neutral=np.array([one.pair.expected in NEUTRAL for one in examples]),
        is_weak=is_weak,
        is_hand=is_hand,
        is_open=is_open,
        weights=np.where(is_hand & ~is_open, DECIDED_WEIGHT, 1.0) * weights,
        folds=np.array([zlib.crc32(one.group.encode()) % FOLDS for one in examples]),
    )


# -- training ---------------------------------------------------------------------------------


def train(given: Lessons, chosen: Flags, labels: Flags, threshold: float = 0.0) -> SuccessionModel:
    """Return the mean of several networks, as one network with all their hidden units."""
    rows, wanted, weights = given.rows[chosen], labels[chosen].astype(float), given.weights[chosen]
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 1e-6
    level = (rows - mean) / scale
    nets = [_descend(level, wanted, weights, seed) for seed in range(MEMBERS)]
    return SuccessionModel(
        names=NAMES,
        mean=mean,
        scale=scale,
        hidden=np.concatenate([net[0] for net in nets], axis=1),
        hidden_bias=np.concatenate([net[1] for net in nets]),
        output=np.concatenate([net[2] for net in nets]) / MEMBERS,
        bias=float(np.mean([net[3] for net in nets])),
        threshold=threshold,
    )


def _descend(level: Floats, wanted: Floats, weights: Floats, seed: int) -> list[Floats]:
    """Return the weights of one network with one hidden layer, trained by Adam."""
    source = np.random.default_rng(seed)
    width = level.shape[1]
    params = [
        source.normal(0, width**-0.5, (width, HIDDEN)),
        np.zeros(HIDDEN),
        source.normal(0, HIDDEN**-0.5, HIDDEN),
        np.zeros(1),
    ]
    slopes, squares = ([np.zeros_like(one) for one in params] for _ in range(2))
    step = 0
    for _ in range(EPOCHS):
        order = source.permutation(len(level))
        for start in range(0, len(order), BATCH):
            picked = order[start : start + BATCH]
            rows = level[picked]
            active = np.tanh(rows @ params[0] + params[1])
            guess = 1.0 / (1.0 + np.exp(-(active @ params[2] + params[3][0])))
            error = (guess - wanted[picked]) * weights[picked] / len(picked)
            back = np.outer(error, params[2]) * (1.0 - active**2)
            grads = [
                rows.T @ back + DECAY * params[0],
                back.sum(axis=0),
                active.T @ error + DECAY * params[2],
                error.sum(keepdims=True),
            ]
            step += 1
            for at, grad in enumerate(grads):
                slopes[at] = 0.9 * slopes[at] + 0.1 * grad
                squares[at] = 0.999 * squares[at] + 0.001 * grad**2
                rate = RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
                params[at] = params[at] - rate * slopes[at] / (np.sqrt(squares[at]) + 1e-8)
    return params


def crossed(given: Lessons, labels: Flags) -> Floats:
    """Return the score of every example by a model that was trained without its group."""
    scores = np.zeros(len(given.rows))
    for fold in range(FOLDS):
        outside = given.folds != fold
        model = train(given, outside & ~given.is_neutral, labels)
        scores[~outside] = model.score(given.rows[~outside])
    return np.where(given.is_asked, scores, -np.inf)


# -- figures ----------------------------------------------------------------------------------


def threshold_of(given: Lessons, scores: Floats) -> float:
    """Return the score above which the wanted share of near pairs of conversations is."""
    near = np.array([one.pair.kind == "neighbour" for one in given.examples]) & given.is_open
    asked = scores[near & given.is_asked]
    return float(np.quantile(asked, 1.0 - LINKED_SHARE * near.sum() / len(asked)))


def table(given: Lessons, scores: Floats, threshold: float) -> Iterator[str]:
    """Yield the shares of pairs that are linked, of those that word rules leave open."""
    linked = scores >= threshold
    yield f"{'':30}{'pairs':>8}{'linked':>8}"
    names = np.array([one.pair.expected for one in given.examples])
    for name in ("update", "newer", "other", "same"):
        for source, where in (("hand", given.is_hand), ("mined", ~given.is_hand & ~given.is_weak)):
            yield _row(f"{name}, {source}", linked[(names == name) & where & given.is_open])
    kinds = np.array([one.pair.kind if one.is_weak else "" for one in given.examples])
    sources = np.array([one.pair.source for one in given.examples])
    for source in sorted(set(sources[kinds == "neighbour"].tolist())):
        chosen = (kinds == "neighbour") & (sources == source) & given.is_open
        yield _row(f"neighbours, {source}", linked[chosen])
    yield _row("made of another person", linked[(kinds == "made") & given.is_open])


def _row(name: str, linked: Flags) -> str:
    return f"{name:30}{len(linked):>8}{linked.mean() if len(linked) else 0.0:>8.3f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of pairs that were left out, and write the weights if asked to."""
    parser = argparse.ArgumentParser(prog="python -m bench.pair_model", description=__doc__)
    parser.add_argument("--write", action="store_true", help="train on all and write the weights")
    parser.add_argument("--control", action="store_true", help="train on shuffled labels")
    options = parser.parse_args(arguments)
    try:
        given = lessons()
    except MissingData as missing:
        print(missing)
        return 1
    labels = given.is_newer
    if options.control:
        labels = np.random.default_rng(SEED).permutation(labels)
    scores = crossed(given, labels)
    threshold = threshold_of(given, scores)
    print("\n".join(table(given, scores, threshold)))
    if options.write and not options.control:
        model = train(given, ~given.is_neutral, labels, threshold)
        SHIPPED.write_text(model.as_json(), encoding="utf-8")
        read_model(SHIPPED.read_text(encoding="utf-8"))
        print(f"wrote {SHIPPED.name} with the threshold {threshold:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
