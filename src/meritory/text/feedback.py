"""Feedback as text: its signal, topics, completeness, lesson and cause."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from meritory.text.language import pattern, read_language, word_set, words
from meritory.text.terms import query_terms, split_identifier, stem
from meritory.text.words import STOP_WORDS

UP: Final = 1
DOWN: Final = -1
# Listed in errors; each also counts in capitals, and with - or _ for the space.
SIGNALS: Final = (
    *("up", "down", "positive", "negative", "good", "bad", "thumbs up", "thumbs down"),
    *("+1", "-1", "👍", "👎"),
)
_SPELLINGS: Final = {
    **dict.fromkeys(words("up positive good thumbsup thumbup thumbs👍 +1 👍"), UP),
    **dict.fromkeys(words("down negative bad thumbsdown thumbdown thumbs👎 -1 👎"), DOWN),
}
# Skin tones, and the variation selectors for text and emoji.
_SHADES: Final = re.compile("[\U0001f3fb-\U0001f3ff\ufe0e\ufe0f]")
_REPEATED: Final = re.compile("([👍👎])\\1+")
_SHORTCODE: Final = re.compile(r":(.+):")
_JOINTS: Final = re.compile(r"[\s_-]+")


def polarity(signal: object) -> int | None:
    """Return 1 for up, -1 for down, None for neither."""
    if not isinstance(signal, str):
        return None
    plain = unicodedata.normalize("NFKC", _SHADES.sub("", signal)).casefold().strip(" \t\n.!\"'")
    code = _SHORTCODE.fullmatch(plain)
    word = _REPEATED.sub(r"\1", code[1] if code else plain)
    return _SPELLINGS.get(word, _SPELLINGS.get(_JOINTS.sub("", word)))


def polarity_name(value: int | None) -> str:
    """Return a polarity as a word."""
    return {UP: "up", DOWN: "down"}.get(value or 0, "unknown")


GENERAL: Final = "general"
_FILE: Final = "en/feedback"
_TOPIC_WORDS: Final[Mapping[str, str]] = read_language(_FILE)["topics"]
TOPICS: Final = tuple(_TOPIC_WORDS)
_TOPIC_OF: Final = {stem(word): topic for topic in TOPICS for word in words(_TOPIC_WORDS[topic])}
_CHUNK: Final = re.compile(r"[\w-]+")


def word_list(text: str) -> list[str]:
    """Return every whole word of a text in lower case; identifiers also as their parts."""
    listed: list[str] = []
    for chunk in _CHUNK.findall(unicodedata.normalize("NFKC", text)):
        whole = chunk.strip("-_").lower()
        parts = [part.lower() for part in split_identifier(chunk)]
        listed += [whole, *parts] if parts and parts != [whole] else [whole]
    return [word for word in listed if word]


def read_topics(texts: Iterable[str]) -> Counter[str]:
    """Return how often the words of each topic occur in the texts, in the order of the table."""
    counts = Counter(
        topic
        for text in texts
        for word in word_list(text)
        if (topic := _TOPIC_OF.get(stem(word))) is not None
    )
    return Counter({topic: counts[topic] for topic in TOPICS if topic in counts})


def domain(tags: Iterable[str], counts: Mapping[str, int]) -> str:
    """Return the topic that feedback is counted under: a given tag, else the most frequent."""
    given = next((tag for tag in tags if tag in TOPICS), None)
    return given or max(counts, key=lambda topic: counts[topic], default=GENERAL)


_VERDICTS: Final = word_set(_FILE, "verdicts")
FIELD_WORDS: Final = 2
CONTEXT_WORDS: Final = 3
# A text with this many content words says by itself what went wrong, or what worked.
COMPLETE_WORDS: Final = 4


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the user, with the field for the answer."""

    field: str
    question: str
    example: str


_WENT_WRONG: Final = Question(
    "what_went_wrong",
    "What exactly went wrong?",
    "It edited the generated file instead of the template that makes it.",
)
_TO_CHANGE: Final = Question(
    "what_to_change",
    "What should be done differently next time?",
    "Edit templates/api.j2 and run make generate.",
)
_WORKED: Final = Question(
    "what_worked",
    "What exactly worked, so that it can be done again?",
    "Running the linter before the commit caught the unused import.",
)


def content_words(text: str) -> tuple[str, ...]:
    """Return the distinct words that say more than good or bad."""
    return tuple(
        term
        for term in query_terms(text)
        if term not in _VERDICTS and term not in STOP_WORDS and any(map(str.isalnum, term))
    )


def is_complete(text: str) -> bool:
    """Return whether a text says enough about what went wrong, or what worked."""
    return len(content_words(text)) >= COMPLETE_WORDS


def is_actionable(polarity: int, texts: Mapping[str, str]) -> bool:
    """Return whether one can act on it: one field, or the context, is specific."""
    named = ("what_worked",) if polarity == UP else ("what_went_wrong", "what_to_change")
    return any(len(content_words(texts.get(name, ""))) >= FIELD_WORDS for name in named) or (
        len(content_words(texts.get("context", ""))) >= CONTEXT_WORDS
    )


def questions(polarity: int, texts: Mapping[str, str]) -> tuple[Question, ...]:
    """Return questions for the missing parts, the first one to ask first."""
    wanted = (_WORKED,) if polarity == UP else (_WENT_WRONG, _TO_CHANGE)
    return tuple(
        question
        for question in wanted
        if len(content_words(texts.get(question.field, ""))) < FIELD_WORDS
    )


