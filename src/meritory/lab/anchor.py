"""Finds the memory that a probe means by what it says, whatever became of its id."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

from meritory.domain.memory import MemoryRecord, Scope
from meritory.lab.probes import Probe
from meritory.store.contract.store import Store
from meritory.text.claims.values import protected_values, units_of
from meritory.text.normalize import canonical, content_hash
from meritory.text.terms import query_terms

How = Literal["exact", "moved", "contained", "values", "drifted"]
# A text that fits more memories than this means none of them.
AMBIGUOUS_FROM = 6
MERGES_READ = 10_000
# A word that more of the store has than this says little about which memory is meant.
RARE_SHARE, RARE_COUNT = 0.05, 3
_MIN_NEEDED = 2


@dataclass(frozen=True, slots=True)
class Anchor:
    """The memories of which any answers a probe, and how they were found; none when drifted."""

    how: How
    memory_ids: frozenset[str] = frozenset()
    why: str = ""


@dataclass(frozen=True, slots=True)
class AnchorText:
    """A text as it is compared: its canonical form, its words and values, whether it negates."""

    canonical: str
    words: frozenset[str]
    is_negated: bool


def read_text(text: str) -> AnchorText:
    """What is compared of a text."""
    units = units_of(text)
    words = {unit.key.casefold() for unit in units} | set(query_terms(text))
    return AnchorText(canonical(text), frozenset(words), protected_values(text).negation_count > 0)


def needed_words(text: str, rare: Callable[[str], bool]) -> frozenset[str]:
    """What another text must have to be meant by this one: its values and its rare words."""
    values = protected_values(text)
    specific = (*values.numbers, *values.identifiers, *values.paths, *values.quotes, *values.names)
    return frozenset(one.casefold() for one in specific) | {
        term for term in query_terms(text) if rare(term)
    }


def holds(inside: AnchorText, whole: AnchorText) -> bool:
    """Whether a text stands in another, from word to word."""
    sought, text = inside.canonical, whole.canonical
    at = text.find(sought) if sought else -1
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(sought) : at + len(sought) + 1]
        if not (_joins(before, sought[0]) or _joins(sought[-1], after)):
            return True
        at = text.find(sought, at + 1)
    return False


def _joins(left: str, right: str) -> bool:
    return bool(left and right) and left.isalnum() and right.isalnum()


def means_the_same(one: str, other: str) -> bool:
    """Whether a text says another, for labels: equal, contained, or all its words and values."""
    left, right = read_text(one), read_text(other)
    if left.canonical == right.canonical or holds(left, right) or holds(right, left):
        return True
    needed = needed_words(one, lambda term: True)
    is_all = len(needed) >= _MIN_NEEDED and needed <= right.words
    return is_all and left.is_negated == right.is_negated


class Anchors:
    """The memories of one user, as they are at one moment."""

    def __init__(self, store: Store, user: str, now: datetime) -> None:
        self._store = store
        self._user = user
        self._records = {record.id: record for record in store.walk(user)}
        self._live = [one for one in self._records.values() if _is_there(one, now)]
        self._by_hash: dict[str, list[MemoryRecord]] = {}
        for record in self._records.values():
            self._by_hash.setdefault(content_hash(record.content), []).append(record)

    @property
    def live(self) -> Sequence[MemoryRecord]:
        """What is there now, oldest first."""
        return self._live

    def find(self, probe: Probe, *, follows: bool = True) -> Anchor:
        """The memories that a probe means, or why it means none any more.

        `follows` takes what a memory was superseded by or merged into for it.
        """
        ways: tuple[tuple[How, Callable[[str], Iterable[MemoryRecord]]], ...] = (
            ("exact", self._exact),
            ("moved", self._successors if follows else lambda text: ()),
            ("contained", self._contained),
            ("values", self._by_values),
        )
        for how, way in ways:
            found = {one.id for text in probe.expected for one in way(text) if _sees(probe, one)}
            if len(found) >= AMBIGUOUS_FROM * len(probe.expected):
                return Anchor("drifted", why=f"fits {len(found)} memories: say it more exactly")
            if found:
                return Anchor(how, frozenset(found))
        return Anchor("drifted", why=self._why_not(probe))

    def _exact(self, text: str) -> list[MemoryRecord]:
        known = self._by_hash.get(content_hash(text), ())
        return [one for one in known if one.id in self._live_ids]

    def _successors(self, text: str) -> list[MemoryRecord]:
        """What stands now for a memory that was superseded, or merged into another."""
        digest = content_hash(text)
        starts = [one for one in self._by_hash.get(digest, ()) if not one.deleted_at]
        starts += [self._records[one] for one in self._merged.get(digest, ())]
        return [last for last in map(self._last, starts) if last is not None]

    def _last(self, record: MemoryRecord) -> MemoryRecord | None:
        seen: set[str] = set()
        current: MemoryRecord | None = record
        while current is not None and current.superseded_by is not None:
            if current.id in seen:
                return None
            seen.add(current.id)
            current = self._records.get(current.superseded_by)
        return current if current is not None and current.id in self._live_ids else None

    @cached_property
    def _live_ids(self) -> frozenset[str]:
        return frozenset(record.id for record in self._live)

    @cached_property
    def _merged(self) -> dict[str, list[str]]:
        """By the hash of a text that was merged: the memory it became part of."""
        scopes = {Scope(self._user, one.agent, one.project) for one in self._records.values()}
        found: dict[str, list[str]] = {}
        for scope in scopes:
            for entry in self._store.merges(scope, MERGES_READ):
                for part in (entry.before, entry.other):
                    if part is not None and entry.memory_id in self._records:
                        found.setdefault(content_hash(part.content), []).append(entry.memory_id)
        return found

    def _contained(self, text: str) -> list[MemoryRecord]:
        sought = read_text(text)
        return [one for one in self._live if holds(sought, self._texts[one.id])]

    def _by_values(self, text: str) -> list[MemoryRecord]:
        limit = max(RARE_COUNT, math.ceil(RARE_SHARE * len(self._live)))
        needed = needed_words(text, lambda term: self._frequency[term] <= limit)
        if len(needed) < _MIN_NEEDED:
            return []
        is_negated = read_text(text).is_negated
        texts = ((one, self._texts[one.id]) for one in self._live)
        return [one for one, has in texts if needed <= has.words and has.is_negated == is_negated]

    @cached_property
    def _texts(self) -> dict[str, AnchorText]:
        return {record.id: read_text(record.content) for record in self._live}

    @cached_property
    def _frequency(self) -> Counter[str]:
        return Counter(word for text in self._texts.values() for word in text.words)

    def _why_not(self, probe: Probe) -> str:
        known = [
            one for text in probe.expected for one in self._by_hash.get(content_hash(text), ())
        ]
        if any(one.id in self._live_ids for one in known):
            places = {one.project or one.agent or "no project" for one in known}
            return f"it belongs to {', '.join(sorted(places))}, where the probe does not look"
        return "it was deleted or has expired" if known else "no memory says it"


def _is_there(record: MemoryRecord, now: datetime) -> bool:
    return record.is_live and (record.valid_until is None or record.valid_until > now)


def _sees(probe: Probe, record: MemoryRecord) -> bool:
    return record.agent is None and record.project in (None, probe.project)
