"""Train the weights that tell lasting statements: python -m bench.extraction_weights [--check].

Learns from the tune halves of bench.everyday_extraction and from made clauses: each line of
bench/labels/everyday/clauses/LANGUAGE.txt is a pattern of statements (+) or of other talk (-), with
choices in braces. The report halves are not read. --check leaves each tune half out in turn,
and prints for several bounds what share of its facts is kept and of what is kept is right.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.everyday_extraction import (
    FACTS,
    LABELS,
    LANGUAGES,
    NEGATION,
    SETS,
    STANDING,
    Label,
    _word,
    is_met,
    read_labels,
)
from meritory.text.extract import lasting
from meritory.text.extract.attribution import Spoken, sentences
from meritory.text.extract.lasting import Clauses, ClauseWeights, hashed
from meritory.text.extract.phrases import languages_of

SHIPPED: Final = Path(__file__).parents[1] / "src" / "meritory" / "data" / "language"
MADE: Final = LABELS / "clauses"
SEED: Final = 5
MADE_PER_LINE: Final = 40
# Words that fewer clauses have are rare ones, so that the weights work where no word is known.
MIN_CLAUSES: Final = 3
MIN_USES: Final = 2
STRENGTH: Final = 2.0
STEPS: Final = 300
RATE: Final = 0.05
# A clause of a label may be made, with less weight than what users might have said.
MADE_WEIGHT: Final = 1.0
BOUNDS: Final = (0.0, 0.5, 1.0, 1.5, 2.0)
LEADS: Final = {
    "en": ("btw ", "since ", "oh and ", "by the way, ", "because ", "also, ", "hi, ", "so "),
    "de": ("übrigens: ", "da ", "ach ja, ", "also ", "hallo, ", "weil "),
    "fr": ("au fait, ", "comme ", "vu que ", "bonjour, ", "sinon "),
    "es": ("por cierto, ", "como ", "ah, ", "hola, ", "es que "),
    "zh": ("对了，", "顺便说一下，", "因为", "另外，", "你好，"),
}
JOINS: Final = {"zh": ("，",)}
_CHOICE: Final = re.compile(r"\{([^{}]*)\}")
_ENDS: Final = ".。"


@dataclass(frozen=True, slots=True)
class Example:
    """A clause of a sentence, and whether it is a statement to keep."""

    clauses: Clauses
    language: str
    span: tuple[int, int]
    is_kept: bool
    weight: float = 1.0


# -- examples ---------------------------------------------------------------------------------


def spoken_clauses(label: Label) -> Iterator[tuple[Clauses, tuple[int, int]]]:
    """Yield the clauses of a labelled turn that may be statements."""
    spoken = sentences(label.turn)
    languages = languages_of(sentence.bare for sentence in spoken)
    for sentence in spoken:
        possible = languages_of((sentence.bare,), languages)
        language = label.language if label.language in possible else possible[0]
        clauses = Clauses(sentence, language)
        for span in clauses.spans():
            yield clauses, span


def judged(label: Label, text: str) -> bool | None:
    """Return whether a clause is one to keep; None if it only may be, or is half of one."""
    for wanted in label.wanted:
        if is_met(wanted, label.language, text):
            return None if wanted.is_optional or label.kind in STANDING else True
    words = {word for one in label.wanted for group in one.groups for word in group} - {NEGATION}
    has_part = any(_word(word, label.language).search(text) for word in words)
    return None if has_part else False


def labelled(labels: Sequence[Label]) -> Iterator[Example]:
    """Yield the clauses of labelled turns of which it is clear whether to keep them."""
    for label in labels:
        for clauses, (start, end) in spoken_clauses(label):
            is_kept = judged(label, clauses.sentence.text[start:end])
            if is_kept is not None:
                yield Example(clauses, label.language, (start, end), is_kept)


def written(pattern: str, rng: random.Random) -> str:
    """Return one of the sentences that a line of the made clauses stands for."""
    text = _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), pattern)
    text = " ".join(text.split()).replace(" ,", ",").replace(" :", ":").replace("' ", "'")
    if rng.random() < 0.6:
        text = text[:1].upper() + text[1:]
    return text + (
        ("。" if "\u4e00" <= text[-1] <= "\u9fff" else ".") if rng.random() < 0.4 else ""
    )


def made(count: int = MADE_PER_LINE, folder: Path = MADE) -> Iterator[Example]:
    """Yield clauses of the made lines, some of them in the midst of other talk."""
    rng = random.Random(SEED)
    for language in LANGUAGES:
        lines = (folder / f"{language}.txt").read_text("utf-8").splitlines()
        other = [line[2:] for line in lines if line.startswith("-")]
        joins = JOINS.get(language, (", ", ": ", " - "))
        for line in lines:
            for text in sorted({written(line[2:], rng) for _ in range(count)}):
                body, place = text.rstrip(_ENDS), rng.random()
                before = after = ""
                if place < 0.25:
                    before = rng.choice(LEADS[language])
                elif place < 0.4:
                    before = written(rng.choice(other), rng).rstrip(_ENDS) + rng.choice(joins)
                elif place < 0.6:
                    after = joins[0] + written(rng.choice(other), rng)
                if after and rng.random() < 0.15:
                    after = after.rstrip(_ENDS) + "?"
                whole = before + body + (after or text[len(body) :])
                clauses = Clauses(Spoken(whole, whole), language)
                span = (len(before), len(before) + len(body))
                yield Example(clauses, language, span, line.startswith("+"), MADE_WEIGHT)


# -- training ---------------------------------------------------------------------------------


def trained(examples: Sequence[Example]) -> ClauseWeights:
    """Return the weights that explain examples best, held small."""
    uses = Counter(
        hashed(f"{one.language}|{word}")
        for one in examples
        for word in set(one.clauses.words(*one.span))
    )
    known = frozenset(word for word, count in uses.items() if count >= MIN_CLAUSES)
    parts = [[hashed(part) for part in one.clauses.parts(one.span, known)] for one in examples]
    counts = Counter(part for of_one in parts for part in of_one)
    kept = sorted(part for part, count in counts.items() if count >= MIN_USES)
    place = {part: at for at, part in enumerate(kept)}
    columns = [np.array(sorted(place[part] for part in one if part in place)) for one in parts]
    weights, bias = _solved(
        columns,
        np.array([one.is_kept for one in examples], float),
        np.array([one.weight for one in examples]),
        len(kept),
    )
    return ClauseWeights(known, dict(zip(kept, weights.tolist(), strict=True)), bias)


def _solved(
    columns: Sequence[NDArray[np.int64]],
    target: NDArray[np.float64],
    share: NDArray[np.float64],
    width: int,
) -> tuple[NDArray[np.float64], float]:
    """Return the weights and the bias of a logistic regression, by Adam on all examples at once."""
    sizes = np.array([len(one) for one in columns])
    starts, used = np.concatenate([[0], np.cumsum(sizes)[:-1]]), np.concatenate(columns)
    weights = np.zeros(width + 1)
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, STEPS):
        score = np.add.reduceat(weights[used], starts) + weights[-1]
        error = share * (1 / (1 + np.exp(-score)) - target)
        slope = np.bincount(used, np.repeat(error, sizes), width + 1) + STRENGTH * weights
        slope[-1] = error.sum()
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        rate = RATE * (1 - step / (STEPS + 20))
        ahead = np.sqrt(square / (1 - 0.999**step)) + 1e-8
        weights -= rate * mean / (1 - 0.9**step) / ahead
    return weights[:-1], float(weights[-1])


# -- check ------------------------------------------------------------------------------------


def check(labels: Sequence[Label], weights: ClauseWeights) -> Iterator[str]:
    """Yield for several bounds the facts that these weights alone keep, and what of it is right."""
    scored = [
        [
            (clauses.score(span, weights), clauses.sentence.text[slice(*span)])
            for clauses, span in spoken_clauses(label)
            if clauses.is_sentence(*span)
        ]
        for label in labels
    ]
    for bound in BOUNDS:
        kept = [[text for score, text in of_turn if score >= bound] for of_turn in scored]
        right = [
            any(is_met(one, label.language, text) for one in label.wanted)
            for label, texts in zip(labels, kept, strict=True)
            for text in texts
        ]
        facts = [
            any(is_met(one, label.language, text) for text in texts)
            for label, texts in zip(labels, kept, strict=True)
            for one in label.wanted
            if label.kind in FACTS and not one.is_optional
        ]
        shares = (f"{sum(each) / max(1, len(each)):.3f} of {len(each)}" for each in (facts, right))
        yield f"  bound {bound:4.1f}: kept {next(shares)}, right {next(shares)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the weights, or print the figures of each half left out."""
    parser = argparse.ArgumentParser(prog="python -m bench.extraction_weights")
    parser.add_argument("--check", action="store_true", help="only print, and write nothing")
    options: Any = parser.parse_args(arguments)
    spoken = {name: read_labels("tune", texts=name) for name in SETS}
    examples = list(made())
    if options.check:
        for name in SETS:
            learned = [one for other in SETS if other != name for one in labelled(spoken[other])]
            print(f"{name} tune half left out")
            print("\n".join(check(spoken[name], trained([*learned, *examples]))))
        return 0
    learned = [one for name in SETS for one in labelled(spoken[name])]
    content = lasting.packed(trained([*learned, *examples]))
    (SHIPPED / lasting.WEIGHTS).write_bytes(content)
    print(f"{len(learned)} labelled and {len(examples)} made clauses, {len(content)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
