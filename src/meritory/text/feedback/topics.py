"""Thumbs up and thumbs down in every spelling that people and agents use."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from meritory.text.claims.words import words
from meritory.text.judge.overlap import stem
from meritory.text.terms import split_identifier

UP: Final = 1
DOWN: Final = -1
# What a refusal lists; each also counts in capitals, and with - or _ for the space.
SIGNALS: Final = (
    *("up", "down", "positive", "negative", "good", "bad", "thumbs up", "thumbs down"),
    *("+1", "-1", "👍", "👎"),
)
_SPELLINGS: Final = {
    **dict.fromkeys(words("up positive good thumbsup thumbup thumbs👍 +1 👍"), UP),
    **dict.fromkeys(words("down negative bad thumbsdown thumbdown thumbs👎 -1 👎"), DOWN),
}
# Skin tones and the mark that asks for a picture instead of a sign.
_SHADES: Final = re.compile("[\U0001f3fb-\U0001f3ff\ufe0e\ufe0f]")
_REPEATED: Final = re.compile("([👍👎])\\1+")
_SHORTCODE: Final = re.compile(r":(.+):")
_JOINTS: Final = re.compile(r"[\s_-]+")


def polarity(signal: object) -> int | None:
    """1 for up, -1 for down, None for what is neither."""
    if not isinstance(signal, str):
        return None
    plain = unicodedata.normalize("NFKC", _SHADES.sub("", signal)).casefold().strip(" \t\n.!\"'")
    code = _SHORTCODE.fullmatch(plain)
    word = _REPEATED.sub(r"\1", code[1] if code else plain)
    return _SPELLINGS.get(word, _SPELLINGS.get(_JOINTS.sub("", word)))


def name(of: int | None) -> str:
    """A polarity as a word."""
    return {UP: "up", DOWN: "down"}.get(of or 0, "unknown")


GENERAL: Final = "general"
# Part of a word never counts: "recent process" is neither about cents nor about professionals.
_CUES: Final = {
    "testing": words("test tests testing pytest unittest jest coverage fixture assertion mock ci"),
    "security": words(
        "security secret secrets credential credentials password token vulnerability injection"
        " permission permissions authentication authorization auth encryption csrf xss"
    ),
    "performance": words(
        "performance slow latency speed memory-leak throughput timeout cache profiling benchmark"
    ),
    "git": words(
        "git commit commits push pushed rebase merge branch checkout stash pull-request cherry-pick"
    ),
    "api": words(
        "api endpoint endpoints http rest graphql webhook request response client-library"
    ),
    "data": words("database sql schema migration migrations query table column sqlite postgres"),
    "ui": words("ui css html button layout component components page dashboard frontend"),
    "documentation": words("documentation docs readme docstring comment comments changelog"),
    "debugging": words("bug bugs debug debugging traceback stacktrace exception crash error"),
    "architecture": words("architecture refactor refactoring module dependency abstraction layer"),
    "deployment": words("deploy deployed deployment release docker kubernetes rollback staging"),
    "revenue": words("revenue pricing invoice invoices billing subscription refund"),
    "customer": words("customer customers buyer buyers churn"),
    "funnel": words("funnel conversion onboarding signup checkout-flow"),
}
TOPICS: Final = tuple(_CUES)
_TOPIC_OF: Final = {stem(word): topic for topic, found in _CUES.items() for word in found}
_CHUNK: Final = re.compile(r"[\w-]+")


def word_list(text: str) -> list[str]:
    """Every whole word of a text in lower case; identifiers also fall into their parts."""
    found: list[str] = []
    for chunk in _CHUNK.findall(unicodedata.normalize("NFKC", text)):
        whole = chunk.strip("-_").lower()
        parts = [part.lower() for part in split_identifier(chunk)]
        found += [whole, *parts] if parts and parts != [whole] else [whole]
    return [word for word in found if word]


def read_topics(texts: Iterable[str]) -> Counter[str]:
    """How often the words of each topic stand in the texts, in the order of the table."""
    found = Counter(
        topic
        for text in texts
        for word in word_list(text)
        if (topic := _TOPIC_OF.get(stem(word))) is not None
    )
    return Counter({topic: found[topic] for topic in TOPICS if topic in found})


def domain(tags: Iterable[str], found: Mapping[str, int]) -> str:
    """The one topic that feedback is counted under: a tag somebody gave, else the commonest."""
    given = next((tag for tag in tags if tag in _CUES), None)
    return given or max(found, key=lambda topic: found[topic], default=GENERAL)
