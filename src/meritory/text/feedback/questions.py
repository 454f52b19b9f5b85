"""Whether feedback says enough to learn from, and what to ask when it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from meritory.text.claims.words import STOP_WORDS, words
from meritory.text.feedback.topics import UP
from meritory.text.terms import query_terms

# Words that only say how it was, not what: a text made of them is as bare as the signal itself.
_VERDICTS: Final = words(
    """
    ace amazing annoying approved awesome awful bad better best blah brilliant broken bug buggy
    correct cool crap dislike dont down error excellent fail failed failing fails failure fantastic
    fine fix garbage good great hate horrible hm hmm incorrect issue job like liked lgtm lol
    looked looking looks love loved mess nah neat negative nice no nope not ok okay perfect please
    poor positive pretty problem really right shit sloppy stupid sucks super sweet terrible thank
    thanks thing things thumb thumbs thx trash try up useless well wonderful work worked working
    works worse worst wow wrong yay yeah yes stuff job answer result output response nice1
    """
)
FIELD_WORDS: Final = 2
CONTEXT_WORDS: Final = 3
# From here on a text says by itself what went wrong, or what worked.
TELLING_WORDS: Final = 4


@dataclass(frozen=True, slots=True)
class Question:
    """Something to ask the user, with the field that the answer goes into."""

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
    """The distinct words that say something beyond good or bad."""
    return tuple(
        term
        for term in query_terms(text)
        if term not in _VERDICTS and term not in STOP_WORDS and any(map(str.isalnum, term))
    )


def tells_all(text: str) -> bool:
    """Whether a text can stand for what went wrong, or what worked."""
    return len(content_words(text)) >= TELLING_WORDS


def is_actionable(polarity: int, texts: Mapping[str, str]) -> bool:
    """Whether somebody could act on it: one field, or the context, says something specific."""
    named = ("what_worked",) if polarity == UP else ("what_went_wrong", "what_to_change")
    return any(len(content_words(texts.get(name, ""))) >= FIELD_WORDS for name in named) or (
        len(content_words(texts.get("context", ""))) >= CONTEXT_WORDS
    )


def questions(polarity: int, texts: Mapping[str, str]) -> tuple[Question, ...]:
    """What is missing, as questions; the first is the one to ask."""
    wanted = (_WORKED,) if polarity == UP else (_WENT_WRONG, _TO_CHANGE)
    return tuple(
        one for one in wanted if len(content_words(texts.get(one.field, ""))) < FIELD_WORDS
    )
