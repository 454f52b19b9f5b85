"""Who said the words of a transcript: the user, the agent, a tool or the web.

The position of a quote in the transcript decides, never a claim about it. Users paste text into
their turns: code fences, quotations, diffs, logs, documents with headings, tags of a client. Pasted
text is not attributed to the user, so it is blanked out character by character. The remaining text
keeps its offsets, and a quote is always a slice of the turn itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meritory.domain.memory import Origin, Provenance
from meritory.domain.session import Turn
from meritory.text.claims.read import protected_values
from meritory.text.language import pattern
from meritory.text.terms import query_terms
from meritory.text.words import NEGATIONS

TURN_LIMIT_CHARS: Final = 20_000
SENTENCE_LIMIT_CHARS: Final = 600
# In longer turns, users write before and after the pasted text, not in the middle of it.
PASTED_CHARS: Final = 3_000

# The share of a claim's words that the quoted turn must contain for the speaker to own the claim.
GROUNDED_SHARE: Final = 0.5
_STEM_CHARS: Final = 5
_FENCE: Final = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
# Clients put reminders, commands and their output into the user's turn, as tags.
_TAG: Final = re.compile(r"<([a-z][\w-]{1,40})(?:\s[^<>]{0,200})?>.*?(?:</\1>|\Z)", re.DOTALL)
_COMMAND: Final = re.compile(r"\s*[/!][a-z][\w:.-]*(?:\s|\Z)")
_LINE: Final = re.compile(r"[^\n]+")
_HEADING: Final = re.compile(r"\s{0,3}#{1,6}\s+\S")
_FOREIGN_LINE: Final = re.compile(
    r"\s*(?:"
    r">|\||\$ |>>> |#!|@@|diff --git|index [0-9a-f]{7}|\+\+\+ |--- |[+-](?![\s-])\S"
    r"|[\[(]?\d{2,4}[-/:.]\d{2}[-/:.]\d{2}|\d{1,2}:\d{2}:\d{2}"
    r"|\[?(?:INFO|WARN(?:ING)?|ERROR|DEBUG|TRACE|FATAL|FAIL|PASS|SKIP)\b[\]:]?(?=\s)"
    r"|at \S+[(:]|File \"|Traceback|[\w.]*(?:Error|Exception)\b:|[✖✗✓✔•─│├└]"
    r"|[\w./\\-]+:\d+(?::\d+)?[:\s]|[\"'][\w -]+[\"']\s*:|[\w.$]+\s*=\s*\S+;?\s*$"
    r"|(?:def|class|import|from|return|const|let|var|function|if|for|while)\b.*[:{;(]\s*$"
    r"|//|/\*|\*/|<!--|</?\w|m\d{1,6}(?: [a-z]{1,12}){0,4}: |(?:System|Human|User|Assistant|AI):"
    r")|.*[{};]\s*$|\s*[\[\]{}()]+,?\s*$"
)

_QUOTED: Final = re.compile(
    '`[^`\n]{1,200}`|"[^"\n]{1,400}"|\u201c[^\u201d\n]{1,400}\u201d'
    "|(?<![\\w])'[^'\n]{2,400}'(?!\\w)"
)
_PARAGRAPH: Final = re.compile(r"[^\n]+(?:\n(?![ \t]*\n)[^\n]+)*")
_END: Final = re.compile(
    r"(?<![ei]\.[eg])(?<!\bvs)(?<!\betc)(?<!\bcf)[.!?]+[\"')\]]*(?=\s|\Z)"
    # A line ends a sentence, except where it only wraps.
    r"|\n[ \t]*(?=\n)|\n(?=\s*(?:[-*+\u2022]|\d+[.)])\s)|\n(?![ \t]*[a-z])|(?<=[:;,])\n"
)
_BULLET: Final = re.compile(r"\s*(?:[-*+\u2022]|\d{1,2}[.)]|\[[ x]\])\s+")

_WEB: Final = re.compile(
    r"\b\w*(?:web|fetch|brows|http|url|search|crawl|curl|wget)\w*", re.IGNORECASE
)
_WORDS: Final = re.compile(r"[\w']+")

# Roles of text that the agent received.
_RECEIVED_ROLES: Final = frozenset({"tool", "result", "system"})


@dataclass(frozen=True, slots=True)
class Spoken:
    """One sentence: as it stands in the turn, and with quoted words masked."""

    text: str
    bare: str

    @property
    def is_question(self) -> bool:
        """Whether it ends with a question mark."""
        return self.text.rstrip("\"') ").endswith("?")


@dataclass(frozen=True, slots=True)
class QuoteAttribution:
    """The speaker of a quote, the index of its turn, and its words as written there."""

    provenance: Provenance
    origin: Origin
    turn: int
    quote: str


def own_words(turn: str) -> str:
    """Return a user's turn with pasted text replaced by line breaks; empty for a slash command."""
    text = turn[:TURN_LIMIT_CHARS]
    if _COMMAND.match(text):
        return ""
    own = _TAG.sub(_blank, _FENCE.sub(_blank, text))
    introduces, keeps = pattern("en/extract", "introduces"), pattern("en/extract", "keeps")
    foreign: list[tuple[int, int]] = []
    is_pasted = False
    previous, end = "", 0
    for line in _LINE.finditer(own):
        if _HEADING.match(line.group()):
            # A heading starts a document, and the rest of the turn is part of it.
            foreign.append((line.start(), len(own)))
            break
        # Pasted text starts after an introducing line and ends at an empty line.
        has_gap = own.count("\n", end, line.start()) > 1
        is_introduced = introduces.search(previous) and not keeps.search(previous)
        is_pasted = bool(is_introduced) or (is_pasted and not has_gap)
        if is_pasted or _FOREIGN_LINE.match(line.group()):
            foreign.append(line.span())
        previous, end = line.group(), line.end()
    own = _blanked(own, foreign)
    if len(own.strip()) <= PASTED_CHARS:
        return own
    paragraphs = [match.span() for match in _PARAGRAPH.finditer(own)]
    long = [(start, stop) for start, stop in paragraphs if stop - start > PASTED_CHARS]
    return _blanked(own, [*paragraphs[1:-1], *long])


