"""The rankings of the streams: each reference counts what its name says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from bench.streams_kept import Kept, learned
from bench.streams_outcome import LabelCount, Outcome
from bench.streams_replay import recorded
from bench.streams_rows import (
    FRECENCY,
    LAST_USED,
    TITLE,
    Floats,
    References,
    served_baseline,
    split_words,
    text_ranking,
    title_scores,
)

from meritory import Memory
from meritory.engine.predictor.state import PredictorState
from meritory.ports.scorer import ScoreRequest
from meritory.rank.features import FEATURES

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "rows.db") as opened:
        yield opened


def keep(memory: Memory, *texts: str) -> list[str]:
    found = memory.remember_many({"content": text, "on_similar": "keep"} for text in texts)
    return [one.memory.id for one in found if one.memory is not None]


def test_identifiers_are_split() -> None:
    assert split_words("cmd/HTTPServer_test.go: parseUserName2 — café") == (
        *("cmd", "http", "server", "test", "go", "parse", "user", "name2", "café"),
    )


def test_titles_match_by_rare_words_of_the_first_line() -> None:
    texts = {
        "both": "src/cleanStore.py\nnothing",
        "common": "src/openStore.py\nclean clean clean",
        "none": "docs/readme.md\nclean store",
    }
    found = title_scores("Why does clean empty the store?", texts)
    assert found["both"] > found["common"] > 0.0 == found["none"]
    assert title_scores("clean", {}) == {}


def test_equal_references_keep_the_order_of_the_store() -> None:
    references = References()
    references.add(NOW - DAY, {"z": 2.0, "a": 2.0})
    found = references.rankings(NOW, "text", {"z": "text", "a": "text"})
    assert found == {TITLE: ["z", "a"], FRECENCY: ["z", "a"], LAST_USED: ["z", "a"]}


def test_frecency_fades_and_last_used_does_not_count() -> None:
    references = References()
    references.add(NOW - 40 * DAY, {"often": 2.0, "gone": 2.0})
    references.add(NOW - 39 * DAY, {"often": 2.0})
    references.add(NOW - 12 * DAY, {"steady": 2.0})
    references.add(NOW - 11 * DAY, {"steady": 2.0})
    references.add(NOW - 10 * DAY, {"once": 1.0, "late": 2.0})
    stored = dict.fromkeys(("often", "once", "late", "steady", "new"), "text")
    found = references.rankings(NOW, "", stored)
    # Two old uses are worth less than one new use.
    assert found[FRECENCY] == ["steady", "late", "once", "often"]
    # Of one session, the larger gain comes first; a memory that is gone is not ranked.
    assert found[LAST_USED] == ["late", "once", "steady", "often"]
    assert found[TITLE] == []
    later = references.rankings(NOW + 900 * DAY, "text", {"once": "text"})
    assert later[FRECENCY] == later[TITLE] == ["once"]


def test_text_ranks_by_relevance_and_lowers_repetition(memory: Memory) -> None:
    copies = [f"The otter eats mussels in the north river every morning{end}" for end in ".!?"]
    ids = keep(memory, *copies, "The heron waits near the river.", "Invoices are due in May.")
    memory.session("s", context="what does the otter eat in the north river")
    served = recorded(memory, "s")
    place = FEATURES.index("relevance")
    plain = [one.memory_id for one in sorted(served, key=lambda one: -one.features[place])]
    found = text_ranking(memory, served)
    assert set(plain[:3]) == set(ids[:3])
    assert sorted(found) == sorted(plain)
    assert found[0] in ids[:3]
    assert found.index(ids[3]) == 1


def test_text_of_an_empty_store_is_empty(memory: Memory) -> None:
    assert text_ranking(memory, []) == []


def test_the_served_baseline_is_what_is_served_without_weight_of_the_model(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(memory, *(f"Note {at}: the {name} eats." for at, name in enumerate(("otter", "lynx"))))
    alone = served_baseline(memory, "a", None, "the lynx")
    assert memory.session("a", context="the lynx").ranking == alone
    monkeypatch.setattr(PredictorState, "alpha", property(lambda _: 0.0))
    memory.backend.services = replace(memory.services, scorer=Backwards())
    assert served_baseline(memory, "b", None, "the lynx") == alone
    assert memory.session("b", context="the lynx").ranking == alone[::-1]


class Backwards:
    """A scorer that turns the baseline's order round."""

    name = "backwards"

    def score(self, request: ScoreRequest) -> Floats:
        return -request.features[:, FEATURES.index("composite")]

    def warm(self, wait_s: float = 0.0) -> None:
        pass

    def close(self) -> None:
        pass


def a_session(helped: int, labels: list[float]) -> Kept:
    """Return three candidates; the baseline ranks by place, the frecency names the useful one."""
    features = np.zeros((3, len(FEATURES)))
    features[:, FEATURES.index("composite")] = [0.3, 0.2, 0.1]
    features[helped, FEATURES.index("frecency")] = 1.0
    gains = np.zeros(3)
    gains[helped] = 2.0
    shown = np.ones(3, np.bool_)
    return Kept(features, np.array([1, 2, 3]), gains, np.array(labels), 2.0, shown)


def test_a_cold_model_learns_from_labels() -> None:
    sessions = [a_session(2, [0.0, 0.0, 1.0]) for _ in range(60)]
    found = learned(sessions)
    assert found[0] == pytest.approx(0.5)
    assert found[-1] == 1.0


def test_a_cold_model_does_not_see_the_truth_without_labels() -> None:
    found = learned([a_session(2, [np.nan] * 3) for _ in range(60)])
    assert found == [pytest.approx(0.5)] * 60
    # The label of one candidate says nothing about the others.
    found = learned([a_session(2, [np.nan, np.nan, 1.0]) for _ in range(60)])
    assert found[-1] == pytest.approx(0.5)


def test_a_hidden_column_is_not_learned_from() -> None:
    sessions = [a_session(2, [0.0, 0.0, 1.0]) for _ in range(20)]
    assert learned(sessions)[-1] == 1.0
    hidden = [place for place, name in enumerate(FEATURES) if name in ("frecency", "composite")]
    assert learned(sessions, hidden)[-1] < 1.0


def test_labels_are_counted_against_the_truth() -> None:
    labels = {"a": 0.4, "b": 0.39, "c": 1.0, "d": -0.5}
    found = LabelCount.of(labels, {"a", "b", "unlabelled"})
    assert found == LabelCount(helped_and_used=1, helped=2, used=3)
    outcome = Outcome("one", label_counts=[found, LabelCount(1, 1, 1)])
    assert outcome.label_precision == pytest.approx(2 / 3)
    assert outcome.label_recall == pytest.approx(0.5)
