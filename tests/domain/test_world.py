"""The world: time in UTC, ids that sort and cannot be guessed, and a twin that repeats itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.domain.errors import InputError
from meritory.domain.world import ID_LENGTH, SeededWorld, World

MOMENT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def at(moment: datetime) -> World:
    """A world in which it is always the given moment."""
    return World(clock=lambda: moment)


def moment_of(identifier: str) -> int:
    """The milliseconds that an id begins with, read back digit by digit."""
    number = 0
    for char in identifier[:10]:
        number = number * 32 + ALPHABET.index(char)
    return number


def test_the_real_clock_is_in_utc() -> None:
    before = datetime.now(UTC)
    now = World().now()
    assert before <= now <= datetime.now(UTC)
    assert now.utcoffset() == timedelta(0)


def test_a_given_clock_is_converted_to_utc() -> None:
    there = MOMENT.astimezone(timezone(timedelta(hours=-7)))
    now = at(there).now()
    assert now == MOMENT
    assert now.tzinfo is UTC


def test_a_clock_without_an_offset_is_refused_with_advice() -> None:
    with pytest.raises(InputError, match=r"without an offset.*aware datetime"):
        at(datetime(2026, 3, 1)).now()


def test_durations_never_run_backwards() -> None:
    world = at(MOMENT)
    readings = [world.monotonic_ms() for _ in range(100)]
    assert readings == sorted(readings)


def test_an_id_has_its_length_and_alphabet_and_carries_its_moment() -> None:
    identifier = at(MOMENT).new_id()
    assert len(identifier) == ID_LENGTH == 26
    assert set(identifier) <= set(ALPHABET)
    assert moment_of(identifier) == int(MOMENT.timestamp() * 1000)


def test_ids_of_one_moment_differ_in_all_their_random_digits() -> None:
    ids = [at(MOMENT).new_id() for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    assert len({identifier[:10] for identifier in ids}) == 1
    for place in range(10, ID_LENGTH):
        assert len({identifier[place] for identifier in ids}) == len(ALPHABET)


@given(
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(9999, 12, 30)),
    st.timedeltas(min_value=timedelta(milliseconds=1), max_value=timedelta(days=1)),
)
def test_ids_sort_like_time(first: datetime, gap: timedelta) -> None:
    earlier, later = first.replace(tzinfo=UTC), first.replace(tzinfo=UTC) + gap
    assert at(earlier).new_id() < at(later).new_id()


def test_a_clock_before_1970_still_gives_ids() -> None:
    assert moment_of(at(datetime(1901, 1, 1, tzinfo=UTC)).new_id()) == 0


def test_random_bits_stay_within_their_count() -> None:
    world = World()
    drawn = [world.random_bits(8) for _ in range(4000)]
    assert min(drawn) >= 0
    assert max(drawn) < 256
    assert len(set(drawn)) > 200


def test_the_same_seed_gives_the_same_ids_and_another_seed_others() -> None:
    first, second, other = (SeededWorld(seed, lambda: MOMENT) for seed in (1, 1, 2))
    ids = [first.new_id() for _ in range(20)]
    assert ids == [second.new_id() for _ in range(20)]
    assert not set(ids) & {other.new_id() for _ in range(20)}
    assert len(set(ids)) == 20
