"""Every field of a memory comes back as it went in, through the store and through JSON."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.builders import EMBEDDER, NOW, change, indexed, unit
from contract.shelf import Shelf
from meritory.domain.codec import record_from_dict, record_to_dict
from meritory.domain.memory import (
    KINDS,
    ORIGINS,
    PROVENANCES,
    UNTRUSTED_ORIGINS,
    MemoryRecord,
    Scope,
    Source,
    Trust,
)
from meritory.domain.world import ID_LENGTH
from meritory.store.contract.store import Transaction

# Marks that are invisible, turn the direction, join, or belong to nobody.
ODD = "\u202e\u2066\u200b\u200d\ufeff\u00ad\ue000\U000f0000\U0001f469\u200d\U0001f680\u0301\x1b"
LARGEST = 2**62
# Both backends run these tests: an example that failed on one is worth trying on the other.
SHARED = [
    HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow,
    HealthCheck.differing_executors,
]

characters = st.one_of(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), st.sampled_from(ODD)
)
texts = st.text(characters, min_size=1, max_size=40)
contents = st.one_of(texts, st.just("ß" * 8_192), st.just("' OR 1=1; -- \" \\ %s {} $1 ?"))
names = st.one_of(st.none(), texts)
ids = st.text("0123456789abcdefghjkmnpqrstvwxyz", min_size=ID_LENGTH, max_size=ID_LENGTH)
shares = st.one_of(
    st.floats(0.0, 1.0),
    st.sampled_from([0.0, -0.0, 1.0, 5e-324, 2.2e-308, 0.1 + 0.2, 1 - 2**-53, 0, 1]),
)
counts = st.one_of(st.integers(0, 9), st.sampled_from([LARGEST, 2**31, 2**53 + 1]))
offsets = st.integers(-24 * 60 + 1, 24 * 60 - 1).map(lambda m: timezone(timedelta(minutes=m)))


def fits_in_utc(moment: datetime) -> bool:
    """Whether the moment lies in the years 1 to 9999 of UTC too."""
    try:
        moment.astimezone(UTC)
    except OverflowError:
        return False
    return True


moments = st.one_of(
    st.datetimes(timezones=offsets).filter(fits_in_utc),
    st.sampled_from(
        [
            datetime.min.replace(tzinfo=UTC),
            datetime.max.replace(tzinfo=UTC),
            datetime(2024, 2, 29, 23, 59, 59, 1, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        ]
    ),
)
sources = st.builds(
    Source, harness=names, session_key=names, turn=names, quote_hash=names, extractor=names
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(characters | st.just("\0"), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": ids,
    "content": contents,
    "kind": st.sampled_from(KINDS),
    "user": texts,
    "agent": names,
    "project": names,
    "provenance": st.sampled_from(PROVENANCES),
    "origin": st.sampled_from(ORIGINS),
    "trust": st.sampled_from(get_args(Trust)),
    "confidence": shares,
    "importance": shares,
    "pinned": st.booleans(),
    "demotion": counts,
    "tags": st.lists(texts, max_size=4).map(tuple),
    "metadata": st.dictionaries(texts, values, max_size=3),
    "sources": st.lists(sources, max_size=3).map(tuple),
    "valid_from": st.none() | moments,
    "valid_until": st.none() | moments,
    "created_at": moments,
    "updated_at": moments,
    "superseded_by": st.none() | ids,
    "deleted_at": st.none() | moments,
    "access_count": counts,
    "last_accessed": st.none() | moments,
    "usefulness": shares,
    # Not given but derived: they tell whose vector the store holds.
    "embedder": st.sampled_from([None, EMBEDDER.name]),
    "dimension": st.none(),
}
EVERYWHERE = np.arange(100_000)
LONG_AGO = datetime.min.replace(tzinfo=UTC)


@st.composite
def records(draw: st.DrawFn) -> MemoryRecord:
    """Any memory that may be stored."""
    given = {name: draw(strategy) for name, strategy in FIELDS.items()}
    given["dimension"] = EMBEDDER.dimension if given["embedder"] else None
    return MemoryRecord(**given)


def typed(memory: MemoryRecord) -> dict[str, Any]:
    """The fields with their types, for 1 == 1.0 == True is not good enough."""
    return {
        field.name: (type(value := getattr(memory, field.name)).__name__, value)
        for field in dataclasses.fields(memory)
    }


def as_stored(memory: MemoryRecord) -> MemoryRecord:
    """What must come back: the same moments in UTC, and numbers of the declared type."""
    values = {
        field.name: value.astimezone(UTC)
        if isinstance(value := getattr(memory, field.name), datetime)
        else value
        for field in dataclasses.fields(memory)
    }
    for name in ("confidence", "importance", "usefulness"):
        values[name] = float(values[name])
    return MemoryRecord(**values)


def put(transaction: Transaction, memory: MemoryRecord) -> None:
    """Stores the memory alone: what an earlier example left is erased first."""
    vectors = {memory.embedder: unit(1, 2, 3, 4)} if memory.embedder else {}
    transaction.insert(indexed(memory, vectors=vectors), change())


class RoundTrip:
    def test_every_field_of_a_memory_is_tried(self) -> None:
        assert list(FIELDS) == [field.name for field in dataclasses.fields(MemoryRecord)]
        assert {f.name for f in dataclasses.fields(Source)} == {
            "harness",
            "session_key",
            "turn",
            "quote_hash",
            "extractor",
        }
        assert set(ORIGINS) >= UNTRUSTED_ORIGINS

    @settings(max_examples=60, suppress_health_check=SHARED)
    @given(memory=records())
    def test_a_memory_comes_back_from_the_store(self, shelf: Shelf, memory: MemoryRecord) -> None:
        store, expected = shelf.store, as_stored(memory)
        store.register_embedder(EMBEDDER)
        store.write(memory.user, lambda t: put(t, memory))
        try:
            assert typed(store.get(memory.user, memory.id)) == typed(expected)
            assert store.write(memory.user, lambda t: t.get(memory.user, memory.id)) == expected
            assert list(store.walk(memory.user)) == [expected]
            (entry,) = store.history(memory.user, memory.id)
            assert entry.after == expected
            changed = dataclasses.replace(memory, content="changed", deleted_at=None)
            note = change("update", before=memory, other=memory)
            store.write(memory.user, lambda t: t.update(indexed(changed), note))
            entry = store.history(memory.user, memory.id)[-1]
            assert entry.before == expected
            assert entry.other == expected
            if changed.superseded_by is None and memory.valid_until is None:
                scope = Scope(memory.user, memory.agent, memory.project)
                (fetched,) = store.fetch(scope, EVERYWHERE, NOW).values()
                assert fetched == dataclasses.replace(
                    as_stored(changed), embedder=None, dimension=None
                )
        finally:
            store.write(memory.user, lambda t: t.purge(memory.user, memory.id))

    @settings(
        max_examples=25,
        suppress_health_check=SHARED,
    )
    @given(memories=st.lists(records(), max_size=8, unique_by=lambda m: m.id))
    def test_memories_come_back_after_reopening(
        self, shelf: Shelf, memories: list[MemoryRecord]
    ) -> None:
        shelf.store.register_embedder(EMBEDDER)
        for memory in memories:
            shelf.store.write(memory.user, lambda t, one=memory: put(t, one))
        store = shelf.reopen()
        try:
            for memory in memories:
                assert typed(store.get(memory.user, memory.id)) == typed(as_stored(memory))
            assert store.check(deep=True) == []
        finally:
            for memory in memories:
                store.write(memory.user, lambda t, one=memory: t.purge(one.user, one.id))

    @settings(suppress_health_check=SHARED)
    @given(memory=records())
    def test_a_memory_comes_back_from_json(self, memory: MemoryRecord) -> None:
        plain = record_to_dict(memory)
        assert list(plain) == list(FIELDS)
        again = record_from_dict(json.loads(json.dumps(plain)))
        assert again == memory
        assert typed(again) == typed(
            dataclasses.replace(
                as_stored(memory),
                confidence=memory.confidence,
                importance=memory.importance,
                usefulness=memory.usefulness,
            )
        )
