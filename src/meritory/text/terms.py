"""Terms of a text for full-text search, weighted terms for recognition, title scores, stems."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meritory.text.normalize import unified
from meritory.text.words import COMMON_WORDS, NUMBER_WORDS, STOP_WORDS

MAX_TERMS = 64
MAX_TERM_CHARS = 80
MAX_INDEX_WORDS = 512
# Letters that an apostrophe leaves are stop words too.
_STOP: Final = STOP_WORDS | set("stdm")

# A typed chunk: word characters joined by the marks of identifiers, paths and words.
_CHUNK = re.compile(r"\w+(?:[-_./\\:'’@#+]{1,2}\w+)*")
_WORD = re.compile(r"[^\W_]+")
_WORDS = re.compile(r"\w+")
_HUMP = re.compile(
    r"[A-ZÀ-ÖØ-Þ]+(?![a-zß-öø-ÿ])|[A-ZÀ-ÖØ-Þ]?[a-zß-öø-ÿ]+|\d+|[^\W\d_A-Za-zÀ-ÖØ-öø-ÿ]+"
)
_POSSESSIVE = re.compile(r"['’]s?$|['’]s(?=\W|$)")
# Scripts written without spaces: unicode61 makes one token of a whole run of them.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f]+"
)
_PLAIN = re.compile(r"[a-z]+")
_DOUBLED = re.compile(r"([^aeiouls])\1$")
_UNQUOTABLE = re.compile("[\x00\ud800-\udfff]")

# The weight of a match: a value hardly matches by chance, a common word does.
VALUE_WEIGHT: Final = 2.0
NAME_WEIGHT: Final = 1.5
WORD_WEIGHT: Final = 1.0
COMMON_WEIGHT: Final = 0.2
# A part of a path or an identifier; the whole is a value of its own.
PIECE_WEIGHT: Final = 0.5

# Shorter numbers match everywhere.
MIN_VALUE_CHARS: Final = 3
MAX_READ_TERMS: Final = 2_000
_VALUE_MARK = re.compile(r"[\d_./\\:@#+]")
_LINE_NUMBER = re.compile(r"(?<=\w\.\w)(\w*)(?::\d+){1,2}$")
_LETTERS = re.compile(r"[^\W\d_]+")
# A capital after a lower-case letter and a space: a name, not the start of a sentence.
_PROPER_NAME = re.compile(r"(?<=[a-z,;] )[A-ZÀ-ÖØ-Þ][^\W\d_]+")
_QUOTED = re.compile(r"`([^`\n]{1,80})`|\"([^\"\n]{1,80})\"")

# The title is read from this many characters of a memory.
OPENING_CHARS: Final = 200
# The usual saturation of BM25, with less weight on length: titles are short.
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.5
# The words of an identifier: humps of camelCase, runs of capitals, digits.
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")


def query_terms(text: str, limit: int = MAX_TERMS) -> tuple[str, ...]:
    """Return the distinct content words of a text, in order, at most `limit` of them."""
    terms = _distinct((term for term in _typed_terms(text) if term not in _STOP), limit)
    # "who are you" has only stop words, and still deserves an answer.
    return terms or _distinct(_typed_terms(text), limit)


def query_pairs(text: str, limit: int = MAX_TERMS) -> tuple[str, ...]:
    """Return every two adjacent content words, each pair as one phrase."""
    words = [match.group().lower() for match in _WORDS.finditer(text)]
    adjacent = (
        f"{left} {right}"
        for left, right in pairwise(words)
        if min(len(left), len(right)) > 1 and not {left, right} & _STOP
    )
    return _distinct(adjacent, limit)


def fts_query(terms: Iterable[str]) -> str:
    """Return an FTS5 expression that matches any of the terms and is never a syntax error."""
    quoted: list[str] = []
    for term in terms:
        clean = _UNQUOTABLE.sub(" ", term).replace('"', '""')
        if clean.strip():
            quoted.append(f'"{clean}"')
        if len(quoted) == MAX_TERMS:
            break
    return " OR ".join(quoted) or '""'


def index_words(text: str) -> str:
    """Return the word parts that the unicode61 tokenizer would not split, joined by spaces."""
    parts: list[str] = []
    for word in _WORD.findall(text):
        # Nearly every word is plain: one hump, no parts.
        if word.isascii() and word.isalpha() and word[1:].islower():
            continue
        humps = _HUMP.findall(word)
        parts += [part.lower() for part in humps] if len(humps) > 1 else ()
        if not word.isascii():
            parts += _pairs(word)
    return " ".join(_distinct(parts, MAX_INDEX_WORDS))


def choose_terms(
    document_frequency: Mapping[str, int], row_count: int, budget_rows: int
) -> tuple[str, ...]:
    """Return the rarest known terms whose postings together stay within the budget."""
    by_rows = [
        (min(rows, row_count), term) for term, rows in document_frequency.items() if rows > 0
    ]
    by_rows.sort(key=lambda pair: pair[0])
    chosen: list[str] = []
    spent_rows = 0
    for rows, term in by_rows:
        spent_rows += rows
        if chosen and spent_rows > budget_rows:
            break
        chosen.append(term)
    return tuple(chosen)


def split_identifier(chunk: str) -> tuple[str, ...]:
    """Return the parts of a camelCase, snake_case, kebab-case, dotted or path-like identifier."""
    return tuple(_HUMP.findall(chunk))


def stem(word: str, *, aggressive: bool = False) -> str:
    """Return a lower-case word without the common English endings, other words unchanged.

    `aggressive` strips any "-es" and a final "e" from short words too ("files" and "file" become
    "fil"). Commands are compared in that form, so that "deleted" matches "delete" and "remove"
    matches "removes"; stems of memories and feedback are stored, and keep the mild form.
    """
    if aggressive:
        for ending in ("ing", "ed", "es", "s"):
            if word.endswith(ending) and len(word) - len(ending) >= 3:
                word = word.removesuffix(ending)
                if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls":
                    word = word[:-1]
                break
        return word.removesuffix("e") if len(word) > 3 else word
    if not _PLAIN.fullmatch(word):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ses", "xes", "zes", "ches", "shes")) and len(word) > 4:
        return word[:-2].removesuffix("e")
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    for ending, shortest in (("ing", 6), ("ed", 5), ("e", 5)):
        if word.endswith(ending) and len(word) >= shortest:
            return _DOUBLED.sub(r"\1", word[: -len(ending)])
    return word


def _typed_terms(text: str) -> Iterator[str]:
    for match in _CHUNK.finditer(text):
        chunk = match.group()
        # Nearly every chunk is a plain word: nothing to split.
        is_plain = chunk.isascii() and chunk.isalpha() and (chunk[1:] or "a").islower()
        if is_plain and len(chunk) <= MAX_TERM_CHARS:
            yield chunk.lower()
            continue
        if chunk == "NEAR" and text.startswith("(", match.end()):
            continue
        whole = _POSSESSIVE.sub("", chunk).strip("_").lower()
        if chunk.lower().replace("’", "'") in _STOP:
            yield chunk.lower()
            continue
        if len(whole) <= MAX_TERM_CHARS and _WORD.search(whole):
            yield whole
        for word in _WORD.findall(chunk):
            humps = _HUMP.findall(word)
            for part in (word, *humps) if len(humps) > 1 else (word,):
                lowered = part.lower()
                if 1 < len(lowered) <= MAX_TERM_CHARS and lowered != whole:
                    yield lowered
            if not word.isascii():
                yield from _pairs(word)


def _pairs(word: str) -> Iterator[str]:
    """Yield every two adjacent letters of the runs without spaces."""
    for run in _UNSPACED.findall(word):
        if len(run) > 2:
            yield from map("".join, pairwise(run))


def _distinct(terms: Iterable[str], limit: int) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for term in terms:
        if len(seen) >= limit:
            break
        seen.setdefault(unicodedata.normalize("NFC", term), term)
    return tuple(seen.values())


def terms_of(text: str) -> dict[str, float]:
    """Return the distinct terms of a text, each with the weight of a match."""
    clean = unified(text)
    terms = query_terms(clean, MAX_READ_TERMS)
    typed = [(term, *read) for term in terms if (read := _read(term))]
    common = common_stems()
    # Dictionaries keep the order of the text, so that sums over terms are the same in every run.
    values = {_LINE_NUMBER.sub(r"\1", term): None for term, _, is_value in typed if is_value}
    weights = {v: WORD_WEIGHT if len(v) < MIN_VALUE_CHARS else VALUE_WEIGHT for v in values}
    weights |= {value.rpartition("/")[2]: VALUE_WEIGHT for value in values if "/" in value}
    quotes = (quoted[0] or quoted[1] for quoted in _QUOTED.findall(clean))
    in_quotes = {term for quote in quotes for term in query_terms(quote)}
    names = {name.lower() for name in _PROPER_NAME.findall(clean)}
    pieces = {piece for value in values for piece in _LETTERS.findall(value)}
    for term, key, is_value in typed:
        if term in NUMBER_WORDS:
            weights.setdefault(NUMBER_WORDS[term], WORD_WEIGHT)
        elif not is_value:
            weight = NAME_WEIGHT if term in names else WORD_WEIGHT
            if key in common:
                weight = COMMON_WEIGHT
            elif term in pieces:
                weight = PIECE_WEIGHT
            elif term in in_quotes:
                weight = VALUE_WEIGHT
            weights[key] = max(weights.get(key, 0.0), weight)
    return weights


# The words of a store of 20,000 memories; stemming is the dearest part of reading a text.
@lru_cache(maxsize=32_768)
def _read(term: str) -> tuple[str, bool] | None:
    """Return a term's stem and whether it is a value; None for a term that is not compared."""
    # The parts of a hyphenated word are terms too, so the whole would count twice.
    is_letter = len(term) == 1 and term.isascii() and term.isalpha()
    if is_letter or term in STOP_WORDS or "-" in term or "'" in term:
        return None
    return stem(term), _VALUE_MARK.search(term) is not None


