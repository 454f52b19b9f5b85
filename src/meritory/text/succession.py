"""What a small model reads of two texts, to guess whether the newer one gives another value.

Word rules decide few pairs of real sentences, which differ in content as well as in wording. These
features are counts of words, names and numbers, and the cosine. `meritory.model.succession` weighs
them; `bench.pair_model` trains it.
"""

from __future__ import annotations

import math
import re
from functools import cache, lru_cache
from typing import Final, NamedTuple

from meritory.text.claims.lexicon import HAN, LANGUAGES, lexicon
from meritory.text.language import pattern, word_set
from meritory.text.words import STOP_WORDS

# Longer texts state several things, so that one of them says little about another text.
READ_CHARS: Final = 400
_STEM_CHARS: Final = 5
_CUE_CHARS: Final = 6
# Words on each side of a number that say what is counted.
_NEAR_NUMBER: Final = 3
_OPENING_WORDS: Final = 3
_MOST: Final = 3
_WORDS: Final = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:['’][a-z]{1,2}(?![a-z]))?")
_DIGITS: Final = frozenset("0123456789")
_ENGLISH: Final = frozenset({"the", "a", "is", "my", "i", "to", "of", "for", "in", "we", "and"})

NAMES: Final = (
    "cosine", "shared by shorter", "shared by longer", "shared", "only old", "only new",
    "both numbers", "equal numbers", "other number", "same amount", "number only new",
    "new changed", "old changed", "only new changed", "new progress", "old progress",
    "one negated", "new negated", "names shared", "names only old", "names only new",
    "other first name", "question", "both I", "one I", "length", "ratio", "longest", "english",
    "same opening", "both months", "one month", "same first", "same last", "new adds",
    "numbers shared",
)  # fmt: skip


class Sight(NamedTuple):
    """What is read of one text."""

    words: tuple[str, ...]
    stems: frozenset[str]
    first: str
    last: str
    # A name that the text begins with, and names within it.
    opener: str
    names: frozenset[str]
    numbers: frozenset[str]
    # The stems near its numbers.
    amounts: frozenset[str]
    changed_count: int
    progress_count: int
    is_negated: bool
    is_question: bool
    is_first_person: bool
    has_month: bool
    adds: bool
    is_english: bool

    @property
    def may_be_newer(self) -> bool:
        """Whether it has a number, a negation, or a word of change or of progress.

        Few texts without them give a claim a newer value, and most texts have none of them.
        """
        return bool(self.numbers or self.changed_count or self.progress_count or self.is_negated)


@lru_cache(maxsize=4_096)
def sight(text: str) -> Sight:
    """Return what the model reads of a text."""
    read = text[:READ_CHARS]
    typed = _WORDS.findall(read)
    words = tuple([word.lower() for word in typed])
    lists = _lists()
    content = frozenset(words) - lists.stop
    numbers = frozenset([word for word in content if word[0] in _DIGITS])
    content -= numbers
    stems = [word[:_STEM_CHARS] for word in words if word in content]
    names = [word.lower() for word in typed[1:] if word[0].isupper()]
    near: set[str] = set()
    for at in [at for at, word in enumerate(words) if word in numbers] if numbers else ():
        around = words[max(0, at - _NEAR_NUMBER) : at + _NEAR_NUMBER + 1]
        near.update([word[:_STEM_CHARS] for word in around if word in content])
    starts = {word[:_CUE_CHARS] for word in words}
    changed_count, progress_count = len(starts & lists.changed), len(starts & lists.progress)
    if HAN.search(read):
        # Chinese has no spaces: each character counts as a word.
        characters = HAN.findall(read)
        stems = [one for one in characters if one not in lists.stop]
        changed_count += len(set(pattern("zh/succession", "changed").findall(read)))
        progress_count += len(set(pattern("zh/succession", "progress").findall(read)))
        words = (*words, *characters)
    kinds = frozenset(words)
    is_named = bool(typed) and typed[0][0].isupper() and words[0] not in lists.stop
    return Sight(
        words=words,
        stems=frozenset(stems),
        first=stems[0] if stems else "",
        last=stems[-1] if stems else "",
        opener=words[0] if is_named else "",
        names=content.intersection(names),
        numbers=numbers,
        amounts=frozenset(near),
        changed_count=min(changed_count, _MOST),
        progress_count=min(progress_count, _MOST),
        is_negated="n't" in read or "n’t" in read or not lists.negations.isdisjoint(kinds),
        is_question=read.rstrip()[-1:] in {"?", "？"},
        is_first_person=not lists.first_person.isdisjoint(kinds),
        has_month=not lists.dates.isdisjoint(kinds),
        adds=not lists.additive.isdisjoint(kinds),
        is_english=not _ENGLISH.isdisjoint(kinds),
    )


def features(old: Sight, new: Sight, cosine: float) -> tuple[float, ...]:
    """Return the numbers that the model weighs, in the order of NAMES."""
    shared = len(old.stems & new.stems)
    sizes = len(old.stems), len(new.stems)
    both_numbers = bool(old.numbers and new.numbers)
    amounts = len(old.amounts & new.amounts)
    lengths = len(old.words), len(new.words)
    has_names = bool(old.opener and new.opener)
    is_changed = new.changed_count > 0
    return (
        cosine,
        shared / max(1, min(sizes)),
        shared / max(1, *sizes),
        math.log1p(shared),
        math.log1p(sizes[0] - shared),
        math.log1p(sizes[1] - shared),
        both_numbers,
        both_numbers and old.numbers == new.numbers,
        both_numbers and amounts > 0 and old.numbers != new.numbers,
        min(amounts, _MOST),
        bool(new.numbers) and not old.numbers,
        new.changed_count,
        old.changed_count,
        is_changed and not old.changed_count,
        new.progress_count,
        old.progress_count,
        old.is_negated != new.is_negated,
        new.is_negated,
        min(len(old.names & new.names), _MOST),
        min(len(old.names.difference(new.words)), _MOST),
        min(len(new.names.difference(old.words)), _MOST),
        has_names and old.opener != new.opener,
        old.is_question or new.is_question,
        old.is_first_person and new.is_first_person,
        old.is_first_person != new.is_first_person,
        math.log1p(sum(lengths)),
        math.log((1 + lengths[0]) / (1 + lengths[1])),
        math.log1p(max(lengths)),
        old.is_english and new.is_english,
        old.words[:_OPENING_WORDS] == new.words[:_OPENING_WORDS],
        old.has_month and new.has_month,
        old.has_month != new.has_month,
        old.first == new.first,
        old.last == new.last,
        new.adds and not old.adds,
        min(len(old.numbers & new.numbers), _MOST),
    )


class _Lists(NamedTuple):
    stop: frozenset[str]
    negations: frozenset[str]
    additive: frozenset[str]
    first_person: frozenset[str]
    dates: frozenset[str]
    changed: frozenset[str]
    progress: frozenset[str]


@cache
def _lists() -> _Lists:
    """Return the words of all languages, each list as one."""
    every = [lexicon(language) for language in LANGUAGES]
    spaced = [language for language in LANGUAGES if language != "zh"]

    none = frozenset[str]()

    def named(key: str) -> frozenset[str]:
        return none.union(*(word_set(f"{language}/succession", key) for language in spaced))

    return _Lists(
        stop=none.union(STOP_WORDS, *(one.light | one.silent for one in every)),
        negations=none.union(*(one.negations for one in every)),
        additive=none.union(*(one.additive for one in every)),
        first_person=named("first_person") | {"我", "我们"},
        dates=frozenset(word for one in every for word in one.dates if len(word) > 2),
        changed=frozenset(word[:_CUE_CHARS] for word in named("changed")),
        progress=frozenset(word[:_CUE_CHARS] for word in named("progress")),
    )
