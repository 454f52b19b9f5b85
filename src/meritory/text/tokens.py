"""An estimate of a text's tokens, the numbers of its words, and BERT word pieces.

The estimate was fitted to three vocabularies (two of OpenAI's models, and the last one that
Anthropic published) on 4,200 texts of chats, notes and source code. It is at or above the highest
of the three counts for 97% of them, and 13 to 23% above it in sum. The usual rule, four characters
a token, is below it for half of them. For other scripts and random letters it is right in sum.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

# One token each: a piece of a word, two capitals or digits, a mark, a letter of another script.
_PIECE: Final = re.compile(r"[A-Z][a-z]{1,5}|[a-z]{1,6}|[A-Z]{1,2}|[0-9]{1,2}|[^A-Za-z0-9\s]")
# One space is part of the word after it; a line break or an indent is not.
_SPACE: Final = re.compile(r"\s{2,}|[^\S ]")
_SPACES_PER_TOKEN: Final = 12
# Characters that take more than one token: half of one more, one more, two more.
_DEAR: Final = re.compile(
    r"([\u3000-\u9fff\uac00-\ud7ff\uff00-\uffef]+)|[\u0800-\u1fff\u2070-\uffff]"
    r"|([\U00010000-\U0010ffff])"
)


def token_estimate(text: str) -> int:
    """Return an estimate of the tokens of a text, rather too high than too low."""
    plain = len(_PIECE.findall(text))
    # Most texts have single spaces only, and this check is fast.
    if "  " in text or not text.isprintable():
        plain += sum(1 + len(run) // _SPACES_PER_TOKEN for run in _SPACE.findall(text))
    if not text.isascii():
        for match in _DEAR.finditer(text):
            plain += (len(match[1]) + 1) // 2 if match[1] else 2 if match[2] else 1
    return plain


MAX_WORDS = 128
# Words are compared by their first letters, so that "migrate" and "migration" are one.
_STEM_CHARS = 6
_WORD_BITS = 16
WORD_COUNT = 1 << _WORD_BITS


def imprint(terms: Iterable[str]) -> NDArray[np.uint16]:
    """Return the distinct hashes of the words, ascending; the same on every machine."""
    stems = dict.fromkeys(term[:_STEM_CHARS] for term in terms)
    numbers = {zlib.crc32(stem.encode()) % WORD_COUNT for stem in list(stems)[:MAX_WORDS]}
    return np.array(sorted(numbers), np.uint16)


UNKNOWN = "[UNK]"
# A longer run of letters is unknown, as in the reference tokenizer.
MAX_WORD_CHARS = 100
# Chunks are cached as typed, so one dictionary look-up replaces the analysis of a word.
MAX_CACHED_CHUNKS = 32_768
MAX_CACHED_CHUNK_CHARS = 32

# Python counts some of these as white space; BERT deletes them and joins their neighbours.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+")
# Unassigned code points (Cn) stay, as in the reference: they make their word unknown.
_DELETED = frozenset({"Cc", "Cf", "Co", "Cs"})
_ASCII_PARTS = re.compile(r"[0-9a-z]+|[!-/:-@\[-`{-~]")
_CJK = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


class WordPiece:
    """A greedy longest-match-first tokenizer over a fixed vocabulary."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._ids = {piece: index for index, piece in enumerate(vocabulary)}
        self.unknown_id = self._ids[UNKNOWN]
        self._longest = max(map(len, vocabulary))
        self._cache: dict[str, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Return all pieces by id."""
        return tuple(self._ids)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text's pieces, without the markers at its ends."""
        cache = self._cache
        found: list[int] = []
        for chunk in _CONTROLS.sub("", text).split():
            ids = cache.get(chunk)
            if ids is None:
                parts = _ASCII_PARTS.findall(chunk.lower()) if chunk.isascii() else _split(chunk)
                ids = tuple(piece for part in parts for piece in self._encode_word(part))
                if len(chunk) <= MAX_CACHED_CHUNK_CHARS:
                    if len(cache) >= MAX_CACHED_CHUNKS:
                        cache.clear()
                    cache[chunk] = ids
            found.extend(ids)
        return found

    def _encode_word(self, word: str) -> tuple[int, ...]:
        whole = self._ids.get(word)
        if whole is not None:
            return (whole,)
        if len(word) > MAX_WORD_CHARS:
            return (self.unknown_id,)
        ids: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = self._ids.get(prefix + word[start:end])
                if piece is not None:
                    ids.append(piece)
                    start = end
                    break
            else:
                return (self.unknown_id,)
        return tuple(ids)


def _split(chunk: str) -> Iterable[str]:
    """Return the words and punctuation marks of a chunk that is not plain ASCII."""
    visible = "".join(
        char for char in chunk if char != "\ufffd" and unicodedata.category(char) not in _DELETED
    )
    spaced = _CJK.sub(r" \g<0> ", visible)
    # Character by character: str.lower() would turn a final capital sigma into another letter.
    plain = "".join(
        char.lower()
        for char in unicodedata.normalize("NFD", spaced)
        if unicodedata.category(char) != "Mn"
    )
    return "".join(f" {char} " if _is_mark(char) else char for char in plain).split()


@lru_cache(maxsize=4096)
def _is_mark(char: str) -> bool:
    """Return whether a character is a token of its own: ASCII symbols, Unicode punctuation."""
    if char.isascii():
        return not char.isalnum() and not char.isspace()
    return unicodedata.category(char)[0] == "P"
