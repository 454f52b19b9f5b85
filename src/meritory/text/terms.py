"""Full-text terms of any text, the extra words to index, and the stemmer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from meritory.text.words import STOP_WORDS

MAX_TERMS = 64
MAX_TERM_CHARS = 80
MAX_INDEX_WORDS = 512

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


def query_terms(text: str, limit: int = MAX_TERMS) -> tuple[str, ...]:
    """Return the distinct content words of a text, in order, at most `limit` of them."""
    terms = _distinct((term for term in _typed_terms(text) if not _is_stop(term)), limit)
    # "who are you" has only stop words, and still deserves an answer.
    return terms or _distinct(_typed_terms(text), limit)


def query_pairs(text: str, limit: int = MAX_TERMS) -> tuple[str, ...]:
    """Return every two adjacent content words, each pair as one phrase."""
    words = [match.group().lower() for match in _WORDS.finditer(text)]
    adjacent = (
        f"{left} {right}"
        for left, right in pairwise(words)
        if min(len(left), len(right)) > 1 and not (_is_stop(left) or _is_stop(right))
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
    return " ".join(_distinct(_hidden_parts(text), MAX_INDEX_WORDS))


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
        if chunk == "NEAR" and text.startswith("(", match.end()):
            continue
        whole = _POSSESSIVE.sub("", chunk).strip("_").lower()
        if _is_stop(chunk.lower().replace("’", "'")):
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
            yield from _pairs(word)


def _hidden_parts(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        word = match.group()
        # Nearly every word is plain: one hump, no parts.
        if word.isascii() and word.isalpha() and word[1:].islower():
            continue
        humps = _HUMP.findall(word)
        if len(humps) > 1:
            yield from (part.lower() for part in humps)
        yield from _pairs(word)


def _pairs(word: str) -> Iterator[str]:
    if word.isascii():
        return
    for run in _UNSPACED.findall(word):
        if len(run) > 2:
            yield from (run[start : start + 2] for start in range(len(run) - 1))


def _is_stop(term: str) -> bool:
    return term in STOP_WORDS or (term.isascii() and len(term) == 1 and term in "stdm")


def _distinct(terms: Iterable[str], limit: int) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for term in terms:
        if len(seen) >= limit:
            break
        seen.setdefault(unicodedata.normalize("NFC", term), term)
    return tuple(seen.values())
