"""The job queue: one holder at a time, nothing twice, nothing forgotten, whatever the clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from contract.builders import NOW
from contract.shelf import Shelf
from meritory.domain.errors import Conflict, InputError, NotFound
from meritory.domain.job import (
    JOB_STATES,
    LEASE_LENGTH_MAX,
    PARK_AFTER_ATTEMPTS,
    WAIT_MAX,
    Job,
    Lease,
)
from meritory.store.contract.store import Store, Transaction

KIND = "finish"
MINUTE = timedelta(minutes=1)
YEARS = timedelta(days=3_653)


def put(store: Store, *keys: str, at: datetime = NOW, user: str = "default") -> None:
    """Queues jobs, each due a second after the one before it."""
    for n, key in enumerate(keys):
        due_at = at + timedelta(seconds=n)
        assert store.write(user, lambda t, k=key, due=due_at: t.put_job(user, KIND, k, due))


def take(
    store: Store, at: datetime = NOW + MINUTE, holder: str = "me", skip: tuple[int, ...] = ()
) -> Job | None:
    """Takes a job for a minute."""
    return store.write(None, lambda t: t.take_job(Lease(holder, at, MINUTE), (KIND,), skip))


def held(store: Store, at: datetime = NOW + MINUTE, holder: str = "me") -> Job:
    """Takes a job that must be there."""
    job = take(store, at, holder)
    assert job is not None
    return job


def last(store: Store, key: str = "a") -> Job:
    """A job as it is in the store."""
    return store.job("default", KIND, key)


# Everything a holder can do with its job.
HOLDER_VERBS: dict[str, Callable[[Transaction, Job], object]] = {
    "pass": lambda t, job: t.pass_stage(job, "one", NOW + 5 * MINUTE),
    "finish": lambda t, job: t.finish_job(job, NOW),
    "fail": lambda t, job: t.fail_job(job, "broken", NOW),
    "park": lambda t, job: t.fail_job(job, "broken", None),
    "postpone": lambda t, job: t.postpone_job(job, NOW),
}


class Jobs:
    def test_a_job_is_queued_once(self, shelf: Shelf) -> None:
        put(shelf.store, "a")
        for store in shelf.before_and_after_reopening():
            assert not store.write(
                "default", lambda t: t.put_job("default", KIND, "a", NOW + MINUTE)
            )
            job = last(store)
            assert (job.user, job.kind, job.key) == ("default", KIND, "a")
            assert (job.stage, job.state, job.attempt_count) == ("", "queued", 0)
            assert (job.due_at, job.created_at) == (NOW, NOW)
            assert (job.lease, job.leased_until, job.error, job.finished_at) == (None,) * 4
        assert store.write("default", lambda t: t.put_job("default", "other", "a", NOW))
        assert store.write("somebody", lambda t: t.put_job("somebody", KIND, "a", NOW))
        assert store.job_counts() == {"queued": 3, "running": 0, "done": 0, "parked": 0}

    def test_jobs_are_taken_in_the_order_they_fell_due(self, store: Store) -> None:
        put(store, "late", at=NOW + MINUTE)
        put(store, "a", "b")
        assert take(store, NOW - timedelta(seconds=1)) is None
        keys = [held(store, NOW + 2 * MINUTE, f"h{n}").key for n in range(3)]
        assert keys == ["a", "b", "late"]
        assert take(store, NOW + 2 * MINUTE) is None

    def test_one_job_can_be_taken_by_its_name_before_it_is_due(self, store: Store) -> None:
        put(store, "a", "b", at=NOW + MINUTE)
        lease = Lease("me", NOW, MINUTE)
        job = store.write("default", lambda t: t.take_named_job(lease, "default", KIND, "b"))
        assert job is not None
        assert (job.key, job.state, job.lease, job.attempt_count) == ("b", "running", "me", 1)
        # Neither again, nor another's.
        for user, kind, key in (("default", KIND, "b"), ("ann", KIND, "a"), ("default", "x", "a")):
            found = store.write(
                "default", lambda t, name=(user, kind, key): t.take_named_job(lease, *name)
            )
            assert found is None
        assert last(store, "a").state == "queued"

    def test_only_jobs_of_known_kinds_are_taken(self, store: Store) -> None:
        put(store, "a")
        lease = Lease("me", NOW, MINUTE)
        assert store.write(None, lambda t: t.take_job(lease, ("other",))) is None
        assert store.write(None, lambda t: t.take_job(lease, ())) is None
        assert store.next_job_at(NOW, ("other",)) is None
        assert store.write(None, lambda t: t.take_job(lease, ("other", KIND))) is not None

    def test_a_job_can_be_left_alone(self, store: Store) -> None:
        put(store, "a", "b")
        job = take(store, skip=(last(store, "a").number,))
        assert job is not None
        assert job.key == "b"
        assert take(store, skip=(last(store, "a").number,)) is None

    def test_a_held_job_is_nobody_elses_until_its_lease_ends(self, shelf: Shelf) -> None:
        put(shelf.store, "a")
        job = held(shelf.store)
        assert (job.state, job.lease, job.attempt_count) == ("running", "me", 1)
        assert job.leased_until == NOW + 2 * MINUTE
        for store in shelf.before_and_after_reopening():
            assert last(store) == job
            assert take(store, NOW + 2 * MINUTE - timedelta(seconds=1), "you") is None
        again = held(shelf.store, NOW + 2 * MINUTE, "you")
        assert (again.number, again.lease, again.attempt_count) == (job.number, "you", 2)

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    def test_a_lost_lease_undoes_the_whole_transaction(self, store: Store, verb: str) -> None:
        put(store, "a")
        lost = held(store)
        mine = held(store, NOW + 3 * MINUTE, "you")

        def work(transaction: Transaction) -> None:
            transaction.count("default", "effects")
            HOLDER_VERBS[verb](transaction, lost)

        with pytest.raises(Conflict, match="another worker"):
            store.write("default", work)
        assert last(store) == mine
        assert store.counters("default") == {}

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    def test_what_was_given_back_is_not_held_any_more(self, store: Store, verb: str) -> None:
        for key, end in HOLDER_VERBS.items():
            if key == "pass":
                continue
            put(store, key)
            job = held(store)
            store.write("default", lambda t, end=end, job=job: end(t, job))
            now = last(store, key)
            for known in (job, now):
                with pytest.raises(Conflict):
                    store.write("default", lambda t, known=known: HOLDER_VERBS[verb](t, known))
            assert last(store, key) == now
            store.write(
                "default", lambda t, key=key: t.requeue_job("default", KIND, key, NOW + WAIT_MAX)
            )

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    def test_a_holder_that_does_not_know_how_far_it_came_is_refused(
        self, store: Store, verb: str
    ) -> None:
        """A call that was interrupted may have been committed all the same."""
        put(store, "a")
        job = held(store)
        passed = store.write(job.user, lambda t: t.pass_stage(job, "one", NOW + 5 * MINUTE))
        with pytest.raises(Conflict):
            store.write("default", lambda t: HOLDER_VERBS[verb](t, job))
        assert last(store) == passed

    def test_the_lease_counts_and_not_the_time_while_nobody_else_came(self, store: Store) -> None:
        put(store, "a")
        job = held(store)
        store.write(job.user, lambda t: t.finish_job(job, NOW + YEARS))
        assert last(store).state == "done"

    def test_a_stage_is_kept_with_what_was_done_for_it(self, shelf: Shelf) -> None:
        store = shelf.store
        put(store, "a")
        first = held(store)
        failed = store.write("default", lambda t: t.fail_job(first, "broken", NOW))
        assert failed.error == "broken"
        job = held(store)
        assert (job.attempt_count, job.error) == (2, "broken")

        def work(transaction: Transaction) -> Job:
            transaction.count("default", "effects")
            return transaction.pass_stage(job, "one", NOW + 9 * MINUTE)

        passed = store.write("default", work)
        assert (passed.stage, passed.state, passed.lease) == ("one", "running", "me")
        assert (passed.attempt_count, passed.error) == (1, None)
        assert passed.leased_until == NOW + 9 * MINUTE
        for opened in shelf.before_and_after_reopening():
            assert last(opened) == passed
            assert opened.counters("default") == {"effects": 1}
            assert take(opened, NOW + 8 * MINUTE, "you") is None
        assert held(shelf.store, NOW + 9 * MINUTE, "you").stage == "one"

    def test_a_failing_effect_leaves_the_stage_undone(self, store: Store) -> None:
        put(store, "a")
        job = held(store)

        def work(transaction: Transaction) -> None:
            transaction.pass_stage(job, "one", NOW + 9 * MINUTE)
            raise InputError("planted")

        with pytest.raises(InputError, match="planted"):
            store.write(job.user, work)
        assert last(store) == job

    def test_a_finished_job_is_never_taken_again(self, store: Store) -> None:
        put(store, "a")
        job = held(store)
        done = store.write(job.user, lambda t: t.finish_job(job, NOW + 2 * MINUTE))
        assert (done.state, done.finished_at) == ("done", NOW + 2 * MINUTE)
        assert (done.lease, done.leased_until, done.error) == (None, None, None)
        assert last(store) == done
        for at in (NOW, NOW + YEARS, NOW - YEARS):
            assert take(store, at) is None
            assert store.oldest_due(at) is None
            assert store.next_job_at(at, (KIND,)) is None

    def test_what_failed_waits_and_is_parked_in_the_end(self, store: Store) -> None:
        put(store, "a")
        at = NOW
        for attempt in range(1, PARK_AFTER_ATTEMPTS + 1):
            job = held(store, at)
            assert (job.attempt_count, job.state) == (attempt, "running")
            at += MINUTE
            job = store.write(job.user, lambda t, job=job, at=at: t.fail_job(job, f"at {at}", at))
            assert job == last(store)
            assert (job.lease, job.leased_until, job.error) == (None, None, f"at {at}")
            if attempt < PARK_AFTER_ATTEMPTS:
                assert (job.state, job.due_at) == ("queued", at)
                assert take(store, at - timedelta(seconds=1)) is None
        assert job.state == "parked"
        assert take(store, at + YEARS) is None

    def test_a_job_is_parked_at_once_when_nobody_says_when_to_retry(self, store: Store) -> None:
        put(store, "a")
        job = held(store)
        parked = store.write(job.user, lambda t: t.fail_job(job, "a bug", None))
        assert (parked.state, parked.error, parked.attempt_count) == ("parked", "a bug", 1)
        assert take(store) is None

    def test_a_job_whose_holders_die_is_parked_in_the_end(self, store: Store) -> None:
        put(store, "a", "b")
        for attempt in range(1, PARK_AFTER_ATTEMPTS + 1):
            job = held(store, NOW + attempt * MINUTE, f"holder {attempt}")
            assert (job.key, job.attempt_count) == ("a", attempt)
        job = held(store, NOW + (PARK_AFTER_ATTEMPTS + 1) * MINUTE)
        assert (job.key, job.attempt_count) == ("b", 1)
        parked = last(store, "a")
        assert (parked.state, parked.lease, parked.leased_until) == ("parked", None, None)
        assert "died" in str(parked.error)

    def test_a_postponed_attempt_does_not_count(self, store: Store) -> None:
        put(store, "a")
        for n in range(2 * PARK_AFTER_ATTEMPTS):
            job = held(store, NOW + n * MINUTE)
            assert job.attempt_count == 1
            again_at = NOW + (n + 1) * MINUTE
            job = store.write(
                job.user, lambda t, j=job, at=again_at: t.postpone_job(j, at, "no money")
            )
            assert (job.state, job.due_at, job.attempt_count) == ("queued", again_at, 0)
            assert (job.error, job.lease) == ("no money", None)
        job = held(store, again_at)
        assert store.write(job.user, lambda t: t.postpone_job(job, NOW)).error == "no money"

    def test_a_parked_job_goes_on_where_it_stopped(self, store: Store) -> None:
        put(store, "a")
        job = held(store)
        job = store.write(job.user, lambda t: t.pass_stage(job, "one", NOW + MINUTE))
        store.write(job.user, lambda t: t.fail_job(job, "a bug", None))
        later = NOW + 9 * MINUTE
        resumed = store.write("default", lambda t: t.resume_job("default", KIND, "a", later))
        assert (resumed.stage, resumed.state, resumed.attempt_count) == ("one", "queued", 0)
        assert (resumed.due_at, resumed.error) == (later, "a bug")
        assert resumed == last(store)
        sooner = store.write("default", lambda t: t.resume_job("default", KIND, "a", NOW))
        assert (sooner.due_at, sooner.stage) == (NOW, "one")
        assert (
            store.write("default", lambda t: t.resume_job("default", KIND, "a", later)).due_at
            == NOW
        )
        job = held(store)
        for state in ("running", "done"):
            with pytest.raises(Conflict, match=state):
                store.write("default", lambda t: t.resume_job("default", KIND, "a", NOW))
            if state == "running":
                store.write(job.user, lambda t: t.finish_job(job, NOW))

    @pytest.mark.parametrize("verb", HOLDER_VERBS)
    def test_a_job_can_be_begun_anew_whatever_became_of_it(self, store: Store, verb: str) -> None:
        put(store, "a")
        first = held(store)
        job = store.write("default", lambda t: t.pass_stage(first, "zero", NOW + 5 * MINUTE))
        store.write("default", lambda t: HOLDER_VERBS[verb](t, job))
        before, later = last(store), NOW + 9 * MINUTE
        assert store.write("default", lambda t: t.requeue_job("default", KIND, "a", later))
        anew = last(store)
        assert (anew.stage, anew.state, anew.attempt_count) == ("", "queued", 0)
        assert (anew.lease, anew.error, anew.finished_at) == (None, None, None)
        assert anew.due_at == (before.due_at if before.state == "queued" else later)
        with pytest.raises(Conflict):
            store.write("default", lambda t: t.finish_job(before, NOW))

    def test_a_job_that_is_not_there_is_refused(self, store: Store) -> None:
        put(store, "a", user="somebody")
        for user, kind, key in (("default", KIND, "a"), ("somebody", "other", "a")):
            with pytest.raises(NotFound):
                store.job(user, kind, key)
            assert not store.write(
                user, lambda t, u=user, k=kind, y=key: t.requeue_job(u, k, y, NOW)
            )
            with pytest.raises(NotFound):
                store.write(user, lambda t, u=user, k=kind, y=key: t.resume_job(u, k, y, NOW))

    def test_jobs_are_listed_by_user_and_state_newest_first(self, store: Store) -> None:
        put(store, "a", "b", "c")
        put(store, "d", user="somebody")
        job = held(store)
        store.write(job.user, lambda t: t.finish_job(job, NOW))
        assert [j.key for j in store.jobs(None, None, 9)] == ["d", "c", "b", "a"]
        assert [j.key for j in store.jobs("default", None, 2)] == ["c", "b"]
        assert [j.key for j in store.jobs("default", "queued", 9)] == ["c", "b"]
        assert [j.key for j in store.jobs(None, "done", 9)] == ["a"]
        assert store.jobs("nobody", None, 9) == []
        assert store.job_counts() == dict(zip(JOB_STATES, (3, 0, 1, 0), strict=True))

    def test_it_is_known_how_long_the_queue_waits(self, store: Store) -> None:
        assert store.oldest_due(NOW) is None
        assert store.next_job_at(NOW, (KIND,)) is None
        put(store, "a", "b")
        before = NOW - MINUTE
        assert (store.oldest_due(before), store.next_job_at(before, (KIND,))) == (None, NOW)
        at = NOW + MINUTE
        assert (store.oldest_due(at), store.next_job_at(at, (KIND,))) == (NOW, at)
        held(store, at)
        held(store, at)
        assert (store.oldest_due(at), store.next_job_at(at, (KIND,))) == (None, at + MINUTE)
        # A holder that died makes its job wait again.
        at += MINUTE
        assert (store.oldest_due(at), store.next_job_at(at, (KIND,))) == (NOW, at)

    @pytest.mark.parametrize("state", ["queued", "running"])
    def test_a_moment_years_ahead_counts_as_now(self, store: Store, state: str) -> None:
        put(store, "a", at=NOW + YEARS)
        if state == "running":
            held(store, NOW + YEARS)
        assert last(store).state == state
        assert (store.oldest_due(NOW), store.next_job_at(NOW, (KIND,))) == (NOW, NOW)
        assert take(store, NOW) is not None

    @pytest.mark.parametrize("jump", [-YEARS, YEARS])
    def test_a_clock_that_jumps_by_years_hangs_no_job(self, store: Store, jump: timedelta) -> None:
        put(store, "runs", "failed", "waits")
        held(store)
        job = held(store)
        assert job.key == "failed"
        store.write(job.user, lambda t: t.fail_job(job, "broken", NOW + 30 * MINUTE))
        there = NOW + jump
        assert store.next_job_at(there, (KIND,)) == there
        oldest = store.oldest_due(there)
        assert oldest is not None
        assert oldest <= there
        taken = {held(store, there, f"h{n}").key for n in range(3)}
        assert taken == {"waits", "runs", "failed"}
        assert take(store, there) is None

    def test_the_longest_lease_and_the_longest_wait_are_kept(self, store: Store) -> None:
        put(store, "a", at=NOW + WAIT_MAX)
        assert take(store, NOW) is None
        due_at = NOW + WAIT_MAX
        lease = Lease("me", due_at, LEASE_LENGTH_MAX)
        assert store.write(None, lambda t: t.take_job(lease, (KIND,))) is not None
        assert take(store, due_at) is None
        put(store, "b", at=NOW)
        for length in (timedelta(0), -MINUTE, LEASE_LENGTH_MAX + MINUTE):
            wrong = Lease("me", NOW, length)
            with pytest.raises(InputError, match="lease"):
                store.write(None, lambda t, lease=wrong: t.take_job(lease, (KIND,)))