def sentences(turn: str) -> tuple[Spoken, ...]:
    """Return the user's own sentences in a turn; none for a slash command."""
    own = own_words(turn)
    if not own:
        return ()
    bare = _QUOTED.sub(lambda match: "\x01" * len(match.group()), own)
    found: list[Spoken] = []
    start = 0
    for end in [*(match.end() for match in _END.finditer(bare)), len(own)]:
        bullet = _BULLET.match(own, start, end)
        begin = bullet.end() if bullet else start
        start = end
        piece = own[begin:end]
        begin += len(piece) - len(piece.lstrip())
        stop = begin + len(piece.strip())
        if begin < stop and stop - begin <= SENTENCE_LIMIT_CHARS:
            found.append(Spoken(turn[begin:stop], bare[begin:stop]))
    return tuple(found)


def attribute_quote(turns: Sequence[Turn], quote: str, content: str) -> QuoteAttribution | None:
    """Return who said a quote, None when no turn contains it; white space does not matter.

    The least trusted speaker decides: if an agent or a tool also said it, the user may have echoed
    them. Text that the user pasted counts as a tool's. A claim that the user's own words in the
    quoted turn do not support is the model's own.
    """
    words = [re.escape(word) for word in quote.split()]
    if not words:
        return None
    quoted = re.compile(r"\s+".join(words))
    matches = [
        (index, turn.role, match.group())
        for index, turn in enumerate(turns)
        if (match := quoted.search(turn.text))
    ]
    if not matches:
        return None
    for index, role, said in matches:
        if role in _RECEIVED_ROLES:
            # The call before the text says whether it came from the web or from another tool.
            before = reversed(turns[: index + 1])
            call = next((turn.text for turn in before if turn.role == "tool"), "")
            origin: Origin = "web" if _WEB.search(call.split("{")[0][:80]) else "tool"
            return QuoteAttribution("assistant_derived", origin, index, said)
    for index, role, said in matches:
        if role != "user":
            return QuoteAttribution("assistant_derived", "agent", index, said)
    index, _, said = matches[-1]
    own = own_words(turns[index].text)
    if not quoted.search(own):
        return QuoteAttribution("assistant_derived", "tool", index, said)
    if not _supports(own, content) or _is_negated(said) != _is_negated(content):
        return QuoteAttribution("assistant_derived", "agent", index, said)
    return QuoteAttribution("user_stated", "user", index, said)


def _is_negated(text: str) -> bool:
    found = _WORDS.findall(text.lower().replace("’", "'"))
    return any(word in NEGATIONS or word.endswith("n't") for word in found)


def _supports(said: str, content: str) -> bool:
    """Return whether a text contains half of a claim's words and all of its values."""
    stems = {term[:_STEM_CHARS] for term in query_terms(said, limit=2_000)}
    claimed = query_terms(content)
    if not claimed:
        return False
    shared = sum(term[:_STEM_CHARS] in stems for term in claimed)
    if shared < GROUNDED_SHARE * len(claimed):
        return False
    claim_values, said_values = protected_values(content), protected_values(said)
    return set(claim_values.numbers) <= set(said_values.numbers) and set(
        claim_values.identifiers
    ) <= set(said_values.identifiers)


def _blanked(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with these spans replaced by line breaks."""
    pieces: list[str] = []
    done = 0
    for start, end in sorted(spans):
        pieces += (text[done:start], "\n" * (end - max(start, done)))
        done = max(done, end)
    return "".join((*pieces, text[done:]))


def _blank(match: re.Match[str]) -> str:
    return "\n" * len(match.group())