_NEGATIONS: Final = word_set(_FILE, "negations")
# Words that do not tell two reports apart.
_UNSAID: Final = (STOP_WORDS | word_set(_FILE, "repeats")) - _NEGATIONS
# Two reports are the same when they share this many words, and this share of all their words.
SHARED_WORDS_MIN: Final = 3
SHARED_SHARE: Final = 0.6
_VALUE: Final = re.compile(r"[\d/\\_=]|\w[.:]\w|^--?\w")
_SHORT: Final = re.compile(r"n['’]t\b")


def fingerprint(polarity: int, text: str) -> str:
    """Return a hash of a report that does not depend on the order and endings of its words."""
    said, values = _read(text)
    joined = "\x1f".join((str(polarity), *sorted(said), "", *sorted(values)))
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_same(text: str, other: str) -> bool:
    """Return whether two texts report the same: most words shared, equal values and negations."""
    (words, values), (other_words, other_values) = _read(text), _read(other)
    if values != other_values or words & _NEGATIONS != other_words & _NEGATIONS:
        return False
    shared = len(words & other_words)
    return shared >= SHARED_WORDS_MIN and shared >= SHARED_SHARE * len(words | other_words)


def _read(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the stems and the values of a text."""
    spread = _SHORT.sub(" not", text.casefold())
    said = frozenset(stem(word) for word in word_list(spread) if word not in _UNSAID)
    # Numbers, paths and versions are whole only between spaces.
    chunks = (chunk.strip(".,;:!?()\"'`") for chunk in spread.split())
    return said, frozenset(chunk for chunk in chunks if _VALUE.search(chunk))


MISTAKE, SUCCESS = "Mistake to avoid", "What worked"
# Not "instead": in a claim that word says that another claim no longer holds.
ADVICE: Final = "Next time"
_LABELS: Final = re.compile(rf" (?:{ADVICE}|Why|When): ")
_MAIN_CHARS: Final = 2_000
_MORE_CHARS: Final = 600


def main_text(polarity: int, texts: Mapping[str, str]) -> str:
    """Return the main field of a report: what went wrong, or what worked, else its context."""
    name = "what_worked" if polarity == UP else "what_went_wrong"
    return texts.get(name) or texts.get("context") or texts.get("what_to_change", "")


def lesson_text(polarity: int, texts: Mapping[str, str]) -> str:
    """Return the lesson of a report."""
    main = main_text(polarity, texts)
    parts = [_part(SUCCESS if polarity == UP else MISTAKE, main, _MAIN_CHARS)]
    for label, name in ((ADVICE, "what_to_change"), ("Why", "reasoning"), ("When", "context")):
        text = texts.get(name, "")
        if text and text != main:
            parts.append(_part(label, text, _MORE_CHARS))
    return " ".join(parts)


def lesson_subject(polarity: int, lesson: str) -> str:
    """Return the main text of a lesson without its labels; empty for another kind of lesson."""
    label = f"{SUCCESS if polarity == UP else MISTAKE}: "
    if not lesson.startswith(label):
        return ""
    return _LABELS.split(lesson.removeprefix(label), maxsplit=1)[0]


def with_advice(lesson: str, texts: Mapping[str, str]) -> str | None:
    """Return the lesson with the advice of a report added; None when there is nothing to add."""
    advice = texts.get("what_to_change", "")
    if not advice or f"{ADVICE}: " in lesson or advice.casefold() in lesson.casefold():
        return None
    return f"{lesson} {_part(ADVICE, advice, _MORE_CHARS)}"


def _part(label: str, text: str, limit: int) -> str:
    flat = " ".join(text.split())
    short = flat if len(flat) <= limit else flat[: limit - 3] + "..."
    return f"{label}: {short}" + ("" if short.endswith((".", "!", "?")) else ".")


Category = Literal[
    "system_failure",
    "guardrail_triggered",
    "invalid_invocation",
    "tool_output_misread",
    "intent_plan_misalignment",
]
# In order of precedence: an outside failure explains more than a wrong plan.
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
_QUOTE_CHARS: Final = 160
_AROUND_CHARS: Final = 40


@dataclass(frozen=True, slots=True)
class DiagnosisEvidence:
    """A quote that supports a category, and where it was found."""

    source: str
    quote: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A category with its evidence."""

    category: Category
    evidence: tuple[DiagnosisEvidence, ...]


# The category of a failed criterion when no words say more.
_CRITERIA: Final[Mapping[str, Category]] = {
    "safety": "guardrail_triggered",
    "verification_evidence": "tool_output_misread",
    "correctness": "tool_output_misread",
    "instruction_following": "intent_plan_misalignment",
    "clarity": "intent_plan_misalignment",
}


def diagnose(
    texts: Mapping[str, str], failing: Sequence[str] = (), guardrails: Sequence[str] = ()
) -> Diagnosis | None:
    """Return the first category in order of precedence that has evidence, None if there is none."""
    evidence: dict[Category, list[DiagnosisEvidence]] = {}
    for name in guardrails:
        quote = DiagnosisEvidence(f"guardrail:{name}", f"{name} is false")
        evidence.setdefault("guardrail_triggered", []).append(quote)
    for name, text in texts.items():
        for category in CATEGORIES:
            if match := pattern(_FILE, category).search(text):
                start = max(0, match.start() - _AROUND_CHARS)
                around = " ".join(text[start : match.end() + _AROUND_CHARS].split())
                quote = DiagnosisEvidence(name, around[:_QUOTE_CHARS])
                evidence.setdefault(category, []).append(quote)
    for criterion in failing:
        quote = DiagnosisEvidence(f"rubric:{criterion}", f"{criterion} is below its minimum")
        evidence.setdefault(_CRITERIA[criterion], []).append(quote)
    return next(
        (Diagnosis(name, tuple(evidence[name])) for name in CATEGORIES if name in evidence), None
    )
