"""The bars of the streams can be missed, each by its own figure."""

from __future__ import annotations

import math

import pytest
from bench.streams_bars import Bar, missed
from bench.streams_figures import Figures, quarter_bounds
from bench.streams_outcome import LabelCount, Outcome
from bench.streams_rows import (
    BASELINE,
    FRECENCY,
    MIX,
    PREDICTOR,
    SEED_FUSION,
    SERVED,
    SERVED_BASELINE,
    TEXT,
)

COUNT = 120
RIGHT = [LabelCount(helped_and_used=9, helped=10, used=12)] * COUNT


def an_outcome(baseline: float, other: float, **more: object) -> Outcome:
    """Return a stream of 120 sessions in which served and predictor are alike."""
    methods = {
        BASELINE: baseline,
        MIX: baseline,
        SERVED_BASELINE: baseline,
        SERVED: other,
        PREDICTOR: other,
        TEXT: baseline,
        FRECENCY: baseline,
        SEED_FUSION: baseline / 3.0,
    }
    ndcg = {name: [value] * COUNT for name, value in methods.items()}
    values = {"alpha": [1.0] * 30 + [0.5] * 90, "label_counts": RIGHT, **more}
    name = str(values.pop("name", "agent_specstory"))
    return Outcome(name, 0, [0.95] * COUNT, ndcg, **values)  # type: ignore[arg-type]


def subjects(misses: list[str]) -> list[str]:
    return [miss.partition(": ")[2].split(" is ")[0] for miss in misses]


def test_a_complete_figure_below_its_line_is_a_miss() -> None:
    assert missed(Figures([an_outcome(0.5, 0.55)])) == []
    low = missed(Figures([an_outcome(0.3, 0.27, alpha=[1.0] * COUNT)]))
    assert subjects(low) == [
        "NDCG@10 of the baseline 0.3000",
        "served against mix 0.2700",
        "predictor's ratio 0.9000",
        "served ratio 0.9000",
        "bound of the worst quarter -0.0300",
        "first active session inf",
    ]


def test_one_seed_that_is_active_late_is_a_miss() -> None:
    late = an_outcome(0.5, 0.55, alpha=[1.0] * 70 + [0.5] * 50)
    misses = missed(Figures([an_outcome(0.5, 0.55), late]))
    assert subjects(misses) == ["first active session 70.0000"]


def test_served_on_an_agent_stream_may_be_a_hundredth_below_the_mix() -> None:
    near = an_outcome(0.5, 0.491, name="agent_calibrate", alpha=[1.0] * COUNT)
    far = an_outcome(0.5, 0.489, name="agent_calibrate", alpha=[1.0] * COUNT)
    assert "served against mix" not in str(missed(Figures([near])))
    assert "served against mix" in str(missed(Figures([far])))


def test_complete_labels_of_people_have_no_bar() -> None:
    low = an_outcome(0.3, 0.1, name="realmem_liam")
    assert missed(Figures([low])) == []


def test_a_bad_quarter_shows_and_a_noisy_one_does_not() -> None:
    noisy = an_outcome(0.5, 0.5)
    noisy.ndcg[SERVED][:30] = [0.2, 0.7] * 15
    assert min(quarter_bounds(noisy)) > -0.02
    noisy.ndcg[SERVED][:30] = [0.4] * 30
    assert min(quarter_bounds(noisy)) == pytest.approx(-0.1)


def of_transcripts(served: float = 0.6, **more: object) -> Outcome:
    values = {"regime": "transcripts", "name": "agent_entire_s", **more}
    return an_outcome(0.5, served, **values)


def test_transcripts_must_give_right_labels_and_a_better_order() -> None:
    assert missed(Figures([of_transcripts()]), complete_served=0.66) == []
    wrong = [LabelCount(helped_and_used=2, helped=10, used=12)] * COUNT
    assert subjects(missed(Figures([of_transcripts(label_counts=wrong)]))) == [
        "precision of helped labels 0.2000",
        "recall of helped labels 0.1667",
    ]
    low = missed(Figures([of_transcripts(0.49)]), complete_served=0.6)
    assert subjects(low) == [
        "served against 1.15 x max(text, frecency) 0.4900",
        "low end of predictor - baseline -0.0100",
        "served against 0.9 x served (complete) 0.4900",
    ]
    best = of_transcripts()
    best.ndcg[FRECENCY] = [0.55] * COUNT
    assert subjects(missed(Figures([best]))) == ["served against 1.15 x max(text, frecency) 0.6000"]


def test_a_weak_model_without_weight_is_no_miss() -> None:
    silent = of_transcripts(alpha=[1.0] * COUNT)
    silent.ndcg[PREDICTOR] = [0.1] * COUNT
    assert missed(Figures([silent])) == []


def test_no_label_at_all_misses_the_bar_of_labels() -> None:
    none = [LabelCount(helped_and_used=0, helped=0, used=12)] * COUNT
    misses = missed(Figures([of_transcripts(label_counts=none)]))
    assert [miss.split(" is ")[0][-3:] for miss in misses] == ["nan", "000"]


def test_ratings_must_not_lose_to_text_in_any_quarter() -> None:
    def rated(name: str, quarter: float, last: float) -> Figures:
        one = an_outcome(0.4, 0.42, name=name, regime="ratings")
        one.ndcg[SERVED][30:60] = [quarter] * 30
        one.ndcg[SERVED][90:] = [last] * 30
        return Figures([one])

    assert missed(rated("realmem_liam", 0.42, 0.43)) == []
    assert subjects(missed(rated("realmem_liam", 0.39, 0.41))) == [
        "served in quarter 2 against text 0.3900",
        "served in the last quarter against 1.05 x text 0.4100",
    ]
    # People that the product was developed on have no bar.
    assert missed(rated("realmem_kenta", 0.39, 0.41)) == []


def test_no_run_of_a_control_may_lose_to_text() -> None:
    def controlled(served: float) -> Outcome:
        one = an_outcome(0.5, served, control="shuffled", name="agent_entire_s")
        one.ndcg[SERVED_BASELINE] = [served] * COUNT
        return one

    assert missed(Figures([controlled(0.5), controlled(0.496)])) == []
    misses = missed(Figures([controlled(0.6), controlled(0.494)]))
    assert subjects(misses) == ["served - text of the worst run -0.0060"]


def test_harm_of_the_model_in_a_control_is_a_miss() -> None:
    def controlled(harm: float) -> Outcome:
        one = an_outcome(0.5, 0.6, control="shuffled", name="agent_entire_s")
        one.ndcg[SERVED_BASELINE] = [0.6 + harm] * COUNT
        return one

    assert missed(Figures([controlled(0.0), controlled(0.005), controlled(-0.01)])) == []
    assert subjects(missed(Figures([controlled(0.02), controlled(0.0)]))) == [
        "mean harm of the model 0.0100",
        "worst harm of the model 0.0200",
    ]
    many = [controlled(0.011), *(controlled(0.0) for _ in range(20))]
    assert subjects(missed(Figures(many))) == ["worst harm of the model 0.0110"]


def test_a_figure_that_is_no_number_meets_no_bar() -> None:
    assert not Bar("floor", math.nan, 0.0).is_met
    assert not Bar("ceiling", math.nan, 0.0, is_ceiling=True).is_met
    assert Bar("floor", 0.5, 0.5).is_met
    assert not Bar("ceiling", 0.6, 0.5, is_ceiling=True).is_met
