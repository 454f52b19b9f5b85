"""Counts, audits, neighbours and retention: each user's own, and nothing that is still needed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest

from contract.builders import EMBEDDER, NOW, change, indexed, insert, memory_id, record, unit
from contract.feedback import event as report
from contract.rules import ACTION, RULE
from contract.sessions import begin, candidate, injection
from contract.shelf import Shelf
from meritory.domain.errors import NotFound
from meritory.domain.memory import HistoryEntry, Scope, Source
from meritory.domain.quality import Keepsake, Refusal, Retrieval
from meritory.domain.session import Event, Labelled, Turn
from meritory.store.contract.memories import NeighbourProbe
from meritory.store.contract.store import Store, Transaction

DAY = timedelta(days=1)
LATER = NOW + DAY
KEPT = Refusal(
    id="01refusal00000000000000001",
    at=NOW,
    user="default",
    agent=None,
    project=None,
    session_key=None,
    content="a claim",
    kind="fact",
    provenance="assistant_derived",
    origin="agent",
    confidence=0.5,
    turn=None,
    quote="a claim",
    reason="too vague",
    extractor="rules/1",
)


def merge(store: Store, number: int, user: str = "default", at: datetime = NOW) -> HistoryEntry:
    """A memory that another text was merged into; returns the history entry of that."""
    before = record(number, user=user)
    other = record(number + 1_000, user=user)
    note = replace(change("merge", before=before, other=other, other_id=other.id), at=at)

    def work(transaction: Transaction) -> None:
        transaction.insert(indexed(before), replace(change(), at=at))
        transaction.update(indexed(replace(before, content=f"merged {number}")), note)

    store.write(user, work)
    return store.history(user, before.id)[-1]


def expire(store: Store, what: Keepsake, limit: int = 100, user: str = "default") -> int:
    return store.write(user, lambda t: t.expire(user, what, LATER, limit))


class Upkeep:
    def test_retrievals_add_up_and_stay(self, shelf: Shelf) -> None:
        insert(shelf.store, record(1), record(2), record(3))
        for at, counts in (
            (LATER, {memory_id(1): 2, memory_id(2): 1, "nobody": 5}),
            (NOW, {memory_id(1): 40}),
        ):
            shelf.store.write(
                "default", lambda t, at=at, c=counts: t.add_retrievals("default", c, at)
            )
        for store in shelf.before_and_after_reopening():
            found = store.retrievals("default", [memory_id(n) for n in (1, 2, 3)])
            assert found == {memory_id(1): Retrieval(42, LATER), memory_id(2): Retrieval(1, LATER)}
            # Counting is no change, neither of the memory nor of its history.
            assert len(store.history("default", memory_id(1))) == 1
            assert store.get("default", memory_id(1)) == record(1)

    def test_nobody_counts_what_is_anothers(self, store: Store) -> None:
        insert(store, record(1), record(2, user="eve"))
        store.write(
            "eve", lambda t: t.add_retrievals("eve", {memory_id(1): 9, memory_id(2): 1}, NOW)
        )
        assert store.retrievals("default", [memory_id(1), memory_id(2)]) == {}
        assert store.retrievals("eve", [memory_id(1)]) == {}
        assert store.retrievals("eve", [memory_id(2)]) == {memory_id(2): Retrieval(1, NOW)}

    def test_counts_go_with_an_erased_memory(self, store: Store) -> None:
        insert(store, record(1))
        store.write("default", lambda t: t.add_retrievals("default", {memory_id(1): 1}, NOW))
        store.write("default", lambda t: t.purge("default", memory_id(1)))
        insert(store, record(1))
        assert store.retrievals("default", [memory_id(1)]) == {}

    def test_the_last_word_about_a_merge_counts(self, shelf: Shelf) -> None:
        entries = [merge(shelf.store, number).entry for number in (1, 2)]
        for verdict in ("right", "wrong"):
            shelf.store.write(
                "default", lambda t, v=verdict: t.put_merge_audit("default", entries[0], v, NOW)
            )
        shelf.store.write(
            "default", lambda t: t.put_merge_audit("default", entries[1], "right", NOW)
        )
        for store in shelf.before_and_after_reopening():
            assert store.merge_audits("default") == {entries[0]: "wrong", entries[1]: "right"}
            assert store.merge_audits("eve") == {}
        store.write("default", lambda t: t.purge("default", memory_id(1)))
        assert store.merge_audits("default") == {entries[1]: "right"}

    def test_merges_are_named_by_their_entry_and_their_user(self, store: Store) -> None:
        found = merge(store, 1)
        assert store.merge_entry("default", found.entry) == found
        created = store.history("default", memory_id(1))[0].entry
        for user, entry in (("eve", found.entry), ("default", created), ("default", 10**15)):
            with pytest.raises(NotFound):
                store.merge_entry(user, entry)

    def test_merges_of_a_user_come_in_pages(self, store: Store) -> None:
        entries = [merge(store, number) for number in (1, 2, 3)]
        merge(store, 4, user="eve")
        assert store.merges_of("default", 2) == [entries[2], entries[1]]
        assert store.merges_of("default", 2, entries[1].entry) == [entries[0]]
        store.write("default", lambda t: t.mark_undone("default", [entries[2].entry]))
        assert [one.undone for one in store.merges_of("default", 9)] == [True, False, False]

    def test_outcomes_are_counted_by_the_week_they_fell_into(self, store: Store) -> None:
        monday = datetime(2026, 5, 4, tzinfo=UTC)
        for number, at in ((1, monday), (2, monday + 6 * DAY), (3, monday + 7 * DAY)):
            merge(store, number, at=at)
        merge(store, 4, user="eve", at=monday)
        assert store.gate_outcomes("default", monday - DAY) == [
            ("2026-05-04", "merged", 2),
            ("2026-05-04", "stored", 2),
            ("2026-05-11", "merged", 1),
            ("2026-05-11", "stored", 1),
        ]
        since = store.gate_outcomes("default", monday + 7 * DAY)
        assert {date.fromisoformat(one.week) for one in since} == {date(2026, 5, 11)}
        assert store.gate_outcomes("nobody", monday) == []

    def test_neighbours_are_those_of_exactly_one_scope(self, store: Store) -> None:
        store.register_embedder(EMBEDDER)
        vectors = {1: (1, 0, 0, 0), 2: (1, 0.1, 0, 0), 3: (0, 1, 0, 0), 4: (1, 0, 0, 0)}
        for number, vector in vectors.items():
            project = "shop" if number == 4 else None
            memory = record(number, project=project)
            insert(store, indexed(memory, vectors={EMBEDDER.name: unit(*vector)}))
        before = store.counters("default")
        asked = NeighbourProbe(Scope(), EMBEDDER.name, unit(1, 0, 0, 0)[None, :], 8, 0.5)
        (near,) = store.nearest(asked)
        assert [one.memory.id for one in near] == [memory_id(1), memory_id(2)]
        assert all(one.cosine >= other.cosine for one, other in pairwise(near))
        (shop,) = store.nearest(replace(asked, scope=Scope(project="shop")))
        assert [one.memory.id for one in shop] == [memory_id(4)]
        assert store.nearest(replace(asked, scope=Scope(project="none"))) == [[]]
        assert store.nearest(replace(asked, scope=Scope("eve"))) == [[]]
        second = record(2).content
        wanted = replace(asked, is_wanted=lambda at, text, cosine: text == second and cosine < 1.0)
        assert [one.memory.id for one in store.nearest(wanted)[0]] == [memory_id(2)]
        assert store.counters("default") == before

    def test_sessions_are_counted_by_scope_and_time(self, store: Store) -> None:
        begin(store, key="a", project="shop")
        begin(store, key="b", project="shop", started_at=LATER)
        begin(store, key="c", agent="coder", started_at=LATER)
        begin(store, key="d", user="eve")
        shop, coder = Scope(project="shop"), Scope(agent="coder")
        assert store.session_counts("default", NOW) == {shop: 2, coder: 1}
        assert store.session_counts("default", LATER) == {shop: 1, coder: 1}
        assert store.session_counts("default", LATER + DAY) == {}

    def test_what_was_shown_comes_with_its_label_and_its_source(self, store: Store) -> None:
        told = record(1, provenance="assistant_derived", sources=(Source(extractor="llm/1"),))
        insert(store, told, record(2))
        begin(store, key="old", started_at=NOW - DAY)
        served = [candidate(n, features=(0.5, n), feature_version=7) for n in (1, 2, 3)]
        begin(store)

        def work(transaction: Transaction) -> None:
            transaction.put_candidates("default", "run", served)
            transaction.put_injection("default", "run", injection(1, 1, 3))
            transaction.put_labels("default", "run", [Labelled(memory_id(1), 0.25, {})], {})

        store.write("default", work)
        found = store.shown_lately("default", 1)
        assert (found.session_count, found.turn_count) == (1, 1)
        first, gone = sorted(found.memories, key=lambda one: one.label is None)
        assert (first.label, first.provenance, first.extractor) == (
            0.25,
            "assistant_derived",
            "llm/1",
        )
        assert (first.features, first.feature_version) == ((0.5, 1.0), 7)
        assert (gone.label, gone.provenance, gone.extractor) == (None, None, None)
        assert store.shown_lately("eve", 9).memories == []

    # -- retention ----------------------------------------------------------------------------

    def test_a_transcript_goes_once_nobody_needs_it(self, store: Store) -> None:
        for key, user in (("done", "default"), ("parked", "default"), ("theirs", "eve")):
            begin(store, key=key, user=user, state="ended", ended_at=NOW)
            turns = [Turn("user", f"said in {key}")]
            store.write(user, lambda t, k=key, u=user, said=turns: t.put_transcript(u, k, said))
        begin(store, key="open")
        store.write(
            "default", lambda t: t.put_transcript("default", "open", [Turn("user", "still")])
        )
        store.write("default", lambda t: t.put_job("default", "finish-session", "parked", NOW))
        # Somebody else's job of the same name holds nothing back.
        store.write("eve", lambda t: t.put_job("eve", "finish-session", "done", NOW))
        assert store.expirable("default", "transcripts", NOW) == 0
        assert store.expirable("default", "transcripts", LATER) == 1
        assert [expire(store, "transcripts"), expire(store, "transcripts")] == [1, 0]
        told = {key: store.transcript("default", key) for key in ("done", "parked", "open")}
        assert {key for key, turns in told.items() if turns} == {"parked", "open"}
        assert store.session("default", "done").state == "ended"
        assert store.transcript("eve", "theirs")

    def test_a_digest_goes_with_the_transcript_and_alone(self, store: Store) -> None:
        for key in ("both", "alone", "waiting"):
            begin(store, key=key, state="ended", ended_at=NOW)
            store.write("default", lambda t, k=key: t.put_digest("default", k, b"digest"))
        begin(store, key="open")
        store.write("default", lambda t: t.put_digest("default", "open", b"digest"))
        store.write(
            "default", lambda t: t.put_transcript("default", "both", [Turn("user", "said")])
        )
        store.write("default", lambda t: t.put_job("default", "finish-session", "waiting", NOW))
        assert store.expirable("default", "transcripts", LATER) == 2
        assert [expire(store, "transcripts"), expire(store, "transcripts")] == [2, 0]
        keys = ("both", "alone", "waiting", "open")
        assert [key for key in keys if store.digest("default", key)] == ["waiting", "open"]
        assert store.transcript("default", "both") == ()

    def test_a_session_that_goes_on_keeps_its_timeline(self, store: Store) -> None:
        begin(store, key="open")
        begin(store, key="over", state="ended", ended_at=NOW)

        def note(key: str | None, user: str = "default") -> None:
            event = Event(at=NOW, category="session", name="x", session_key=key)
            store.write(user, lambda t: t.log_events(user, [event]))

        for key in ("open", "over", None):
            note(key)
        note("over", "eve")
        assert store.expirable("default", "events", LATER) == 2
        assert expire(store, "events") == 2
        assert len(store.events("default", session_key="open")) == 1
        assert store.events("default", session_key="over") == []
        assert len(store.events("eve", session_key="over")) == 1

    @pytest.mark.parametrize(("state", "kept"), [("warns", 1), ("retired", 0)])
    def test_what_a_rule_stands_on_stays(self, store: Store, state: str, kept: int) -> None:
        for blames in (0, 3):
            store.write(
                "default",
                lambda t, n=blames: t.add_action("default", replace(ACTION, blame_count=n)),
            )
        store.write("default", lambda t: t.put_rule("default", replace(RULE, state=state)))  # type: ignore[arg-type]
        assert store.expirable("default", "actions", LATER) == 2 - kept
        assert expire(store, "actions") == 2 - kept
        assert expire(store, "actions", user="eve") == 0

    def test_the_oldest_go_first_and_only_so_many(self, store: Store) -> None:
        refused = [
            replace(KEPT, id=f"01refusal0000000000000000{n}", at=NOW - n * DAY) for n in range(5)
        ]
        store.write("default", lambda t: t.put_refusals(refused))
        store.write("eve", lambda t: t.put_refusals([replace(KEPT, user="eve")]))
        assert store.expirable("default", "refusals", LATER) == 5
        assert expire(store, "refusals", limit=3) == 3
        assert [one.id[-1] for one in store.refusals("default", 9)] == ["0", "1"]
        assert len(store.refusals("eve", 9)) == 1

    def test_the_words_of_reports_go_and_their_lessons_stay(self, store: Store) -> None:
        store.write("default", lambda t: t.add_feedback(replace(report(1), at=NOW)))
        store.write("default", lambda t: t.count_report("default", memory_id(1), 1, NOW))
        assert expire(store, "feedback", user="eve") == 0
        assert expire(store, "feedback") == 1
        assert store.lessons("default", [memory_id(1)])[memory_id(1)].report_count == 1
