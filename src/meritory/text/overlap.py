"""Weighted terms, by which a memory is recognised in a transcript, and scores of titles."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meritory.text.normalize import unified
from meritory.text.terms import query_terms, stem
from meritory.text.words import NUMBER_WORDS, STOP_WORDS, words

# The weight of a match: a value hardly matches by chance, a common word does.
VALUE_WEIGHT: Final = 2.0
NAME_WEIGHT: Final = 1.5
WORD_WEIGHT: Final = 1.0
COMMON_WEIGHT: Final = 0.2
# A part of a path or an identifier; the whole is a value of its own.
PIECE_WEIGHT: Final = 0.5

# Shorter numbers match everywhere.
MIN_VALUE_CHARS: Final = 3
MAX_TERMS: Final = 2_000
_VALUE_MARK = re.compile(r"[\d_./\\:@#+]")
_LINE_NUMBER = re.compile(r"(?<=\w\.\w)(\w*)(?::\d+){1,2}$")
_PIECE = re.compile(r"[^\W\d_]+")
# A capital after a lower-case letter and a space: a name, not the start of a sentence.
_NAME = re.compile(r"(?<=[a-z,;] )[A-ZÀ-ÖØ-Þ][^\W\d_]+")
_QUOTED = re.compile(r"`([^`\n]{1,80})`|\"([^\"\n]{1,80})\"")

# Words that hardly identify a memory: everyday English, and the common words of programming.
_COMMON_WORDS: Final = words(
    """
    ability able accept access act actually add added agent agree allow almost alone along already
    also always amazing amount another answer anyone anything anyway app appear apply approach area
    around arrive ask attention available avoid away awesome back bad based become began begin
    behind believe best better big bit break bring bug build built business buy call came care
    carry case catch cause certain change chat check choose claim class clear clearly close code
    come coming command comment commit common company compare compile complete concept concern
    condition consider contain content context continue control cool correct count course cover
    create current currently cut data date day deal debug decide default definitely delete depend
    describe detail develop difference different difficult direction directory discuss done draw
    drive drop early easy edit effect effort either else end enjoy enough ensure enter error
    especially etc even event every everyday everyone everything exactly example excited exist
    expect experience explain export face fact fail fairly fall family far feature feel felt field
    figure file fill final finally find fine first fix focus folder follow force forget form former
    forward found free friend front full fun function future gave general get give given glad go
    goes going gone good great group grow guess guy half hand handle happen happy hard hear heard
    hello help helpful hey hi high hit hold home hope hour however huge idea identify imagine
    import important improve include increase indicate individual info information input inside
    instead interest involve issue item job keep kept key kind knew know known large last late
    later lay lead learn least leave left less let level lie life like line list listen little live
    local log long longer look loop lose lot love low made main maintain make making man manage
    manner many matter may maybe mean measure meet member memory men mention message method middle
    mind minute miss mode module moment month morning mostly move much multiple must name near
    nearly necessary need never new next nice night none note nothing notice number offer often oh
    ok okay old onto open opportunity option order others output outside own page parameter part
    particular pass past path pay people per perhaps period person pick piece place plan plus point
    position possible possibly prefer present pretty prevent previous print probably problem
    process produce program project prompt proper provide public pull purpose push put quality
    question quick quickly quite raise range rate rather reach read ready real realize really
    reason receive recent recently recommend reduce refer regard relate related relationship remain
    remember remove repeat reply report represent request require resource respond response rest
    result return right rise role rule run said sample save saw say search second section see seem
    seen select send sense serious serve service session set several share short show side
    significant similar simple simply since single sit site situation size skip small someone
    something sometimes soon sorry sort sound source space speak special specific spend stand start
    state stay step still stop store strong study stuff style sub subject succeed success sudden
    suggest super support suppose sure sweet system table take taken taking talk task team tend
    term test text thank thing think third though thought throughout throw thus time tip title
    today together told tomorrow tonight took tool top topic total totally touch tough toward track
    tried trouble true try turn two type understand unless update upon upper use used useful user
    using usual usually value various version view visit wait walk want watch way wear week weekend
    welcome well went whatever whether whole wide wish within without woman women wonder wonderful
    word work world worry worth write written wrong yeah year yep yes yesterday yet young
    """
)


def terms_of(text: str) -> dict[str, float]:
    """Return the distinct terms of a text, each with the weight of a match."""
    clean = unified(text)
    typed = [(term, *_read(term)) for term in query_terms(clean, MAX_TERMS) if _is_term(term)]
    # Dictionaries keep the order of the text, so that sums over terms are the same in every run.
    values = {_LINE_NUMBER.sub(r"\1", term): None for term, _, is_value in typed if is_value}
    weights = {v: WORD_WEIGHT if len(v) < MIN_VALUE_CHARS else VALUE_WEIGHT for v in values}
    weights |= {value.rpartition("/")[2]: VALUE_WEIGHT for value in values if "/" in value}
    quotes = (quoted[0] or quoted[1] for quoted in _QUOTED.findall(clean))
    in_quotes = {term for quote in quotes for term in query_terms(quote)}
    names = {name.lower() for name in _NAME.findall(clean)}
    pieces = {piece for value in values for piece in _PIECE.findall(value)}
    for term, key, is_value in typed:
        if term in NUMBER_WORDS:
            weights.setdefault(NUMBER_WORDS[term], WORD_WEIGHT)
        elif not is_value:
            weight = NAME_WEIGHT if term in names else WORD_WEIGHT
            if key in COMMON:
                weight = COMMON_WEIGHT
            elif term in pieces:
                weight = PIECE_WEIGHT
            elif term in in_quotes:
                weight = VALUE_WEIGHT
            weights[key] = max(weights.get(key, 0.0), weight)
    return weights


@lru_cache(maxsize=4_096)
def _read(term: str) -> tuple[str, bool]:
    """Return a term's stem, and whether it is a value; cached, because terms repeat."""
    return stem(term), _VALUE_MARK.search(term) is not None


