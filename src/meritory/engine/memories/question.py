"""A question as recall searches for it: its words, their corrections and other spellings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from meritory.domain.memory import RecallFilter, Scope
from meritory.engine.memories.embedding import QueryVector
from meritory.engine.services import Services
from meritory.ports.token_table import token_table
from meritory.store.contract.memories import NO_FILTER, Search
from meritory.text.terms import query_pairs, query_terms
from meritory.text.typos import edit_limit, other_spellings


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """A question, and the words that a search may take for words of it."""

    text: str
    # The text with the corrections of words that no memory has.
    read_text: str
    terms: tuple[str, ...]
    near_terms: tuple[str, ...]
    vector: QueryVector
    # The words taken for others, by the typed word.
    read_as: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """Return the words that were read as others, as text."""
        return ", ".join(f"{typed} = {' '.join(words)}" for typed, words in self.read_as.items())

    def search(
        self,
        scope: Scope,
        *,
        hit_limit: int = 0,
        injectable_at: datetime | None = None,
        wanted: RecallFilter = NO_FILTER,
    ) -> Search:
        """Return the search for this question."""
        return Search(
            scope,
            self.terms,
            self.vector.embedder,
            self.vector.vector,
            phrases=query_pairs(self.text),
            near_terms=self.near_terms,
            hit_limit=hit_limit,
            injectable_at=injectable_at,
            filter=wanted,
        )


def read_question(services: Services, scope: Scope, text: str) -> SearchQuestion:
    """Return a question with the corrections that the store's own words suggest."""
    terms = query_terms(text)
    read_as: dict[str, tuple[str, ...]] = {}
    lost: Mapping[str, tuple[str, ...]] = {}
    if services.policy.recall.corrects_words:
        # An abbreviation finds the whole word also if memories have both.
        read_as = {term: words for term in terms if (words := other_spellings(term))}
        typed = [term for term in terms if term in read_as or _may_be_typo(term)]
        lost = services.store.near_words(Search(scope, ()), typed) if typed else {}
        read_as = {**{term: words for term, words in lost.items() if words}, **read_as}
    near = tuple(dict.fromkeys(word for words in read_as.values() for word in words))
    read_text = text
    for term, words in read_as.items():
        if term in lost:
            read_text = _replaced(read_text, term, " ".join(words))
    vector = services.embedding.query(read_text)
    near = tuple(word for word in near if word not in terms)
    return SearchQuestion(text, read_text, terms, near, vector, read_as)


def _may_be_typo(term: str) -> bool:
    """Return whether a word is in no dictionary, so that it may be a typo or an inflection."""
    return edit_limit(term) > 0 and not token_table().is_word(term)


def _replaced(text: str, term: str, words: str) -> str:
    return re.sub(rf"(?<!\w){re.escape(term)}(?!\w)", lambda _: words, text, flags=re.IGNORECASE)
