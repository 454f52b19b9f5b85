"""What feedback is about: topics by whole words, and the one that it is counted under."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from meritory.text.stopwords import words
from meritory.text.terms import split_identifier
from meritory.text.traces import stem

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