def seen_in(text: str) -> frozenset[str]:
    """Return every term of a text, a path under each of its endings."""
    found = set(terms_of(text))
    for path in [term for term in found if "/" in term]:
        steps = path.split("/")
        found.update("/".join(steps[start:]) for start in range(1, len(steps)))
    return frozenset(found)


COMMON: Final = frozenset(map(stem, _COMMON_WORDS))


def holders(texts: Iterable[Mapping[str, float]]) -> dict[str, int]:
    """Return how many of the texts contain each term."""
    counted: dict[str, int] = {}
    for terms in texts:
        for term in terms:
            counted[term] = counted.get(term, 0) + 1
    return counted


def wording(text: str, keys: Collection[str], limit: int) -> tuple[str, ...]:
    """Return the words of a text that have the given terms as stems, as they were typed."""
    typed = (word for word in query_terms(unified(text), MAX_TERMS) if stem(word) in keys)
    return tuple(islice(typed, limit))


def _is_term(term: str) -> bool:
    # The parts of a hyphenated word are terms too, so the whole would count twice.
    is_letter = len(term) == 1 and term.isascii() and term.isalpha()
    return term not in STOP_WORDS and "-" not in term and "'" not in term and not is_letter


# The title is read from this many characters of a memory.
OPENING_CHARS: Final = 200
# The usual saturation of BM25, with less weight on length: titles are short.
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.5
# The words of an identifier: humps of camelCase, runs of capitals, digits.
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")
_KEPT_TITLES: Final = 20_000


def split_words(text: str) -> tuple[str, ...]:
    """Return the stems of a text's words, with identifiers and paths split into parts."""
    stems = (stem(word.lower()) for word in _WORD.findall(text))
    return tuple(word for word in stems if len(word) > 1 and word not in STOP_WORDS)


@lru_cache(maxsize=_KEPT_TITLES)
def title_words(opening: str) -> tuple[str, ...]:
    """Return the words of the title, from the beginning of a memory's text."""
    first, line_end, _ = opening.partition("\n")
    if line_end:
        return split_words(first)
    named = (term for term, weight in terms_of(opening).items() if weight >= NAME_WEIGHT)
    return tuple(dict.fromkeys(word for term in named for word in split_words(term)))


def title_scores(context: str, titles: Sequence[tuple[str, ...]]) -> NDArray[np.float64]:
    """Return how well a context matches each title, by BM25 over these titles."""
    asked = frozenset(split_words(context))
    holders = Counter(word for title in titles for word in set(title) & asked)
    mean_length = max(1.0, sum(map(len, titles)) / max(len(titles), 1))
    rarity = {
        word: math.log1p((len(titles) - held + 0.5) / (held + 0.5))
        for word, held in holders.items()
    }

    def score(title: tuple[str, ...]) -> float:
        length = 1.0 - _LENGTH_SHARE + _LENGTH_SHARE * len(title) / mean_length
        return sum(
            rarity[word] * count * (_SATURATION + 1.0) / (count + _SATURATION * length)
            for word, count in Counter(title).items()
            if word in rarity
        )

    return np.array([score(title) for title in titles], np.float64)
