"""A compact digest of a whole session: the agent's actions, words and look-ups, turn by turn.

Transcripts are long: a median coding session has 340,000 characters, nine tenths of them output
of tools. The digest keeps only the input of the judge: the files that calls wrote and opened, and
of every line the terms that occur in one of the session's candidate memories. The digest of a long
session stays small.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

from meritory.domain.session import Turn
from meritory.text.terms import stem
from meritory.text.words import STOP_WORDS

# Actions of the agent whose lines are kept; `result` is the output of tools.
ACTS: Final = ("edit", "tool", "assistant")
# A memory with several lines, or of this length, is a document; a shorter one is a claim.
DOCUMENT_CHARS: Final = 600
# Limits on one digest. A session that exceeds one is marked as incomplete.
MAX_TURNS: Final = 2_000
MAX_PIECES: Final = 6_000
MAX_PATHS: Final = 4_000
# Read limits for one result, and for all results of a session.
MAX_RESULT_CHARS: Final = 200_000
MAX_RESULTS_CHARS: Final = 16_000_000
MAX_LINE_CHARS: Final = 2_000
MIN_TERM_CHARS: Final = 2

_TOKEN: Final = re.compile(r"\d[\d.,:]*\d|[^\W_]\w*")
_SENTENCE_END: Final = re.compile(r"\n+|(?<=[.!?;])\s+")
# A path with a slash, or a file name with an extension of letters.
_PATH: Final = re.compile(
    r"(?<![\w.@~+-])[\w.@~+-]{0,255}(?:[/\\][\w.@~+-]{1,255})+"
    r"|(?<![\w-])[\w-]{1,255}\.[A-Za-z][A-Za-z0-9]{0,5}\b"
)

# A line's act and its distinct terms in order.
Piece = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TurnDigest:
    """One prompt and everything the agent did before the next one."""

    # Terms that the user typed.
    typed: tuple[str, ...] = ()
    # Files that calls wrote, files that calls opened, and paths in other calls and replies.
    edited: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    pieces: tuple[Piece, ...] = ()
    # Terms in the output of tools that no earlier output of the session had.
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Digest:
    """The actions of a session."""

    turns: tuple[TurnDigest, ...] = ()
    char_count: int = 0
    is_complete: bool = True

    @property
    def has_acts(self) -> bool:
        """Return whether the agent said or did anything."""
        return any(
            turn.pieces or turn.edited or turn.opened or turn.named or turn.results
            for turn in self.turns
        )


def is_document(text: str) -> bool:
    """Return whether a memory is a document rather than a claim."""
    return len(text) >= DOCUMENT_CHARS or "\n" in text.strip()


def digest_terms(text: str) -> tuple[str, ...]:
    """Return the distinct terms of a text in order: stems of words, identifiers, numbers."""
    terms = map(_key, dict.fromkeys(_TOKEN.findall(text)))
    return tuple(dict.fromkeys(filter(None, terms)))


def paths_in(text: str) -> tuple[str, ...]:
    """Return the distinct paths and file names in a text, with forward slashes."""
    return tuple(dict.fromkeys(path.replace("\\", "/") for path in _PATH.findall(text)))


def sentences(text: str) -> list[str]:
    """Return the lines and sentences of a text, long ones cut."""
    # Calls are often written as JSON, where a line break is two characters.
    parts = _SENTENCE_END.split(text.replace("\\n", "\n"))
    return [part[:MAX_LINE_CHARS] for part in parts if part.strip()]


@lru_cache(maxsize=65_536)
def _key(token: str) -> str:
    lower = token.lower()
    if len(lower) < MIN_TERM_CHARS or lower in STOP_WORDS:
        return ""
    # Inner capitals, digits and underscores mark an identifier, which has no inflections.
    return stem(lower) if lower.isalpha() and token[1:].islower() else lower


# The fields of a turn while it is read; dictionaries keep the order and drop repetitions.
_OpenTurn = dict[str, dict[Any, None]]


def _open_turn() -> _OpenTurn:
    return {item.name: {} for item in fields(TurnDigest)}


class Digester:
    """Reads a session turn by turn and keeps its digest.

    `vocabulary` holds the terms of the session's candidate memories (`digest_terms`); all other
    terms are dropped.
    """

    def __init__(self, vocabulary: Collection[str]) -> None:
        self._vocabulary = frozenset(vocabulary)
        self._turns = [_open_turn()]
        self._seen_results: set[str] = set()
        self._piece_count = 0
        self._path_count = 0
        self._result_chars = 0
        self._char_count = 0
        self._is_complete = True

    def feed(self, turn: Turn) -> None:
        """Read one turn; its text must be free of secrets and of injected notes."""
        self._char_count += len(turn.text)
        if turn.role == "user":
            if len(self._turns) < MAX_TURNS:
                self._turns.append(_open_turn())
            else:
                self._is_complete = False
            terms = (term for term in digest_terms(turn.text) if term in self._vocabulary)
            self._turns[-1]["typed"].update(dict.fromkeys(terms))
        elif turn.role == "result":
            self._read_result(turn.text)
        elif turn.role in ACTS:
            self._read_act(turn)

    def digest(self) -> Digest:
        """Return the digest so far."""
        turns = tuple(TurnDigest(*map(tuple, turn.values())) for turn in self._turns)
        return Digest(turns, self._char_count, self._is_complete)

    def _read_act(self, turn: Turn) -> None:
        current = self._turns[-1]
        # An edit names its file; other calls with a path argument open theirs.
        self._note_paths(current["edited" if turn.role == "edit" else "opened"], turn.paths)
        if turn.role != "edit":
            self._note_paths(current["named"], paths_in(turn.text))
        for sentence in sentences(turn.text):
            terms = tuple(term for term in digest_terms(sentence) if term in self._vocabulary)
            if not terms or (turn.role, terms) in current["pieces"]:
                continue
            if self._piece_count >= MAX_PIECES:
                self._is_complete = False
                return
            current["pieces"][turn.role, terms] = None
            self._piece_count += 1

    def _note_paths(self, noted: dict[str, None], paths: Iterable[str]) -> None:
        for path in (path.replace("\\", "/") for path in paths):
            if path in noted:
                continue
            if self._path_count >= MAX_PATHS:
                self._is_complete = False
                return
            noted[path] = None
            self._path_count += 1

    def _read_result(self, text: str) -> None:
        if self._result_chars >= MAX_RESULTS_CHARS:
            self._is_complete = False
            return
        self._is_complete &= len(text) <= MAX_RESULT_CHARS
        text = text[:MAX_RESULT_CHARS]
        self._result_chars += len(text)
        new = self._vocabulary.intersection(digest_terms(text)) - self._seen_results
        self._seen_results |= new
        self._turns[-1]["results"].update(dict.fromkeys(sorted(new)))


def read_digest(turns: Iterable[Turn], vocabulary: Collection[str]) -> Digest:
    """Return the digest of a transcript."""
    digester = Digester(vocabulary)
    for turn in turns:
        digester.feed(turn)
    return digester.digest()


def vocabulary_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the terms of all these memories."""
    return frozenset(term for text in texts for term in digest_terms(text))


def encode_digest(digest: Digest) -> bytes:
    """Return a digest as compressed JSON."""
    rows = [[getattr(turn, item.name) for item in fields(turn)] for turn in digest.turns]
    document = {"v": 1, "chars": digest.char_count, "complete": digest.is_complete, "turns": rows}
    return zlib.compress(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())


def decode_digest(data: bytes) -> Digest:
    """Return a digest that `encode_digest` wrote."""
    document = json.loads(zlib.decompress(data))

    def frozen(value: Any) -> Any:
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    turns = tuple(TurnDigest(*frozen(row)) for row in document["turns"])
    return Digest(turns, int(document["chars"]), bool(document["complete"]))
