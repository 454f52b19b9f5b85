"""Links between memories: chains of values, open pairs and decisions, each user's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from contract.builders import NOW, insert, memory_id, record
from contract.shelf import Shelf
from meritory.domain.errors import NotFound
from meritory.domain.memory import Scope
from meritory.domain.quality import LinkKind, MemoryLink
from meritory.store.contract.store import Store


def link(older: int, newer: int, kind: LinkKind = "newer", hours: int = 0) -> MemoryLink:
    return MemoryLink(
        older_id=memory_id(older),
        newer_id=memory_id(newer),
        kind=kind,
        cosine=0.8,
        reason="another value",
        at=NOW + timedelta(hours=hours),
    )


def steps(store: Store, *numbers: int, user: str = "default", **options: bool) -> set[str]:
    """The steps from memories to later values, as "1>2"; in brackets if none may see the value."""
    found = store.later_values(Scope(user), [memory_id(n) for n in numbers], NOW, **options)
    number = {memory_id(n): n for n in range(1, 9)}
    return {
        ("{}>{}" if one.is_present else "({}>{})").format(
            number[one.older_id], number[one.newer_id]
        )
        for one in found
    }


def chained(store: Store, *links: MemoryLink, user: str = "default") -> None:
    store.write(user, lambda transaction: transaction.put_links(user, links))


class Links:
    def test_a_chain_leads_to_every_later_value(self, shelf: Shelf) -> None:
        insert(shelf.store, *(record(n, created_at=NOW + timedelta(days=n)) for n in range(1, 5)))
        chained(shelf.store, link(1, 2), link(2, 3), link(1, 3), link(3, 4, "alike"))
        every = [memory_id(n) for n in range(1, 5)]
        for store in shelf.before_and_after_reopening():
            assert steps(store, 1) == steps(store, 1, 2, 3, 4) == {"1>2", "1>3", "2>3"}
            assert steps(store, 3, 4) == steps(store, 1, user="eve") == set()
            times = {one.since for one in store.later_values(Scope(), every[1:2], NOW)}
            assert times == {NOW + timedelta(days=3)}
            assert store.links_of("default", [memory_id(4)]) == [link(3, 4, "alike")]
            assert len(store.links_of("default", every)) == 4
            assert store.earlier_values("default", every[2:]) == [
                (memory_id(1), memory_id(3)),
                (memory_id(2), memory_id(3)),
            ]
            assert store.earlier_values("eve", every) == []

    def test_a_chain_passes_through_superseded_memories(self, store: Store) -> None:
        insert(store, record(1), record(2, superseded_by=memory_id(3)), record(3))
        chained(store, link(1, 2))
        assert steps(store, 1) == {"(1>2)", "2>3"}
        assert store.earlier_values("default", [memory_id(3)]) == [(memory_id(2), memory_id(3))]

    @pytest.mark.parametrize(
        "fields",
        [
            {"valid_until": NOW},
            {"deleted_at": NOW},
            {"project": "heron"},
            {"agent": "codex"},
        ],
        ids=str,
    )
    def test_a_value_that_cannot_be_served_is_not_present(
        self, store: Store, fields: dict[str, Any]
    ) -> None:
        insert(store, record(1), record(2, **fields), record(3, trust="untrusted"))
        chained(store, link(1, 2), link(1, 3))
        assert steps(store, 1) == {"(1>2)", "1>3"}
        assert steps(store, 1, trusted=True) == {"(1>2)", "(1>3)"}

    def test_a_purge_ends_the_links_of_a_memory(self, store: Store) -> None:
        insert(store, *(record(n, created_at=NOW + timedelta(days=n)) for n in range(1, 4)))
        chained(store, link(1, 2), link(2, 3))
        store.write("default", lambda t: t.purge("default", memory_id(3)))
        assert steps(store, 1) == {"1>2"}
        assert store.links_of("default", [memory_id(2)]) == [link(1, 2)]

    def test_a_circle_ends(self, store: Store) -> None:
        insert(store, *(record(n, created_at=NOW + timedelta(days=n)) for n in (1, 2)))
        chained(store, link(1, 2), link(2, 1))
        assert steps(store, 1) == steps(store, 2) == {"1>2", "2>1"}

    def test_open_links_can_be_dropped(self, store: Store) -> None:
        insert(store, record(1), record(2), record(3))
        chained(store, link(1, 2), link(2, 3), link(1, 3))
        pair = (memory_id(2), memory_id(3))
        store.write("default", lambda t: t.decide_link("default", *pair, "newer", "person", NOW))
        store.write("eve", lambda t: t.drop_open_links("eve", memory_id(2)))
        assert len(store.links_of("default", pair)) == 3
        store.write("default", lambda t: t.drop_open_links("default", memory_id(2)))
        assert steps(store, 1, 2) == {"1>3", "2>3"}

    def test_a_decision_counts_and_can_be_taken_back(self, store: Store) -> None:
        insert(store, record(1), record(2), record(3))
        chained(store, link(1, 2), link(1, 3, "alike", hours=1))
        assert store.open_links("default", 9) == [link(1, 3, "alike", hours=1), link(1, 2)]
        assert len(store.open_links("default", 1)) == 1
        pair = (memory_id(1), memory_id(2))
        store.write("default", lambda t: t.decide_link("default", *pair, "separate", "person", NOW))
        assert steps(store, 1, 2) == set()
        assert store.open_links("default", 9) == [link(1, 3, "alike", hours=1)]
        # Found again by the gate, it stays decided.
        chained(store, link(1, 2))
        (kept,) = store.links_of("default", [memory_id(2)])
        assert (kept.decision, kept.decided_by, kept.is_chain) == ("separate", "person", False)
        store.write("default", lambda t: t.decide_link("default", *pair, None, "person", NOW))
        assert steps(store, 1) == {"1>2"}
        other = (memory_id(1), memory_id(3))
        store.write("default", lambda t: t.decide_link("default", *other, "newer", "agent", NOW))
        assert steps(store, 1) == {"1>2", "1>3"}
        found = store.later_values(Scope(), [memory_id(1)], NOW)
        assert [one.is_decided for one in found] == [False, True]
        with pytest.raises(NotFound):
            store.write("eve", lambda t: t.decide_link("eve", *pair, "same", "eve", NOW))

    def test_links_of_no_use_are_dropped_but_not_decisions(self, store: Store) -> None:
        insert(store, record(1), record(2), record(3))
        chained(store, link(1, 2, "alike"), link(2, 3, "alike", hours=1), link(1, 3))
        store.write("default", lambda t: t.purge("default", memory_id(3)))
        chained(store, link(2, 3, "alike", hours=1))
        # Also the one whose memory is gone, which the open links leave out.
        alike = [link(2, 3, "alike", hours=1), link(1, 2, "alike")]
        assert store.undecided_links("default", "alike", 9) == alike
        assert store.undecided_links("default", "alike", 1) == alike[:1]
        assert store.undecided_links("eve", "alike", 9) == []
        pair = (memory_id(1), memory_id(2))
        store.write("eve", lambda t: t.drop_links("eve", alike))
        assert len(store.undecided_links("default", "alike", 9)) == 2
        store.write("default", lambda t: t.decide_link("default", *pair, "separate", "a", NOW))
        store.write("default", lambda t: t.drop_links("default", alike))
        assert store.undecided_links("default", "alike", 9) == []
        (kept,) = store.links_of("default", pair)
        assert kept.decision == "separate"

    def test_an_unsure_link_is_no_chain_and_leads_to_what_is_present(self, store: Store) -> None:
        moments = [NOW + timedelta(days=n) for n in range(1, 6)]
        insert(
            store,
            *(record(n, created_at=at) for n, at in enumerate(moments[:2], start=1)),
            record(3, superseded_by=memory_id(4), created_at=moments[2]),
            record(4, created_at=moments[3]),
            record(5, created_at=moments[4], project="heron"),
        )
        chained(store, link(1, 2, "unsure"), link(1, 3, "unsure"), link(2, 5, "unsure"))

        def values(*numbers: int, user: str = "default") -> list[tuple[str, str, bool]]:
            ids = [memory_id(n) for n in numbers]
            found = store.unsure_values(Scope(user), ids, NOW)
            return [(one.older_id[-1], one.newer_id[-1], one.is_present) for one in found]

        reached = [("1", "2", True), ("1", "3", False), ("1", "4", True)]
        assert values(1) == reached
        # Unsure steps do not add up: 5 is no value of 1; and another project does not see it.
        assert values(1, 2, 3, 4) == [*reached, ("2", "5", False)]
        assert values(1, user="eve") == values(4) == []
        assert steps(store, 1, 2) == set()
        assert store.earlier_values("default", [memory_id(2)]) == []
        assert store.open_links("default", 9) == []
        assert len(store.undecided_links("default", "unsure", 9)) == 3

    def test_a_decided_unsure_link_is_sure_or_none(self, store: Store) -> None:
        insert(store, record(1), record(2), record(3))
        chained(store, link(1, 2, "unsure"), link(1, 3, "unsure"))
        for number, decision in ((2, "newer"), (3, "separate")):
            pair = (memory_id(1), memory_id(number))
            store.write(
                "default",
                lambda t, pair=pair, to=decision: t.decide_link("default", *pair, to, "a", NOW),
            )
        assert store.unsure_values(Scope(), [memory_id(1)], NOW) == []
        assert steps(store, 1) == {"1>2"}
