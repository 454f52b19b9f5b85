"""The calibration bench: its rule, its stores and its streams, and that it can fail."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from bench.calibrate import verdict
from bench.calibrate_data import CONFIDENCES, Collection, Note, Question
from bench.calibrate_rule import Sweep, Table, candidate, decide
from bench.calibrate_score import DERIVED, FLOOR, HALF_LIFE, Drafts, figures, measure
from bench.calibrate_streams import table, with_half_life
from bench.streams_kept import Kept

from eval_kit import NAMED
from meritory.rank import composite
from meritory.rank.features import FEATURES

AT = datetime(2026, 1, 1, tzinfo=UTC)
SWEEP = Sweep("weight", 0.5, (0.0, 0.5, 1.0))


def gains(tuning: list[float], reporting: list[float], count: int = 40) -> Table:
    """A data set on which each setting is so good on either half, give or take the question."""
    noise = np.linspace(-0.05, 0.05, count)
    halves = [np.array(means)[:, None] + noise for means in (tuning, reporting)]
    values = np.concatenate(halves, axis=1)[:, :, None]
    return Table(("p@3",), values, np.repeat([True, False], count))


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"a": gains([0.4, 0.5, 0.6], [0.4, 0.5, 0.6])}, ("change", 1.0)),
        # Chosen by chance: the other half does not agree.
        ({"a": gains([0.4, 0.5, 0.6], [0.5, 0.5, 0.5])}, ("keep", 1.0)),
        ({"a": gains([0.4, 0.5, 0.6], [0.6, 0.5, 0.4])}, ("keep", 1.0)),
        # What helps here costs there: it does not even become a candidate, ...
        (
            {"a": gains([0.4, 0.5, 0.9], [0.4, 0.5, 0.9]), "b": gains([0.5, 0.5, 0.4], [0.5] * 3)},
            ("keep", 0.5),
        ),
        # ... and is refused where only the reporting half shows it, or has too little to say.
        (
            {"a": gains([0.4, 0.5, 0.9], [0.4, 0.5, 0.9]), "b": gains([0.5] * 3, [0.5, 0.5, 0.4])},
            ("keep", 1.0),
        ),
        (
            {"a": gains([0.4, 0.5, 0.9], [0.4, 0.5, 0.9]), "b": gains([0.5] * 3, [0.5] * 3, 10)},
            ("keep", 1.0),
        ),
        ({"a": gains([0.5, 0.6, 0.4], [0.9, 0.5, 0.9])}, ("keep", 0.5)),
    ],
)
def test_a_default_changes_only_where_both_halves_agree_and_nothing_is_lost(
    tables: dict[str, Table], expected: tuple[str, float]
) -> None:
    found = decide(SWEEP, tables)
    assert (found.verdict, found.candidate) == expected
    assert verdict([found]) == (expected[0] == "change")


def test_among_equals_the_shipped_value_stays() -> None:
    assert candidate(SWEEP, {"a": gains([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])}) == 1
    with pytest.raises(ValueError, match="not among"):
        Sweep("weight", 0.3, (0.0, 1.0))


def own_collection() -> Collection:
    """What an agent noted is the answer to every question; a person only named the thing."""
    notes, questions = [], []
    for number, (thing, animal) in enumerate(NAMED.items()):
        said = f"We talked about the {thing} for a while"
        told = f"The {thing} is called {animal} by all"
        for role, text, source in (
            ("said", said, "user_stated"),
            ("told", told, "assistant_derived"),
        ):
            notes.append(Note(f"{number}/{role}", text, f"s{number}{role}", "0", source, AT))
        wanted = frozenset({f"{number}/told"})
        tuning = number % 2 == 0
        questions.append(Question(f"what is the {thing} called?", wanted, frozenset(), AT, tuning))
    strange = Question("who talked about lunch for a while?", frozenset(), frozenset(), AT, True)
    strangers = [replace(strange, is_tuning=tuning) for tuning in (True, False)]
    return Collection("own", notes, questions, strangers)


def test_a_weight_that_buries_the_answers_is_found() -> None:
    """Shipped at 0.3 the agent's notes lose to mere mentions: the bench says so and fails."""
    drafts: Drafts = {}
    collection = own_collection()
    measure(drafts, replace(collection, questions=collection.questions * 2), [DERIVED, FLOOR])
    own = drafts[DERIVED.name]["own"].table()
    at = {value: place for place, value in enumerate(DERIVED.values)}
    ranks = own.means(False)[:, own.measures.index("mrr")]
    assert ranks[at[1.0]] > ranks[at[0.3]]
    found = decide(replace(DERIVED, shipped=0.3), {"own": own})
    assert (found.verdict, verdict([found])) == ("change", 1)

    prompted = drafts[FLOOR.name]["own, prompt"].table()
    assert prompted.measures == ("p@3", "mrr", "ndcg@10", "quiet")
    quiet = prompted.means(False)[:, -1]
    assert (np.diff(quiet) >= 0.0).all() and quiet[-1] > quiet[0]
    assert prompted.means(False)[0, 0] == 1.0
    assert "quiet" not in drafts[FLOOR.name]["own, recall"].table().measures


