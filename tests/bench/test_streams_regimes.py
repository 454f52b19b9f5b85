"""The evidence of each regime, and controls into which no truth enters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from bench.streams_regimes import (
    CONTROLS,
    WORDS_MEMORIES,
    Control,
    Evidence,
    Occasion,
    Regime,
    Reporter,
    Shown,
    WrongRegime,
)
from bench.streams_replay import Run, replay
from bench.streams_types import Message, Stream, StreamMemory, StreamSession, Version, guarded

from meritory import Memory

DAWN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
DAY = timedelta(days=1)
ANIMALS = ("otter", "heron", "lynx", "badger", "stoat", "weasel", "puffin", "gannet")
FOODS = ("berries", "acorns", "clover", "mussels")
EVERY_CONTROL = [(regime, control) for regime, known in CONTROLS.items() for control in known]


def note(number: int) -> str:
    animal, food = ANIMALS[number % 8], FOODS[number // 8]
    return f"The {animal} of enclosure {number} eats {food} from the {animal} bowl."


def talk(number: int) -> list[Message]:
    """Return a transcript whose reply repeats the notes that the session used."""
    reply = " ".join(note(at) for at in used_by(number))
    return [
        {"role": "user", "text": f"What shall I feed today, round {number}?"},
        {"role": "assistant", "text": f"{reply} " * 6},
    ]


def used_by(number: int) -> tuple[int, int]:
    return number % 4, 8 + number % 4


def a_stream(*, has_transcripts: bool = True, count: int = 10) -> Stream:
    memories = tuple(
        StreamMemory(f"n{at}", None, DAWN, None, (Version(DAWN, note(at)),)) for at in range(32)
    )
    sessions = tuple(
        StreamSession(
            f"s{at}",
            DAWN + (at + 1) * DAY,
            None,
            f"feed the {ANIMALS[at % 4]}",
            {f"n{one}": 2.0 for one in used_by(at)},
            partial(talk, at) if has_transcripts else None,
        )
        for at in range(count)
    )
    return guarded(Stream("zoo", memories, sessions))


def a_reporter(regime: Regime, control: Control | None = None, seed: int = 0) -> Reporter:
    return Reporter(a_stream(), regime, control, np.random.default_rng(seed))


def an_occasion(number: int, gains: Mapping[str, float], shown: int = 4) -> Occasion:
    notes = [Shown(f"n{at}", note(at)) for at in range(shown)]
    return Occasion(number, "feed them", notes, gains, [f"n{at}" for at in range(32)])


def test_complete_evidence_names_every_use_as_a_label() -> None:
    found = a_reporter("complete").evidence(an_occasion(0, {"n1": 2.0, "n30": 1.0}))
    assert found == Evidence(used={"n1": 1.0, "n30": 0.5})


def test_transcripts_come_alone() -> None:
    found = a_reporter("transcripts").evidence(an_occasion(3, {"n1": 2.0}))
    assert found == Evidence(transcript=talk(3))


def test_half_of_the_sessions_are_rated_and_the_transcript_comes_always() -> None:
    reporter = a_reporter("ratings")
    found = [reporter.evidence(an_occasion(at % 10, {"n1": 2.0})) for at in range(400)]
    assert 160 < sum(bool(one.ratings) for one in found) < 240
    assert all(one.transcript == talk(at % 10) for at, one in enumerate(found))


def test_ratings_are_of_shown_memories_and_mostly_right() -> None:
    reporter = a_reporter("ratings")
    gains = {"n0": 2.0, "n1": 1.0, "n20": 2.0}
    found = [reporter.evidence(an_occasion(0, gains)).ratings for _ in range(2_000)]
    rated = [one for one in found if one]
    assert all(list(one) == ["n0", "n1", "n2", "n3"] for one in rated)
    for name, right, wrong in (("n0", 1.0, 0.0), ("n1", 0.5, 0.0), ("n2", 0.0, 1.0)):
        values = [one[name] for one in rated]
        assert set(values) == {right, wrong}
        assert 0.11 < np.mean([value == wrong for value in values]) < 0.19


def test_a_stream_without_transcripts_is_rated_alone() -> None:
    stream = a_stream(has_transcripts=False)
    reporter = Reporter(stream, "ratings", None, np.random.default_rng(0))
    assert reporter.evidence(an_occasion(0, {})).transcript is None


@pytest.mark.parametrize(("regime", "control"), EVERY_CONTROL)
def test_no_truth_of_a_session_enters_its_control(regime: Regime, control: Control) -> None:
    truth = [{"n0": 2.0, "n1": 2.0}, {"n3": 2.0, "n9": 2.0}]
    for seed in range(20):
        reporters = [a_reporter(regime, control, seed) for _ in truth]
        for at in range(4):
            # Up to the last session the truth is the same for both.
            known = truth if at == 3 else [truth[0], truth[0]]
            first, second = (
                reporter.evidence(an_occasion(at, gains))
                for reporter, gains in zip(reporters, known, strict=True)
            )
            assert first == second
            assert first.transcript != talk(at)


def test_without_a_control_the_truth_does_enter() -> None:
    for regime in ("complete", "ratings"):
        found = [
            [a_reporter(regime, None, seed).evidence(an_occasion(0, gains)) for seed in range(20)]
            for gains in ({"n0": 2.0}, {"n3": 2.0})
        ]
        assert found[0] != found[1]


def test_labels_by_lot_are_as_many_and_come_from_the_whole_store() -> None:
    reporter = a_reporter("complete", "shuffled")
    found = [reporter.evidence(an_occasion(0, {"n1": 2.0, "n2": 1.0})).used for _ in range(300)]
    assert all(one is not None and sorted(one.values()) == [0.5, 1.0] for one in found)
    assert len({name for one in found if one for name in one}) == 32


def test_ratings_by_lot_have_the_rate_of_true_ones() -> None:
    reporter = a_reporter("ratings", "shuffled")
    gains = {"n0": 2.0}
    found = [reporter.evidence(an_occasion(at % 10, gains)).ratings for at in range(2_000)]
    rated = [one for one in found if one]
    # One in four is used: .25 x .85 + .75 x .15 of the ratings are good.
    for name in ("n0", "n3"):
        assert 0.27 < np.mean([one[name] for one in rated]) < 0.38


def test_shuffled_transcripts_come_from_every_other_session() -> None:
    reporter = a_reporter("transcripts", "shuffled")
    found = [reporter.evidence(an_occasion(4, {})).transcript for _ in range(300)]
    others = [talk(at) for at in range(10) if at != 4]
    assert all(one in others for one in found)
    assert all(one in found for one in others)


def test_chance_words_come_from_few_memories_that_stay_the_same() -> None:
    reporter = a_reporter("transcripts", "words")
    whole = {note(at): at for at in range(32)}
    sources: set[int] = set()
    for number in range(200):
        question, *replies = reporter.evidence(an_occasion(number % 10, {})).transcript or []
        assert question == {"role": "user", "text": "feed them"}
        assert {one["role"] for one in replies} == {"assistant"}
        # A library needs some text to judge by.
        assert sum(len(one["text"]) for one in replies) > 500
        for one in replies:
            sources |= {at for text, at in whole.items() if one["text"].rstrip(".") in text}
    assert len(sources) == WORDS_MEMORIES


def test_an_echo_restates_what_was_shown_and_nothing_else() -> None:
    found = a_reporter("transcripts", "echo").evidence(an_occasion(0, {}, shown=2))
    assert found.transcript == [
        {"role": "user", "text": "feed them"},
        {"role": "assistant", "text": note(0)},
        {"role": "assistant", "text": note(1)},
    ]


@pytest.mark.parametrize(("shown", "expected"), [(0, []), (1, [1.0]), (3, [1.0, 0.5, 0.0])])
def test_position_ratings_fall_from_first_to_last(shown: int, expected: list[float]) -> None:
    reporter = a_reporter("ratings", "position")
    found = [reporter.evidence(an_occasion(0, {"n2": 2.0}, shown)) for _ in range(50)]
    assert {tuple(one.ratings.values()) for one in found} == {(), tuple(expected)}
    assert all(one.transcript is None for one in found)


def test_a_regime_that_a_stream_cannot_have_is_refused() -> None:
    silent = a_stream(has_transcripts=False)
    with pytest.raises(WrongRegime, match="no transcripts"):
        replay(silent, Run(regime="transcripts"))
    with pytest.raises(WrongRegime, match="has no control 'echo'"):
        replay(a_stream(), Run(control="echo"))


def test_a_refused_rating_stops_the_bench(tmp_path: Path) -> None:
    with Memory(tmp_path / "one.db") as memory:
        memory.remember("The otter eats berries.")
        session = memory.session("s", context="otter")
        shown = session.memories[0].id
        with pytest.raises(RuntimeError, match="refused"):
            Evidence(ratings={"nothing-like-it": 1.0}).deliver(session)
        Evidence(ratings={shown: 1.0}).deliver(session)


@pytest.mark.parametrize("regime", ["ratings", "transcripts"])
def test_the_library_makes_labels_from_the_evidence(regime: Regime) -> None:
    found = replay(a_stream(), Run(regime=regime))
    assert (found.regime, found.control) == (regime, None)
    assert sum(one.helped for one in found.label_counts) > 0
    assert found.label_precision > 0.4
    again = replay(a_stream(), Run(regime=regime))
    assert again.ndcg == found.ndcg


def test_ratings_alone_label_only_shown_memories() -> None:
    found = replay(a_stream(has_transcripts=False), Run(regime="ratings", keep=True))
    counts = {int(np.isfinite(one.labels).sum()) for one in found.kept}
    assert 0 in counts
    assert 0 < max(counts) < min(len(one.labels) for one in found.kept)


def test_a_control_runs_through_the_library() -> None:
    for regime, control in EVERY_CONTROL:
        found = replay(a_stream(), Run(regime=regime, control=control, limit=3))
        assert len(found.pool_recall) == 3
