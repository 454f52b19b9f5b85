"""Sessions: what was served, shown and said stays apart, adds up and outlives a restart."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.builders import EMBEDDER, NOW, insert, memory_id, record, unit
from contract.shelf import Shelf
from meritory.domain.errors import NotFound
from meritory.domain.memory import Scope
from meritory.domain.session import (
    CHANNELS,
    Candidate,
    Channel,
    Event,
    Injection,
    Judged,
    Labelled,
    Rating,
    SessionMemory,
    SessionRecord,
    SessionScore,
    Spending,
    Turn,
)
from meritory.store.contract.store import Store, Transaction
from meritory.store.sql.sessions import EVENT_LIMIT

USER, KEY = "default", "run"
HOUR = timedelta(hours=1)


def session(key: str = KEY, user: str = USER, **fields: Any) -> SessionRecord:
    """A session that begins now."""
    return SessionRecord(**{"user": user, "key": key, "started_at": NOW, **fields})


def candidate(number: int, **fields: Any) -> Candidate:
    """A candidate whose rank is its number."""
    served = {"source": "effective", "final_score": 1.0 / number, "rank": number, **fields}
    return Candidate(memory_id=memory_id(number), **served)


def injection(number: int, *shown: int, first: int = 1, **fields: Any) -> Injection:
    """An injection that shows memories under the next handles."""
    pairs = tuple((f"m{first + place}", memory_id(one)) for place, one in enumerate(shown))
    values = {"kind": "start", "turn": number - 1, "code": f"code{number}", "token_count": 9}
    return Injection(**{"number": number, "at": NOW, "memories": pairs, **values, **fields})


def rating(
    number: int, score: float, *, turn: int = 0, channel: Channel = "trailer", at: datetime = NOW
) -> Rating:
    """A rating of a memory."""
    return Rating(memory_id(number), turn, channel, score, at)


def verdict(**fields: Any) -> SessionScore:
    """A verdict that counts."""
    values = {"judge": "rules", "score": 0.5, "confidence": 0.8, "memories_recalled": 1}
    return SessionScore(**{**values, "memories_used": 1, "at": NOW, **fields})


def begin(store: Store, *numbers: int, key: str = KEY, user: str = USER, **fields: Any) -> None:
    """Opens a session with candidates."""

    def work(transaction: Transaction) -> None:
        assert transaction.open_session(session(key, user, **fields))
        transaction.put_candidates(user, key, [candidate(number) for number in numbers])

    store.write(user, work)


def rows(store: Store, key: str = KEY, user: str = USER) -> dict[int, SessionMemory]:
    """By number what a session knows of its memories."""
    return {int(one.memory_id): one for one in store.session_memories(user, key)}


# Everything that can be done to a session, each with the key it is done to.
VERBS: dict[str, Callable[[Transaction, str], object]] = {
    "session_of": lambda t, key: t.session(USER, key),
    "update_session": lambda t, key: t.update_session(session(key)),
    "put_candidates": lambda t, key: t.put_candidates(USER, key, [candidate(1)]),
    "add_candidates": lambda t, key: t.add_candidates(USER, key, [candidate(1)]),
    "put_injection": lambda t, key: t.put_injection(USER, key, injection(1, 1)),
    "add_hits": lambda t, key: t.add_hits(USER, key, [memory_id(1)]),
    "add_ratings": lambda t, key: t.add_ratings(USER, key, [rating(1, 0.5)]),
    "mark_harmful": lambda t, key: t.mark_harmful(USER, key, [memory_id(1)]),
    "offer_again": lambda t, key: t.offer_again(USER, key, 1, [("m1", memory_id(1))]),
    "deliver": lambda t, key: t.deliver(USER, key, "code"),
    "clear_context": lambda t, key: t.clear_context(USER, key),
    "put_transcript": lambda t, key: t.put_transcript(USER, key, [Turn("user", "hi")]),
    "put_digest": lambda t, key: t.put_digest(USER, key, b"\x00digest"),
    "put_used": lambda t, key: t.put_used(USER, key, {memory_id(1): 1.0}),
    "put_verdict": lambda t, key: t.put_verdict(
        USER, key, verdict(), [Judged(memory_id(1), 0.9, True)]
    ),
    "put_labels": lambda t, key: t.put_labels(
        USER, key, [Labelled(memory_id(1), 0.9, {"rule": "judged"})], {memory_id(1): 0.9}
    ),
}


class Sessions:
    def test_a_session_is_opened_once_and_kept_whole(self, shelf: Shelf) -> None:
        full = session(
            agent="claude",
            project="shop",
            harness="codex",
            cwd="/home/ann/shop",
            state="ended",
            context="fix the löḡin 🦡 page",
            has_prompt=True,
            embedder=EMBEDDER.name,
            context_vector=unit(1, 2, 3, 4),
            gap_hours=2.5,
            alpha=0.75,
            ended_at=NOW + HOUR,
            prompt_count=3,
            injection_count=2,
            handle_count=7,
            is_explained=True,
            summary="the end",
        )
        assert shelf.store.write("default", lambda t: t.open_session(full))
        for store in shelf.before_and_after_reopening():
            assert not store.write("default", lambda t: t.open_session(session()))
            found = store.session(USER, KEY)
            assert found.context_vector is not None
            assert found.context_vector == pytest.approx(unit(1, 2, 3, 4), abs=4e-3)
            assert replace(found, context_vector=None) == replace(full, context_vector=None)
            assert found.scope == Scope(USER, "claude", "shop")

    def test_what_may_change_in_a_session_changes(self, store: Store) -> None:
        begin(store)
        later = session(
            state="ended",
            alpha=0.5,
            prompt_count=4,
            ended_at=NOW + HOUR,
            summary="end",
            context="c",
        )
        store.write("default", lambda t: t.update_session(later))
        assert store.session(USER, KEY) == later
        assert store.write(USER, lambda t: t.session(USER, KEY)) == later

    @pytest.mark.parametrize("verb", VERBS)
    def test_nothing_happens_to_a_session_that_was_never_started(
        self, store: Store, verb: str
    ) -> None:
        begin(store, 1, user="somebody")
        before = rows(store, user="somebody")
        with pytest.raises(NotFound, match="no session"):
            store.write("default", lambda t: VERBS[verb](t, KEY))
        assert rows(store, user="somebody") == before
        assert store.sessions(USER, 9) == []

    def test_what_was_never_started_has_no_answers(self, store: Store) -> None:
        for ask in (store.session, store.transcript, store.digest, store.used):
            with pytest.raises(NotFound, match="session-start"):
                ask(USER, KEY)
        for listing in (store.session_memories, store.shown, store.injections, store.ratings):
            assert listing(USER, KEY) == []
        assert store.session_score(USER, KEY) is None

    @pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "session_of"])
    def test_two_users_with_the_same_key_never_mix(self, store: Store, verb: str) -> None:
        insert(store, record(1), record(1, user="ann"))
        for user in (USER, "ann"):
            begin(store, 1, 2, user=user, context=f"of {user}")
            store.write(user, lambda t, u=user: t.put_injection(u, KEY, injection(1, 1)))
        before = self._all_of(store, "ann")
        if verb == "put_injection":
            store.write(USER, lambda t: t.put_injection(USER, KEY, injection(2, 2, first=2)))
        else:
            store.write("default", lambda t: VERBS[verb](t, KEY))
        assert self._all_of(store, "ann") == before
        assert store.get("ann", memory_id(1)).access_count == 1

    def _all_of(self, store: Store, user: str) -> tuple[object, ...]:
        past, _ = store.past(Scope(user), EMBEDDER.name)
        return (
            store.session(user, KEY),
            store.session_memories(user, KEY),
            store.shown(user, KEY),
            store.injections(user, KEY),
            store.ratings(user, KEY),
            store.transcript(user, KEY),
            store.digest(user, KEY),
            store.used(user, KEY),
            store.session_score(user, KEY),
            store.session_totals(user),
            store.judged_counts(user),
            store.proofs(user, [memory_id(1)]),
            past.use_memory.tolist(),
            store.get(user, memory_id(1)),
        )

    def test_sessions_come_latest_first_and_in_pages(self, store: Store) -> None:
        for n, project in enumerate(("p", None, "q", "p", "p")):
            # The last two began at the same moment.
            begin(store, key=f"s{n}", project=project, started_at=NOW + min(n, 3) * HOUR)
        begin(store, key="other", user="ann", started_at=NOW + 9 * HOUR)
        keys = [one.key for one in store.sessions(USER, 9)]
        assert keys == ["s4", "s3", "s2", "s1", "s0"]
        paged = store.sessions(USER, 2)
        while page := store.sessions(USER, 2, before=paged[-1].key):
            paged += page
        assert [one.key for one in paged] == keys
        assert [one.key for one in store.sessions(USER, 9, project="p")] == ["s4", "s3", "s0"]
        assert store.sessions(USER, 9, before="other") == []

    def test_the_previous_session_is_of_exactly_the_same_scope(self, store: Store) -> None:
        begin(store, key="p1", summary="s", project="p")
        begin(store, key="p2", summary="s", project="p", started_at=NOW + HOUR)
        begin(store, key="q", summary="s", project="q", started_at=NOW + 2 * HOUR)
        begin(store, key="none", summary="s", started_at=NOW + 2 * HOUR)
        begin(store, key="agent", summary="s", project="p", agent="a", started_at=NOW + 2 * HOUR)
        begin(store, key="ann", user="ann", summary="s", project="p", started_at=NOW + 2 * HOUR)
        # It has nothing to say yet.
        begin(store, key="p3", project="p", started_at=NOW + 3 * HOUR)

        def previous(scope: Scope, before: datetime) -> str | None:
            found = store.previous_session(scope, before)
            return found.key if found else None

        late = NOW + 9 * HOUR
        assert previous(Scope(USER, None, "p"), late) == "p2"
        assert previous(Scope(USER, None, "p"), NOW + HOUR) == "p1"
        assert previous(Scope(USER, None, "p"), NOW) is None
        assert previous(Scope(USER), late) == "none"
        assert previous(Scope(USER, "a", "p"), late) == "agent"
        assert previous(Scope("ann", None, "q"), late) is None

    # -- what is served and shown ---------------------------------------------------------

    def test_a_candidate_is_kept_with_every_number_as_served(self, shelf: Shelf) -> None:
        full = candidate(
            2,
            source="both",
            origins=("cosine", "required"),
            effective_score=0.125,
            composite_score=0.1 + 0.2,
            predictor_score=-3.5,
            baseline_rank=4,
            predictor_rank=5,
            was_injected=True,
            propensity=0.05,
            features=(0.1, -1e300, 3.0),
            feature_version=7,
        )
        begin(shelf.store)
        shelf.store.write(USER, lambda t: t.put_candidates(USER, KEY, [candidate(1), full]))
        for store in shelf.before_and_after_reopening():
            found = store.session_memories(USER, KEY)
            assert [one.candidate for one in found] == [candidate(1), full]
            assert found[0] == SessionMemory(
                memory_id=candidate(1).memory_id, candidate=candidate(1)
            )

    def test_ranking_anew_never_wipes_what_happened(self, store: Store) -> None:
        begin(store, 1, 2)

        def happen(transaction: Transaction) -> None:
            transaction.put_injection(USER, KEY, injection(1, 1))
            transaction.add_hits(USER, KEY, [memory_id(1)])
            transaction.add_ratings(USER, KEY, [rating(1, -0.75)])
            transaction.mark_harmful(USER, KEY, [memory_id(1)])
            transaction.put_verdict(USER, KEY, verdict(), [Judged(memory_id(1), 0.25, True)])
            transaction.put_labels(USER, KEY, [Labelled(memory_id(1), -0.5, {"rule": "rated"})], {})

        store.write(USER, happen)
        before = rows(store)[1]
        fresh = candidate(
            1, rank=9, source="both", final_score=0.0, features=(1.0,), propensity=0.5
        )
        store.write(USER, lambda t: t.put_candidates(USER, KEY, [fresh]))
        after = rows(store)[1]
        assert (after.candidate.rank, after.candidate.source, after.candidate.features) == (
            9,
            "both",
            (1.0,),
        )
        assert after.candidate.was_injected
        assert replace(after, candidate=before.candidate) == before
        assert (after.handle, after.injection, after.in_context) == ("m1", 1, True)
        assert (after.is_harmful, after.fts_hit_count, after.label) == (True, 1, -0.5)
        assert (after.agent_relevance_score, after.agent_feedback_count) == (-0.75, 1)
        assert (after.relevance_score, after.is_missing) == (0.25, True)

    def test_what_a_new_ranking_leaves_out_loses_its_place(self, store: Store) -> None:
        """Otherwise two rankings would be on record, each with its own first."""
        begin(store)
        old = [candidate(n, baseline_rank=n, predictor_rank=n) for n in (1, 2, 3)]
        store.write(USER, lambda t: t.put_candidates(USER, KEY, old))
        fresh = [old[2]._replace(rank=1, baseline_rank=1), candidate(4, rank=2, baseline_rank=2)]
        store.write(USER, lambda t: t.put_candidates(USER, KEY, fresh))
        found = store.session_memories(USER, KEY)
        assert [int(one.memory_id) for one in found] == [3, 4, 1, 2]
        assert [one.candidate.rank for one in found] == [1, 2, 0, 0]
        assert [one.candidate.baseline_rank for one in found] == [1, 2, None, None]
        assert [one.candidate.predictor_rank for one in found[2:]] == [None, None]

    def test_what_chance_chose_stays_on_record(self, store: Store) -> None:
        begin(store)
        tried = candidate(1, source="exploration", was_injected=True, propensity=0.05)
        store.write(USER, lambda t: t.put_candidates(USER, KEY, [tried]))
        store.write(USER, lambda t: t.put_candidates(USER, KEY, [candidate(1, rank=3)]))
        found = rows(store)[1].candidate
        assert (found.source, found.propensity, found.rank) == ("exploration", 0.05, 3)

    def test_adding_candidates_leaves_known_ones_alone(self, store: Store) -> None:
        begin(store, 1)
        late = [candidate(1, rank=0, final_score=9.0), candidate(2, rank=0)]
        store.write(USER, lambda t: t.add_candidates(USER, KEY, late))
        found = rows(store)
        assert found[1].candidate == candidate(1)
        assert found[2].candidate == late[1]
        assert list(found) == [1, 2]

    def test_what_is_shown_has_a_handle_and_counts_as_usage(self, shelf: Shelf) -> None:
        store = shelf.store
        insert(store, *(record(n) for n in range(1, 13)))
        begin(store, *range(1, 13))
        first = injection(1, *range(1, 12), is_explained=True)
        second = injection(2, 12, first=12, kind="prompt", at=NOW + HOUR)
        store.write(USER, lambda t: t.put_injection(USER, KEY, first))
        store.write(USER, lambda t: t.put_injection(USER, KEY, second))
        for opened in shelf.before_and_after_reopening():
            shown = opened.shown(USER, KEY)
            assert [one.handle for one in shown] == [f"m{n}" for n in range(1, 13)]
            assert [one.injection for one in shown] == [1] * 11 + [2]
            assert all(one.in_context for one in shown)
            assert opened.injections(USER, KEY) == [
                replace(first, memories=()),
                replace(second, memories=()),
            ]
            found = opened.session(USER, KEY)
            assert (found.injection_count, found.handle_count) == (2, 12)
            assert found.is_explained
        used = shelf.store.get(USER, memory_id(12))
        assert (used.access_count, used.last_accessed) == (1, NOW + HOUR)

    def test_what_is_shown_again_keeps_handle_and_first_injection(self, store: Store) -> None:
        insert(store, record(1))
        begin(store, 1)
        store.write(USER, lambda t: t.put_injection(USER, KEY, injection(1, 1)))
        store.write(USER, lambda t: t.clear_context(USER, KEY))
        assert not rows(store)[1].in_context
        store.write(USER, lambda t: t.put_injection(USER, KEY, injection(2, 1)))
        found = rows(store)[1]
        assert (found.handle, found.injection, found.in_context) == ("m1", 1, True)
        assert store.session(USER, KEY).handle_count == 1
        assert store.get(USER, memory_id(1)).access_count == 2

    def test_an_injections_number_is_given_once(self, store: Store) -> None:
        begin(store, 1, 2)
        store.write(USER, lambda t: t.put_injection(USER, KEY, injection(1, 1)))
        before = rows(store), store.session(USER, KEY)
        with pytest.raises(Exception, match="injections"):
            store.write(USER, lambda t: t.put_injection(USER, KEY, injection(1, 2, first=2)))
        assert (rows(store), store.session(USER, KEY)) == before

    def test_context_can_be_lost_and_come_back(self, store: Store) -> None:
        begin(store, 1, 2, 3)
        store.write(USER, lambda t: t.put_injection(USER, KEY, injection(1, 1, 2)))
        store.write(USER, lambda t: t.clear_context(USER, KEY))
        assert [one.in_context for one in store.shown(USER, KEY)] == [False, False]
        store.write(USER, lambda t: t.offer_again(USER, KEY, 1, [("m2", memory_id(2))]))
        assert [one.in_context for one in store.shown(USER, KEY)] == [False, False]
        assert store.write(USER, lambda t: t.deliver(USER, KEY, injection(1).code))
        assert [one.in_context for one in store.shown(USER, KEY)] == [False, True]
        assert len(store.shown(USER, KEY)) == 2

    def test_what_is_not_delivered_was_not_shown(self, shelf: Shelf) -> None:
        store = shelf.store
        insert(store, record(1), record(2))
        begin(store, 1, 2)
        offered = injection(1, 1, is_explained=True, is_delivered=False)
        store.write(USER, lambda t: t.put_injection(USER, KEY, offered))
        for opened in shelf.before_and_after_reopening():
            assert opened.shown(USER, KEY) == []
            assert opened.undelivered(USER, KEY) == opened.injections(USER, KEY) == [offered]
            found = rows(opened)[1]
            assert (found.handle, found.injection, found.in_context) == (None, None, False)
            assert not found.candidate.was_injected
            assert opened.get(USER, memory_id(1)).access_count == 0
            known = opened.session(USER, KEY)
            # Its number and its handles are taken, though.
            assert (known.injection_count, known.handle_count, known.is_explained) == (1, 1, False)

    def test_a_delivery_counts_once(self, store: Store) -> None:
        insert(store, record(1))
        begin(store, 1)
        offered = injection(1, 1, is_explained=True, is_delivered=False)
        store.write(USER, lambda t: t.put_injection(USER, KEY, offered))
        given = [store.write(USER, lambda t: t.deliver(USER, KEY, offered.code)) for _ in "12"]
        assert given == [True, False]
        assert not store.write(USER, lambda t: t.deliver(USER, KEY, "no such code"))
        (shown,) = store.shown(USER, KEY)
        assert (shown.handle, shown.injection, shown.in_context) == ("m1", 1, True)
        assert store.undelivered(USER, KEY) == []
        assert store.session(USER, KEY).is_explained
        assert store.get(USER, memory_id(1)).access_count == 1
        # The same block once more, after a compaction.
        store.write(USER, lambda t: t.offer_again(USER, KEY, 1, offered.memories))
        store.write(USER, lambda t: t.deliver(USER, KEY, offered.code))
        assert store.get(USER, memory_id(1)).access_count == 1

    def test_a_late_delivery_keeps_the_handle_of_an_earlier_one(self, store: Store) -> None:
        begin(store, 1)
        late = injection(1, 1, is_delivered=False)
        store.write(USER, lambda t: t.put_injection(USER, KEY, late))
        store.write(USER, lambda t: t.put_injection(USER, KEY, injection(2, 1, first=2)))
        store.write(USER, lambda t: t.deliver(USER, KEY, late.code))
        assert [(one.handle, one.injection) for one in store.shown(USER, KEY)] == [("m2", 2)]

    def test_a_purge_erases_what_is_only_offered(self, store: Store) -> None:
        insert(store, record(1), record(2))
        begin(store, 1, 2)
        offered = injection(1, 1, 2, is_delivered=False)
        store.write(USER, lambda t: t.put_injection(USER, KEY, offered))
        store.write(USER, lambda t: t.purge(USER, memory_id(1)))
        assert [one.memories for one in store.undelivered(USER, KEY)] == [(("m2", memory_id(2)),)]

    def test_hits_count_up_and_come_in_from_outside(self, store: Store) -> None:
        begin(store, 1, 2)
        for wanted in ((1, 9), (9,), (1,)):
            store.write(USER, lambda t, w=wanted: t.add_hits(USER, KEY, [memory_id(n) for n in w]))
        found = rows(store)
        assert {n: one.fts_hit_count for n, one in found.items()} == {1: 2, 2: 0, 9: 2}
        assert found[1].candidate == candidate(1)
        outside = found[9].candidate
        assert (outside.source, outside.was_injected, outside.rank) == ("fts_only", False, 0)
        assert list(found) == [1, 2, 9]

    def test_a_hit_that_is_shown_later_is_a_candidate_like_any_other(self, store: Store) -> None:
        """Left as it was, it would be shown and never judged."""
        begin(store)
        store.write(USER, lambda t: t.add_hits(USER, KEY, [memory_id(9)]))
        store.write(USER, lambda t: t.put_injection(USER, KEY, injection(1, 9)))
        found = rows(store)[9]
        assert (found.candidate.source, found.fts_hit_count) == ("effective", 1)

    # -- what is said about it ------------------------------------------------------------

    def test_ratings_are_kept_one_by_one(self, shelf: Shelf) -> None:
        begin(shelf.store, 1, 2)
        said = [rating(1, 0.5), rating(2, -1.0, turn=1, channel="tool"), rating(1, 0.5)]
        for one in said:
            shelf.store.write(USER, lambda t, one=one: t.add_ratings(USER, KEY, [one]))
        for store in shelf.before_and_after_reopening():
            assert store.ratings(USER, KEY) == said
        assert store.session_totals(USER)["ratings"] == 3

    @pytest.mark.parametrize(
        ("said", "mean", "count"),
        [
            ([rating(1, 0.5)], 0.5, 1),
            ([rating(1, 0.0)], 0.0, 1),
            ([rating(1, 1.0), rating(1, 0.0, turn=1)], 0.5, 2),
            # The last word of one channel stands, ...
            ([rating(1, 1.0), rating(1, -0.5)], -0.5, 1),
            # ... and a weaker one changes nothing, whenever it comes.
            ([rating(1, 1.0), rating(1, -0.5, channel="field")], 1.0, 1),
            ([rating(1, -0.5, channel="field"), rating(1, 1.0)], 1.0, 1),
            ([rating(1, -0.5, channel="transcript"), rating(1, 1.0, channel="tool")], 1.0, 1),
            ([rating(1, 0.25, channel="program"), rating(1, 1.0)], 0.25, 1),
            # In another turn it is all there is.
            ([rating(1, 1.0), rating(1, 0.0, turn=1, channel="field")], 0.5, 2),
        ],
    )
    def test_one_rating_per_turn_counts(
        self, store: Store, said: list[Rating], mean: float, count: int
    ) -> None:
        begin(store, 1, 2)
        for one in said:
            store.write(USER, lambda t, one=one: t.add_ratings(USER, KEY, [one]))
        found = rows(store)
        assert (found[1].agent_relevance_score, found[1].agent_feedback_count) == (mean, count)
        assert (found[2].agent_relevance_score, found[2].agent_feedback_count) == (None, 0)

    def test_the_mean_of_any_ratings_is_that_of_the_strongest_last_words(
        self, store: Store
    ) -> None:
        said = st.builds(
            rating,
            st.integers(1, 3),
            st.integers(-4, 4).map(lambda n: n / 4),
            turn=st.integers(0, 2),
            channel=st.sampled_from(CHANNELS),
        )
        fresh = itertools.count()

        @settings(max_examples=40)
        @given(st.lists(said, max_size=12))
        def check(ratings: list[Rating]) -> None:
            key = f"s{next(fresh)}"
            begin(store, 1, 2, 3, key=key)
            store.write(USER, lambda t: t.add_ratings(USER, key, ratings))
            for number, one in rows(store, key).items():
                mine = [r for r in ratings if r.memory_id == memory_id(number)]
                kept = []
                for turn in {r.turn for r in mine}:
                    strongest = min(CHANNELS.index(r.channel) for r in mine if r.turn == turn)
                    kept.append(
                        [
                            r.score
                            for r in mine
                            if r.turn == turn and CHANNELS.index(r.channel) == strongest
                        ][-1]
                    )
                assert one.agent_feedback_count == len(kept)
                mean = sum(kept) / len(kept) if kept else None
                assert one.agent_relevance_score == pytest.approx(mean)

        check()

    def test_what_did_harm_is_marked(self, store: Store) -> None:
        begin(store, 1, 2)
        store.write(USER, lambda t: t.mark_harmful(USER, KEY, [memory_id(2), memory_id(7)]))
        assert {n: one.is_harmful for n, one in rows(store).items()} == {1: False, 2: True}

    def test_how_it_went_is_kept_as_told(self, shelf: Shelf) -> None:
        turns = (Turn("user", "tell me\nmore 🦡"), Turn("result", ""), Turn("edit", '{"a": [1]}'))
        begin(shelf.store)
        assert shelf.store.transcript(USER, KEY) == ()
        assert shelf.store.used(USER, KEY) is None
        shelf.store.write(USER, lambda t: t.put_transcript(USER, KEY, turns))
        shelf.store.write(USER, lambda t: t.put_used(USER, KEY, {}))
        for store in shelf.before_and_after_reopening():
            assert store.transcript(USER, KEY) == turns
            # Nothing helped is not the same as nobody said.
            assert store.used(USER, KEY) == {}
        store.write(USER, lambda t: t.put_transcript(USER, KEY, turns[:1]))
        store.write(USER, lambda t: t.put_used(USER, KEY, {memory_id(1): -0.25}))
        assert store.transcript(USER, KEY) == turns[:1]
        assert store.used(USER, KEY) == {memory_id(1): -0.25}

    def test_a_digest_is_kept_byte_for_byte_and_replaced_by_the_next(self, shelf: Shelf) -> None:
        data = bytes(range(256)) * 400
        begin(shelf.store)
        assert shelf.store.digest(USER, KEY) is None
        shelf.store.write(USER, lambda t: t.put_digest(USER, KEY, data))
        for store in shelf.before_and_after_reopening():
            assert store.digest(USER, KEY) == data
        # What else is written about the session leaves it alone.
        store.write(USER, lambda t: t.put_transcript(USER, KEY, [Turn("user", "hi")]))
        store.write("default", lambda t: t.update_session(session(state="ended", ended_at=NOW)))
        assert store.digest(USER, KEY) == data
        store.write(USER, lambda t: t.put_digest(USER, KEY, b""))
        assert store.digest(USER, KEY) == b""

    def test_a_verdict_replaces_the_one_before_it(self, shelf: Shelf) -> None:
        begin(shelf.store, 1, 2)
        first = verdict(
            novel_context_count=3,
            missing_topics=("a", "ß"),
            continuity_reasoning="because",
            raw="{}",
            excluded="too vague",
        )
        judged = [Judged(memory_id(1), 0.75, True), Judged(memory_id(2), None)]
        shelf.store.write(USER, lambda t: t.put_verdict(USER, KEY, first, judged))
        for store in shelf.before_and_after_reopening():
            assert store.session_score(USER, KEY) == first
            found = rows(store)
            assert [(one.relevance_score, one.is_missing) for one in found.values()] == [
                (0.75, True),
                (None, False),
            ]
        second = verdict(score=None, judge="llm", at=NOW + HOUR)
        again = [Judged(memory_id(2), -0.5)]
        store.write(USER, lambda t: t.put_verdict(USER, KEY, second, again))
        assert store.session_score(USER, KEY) == second
        assert [(one.relevance_score, one.is_missing) for one in rows(store).values()] == [
            (None, False),
            (-0.5, False),
        ]

    def test_totals_tell_states_verdicts_and_ratings(self, shelf: Shelf) -> None:
        for key, state in (("a", "open"), ("b", "finished"), ("c", "finished"), ("d", "ended")):
            begin(shelf.store, 1, key=key, state=state)
        shelf.store.write(USER, lambda t: t.put_verdict(USER, "b", verdict(), []))
        shelf.store.write(USER, lambda t: t.put_verdict(USER, "c", verdict(excluded="vague"), []))
        for store in shelf.before_and_after_reopening():
            totals = store.session_totals(USER)
            assert totals == {
                "sessions.open": 1,
                "sessions.ended": 1,
                "sessions.finished": 2,
                "sessions.judged": 2,
                "sessions.excluded": 1,
                "ratings": 0,
            }
            assert store.judged_counts(USER) == (1, 1)
            assert store.judged_counts("ann") == (0, 0)

    def test_counts_of_judged_sessions_follow_what_was_learned(self, store: Store) -> None:
        assert store.judged_counts(USER) == (0, 0)
        for n in range(3):
            key = f"s{n}"
            begin(store, 1, key=key)
            store.write(USER, lambda t, key=key: t.put_verdict(USER, key, verdict(), []))
            store.write(USER, lambda t, key=key: t.put_labels(USER, key, [], {}))
            assert store.judged_counts(USER) == (n + 1, 0)

    # -- what can be seen -----------------------------------------------------------------

    def test_timelines_are_of_a_session_a_memory_or_a_request(self, shelf: Shelf) -> None:
        def event(name: str, **fields: Any) -> Event:
            return Event(at=NOW, category="session", name=name, **fields)

        said = [
            event("a", session_key=KEY, details={"n": 1, "who": "ß", "at": "x"}),
            event("b", memory_id=memory_id(1)),
            event("c", session_key=KEY, memory_id=memory_id(1), request_id="r1"),
            event("d", request_id="r1"),
        ]
        shelf.store.write(USER, lambda t: t.log_events(USER, said))
        for store in shelf.before_and_after_reopening():
            assert store.events(USER, session_key=KEY) == [said[0], said[2]]
            assert store.events(USER, memory_id=memory_id(1)) == [said[1], said[2]]
            assert store.events(USER, request_id="r1") == [said[2], said[3]]
            assert store.events("ann", session_key=KEY) == []
            assert store.events("ann", request_id="r1") == []

    def test_the_timeline_is_bounded(self, store: Store) -> None:
        many = [
            Event(at=NOW, category="x", name=str(n), session_key=f"s{n % 100}")
            for n in range(EVENT_LIMIT + 100)
        ]
        store.write(USER, lambda t: t.log_events(USER, many))
        kept = [one.name for n in range(100) for one in store.events(USER, session_key=f"s{n}")]
        assert len(kept) == EVENT_LIMIT
        assert min(int(name) for name in kept) == 100

    def test_of_a_long_timeline_the_latest_is_told(self, store: Store) -> None:
        many = [Event(at=NOW, category="x", name=str(n), session_key=KEY) for n in range(3_000)]
        store.write(USER, lambda t: t.log_events(USER, many))
        told = store.events(USER, session_key=KEY)
        assert len(told) < len(many)
        assert told == many[-len(told) :]

    def test_spending_is_a_users_own(self, shelf: Shelf) -> None:
        calls = [Spending(NOW + n * HOUR, "judge", "m", n, 2 * n, n / 10) for n in range(3)]
        for call in reversed(calls):
            shelf.store.write(USER, lambda t, call=call: t.add_spending(USER, call))
        for store in shelf.before_and_after_reopening():
            assert store.spending(USER, NOW) == calls
            assert store.spending(USER, NOW + HOUR) == calls[1:]
            assert store.spending("ann", NOW) == []

    def test_the_secret_is_the_stores_own_and_stays(self, shelf: Shelf, store: Store) -> None:
        secret = shelf.store.secret()
        assert len(secret) == 32
        assert shelf.store.secret() == secret
        assert shelf.reopen().secret() == secret
        folder = shelf.folder / "another"
        folder.mkdir()
        other = Shelf(folder, shelf._make).store
        assert other.secret() != secret
        other.close()
