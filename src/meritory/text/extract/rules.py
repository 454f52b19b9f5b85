"""Extraction of memories from a transcript by rules, without a model.

A sentence of the user becomes a claim when it matches a cue and is stated, not asked,
supposed or quoted. Claims that would not help later are declined with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final, Literal

from meritory.domain.memory import Kind, Origin, Provenance
from meritory.domain.session import Turn
from meritory.text.claims.compare import says_change
from meritory.text.extract import lasting
from meritory.text.extract.attribution import Spoken, split_sentences, turn_sentences
from meritory.text.extract.clauses import UNSPACED, statement_end
from meritory.text.extract.phrases import (
    Cue,
    cues,
    cues_after_denial,
    languages_of,
    listed,
    phrase,
)
from meritory.text.normalize import canonical
from meritory.text.terms import query_terms
from meritory.text.words import SAME_AS

# The confidence in a claim that a model extracted; cues have their own.
CONFIRMED: Final = 0.7
# In a claim that corrects a memory.
CORRECTED: Final = 0.9
IMPLIED: Final = 0.5
# In a statement that no cue matches.
LEARNED: Final = 0.8
CANDIDATE_LIMIT: Final = 5
# People who introduce themselves state more than a model may propose.
STATED_LIMIT: Final = 10
# More statements of one session are not compared with each other, nor listed as refused.
LISTED_LIMIT: Final = 50


@dataclass(frozen=True, slots=True)
class FoundClaim:
    """One claim worth keeping, with its quote and the turn of the quote."""

    content: str
    kind: Kind
    provenance: Provenance
    origin: Origin
    confidence: float
    # The index of the turn in the transcript.
    turn: int
    quote: str
    # The stored memory that it replaces.
    supersedes: str | None = None
    # The words of the value that it says is no longer right.
    old_value: str = ""
    # A plain statement, without words that ask to remember it.
    is_plain: bool = False


@dataclass(frozen=True, slots=True)
class Declined:
    """A candidate that is not stored: not useful later, or rejected by a check."""

    found: FoundClaim
    reason: str
    outcome: Literal["floored", "refused"] = "floored"


@dataclass(frozen=True, slots=True)
class Extraction:
    """The result of an extractor for one transcript, best candidates first."""

    candidates: tuple[FoundClaim, ...] = ()
    refused: tuple[Declined, ...] = ()
    # Whether a candidate names a memory because that has the value which it calls wrong.
    names_old_values: bool = False


NAME: Final = "rules/1"
# Two claims that share this many distinctive words, and this share of all, are one.
SAME_SHARE: Final = 0.72
SAME_WORDS: Final = 4
MIN_WORDS: Final = 3
# The kinds that the first words of a claim can state.
_STATED_KINDS: Final[tuple[Kind, ...]] = ("constraint", "preference", "decision")
_AGENT_ROLES: Final = frozenset({"assistant", "edit", "tool"})

# Loose ends are stripped without a pattern, which could take minutes on a long run of them.
_ENDS: Final = " ,;:.!\u3002\uff01\uff0c\uff1b"
_LOOSE_ENDS: Final = f"{_ENDS}\u2013\u2014-"
_WORD: Final = re.compile(r"[^\W_][\w'’./@+-]*")
# "The build is the build" says nothing.
_TAUTOLOGY: Final = re.compile(
    r"^(?:the |an? )?(?P<subject>.{3,60}?) (?:is|are|means) (?:the |an? )?(?P=subject)\W*$"
)
# A shorter word has another meaning with another ending.
_STEM_CHARS: Final = 4
# Less than that states nothing: "go on" may, "ok" and "p4567" do not.
_TWO_WORDS: Final = re.compile(
    r"[^\W\d_]{2}[^\n]{0,40}[\W_][^\W\d_]{2}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}|\w['\u2019]\w"
)
_HAN_PAIR: Final = re.compile("[\u4e00-\u9fff]{1,2}")
# "My sister wrote that ..." reports another statement: its verb stands near the subject.
REPORT_CHARS: Final = 16
# A plain statement may stand after clauses that only suppose or report another one.
MATCH_LIMIT: Final = 4


def read(turns: Sequence[Turn]) -> Extraction:
    """Return what the user stated outright, at most ten claims, and the declined ones."""
    useful: list[FoundClaim] = []
    declined: list[Declined] = []
    for found in statements(turns):
        if isinstance(found, Declined):
            declined.append(found)
        else:
            useful.append(found)
    best: list[FoundClaim] = []
    best_terms: list[frozenset[str]] = []
    for claim in sorted(useful, key=lambda claim: (-claim.confidence, -claim.turn)):
        terms = frozenset(query_terms(claim.content)) | {canonical(claim.content)}
        if not any(_is_same(terms, other) for other in best_terms):
            best.append(claim)
            best_terms.append(terms)
        if len(best) == LISTED_LIMIT:
            break
    too_many = (
        Declined(claim, "the session had better ones", "refused") for claim in best[STATED_LIMIT:]
    )
    return Extraction(tuple(best[:STATED_LIMIT]), (*declined[:LISTED_LIMIT], *too_many))


def statements(turns: Sequence[Turn]) -> Iterator[FoundClaim | Declined]:
    """Yield what the user stated, in order, and the statements that would not help later."""
    has_acted = False
    for index, turn in enumerate(turns):
        has_acted = has_acted or turn.role in _AGENT_ROLES
        if turn.role != "user" or not _TWO_WORDS.search(turn.text):
            continue
        spoken = turn_sentences(turn)
        languages = languages_of(sentence.bare for sentence in spoken)
        is_denied = False
        for sentence in spoken:
            # A short sentence may not tell its language.
            for language in languages_of((sentence.bare,), languages):
                usable = _usable(language, has_acted, is_denied)
                found = tuple(_claims(sentence, index, usable, language))
                yield from found
                if found:
                    break
            plain = sentence.bare.replace("\u2019", "'")
            is_denied = any(phrase(one, "denial").fullmatch(plain) for one in languages)


def without_questions(text: str) -> str:
    """Return a text without its questions; of a question, what it states on the way stays."""
    spoken = split_sentences(text)
    asked = [_is_asked(sentence) for sentence in spoken]
    if not any(asked):
        return text
    kept: list[str] = []
    for sentence, is_asked in zip(spoken, asked, strict=True):
        if not is_asked:
            kept.append(sentence.text)
            continue
        stated = statements([Turn("user", sentence.text)]) if sentence.is_question else ()
        kept += [f"{found.content}." for found in stated if isinstance(found, FoundClaim)]
    return " ".join(kept)


def only_asks(text: str) -> bool:
    """Return whether a text has questions and states nothing."""
    return bool(text.strip()) and not without_questions(text).strip()


def _is_asked(sentence: Spoken) -> bool:
    """Return whether a sentence is a question, with or without its mark."""
    if sentence.is_question:
        return True
    bare = sentence.bare.replace("\u2019", "'")
    return any(phrase(one, "question").search(bare) for one in languages_of((bare,)))


def reason_to_decline(content: str, language: str = "en") -> str | None:
    """Return why a claim would not help later, None when it may."""
    said = [word.lower().replace("’", "'") for word in _WORD.findall(content)]
    # "I'm" is two words.
    if len(said) + content.count("'") < MIN_WORDS and not UNSPACED.search(content):
        return "it says too little"
    passing = phrase(language, "passing").search(content)
    if not passing and not says_change(content):
        passing = phrase(language, "past").search(content)
    if passing:
        return f"it is about the current task ({passing.group().lower()[:40]!r})"
    if phrase(language, "progress").match(content):
        return "it only reports progress"
    if phrase(language, "pointer").match(content):
        return "it does not say what it is about"
    empty, pointing, praise = (listed(language, key) for key in ("empty", "pointing", "praise"))
    specific = [word for word in said if word not in empty and word not in pointing]
    points = said[0] in pointing or any(word in pointing for word in said[-2:])
    if not specific or (points and len(specific) < 2):
        return "it does not say what it is about"
    if all(word in praise for word in specific):
        return "it states the obvious"
    return "it states the obvious" if _TAUTOLOGY.match(content.lower()) else None


def _reason_to_decline_plain(content: str, language: str, *, is_order: bool) -> str | None:
    """Return why a plain statement would not help later: it is about now, or says too little."""
    passing = phrase(language, "passing").search(content)
    if passing:
        return f"it is about the current task ({passing.group().lower()[:40]!r})"
    if is_order:
        return None
    if phrase(language, "state").search(content):
        return "it is about how things are at the moment"
    if phrase(language, "pointer").match(content) or phrase(language, "vague").search(content):
        return "it does not say what it is about"
    return None


def _reason_to_decline_correction(content: str, language: str, *, is_order: bool) -> str | None:
    """Return why a correction would not help later: it needs a subject of its own."""
    if phrase(language, "standing").match(content):
        is_clear = any(phrase(language, key).search(content) for key in ("says_rule", "anchored"))
        if not is_clear and not phrase(language, "names_object").match(content):
            return "it does not say what it is about"
        if phrase(language, "one_case").search(content):
            return "it is about the current task"
    elif is_order:
        return "it is about the current task"
    elif phrase(language, "lacks_subject").match(content):
        return "it does not say what it is about"
    return reason_to_decline(content, language)


def _usable(language: str, has_acted: bool, is_denied: bool) -> Iterator[Cue]:
    """Yield the cues of a language that a sentence may match; a correction answers the agent."""
    for cue in (*cues(language), *(cues_after_denial(language) if is_denied else ())):
        if has_acted or not cue.corrects:
            yield cue


def _claims(
    sentence: Spoken, index: int, usable: Iterable[Cue], language: str
) -> Iterator[FoundClaim | Declined]:
    """Yield the claims that a sentence states; none if it only asks."""
    plain = sentence.bare.replace("\u2019", "'")
    lowered = plain.lower()
    starts: list[tuple[int, int, int, Cue]] = []
    for order, cue in enumerate(usable):
        if not cue.may_match(lowered):
            continue
        for match in islice(cue.pattern.finditer(plain), MATCH_LIMIT if cue.is_plain else 1):
            start, end = match.span("claim")
            if cue.is_plain:
                starts.append((start, order, end, cue))
                continue
            found = _read_match(sentence, plain, cue, start, end)
            if found:
                yield _judged(found, cue, index, sentence.text, plain[:start])
            return
    taken: list[tuple[int, int]] = []
    clauses = lasting.Clauses(sentence, language)
    for start, _, end, cue in sorted(starts, key=lambda one: one[:2]):
        # A plain statement and those that continue it are one claim.
        is_new = not taken or start >= taken[-1][1]
        found = _read_match(sentence, plain, cue, start, end) if is_new else None
        if found is not None:
            taken.append((start, start + len(found)))
            judged = _judged(found, cue, index, sentence.text, plain[:start])
            yield _unless_passing(judged, cue, clauses.score(taken[-1]))
    learned = _learned(language)
    for start, _ in sorted(clauses.kept(taken)):
        found = _read_match(sentence, plain, learned, start, start + 1)
        if found is not None:
            yield _judged(found, learned, index, sentence.text, plain[:start])


@cache
def _learned(language: str) -> Cue:
    """Return a cue for the statements of a language that only the weights recognise."""
    return Cue("fact", "fact", LEARNED, (), "", language, is_plain=True)


def _unless_passing(found: FoundClaim | Declined, cue: Cue, score: float) -> FoundClaim | Declined:
    """Return a claim; a plain fact is declined if the weights are sure that it does not last."""
    is_judged = cue.way == "fact" and cue.language in lasting.DECLINING
    if isinstance(found, Declined) or not is_judged or score >= lasting.DECLINED_SCORE:
        return found
    return Declined(found, "it does not look like something that lasts")


def _read_match(sentence: Spoken, plain: str, cue: Cue, start: int, end: int) -> str | None:
    """Return what a sentence states from `start` on; None if it is supposed, asked or reported."""
    before = plain[:start]
    unstated = ("supposed", "others", "narrates") if cue.is_open else ("supposed", "others")
    if any(phrase(cue.language, key).search(before) for key in unstated):
        return None
    if cue.is_plain:
        stop = statement_end(plain, (start, end), cue.language, is_question=sentence.is_question)
        report_end = end + REPORT_CHARS if cue.is_open else end
        if stop is None or phrase(cue.language, "others").search(plain, start, report_end):
            return None
        return sentence.text[start:stop]
    statement = _statement(sentence, cue, (start, end))
    return statement if statement.strip() else None


def _judged(statement: str, cue: Cue, index: int, quote: str, before: str) -> FoundClaim | Declined:
    """Return a claim on one line, with a capital letter and no loose end, or why it is declined."""
    language = cue.language
    content = " ".join(statement.split()).rstrip("?")
    while (cut := phrase(language, "courtesy").sub("", content.rstrip(_ENDS))) != content:
        content = cut
    content = content.rstrip(_LOOSE_ENDS)
    if content.count(")") > content.count("("):
        content = content.rstrip(") ")
    content = content[:1].upper() + content[1:]
    # "Remember to ..." always asks for an action.
    is_order = before.lower().endswith(" to ")
    kind = _kind(cue, content, is_order=is_order)
    # "It is not 8080 any more, the port is 8081" names the old value first.
    old = phrase(language, "old_value").search(content) or (
        phrase(language, "old_value").search(before) if before.rstrip().endswith(",") else None
    )
    claim = FoundClaim(
        content,
        kind,
        "user_stated",
        "user",
        cue.confidence,
        index,
        quote,
        old_value=old["old"].strip() if old else "",
        is_plain=cue.is_plain,
    )
    if cue.is_plain:
        is_order = cue.way == "rule"
        reason = _reason_to_decline_plain(content, language, is_order=is_order)
    elif cue.corrects:
        reason = _reason_to_decline_correction(content, language, is_order=is_order)
    else:
        reason = reason_to_decline(content, language)
    return claim if reason is None else Declined(claim, reason)


def _kind(cue: Cue, content: str, *, is_order: bool) -> Kind:
    """Return the kind of a claim; its first words decide where the cue leaves it open."""
    if cue.way not in ("remember", "correction"):
        return cue.kind
    language = cue.language
    kinds = (kind for kind in _STATED_KINDS if phrase(language, f"says_{kind}").match(content))
    kind = "constraint" if is_order else next(kinds, cue.kind)
    # A correction is about one case, unless it says that it holds always.
    is_one_case = cue.corrects and not phrase(language, "says_rule").search(content)
    return "preference" if kind == "constraint" and is_one_case else kind


def _statement(sentence: Spoken, cue: Cue, span: tuple[int, int]) -> str:
    """Return the statement without the question or request around it; empty when it only asks."""
    start, end = span
    language, stated = cue.language, sentence.text[start:end]
    if sentence.is_question:
        cut = phrase(language, "trailing_question").sub("", stated)
        if cut != stated:
            stated = cut
        elif phrase(language, "given").search(sentence.bare[:start]):
            # "What else is there, since we decided ...?" states the part after "since".
            stated = re.split(r"[,?]", stated)[0]
        elif not phrase(language, "polite").match(sentence.bare):
            return ""
    if cue.way in ("preference", "decision", "remember"):
        stated = phrase(language, "trailing_request").sub("", stated)
    return stated


def is_corrected(memory: str, claim: FoundClaim) -> bool:
    """Return whether a memory has the value that a claim calls wrong, and the claim's subject."""
    old, terms = set(query_terms(claim.old_value)), set(query_terms(memory))
    if not old or not old <= terms or canonical(memory) == canonical(claim.content):
        return False
    languages = languages_of((claim.content,))
    is_ours = any(
        phrase(one, "ours").search(memory) and phrase(one, "ours").search(claim.content)
        for one in languages
    )
    if is_ours and any(phrase(one, "switch").search(claim.content) for one in languages):
        return True
    about, stated = (_words_about(text, languages) for text in (memory, claim.content))
    subject, stated_subject = (
        _words_about(_before_verb(text, languages), languages) for text in (memory, claim.content)
    )
    about, subject = (
        [word for word in words if not old & set(query_terms(word))] for words in (about, subject)
    )
    if not subject:
        # "I live in ..." or "Tim is our designer": what else it says decides.
        return is_ours if not about else any(_has_like(stated, word) for word in about)
    # "My daughter Mira" and "Mira" are one; "the staging API" and "the staging database" are not.
    return all(_has_like(stated, word) for word in subject) or (
        bool(stated_subject) and all(_has_like(about, word) for word in stated_subject)
    )


def _before_verb(text: str, languages: Sequence[str]) -> str:
    """Return the subject of a short statement: the words before its first verb."""
    matches = (phrase(language, "verb").search(text) for language in languages)
    return text[: min((match.start() for match in matches if match), default=0)]


def _words_about(text: str, languages: Sequence[str]) -> list[str]:
    """Return the words of a text that are no function words; pairs of letters in Chinese."""
    for language in languages:
        text = phrase(language, "function").sub(" ", text)
    words = [word.lower().rstrip("./@+-'’") for word in _WORD.findall(text)]
    return [part for word in words for part in (_HAN_PAIR.findall(word) or (word,))]


def _has_like(words: Sequence[str], word: str) -> bool:
    """Return whether some words contain a word, or one that differs in its ending."""
    for other in words:
        short, long = sorted((word, other), key=len)
        if SAME_AS.get(word, word) == SAME_AS.get(other, other):
            return True
        if len(short) >= _STEM_CHARS and long.startswith(short):
            return True
    return False


def _is_same(terms: frozenset[str], other: frozenset[str]) -> bool:
    if len(terms) == 2 or len(other) == 2:
        return terms == other
    shared = len(terms & other)
    return shared >= SAME_WORDS and shared >= SAME_SHARE * len(terms | other)
