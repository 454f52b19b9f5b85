"""Tells by learned weights which clauses state something that holds longer than the task.

Patterns know the wordings of those who wrote them, and every new author has others. A clause is
described by its words, their places, the classes of the rare ones (a name, a number, a path) and
the patterns of its language that all authors share (a supposition, an order, the moment). Linear
weights over that description were trained by `python -m bench.extraction_weights`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from meritory.text.extract.attribution import Spoken
from meritory.text.extract.clauses import UNSPACED, statement_end
from meritory.text.extract.phrases import LANGUAGES, phrase
from meritory.text.language import read_bytes

WEIGHTS: Final = "extract.weights"
# A clause with this score is kept though no cue matches it.
KEPT_SCORE: Final = 1.2
# A plain statement that a cue matches is declined below this one.
DECLINED_SCORE: Final = -0.7
# Where enough real clauses taught them; elsewhere they would overrule more that is right.
DECLINING: Final = ("en",)
# A sentence has few statements; more starts only cost time.
START_LIMIT: Final = 8
MIN_CHARS: Final = 4
FIRST_WORDS: Final = 3
NEAR_WORDS: Final = 3
LENGTH_LIMIT: Final = 6
# Shared by all languages: what these patterns find in a clause, and before it.
SIGNS: Final = (
    "count",
    "courtesy",
    "denies",
    "narrates",
    "others",
    "ours",
    "passing",
    "past",
    "pointer",
    "progress",
    "question",
    "state",
    "supposed",
    "turns",
    "vague",
)
# Whoever supposes or reports something states nothing, wherever the word for it stands.
UNSTATED: Final = ("supposed", "supposes", "others")
_WORD: Final = re.compile(
    r"[\u4e00-\u9fff]|\x01+|[^\W\u4e00-\u9fff_](?:[^\W\u4e00-\u9fff]|[.'/@#+:-](?=\w))*|[?!:=+&]"
)
_STARTS: Final = re.compile(
    r"^|[,;:(.]\s+|\s[\u2013\u2014-]+\s+|[\uff0c\uff1b\uff1a]"
    r"|\b(?:and|but|since|because|as|although|given that|und|aber|weil|da|denn|et|mais|car|comme"
    r"|vu que|y|pero|porque|como|ya que)\s+"
)
_NUMBER: Final = re.compile(r"[\d.:,]+")
_DIGIT: Final = re.compile(r"\d")
_IDENTIFIER: Final = re.compile(r"[./@#_+]")
_RARE: Final = "<rare>"
_CLASSES: Final = ("<number>", "<mixed>", "<identifier>", "<name>", "<quote>")


@dataclass(frozen=True, slots=True)
class ClauseWeights:
    """The words that are known, and the weight of each part of a description, by hash."""

    words: frozenset[int]
    weights: Mapping[int, float]
    bias: float


@cache
def shipped() -> ClauseWeights:
    """Return the weights of the package."""
    return unpacked(read_bytes(WEIGHTS))


def packed(weights: ClauseWeights) -> bytes:
    """Return weights as the bytes of a file."""
    words = np.array(sorted(weights.words), "<u4")
    parts = np.array(sorted(weights.weights), "<u4")
    values = np.array([weights.weights[int(part)] for part in parts], "<f2")
    head = np.array([len(words), len(parts)], "<u4").tobytes()
    bias = np.array([weights.bias], "<f4").tobytes()
    return head + bias + words.tobytes() + parts.tobytes() + values.tobytes()


def unpacked(content: bytes) -> ClauseWeights:
    """Return the weights in the bytes of a file."""
    word_count, part_count = (int(count) for count in np.frombuffer(content, "<u4", 2))
    bias = float(np.frombuffer(content, "<f4", 1, 8)[0])
    words = np.frombuffer(content, "<u4", word_count, 12)
    parts = np.frombuffer(content, "<u4", part_count, 12 + 4 * word_count)
    values = np.frombuffer(content, "<f2", part_count, 12 + 4 * (word_count + part_count))
    pairs = zip(parts.tolist(), values.tolist(), strict=True)
    return ClauseWeights(frozenset(words.tolist()), dict(pairs), bias)


def hashed(part: str) -> int:
    """Return the number by which a word or a part of a description is known."""
    return zlib.crc32(part.encode())


class Clauses:
    """The clauses of one sentence that may be statements, and what they are described by."""

    def __init__(self, sentence: Spoken, language: str) -> None:
        self.sentence = sentence
        self._language = language
        self._plain = sentence.bare.replace("\u2019", "'")

    @cached_property
    def _words(self) -> list[tuple[int, str, str]]:
        """The place of each word, and its class, as the first one of a clause and otherwise."""
        return [
            (match.start(), _classed(match.group(), is_first=True), _classed(match.group()))
            for match in _WORD.finditer(self._plain)
        ]

    @cached_property
    def _signs(self) -> dict[str, list[tuple[int, int]]]:
        """Where the signs of the language are."""
        return {
            name: [match.span() for match in phrase(self._language, name).finditer(self._plain)]
            for name in SIGNS
        }

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield where clauses begin and end that may state something."""
        found = 0
        for match in _STARTS.finditer(self._plain):
            start = match.end()
            if len(self._plain) - start < MIN_CHARS or found == START_LIMIT:
                continue
            end = statement_end(
                self._plain,
                (start, start + 1),
                self._language,
                is_question=self.sentence.is_question,
            )
            if end is not None and end - start >= MIN_CHARS:
                found += 1
                yield start, end

    def is_sentence(self, start: int, end: int) -> bool:
        """Return whether a clause speaks of the user or has a verb that states something."""
        signs = (phrase(self._language, key) for key in ("ours", "verb"))
        return any(sign.search(self._plain, start, end) for sign in signs)

    def words(self, start: int, end: int) -> list[str]:
        """Return the words of a span in their classes; the first one is no name."""
        inside = [each for each in self._words if start <= each[0] < end]
        return [first if not at else other for at, (_, first, other) in enumerate(inside)]

    def parts(self, span: tuple[int, int], known: frozenset[int]) -> set[str]:
        """Return the description of a clause; a word that is not known is only a rare one."""
        start, end = span
        language = self._language

        def seen(words: Sequence[str]) -> list[str]:
            return [
                word if word[0] == "<" or hashed(f"{language}|{word}") in known else _RARE
                for word in words
            ]

        words = seen(self.words(start, end))
        found = {"language=" + language}
        if not words:
            return found
        own = {f"w={word}" for word in words}
        own |= {f"b={first} {second}" for first, second in pairwise(words)}
        own |= {f"p{at}={word}" for at, word in enumerate(words[:FIRST_WORDS])}
        own |= {"s=" + " ".join(words[:2]), "t=" + " ".join(words[:3])}
        before = seen(self.words(0, start)[-NEAR_WORDS:])
        own |= {f"near={word}" for word in before} | {f"before={word}" for word in before[-1:]}
        own |= {f"after={word}" for word in seen(self.words(end, len(self._plain))[:1])}
        found |= {f"{language}|{part}" for part in own}
        found |= {f"has={name}" for name in _CLASSES if name in words}
        size = len(words) // (4 if UNSPACED.search(self._plain, start, end) else 2)
        found.add(f"length={min(LENGTH_LIMIT, size)}")
        return found | self._placed(start, end)

    def _placed(self, start: int, end: int) -> set[str]:
        """Return where the clause is in its sentence, and the signs in it and before it."""
        found = {"asked"} if self.sentence.is_question else set()
        if not start:
            found.add("first")
        if end >= len(self._plain.rstrip(" .!?\u3002\uff01\uff1f")):
            found.add("last")
        if phrase(self._language, "orders").match(self._plain, start):
            found.add("sign=orders")
        for name, places in self._signs.items():
            if any(start <= begin and stop <= end for begin, stop in places):
                found.add(f"sign={name}")
            if any(stop <= start for _, stop in places):
                found.add(f"sign before={name}")
        return found

    def _supposes(self, start: int) -> bool:
        """Return whether a clause is supposed by its first word or by what is before it."""
        first = _WORD.search(self._plain, start)
        before = self._plain[: first.end()] + " " if first else ""
        # A short sentence is read in several languages, and none of them may see a supposition.
        return any(phrase(language, "supposed").search(before) for language in LANGUAGES)

    def score(self, span: tuple[int, int], weights: ClauseWeights | None = None) -> float:
        """Return how sure it is that a clause states something lasting; 0 is undecided."""
        known = weights or shipped()
        parts = self.parts(span, known.words)
        return known.bias + sum(known.weights.get(hashed(part), 0.0) for part in parts)

    def kept(self, taken: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
        """Return the spans that are kept, best first, none of which shares words with another."""
        if any(phrase(self._language, name).search(self._plain) for name in UNSTATED):
            return []
        spans = (
            span for span in self.spans() if self.is_sentence(*span) and not self._supposes(span[0])
        )
        scored = sorted(((self.score(span), span) for span in spans), reverse=True)
        kept: list[tuple[int, int]] = []
        for score, (start, end) in scored:
            if score < KEPT_SCORE:
                break
            if all(end <= begin or stop <= start for begin, stop in (*taken, *kept)):
                kept.append((start, end))
        return kept


def _classed(word: str, *, is_first: bool = False) -> str:
    """Return a word in lower case, or its class where that says more."""
    if word[0] == "\x01":
        return "<quote>"
    if _NUMBER.fullmatch(word) and _DIGIT.search(word):
        return "<number>"
    if _DIGIT.search(word):
        return "<mixed>"
    if len(word) > 2 and _IDENTIFIER.search(word):
        return "<identifier>"
    return "<name>" if word[0].isupper() and not is_first else word.lower()
