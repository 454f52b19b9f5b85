"""Who said the words of a transcript: the user, the agent, a tool or the web.

The position of a quote in the transcript decides, never a claim about it. Users paste text into
their turns: quotations, diffs, logs, mails, documents, and clients embed blocks there. Such text is
not attributed to the user, so it is blanked out character by character. The remaining text keeps
its offsets, and a quote is always a slice of the turn itself. Where the end of pasted text cannot
be decided, the rest of the turn counts as pasted.

A prompt hook reports what the user typed. If it did so in a session, only words that it reported
are the user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from meritory.domain.memory import Origin, Provenance
from meritory.domain.session import Turn
from meritory.text.claims.read import protected_values
from meritory.text.embedded import blanked, is_inserted, without_blocks
from meritory.text.language import pattern, word_set
from meritory.text.ratings_trailer import strip_own
from meritory.text.secrets import redact
from meritory.text.terms import query_terms, stem
from meritory.text.words import NEGATIONS

TURN_LIMIT_CHARS: Final = 20_000
SENTENCE_LIMIT_CHARS: Final = 600
# Users write less than this in one turn. Of longer ones, only the first paragraph is theirs.
OWN_LIMIT_CHARS: Final = 1_500
# Shorter words may be the same by chance.
REPEATED_MIN_CHARS: Final = 16
# A line is recognised by its start and its end; searching a longer part of it would be slow.
LINE_LIMIT_CHARS: Final = 400
# A shorter line is not wrapped.
WRAPPED_MIN_CHARS: Final = 60
# Fewer words in quotes are a name.
QUOTATION_MIN_WORDS: Final = 4
# How much of a session's typed prompts is stored.
TYPED_LIMIT_CHARS: Final = 12_000

# How many sentences of a prompt an agent may quote at once.
QUOTE_LIMIT_SENTENCES: Final = 3

# The share of a claim's words that the quoted turn must contain for the speaker to own the claim.
GROUNDED_SHARE: Final = 0.5
_STEM_CHARS: Final = 5
_COMMAND: Final = re.compile(r"\s*[/!][a-z][\w:.-]*(?:\s|\Z)")
_LINE: Final = re.compile(r"[^\n]+")
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
    r"`[^`\n]{1,200}`|\"[^\"]{1,2000}\"|[\u201c\u201e\u201f\u00ab\u2039][^\u201c\u201d\u00bb\u203a]{1,2000}"
    r"[\u201c\u201d\u00bb\u203a]|[\u300c\u300e][^\u300d\u300f]{1,2000}[\u300d\u300f]"
    r"|(?<!\w)['\u2018\u201a](?:[^'\u2019]|['\u2019](?=\w)){2,1000}['\u2019\u2018](?!\w)"
)
# Some clients quote a whole prompt, and escape the quotes in it.
_QUOTED_WHOLE: Final = re.compile(
    r"\s*(?:\"(?:[^\"\\]|\\.)*\"|'[^'\n]*(?:(?<=\w)'(?=\w)[^'\n]*)*')\s*", re.DOTALL
)
_PARAGRAPH: Final = re.compile(r"[^\n]+(?:\n(?![ \t]*\n)[^\n]+)*")
_END: Final = re.compile(
    r"(?<![ei]\.[eg])(?<!\bvs)(?<!\betc)(?<!\bcf)[.!?]+[\"')\]]*(?=\s|\Z)"
    # Scripts without spaces have none after a full stop either.
    r"|[\u3002\uff01\uff1f]+[\u201d\u300d\u300f\uff09]*"
    # A line ends a sentence, except where it only wraps.
    r"|\n[ \t]*(?=\n)|\n(?=\s*(?:[-*+\u2022]|\d+[.)])\s)|\n(?![ \t]*[a-z])|(?<=[:;,])\n"
)
_BULLET: Final = re.compile(r"\s*(?:[-*+\u2022]|\d{1,2}[.)]|\[[ x]\])\s+")

_WEB: Final = re.compile(
    r"\b\w*(?:web|fetch|brows|http|url|search|crawl|curl|wget)\w*", re.IGNORECASE
)
_WORDS: Final = re.compile(r"[\w']+")
_pasted_pattern: Final = partial(pattern, "en/pasted")

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
        return self.text.rstrip("\"') ").endswith(("?", "\uff1f"))


@dataclass(frozen=True, slots=True)
class OwnTurn(Turn):
    """A turn of the user without foreign text; it is not searched for such text again."""

    spoken: tuple[Spoken, ...] = ()


@dataclass(frozen=True, slots=True)
class QuoteAttribution:
    """The speaker of a quote, the index of its turn, and its words as written there."""

    provenance: Provenance
    origin: Origin
    turn: int
    quote: str


def own_words(turn: str) -> str:
    """Return a user's turn with foreign text replaced by line breaks; empty for a slash command."""
    text = turn[:TURN_LIMIT_CHARS]
    if _COMMAND.match(text) or is_inserted(text):
        return ""
    if _QUOTED_WHOLE.fullmatch(text):
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        text = f"{text[:start]} {text[start + 1 : end - 1]} {text[end:]}"
    own = without_blocks(text)
    quotes = [match.span() for match in _QUOTED.finditer(own) if "\n" in match.group()]
    own = blanked(own, quotes)
    own = blanked(own, list(_pasted(own)))
    if len(own.strip()) > OWN_LIMIT_CHARS:
        first = _PARAGRAPH.search(own)
        end = first.end() if first else 0
        own = blanked(own, [(end if end <= OWN_LIMIT_CHARS else 0, len(own))])
    return own