@cache
def common_stems() -> frozenset[str]:
    """Return the stems of words that hardly identify a memory."""
    return frozenset(map(stem, COMMON_WORDS))


def seen_in(text: str) -> frozenset[str]:
    """Return every term of a text, a path under each of its endings."""
    found = set(terms_of(text))
    for path in [term for term in found if "/" in term]:
        steps = path.split("/")
        found.update("/".join(steps[start:]) for start in range(1, len(steps)))
    return frozenset(found)


def holders(texts: Iterable[Mapping[str, float]]) -> dict[str, int]:
    """Return how many of the texts contain each term."""
    return Counter(term for terms in texts for term in terms)


def wording(text: str, keys: Collection[str], limit: int) -> tuple[str, ...]:
    """Return the words of a text that have the given terms as stems, as they were typed."""
    typed = (word for word in query_terms(unified(text), MAX_READ_TERMS) if stem(word) in keys)
    return tuple(islice(typed, limit))


def split_words(text: str) -> tuple[str, ...]:
    """Return the stems of a text's words, with identifiers and paths split into parts."""
    stems = (stem(word.lower()) for word in _PART.findall(text))
    return tuple(word for word in stems if len(word) > 1 and word not in STOP_WORDS)


@lru_cache(maxsize=20_000)
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