def test_a_longer_half_life_lets_an_old_answer_begin_a_session() -> None:
    asked_at = AT + timedelta(days=40)
    notes = [
        Note("old", "The boat Otter is red", "s1", "0", "user_stated", AT),
        Note(
            "new", "The boat Otter is wet", "s2", "0", "user_stated", asked_at - timedelta(hours=1)
        ),
    ]
    asked = Question("is the boat Otter red?", frozenset({"old"}), frozenset(), asked_at, True)
    drafts: Drafts = {}
    measure(drafts, Collection("own", notes, [asked], []), [HALF_LIFE])
    table = drafts[HALF_LIFE.name]["own, start"].table()
    found = table.values[:, 0, table.measures.index("mrr")]
    assert found[0] == 0.5 and found[-1] == 1.0


def test_the_figures_of_a_ranking() -> None:
    found = figures(["x", "x", "y", "a"], frozenset({"a"}))
    assert found[:2] == [1.0, pytest.approx(1 / 3)]
    assert np.isnan(figures(["x"], frozenset())).all()


def test_who_doubts_or_asks_is_less_sure() -> None:
    doubts, asks = CONFIDENCES["doubts"], CONFIDENCES["doubts, asks"]
    assert doubts("It is blue. It is perhaps red.") == pytest.approx(0.7)
    assert doubts("Is it blue?") == pytest.approx(0.9)
    assert asks("Is it blue?") == pytest.approx(0.5)
    assert asks("") == pytest.approx(0.9)


def recorded(trust: float) -> Kept:
    """Two candidates: one helped long ago, one is new and goes a little less with the context."""
    since = np.array([60.0, 1.0])
    known = {
        "log_useful_count": np.log1p([1.0, 0.0]),
        "log_days_since_useful": np.log1p(since),
        "log_age_days": np.log1p([100.0, 1.0]),
        "relevance": np.array([1.0, 0.6]),
        "recency": trust * composite.recency(since),
        "confidence": np.array([0.8, 0.8]),
    }
    columns = [known.get(name, np.zeros(2)) for name in FEATURES]
    rows = np.array([0, 1])
    gains, shown = np.array([2.0, 0.0]), np.ones(2, np.bool_)
    return Kept(np.stack(columns, axis=1), rows, gains, np.zeros(2), 2.0, shown)


def test_a_longer_half_life_lets_what_helped_long_ago_come_first() -> None:
    sweep = Sweep("half_life_days", 14.0, (14.0, 365.0))
    found = table("own", [recorded(0.8)] * 30, sweep, with_half_life)
    assert found.values[:, 0, 1].tolist() == [0.5, 1.0]
    assert 0 < found.is_tuning.sum() < 30


def test_numbers_of_another_formula_are_refused() -> None:
    known = dict(zip(FEATURES, recorded(0.8).features.T, strict=True))
    known["recency"] = known["recency"] + np.array([0.1, 0.0])
    with pytest.raises(RuntimeError, match="recency on record"):
        with_half_life(known, 14.0)