def _pasted(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of a turn that others wrote, by the look of their lines."""
    lines = [match for match in _LINE.finditer(text) if match.group().strip()]
    # Whether an empty line is before each line.
    gaps = [text.count("\n", before.end(), line.start()) > 1 for before, line in pairwise(lines)]
    if _is_signed([line.group() for line in lines]):
        yield 0, len(text)
        return
    if gaps and _refers_back(lines[-1].group(), has_gap=gaps[-1]):
        yield 0, lines[-1].start()
    is_foreign = False
    if any(gap and not _is_talk(line.group()) for gap, line in zip(gaps, lines[1:], strict=True)):
        # Part of a document; its beginning may be in the first line.
        yield 0, len(text)
        return
    for index, line in enumerate(lines):
        said, following = line.group(), lines[index + 1 : index + 2]
        # Text after an empty line, or in a list, stands apart from the line before it.
        is_apart = bool(following) and (
            gaps[index] or bool(_BULLET.match(following[0].group()) and not _BULLET.match(said))
        )
        if _starts_document(said, is_first=not index, is_titled=is_apart):
            yield line.start(), len(text)
            return
        has_gap = index > 0 and gaps[index - 1]
        is_foreign = bool(_FOREIGN_LINE.match(said)) or (is_foreign and not has_gap)
        if is_foreign:
            yield line.span()
        inline = _pasted_pattern("inline").search(said)
        is_wrapped = len(said) >= WRAPPED_MIN_CHARS or said.rstrip().endswith(":")
        is_talk = is_foreign or _is_talk(said) or is_wrapped
        if inline or (following and (not is_talk or _introduces(said, is_apart=is_apart))):
            yield line.start() + inline.end() if inline else line.end(), len(text)
            return


def _is_talk(line: str) -> bool:
    """Return whether a line looks like a part of a talk with the agent, or is an item of a list."""
    has_word = _pasted_pattern("talk").search(line[:LINE_LIMIT_CHARS])
    return bool(has_word or _BULLET.match(line) or _FOREIGN_LINE.match(line))


def _is_signed(lines: Sequence[str]) -> bool:
    """Return whether a turn ends like a letter or names the author of a quotation."""
    if any(_pasted_pattern("credit").search(line) for line in lines):
        return True
    ends = (line[:LINE_LIMIT_CHARS] for line in lines[1:][-3:])
    return any(_pasted_pattern("sign_off").match(line) for line in ends)


def _starts_document(line: str, *, is_first: bool, is_titled: bool) -> bool:
    line = line[:LINE_LIMIT_CHARS]
    names = ("document", "open_letter" if is_first else "greeting")
    if any(_pasted_pattern(name).match(line) for name in names):
        return True
    if is_titled and _pasted_pattern("title").match(line):
        return True
    is_speech = _pasted_pattern("speaker").match(line) and not _pasted_pattern("label").match(line)
    return bool(is_speech)


def _refers_back(line: str, *, has_gap: bool) -> bool:
    """Return whether the last line of a turn is about the text before it."""
    line = line[:LINE_LIMIT_CHARS]
    is_about = has_gap and _pasted_pattern("points_back").search(line)
    return bool(is_about or _pasted_pattern("refers_back").match(line))


def _introduces(line: str, *, is_apart: bool) -> bool:
    """Return whether the lines after this one, or the empty line after it, are foreign text."""
    line = line[-LINE_LIMIT_CHARS:]
    if any(_pasted_pattern(name).search(line) for name in ("remembers", "acts")):
        return False
    if line.rstrip().endswith(":"):
        if not _pasted_pattern("keeps").search(line):
            return True
        names: tuple[str, ...] = ("introduces", "source")
    else:
        names = ("introduces", "announces") if is_apart else ("introduces",)
    return any(_pasted_pattern(name).search(line) for name in names)


def sentences(turn: str) -> tuple[Spoken, ...]:
    """Return the user's own sentences in a turn; none for a slash command."""
    own = own_words(turn)
    if not own:
        return ()
    bare = _masked(own)
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


def split_sentences(text: str) -> tuple[Spoken, ...]:
    """Return every sentence of a text, of any author."""
    bare = _masked(text)
    stops = [match.end() for match in _END.finditer(bare)]
    spans = zip([0, *stops], [*stops, len(text)], strict=True)
    return tuple(
        Spoken(text[start:stop].strip(), bare[start:stop].strip())
        for start, stop in spans
        if text[start:stop].strip()
    )


def _masked(own: str) -> str:
    """Return a text of the same length with quotations masked."""
    bare = _QUOTED.sub(lambda match: "\x01" * len(match.group()), own)
    if bare.count('"') % 2:
        # A quotation with quotes inside: any part between the first and the last may be quoted.
        first, last = bare.index('"'), own.rindex('"') + 1
        bare = bare[:first] + "\x01" * (last - first) + bare[last:]
    return bare


def _without_quotations(own: str) -> str:
    """Return a text with quoted sentences masked; code and names in quotes stay."""

    def mask(match: re.Match[str]) -> str:
        quote = match.group()
        is_name = quote.startswith("`") or len(quote.split()) < QUOTATION_MIN_WORDS
        return quote if is_name else "\x01" * len(quote)

    return _QUOTED.sub(mask, own)


def turn_sentences(turn: Turn) -> tuple[Spoken, ...]:
    """Return the user's own sentences in a turn of a transcript."""
    return turn.spoken if isinstance(turn, OwnTurn) else sentences(turn.text)


def typed_words(prompt: str) -> str:
    """Return the user's own sentences in a prompt, one on a line, as they may be stored."""
    spoken = sentences(redact(strip_own(prompt)))
    return "\n".join(" ".join(sentence.text.split()) for sentence in spoken)


def users_words(turns: Sequence[Turn], typed: str | None) -> tuple[Turn, ...]:
    """Return the turns, those of the user with their own words only.

    `typed` has the words that the prompt hook reported; None if it reported no prompt. Words that
    repeat what a tool, a file or the agent said are not the user's.
    """
    plain = [" ".join(turn.text.split()) for turn in turns]
    lines = None if typed is None else dict.fromkeys(filter(None, typed.split("\n")))
    kept: list[Turn] = []
    for index, turn in enumerate(turns):
        if turn.role == "user":
            own = sentences(turn.text)
            if lines is not None:
                own = tuple(Spoken(line, _masked(line)) for line in lines if line in plain[index])
            own = tuple(one for one in own if not _is_repeated(one.text, index, turns, plain))
            said = "\n".join(one.text for one in own)
            turn = OwnTurn("user", _without_quotations(said), spoken=own)
        kept.append(turn)
    return tuple(kept)


def _is_repeated(said: str, at: int, turns: Sequence[Turn], plain: Sequence[str]) -> bool:
    """Return whether a sentence of the user repeats another speaker's words.

    The agent may repeat the user afterwards. If a result has the words before the agent wrote them,
    they were in a file that the user pasted.
    """
    if len(said) < REPEATED_MIN_CHARS:
        return False
    bare = " ".join(said.lower().split()).rstrip(".!? ")
    holders = [index for index, text in enumerate(plain) if bare in text.lower()]
    other = next((index for index in holders if turns[index].role != "user"), None)
    first = next((index for index in holders if turns[index].role == "user"), at)
    return other is not None and (other < first or turns[other].role in _RECEIVED_ROLES)


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
    own = _without_quotations(own_words(turns[index].text))
    if not quoted.search(own):
        return QuoteAttribution("assistant_derived", "tool", index, said)
    is_changed = _is_negated(said) != _is_negated(content) or _makes_a_rule(own, content)
    if is_changed or not _supports(own, content):
        return QuoteAttribution("assistant_derived", "agent", index, said)
    return QuoteAttribution("user_stated", "user", index, said)


def _is_negated(text: str) -> bool:
    found = _WORDS.findall(text.lower().replace("’", "'"))
    return any(word in NEGATIONS or word.endswith("n't") for word in found)


def _makes_a_rule(said: str, content: str) -> bool:
    """Return whether a claim says "always" or the like, and the text nothing of the kind."""
    rules, future = (word_set("en/quotes", name) for name in ("rules", "future"))
    told, claimed = ({*_WORDS.findall(text.lower())} for text in (said, content))
    return bool(claimed & rules) and not told & (rules | future)


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


def is_typed(typed: str, quote: str, content: str) -> bool:
    """Return whether the user typed a quote, and the quoted sentences say what a claim says.

    `typed` has a sentence of the user on each line. Whole sentences are compared with the claim: a
    quote may leave out the "not" or the question mark of its sentence.
    """
    words = _without_no(" ".join(quote.split()))
    quoted = re.compile(rf"(?<!\w){re.escape(words)}(?!\w)")
    lines = list(filter(None, typed.split("\n")))
    for first in range(len(lines) if words else 0):
        for last in range(first + 1, min(first + QUOTE_LIMIT_SENTENCES, len(lines)) + 1):
            said = _without_no(" ".join(lines[first:last]))
            if not quoted.search(said):
                continue
            is_asked = any(Spoken(line, line).is_question for line in lines[first:last])
            found = attribute_quote([Turn("user", said)], said, content)
            is_own = found is not None and found.provenance == "user_stated"
            if is_own and not is_asked and _restates(said, content):
                return True
            break
    return False


def _without_no(said: str) -> str:
    """Return a text without the "No," that it begins with: that answers, and negates nothing."""
    found = pattern("en/corrections", "no").match(said.lower())
    return said[found.end() :].lstrip() if found else said


def _restates(said: str, content: str) -> bool:
    """Return whether a claim is a part of a text, but for words such as "I" and "the user".

    A writer chooses both the claim and the quote. So a claim with another value, in another order
    or without a word in between is not the user's, though it shares most words.
    """
    neutral = word_set("en/quotes", "neutral")
    told, claimed = (
        [word for word in _WORDS.findall(text.lower().replace("’", "'")) if word not in neutral]
        for text in (said, content)
    )
    limits = word_set("en/quotes", "limits") & set(told)
    if not limits <= set(claimed):
        return False
    told, claimed = [*map(stem, told)], [*map(stem, claimed)]
    count = len(claimed)
    starts = range(len(told) - count + 1)
    return bool(claimed) and any(told[at : at + count] == claimed for at in starts)
