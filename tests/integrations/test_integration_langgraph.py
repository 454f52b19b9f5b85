"""The LangGraph store: it does what LangGraph's own does, and nothing is lost in between."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from meritory import Memory
from meritory.domain.errors import InputError, PersonOnly, TooLarge
from meritory.integrations.langgraph import TAG, MeritoryStore, does_match

VALUES: list[dict[str, Any]] = [
    {"memory": "Ann likes tea"},
    {"text": ""},
    {"text": " spaces stay \n"},
    {"text": "\x00\ud800\ufeff"},
    {"text": "\ufeffa mark"},
    {},
    {"a": None, "b": [1, 2.5, {"c": True}], "é": "☃"},
    {"1": 1},
    {" odd key ": "text"},
    {"k" * 100: "text"},
    {"a,b": "text"},
    {"n": 12345678901234567890, "f": 1e-300},
]


@pytest.fixture
def store(memory: Memory) -> MeritoryStore:
    return MeritoryStore(memory)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_exactly(store: MeritoryStore, value: dict[str, Any]) -> None:
    store.put(("docs", "x"), "key", value)
    item = store.get(("docs", "x"), "key")
    assert item is not None
    assert item.value == value
    assert (item.namespace, item.key) == (("docs", "x"), "key")
    assert item.created_at.tzinfo is UTC


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(value=st.dictionaries(st.text(), JSON, max_size=4))
def test_any_json_comes_back_exactly(value: dict[str, Any], any_store: MeritoryStore) -> None:
    any_store.put(("any",), "one", value)
    found = any_store.get(("any",), "one")
    assert found is not None
    assert found.value == value


@pytest.fixture(scope="module")
def any_store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Memory(tmp_path_factory.mktemp("any") / "meritory.db") as memory:
        yield MeritoryStore(memory)


def filled(store: Any) -> Any:
    store.put(("users", "ann", "facts"), "1", {"memory": "Ann likes tea", "n": 1, "of": {"x": 1}})
    store.put(("users", "ann", "facts"), "2", {"memory": "Ann has a cat", "n": 2, "tags": ["a"]})
    store.put(("users", "bob"), "1", {"memory": "Bob likes coffee", "n": 3})
    store.put(("docs",), "1", {"memory": "a report", "n": 4})
    store.put(("docs",), "gone", {"memory": "nobody needs this"})
    store.delete(("docs",), "gone")
    store.put(("docs",), "1", {"memory": "a better report", "n": 4})
    return store


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        {"n": 1},
        {"n": {"$gt": 1}},
        {"n": {"$gte": 2, "$lt": 4}},
        {"n": {"$ne": 2}},
        {"n": {"$eq": 3}},
        {"n": {"$lte": 1}},
        {"of": {"x": 1}},
        {"tags": ["a"]},
        {"tags": ["b"]},
        {"nothing": 1},
        {"nothing": None},
    ],
    ids=repr,
)
@pytest.mark.parametrize("prefix", [(), ("users",), ("users", "ann"), ("docs",), ("nobody",)])
def test_searches_find_what_langgraphs_own_store_finds(
    memory: Memory, prefix: tuple[str, ...], wanted: dict[str, Any] | None
) -> None:
    own, other = filled(MeritoryStore(memory)), filled(InMemoryStore())
    found, due = (
        {(item.namespace, item.key): item.value for item in one.search(prefix, filter=wanted)}
        for one in (own, other)
    )
    assert found == due


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prefix": ("users",)},
        {"prefix": ("users", "*")},
        {"suffix": ("facts",)},
        {"max_depth": 1},
        {"max_depth": 2, "prefix": ("users",)},
        {"limit": 1},
        {"limit": 1, "offset": 1},
    ],
    ids=repr,
)
def test_namespaces_are_listed_as_by_langgraphs_own_store(
    memory: Memory, options: dict[str, Any]
) -> None:
    own, other = filled(MeritoryStore(memory)), filled(InMemoryStore())
    assert own.list_namespaces(**options) == other.list_namespaces(**options)


def test_a_search_in_words_comes_with_scores(store: MeritoryStore) -> None:
    filled(store)
    found = store.search(("users",), query="who likes tea?", limit=2)
    assert found[0].value["memory"] == "Ann likes tea"
    assert found[0].score is not None
    assert store.search(("users", "bob"), query="who likes coffee?")[0].key == "1"
    assert store.search(("users",), query="who likes tea?", limit=1, offset=1) == found[1:2]
    store.put(("users", "eve"), "1", {"memory": "Eve likes tea as well"}, index=False)
    assert "eve" not in {i.namespace[1] for i in store.search(("users",), query="likes tea?")}


def test_putting_again_changes_and_deleting_forgets(store: MeritoryStore, memory: Memory) -> None:
    store.put(("a",), "k", {"memory": "first"})
    first = store.get(("a",), "k")
    store.put(("a",), "k", {"x": 1, "y": 2})
    second = store.get(("a",), "k")
    assert first is not None and second is not None
    assert second.value == {"x": 1, "y": 2}
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert len(memory.page(tag=TAG)) == 1
    store.delete(("a",), "k")
    store.delete(("a",), "k")
    assert store.get(("a",), "k") is None


def test_the_store_is_an_agents_surface(store: MeritoryStore, memory: Memory) -> None:
    store.put(("ann",), "home", {"text": "Ann lives in Lisbon"}, ttl=60)
    (record,) = memory.page()
    assert (record.provenance, record.origin) == ("assistant_derived", "agent")
    bound = memory.update(record.id, pinned=True)
    for value in (None, {"text": "Ann lives in Porto"}):
        with pytest.raises(PersonOnly):
            store.batch([PutOp(("ann",), "home", value)])
    # Reading restarts no lifetime of a pin, and works.
    found = store.get(("ann",), "home")
    assert found is not None and found.value == {"text": "Ann lives in Lisbon"}
    assert memory.get(bound.id) == bound


def test_similar_items_stay_apart(store: MeritoryStore) -> None:
    for number in range(3):
        store.put(("a",), str(number), {"memory": "The very same words"})
    assert len(store.search(("a",))) == 3


def test_a_batch_does_everything_in_order(store: MeritoryStore) -> None:
    ops = [
        PutOp(("a",), "1", {"v": 1}),
        GetOp(("a",), "1"),
        SearchOp(("a",)),
        ListNamespacesOp(),
        PutOp(("a",), "1", None),
        GetOp(("a",), "1"),
    ]
    results = asyncio.run(store.abatch(ops))
    assert results[0] is None
    assert results[1].value == {"v": 1}  # type: ignore[union-attr]
    assert len(results[2]) == 1  # type: ignore[arg-type]
    assert results[3] == [("a",)]
    assert results[4:] == [None, None]


def test_items_live_as_long_as_they_were_given(store: MeritoryStore, memory: Memory) -> None:
    store.put(("a",), "k", {"memory": "soon gone"}, ttl=5)
    record = memory.page(tag=TAG)[0]
    left = record.valid_until - datetime.now(UTC)  # type: ignore[operator]
    assert timedelta(minutes=4) < left <= timedelta(minutes=5)
    memory.update(record.id, valid_until=datetime.now(UTC) + timedelta(seconds=30))
    assert store.get(("a",), "k", refresh_ttl=False) is not None
    assert store.get(("a",), "k") is not None
    assert memory.get(record.id).valid_until > datetime.now(UTC) + timedelta(minutes=4)  # type: ignore[operator]
    memory.update(record.id, valid_until=datetime.now(UTC) - timedelta(seconds=1))
    assert store.get(("a",), "k") is None
    assert store.search(("a",)) == []
    store.put(("a",), "k", {"memory": "back again"})
    assert store.get(("a",), "k").value == {"memory": "back again"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "value", [{"a": object()}, {"a": (1, 2)}, {1: "a"}, {"a": float("nan")}, {"a": {1, 2}}]
)
def test_what_would_not_come_back_the_same_is_refused(store: MeritoryStore, value: Any) -> None:
    with pytest.raises(InputError):
        store.put(("a",), "k", value)
    assert store.get(("a",), "k") is None


def test_limits_are_said(store: MeritoryStore) -> None:
    with pytest.raises(TooLarge):
        store.put(("a",), "k", {"v": "x" * 9_000, "w": 1})
    for namespace in ((), ("a.b",), ("a", "")):
        with pytest.raises(InputError):
            store.batch([PutOp(namespace, "k", {"v": 1})])
    with pytest.raises(InputError):
        filled(store).search((), filter={"n": {"$near": 1}})
    with pytest.raises(InputError):
        store.batch([object()])  # type: ignore[list-item]


def test_what_is_no_number_is_neither_more_nor_less() -> None:
    assert not does_match({"n": "many"}, {"n": {"$gt": 1}})
    assert not does_match({}, {"n": {"$lt": 1}})


def test_memories_of_others_are_not_items(store: MeritoryStore, memory: Memory) -> None:
    memory.remember("Ann likes tea", tags=[TAG])
    memory.remember("Ann likes tea very much")
    assert store.search((), query="who likes tea?") == []
    assert store.search(()) == []
