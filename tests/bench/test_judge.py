"""The judge's bench: its cases, its figures and its bars."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from bench.datasets import Corpus, Doc, Query
from bench.judge import (
    AGENT_COSINE,
    COSINE,
    HONEST,
    JUDGE,
    WORDS,
    Outcome,
    auc,
    calibration_error,
    is_clear,
    lead,
    measure,
    missed_bars,
    reliability,
    stuffed,
    stuffed_gains,
    summary,
)
from bench.judge_cases import (
    ANSWERS,
    SHOWN_COUNT,
    Case,
    added_lines,
    coding_turns,
    question_cases,
)
from bench.streams_types import StreamMemory, StreamSession, Version

from bench import judge_cases
from tenure.types import Exhibit, Turn, Verdict

AT = datetime(2024, 1, 1, tzinfo=UTC)
TEXTS = (
    "My cat Pluto hates the vacuum cleaner.",
    "The deploy failed because the volume was read-only.",
    "I planted tomatoes on the balcony in April.",
    "Our office moved to Lisbon last spring.",
)


class Letters:
    """An embedder that counts letters: good enough to tell words apart."""

    def embed_documents(self, texts: list[str]) -> np.ndarray:
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> np.ndarray:
        counts = np.array([text.lower().count(chr(97 + n)) for n in range(26)], np.float32)
        return counts / max(float(np.linalg.norm(counts)), 1e-9)


def case(helped: list[bool], cosine: list[float], answer: str = "Pluto") -> Case:
    exhibits = tuple(Exhibit(text, was_shown=True) for text in TEXTS)
    turns = (Turn("user", "Who hates noise?"), Turn("assistant", answer))
    numbers = np.array(cosine)
    vectors = Letters().embed_documents(list(TEXTS))
    return Case("toy", turns, exhibits, np.array(helped), vectors, numbers, numbers)


def outcome(judge: list[float], cosine: list[float], *, name: str = "locomo") -> Outcome:
    """Thirty equal cases in which the first exhibit helped."""
    cases = [case([True, False, False, False], cosine)] * 30
    verdict = Verdict(score=0.5, confidence=max(judge) ** 0.5, relevance=tuple(judge))
    ours, theirs = [np.array(judge)] * 30, [np.array(cosine)] * 30
    scores = {JUDGE: ours, WORDS: ours, COSINE: theirs, AGENT_COSINE: theirs}
    return Outcome(name, cases, [verdict] * 30, scores)


def test_auc_counts_pairs_in_the_right_order_and_ties_as_half() -> None:
    assert auc(np.array([0.9, 0.5, 0.1]), np.array([True, False, False])) == 1.0
    assert auc(np.array([0.5, 0.5, 0.1]), np.array([True, False, False])) == 0.75
    assert np.isnan(auc(np.array([0.5, 0.5]), np.array([True, True])))


def test_a_verdict_is_clear_with_confidence_and_spread_only() -> None:
    def verdict(confidence: float, *scores: float) -> Verdict:
        return Verdict(score=0.5, confidence=confidence, relevance=scores)

    assert is_clear(verdict(0.6, 0.0, 0.4))
    assert not is_clear(verdict(0.59, 0.0, 0.4))
    assert not is_clear(verdict(0.9, 0.8, 0.85))


def test_calibration_holds_scores_against_what_really_helped() -> None:
    sure = outcome([0.95, 0.05, 0.05, 0.05], [0.1] * 4)
    table = reliability(sure)
    assert [count for _, _, count in table] == [90, 30]
    assert calibration_error(table) == pytest.approx(0.05)
    mistaken = outcome([0.05, 0.95, 0.05, 0.05], [0.1] * 4)
    assert calibration_error(reliability(mistaken)) > 0.2


def test_the_bars_hold_when_the_judge_is_ahead_and_sure() -> None:
    assert missed_bars([outcome([0.9, 0.1, 0.1, 0.1], [0.2, 0.3, 0.1, 0.1])]) == []


def test_losing_to_a_cosine_is_a_miss_and_so_is_a_draw() -> None:
    behind = outcome([0.5, 0.9, 0.1, 0.1], [0.9, 0.1, 0.1, 0.1])
    assert any("locomo: AUC -0.333" in miss for miss in missed_bars([behind]))
    draw = outcome([0.9, 0.1, 0.1, 0.1], [0.9, 0.1, 0.1, 0.1])
    assert any("AUC +0.000" in miss for miss in missed_bars([draw]))


def test_the_better_cosine_is_the_rival() -> None:
    ahead = outcome([0.9, 0.1, 0.1, 0.1], [0.2, 0.3, 0.1, 0.1])
    ahead.scores[AGENT_COSINE] = [np.array([0.1, 0.5, 0.5, 0.5])] * 30
    assert lead(ahead)[1] == COSINE
    ahead.scores[AGENT_COSINE] = [np.array([0.9, 0.1, 0.1, 0.1])] * 30
    assert lead(ahead)[1] == AGENT_COSINE


def test_a_judge_that_is_rarely_sure_misses_its_bar() -> None:
    timid = outcome([0.2, 0.1, 0.1, 0.1], [0.1, 0.2, 0.1, 0.1])
    assert any("0% of questions" in miss for miss in missed_bars([timid]))
    coding = outcome([0.2, 0.1, 0.1, 0.1], [0.1, 0.2, 0.1, 0.1], name="agent_calibrate")
    assert missed_bars([coding]) == ["only 0% of coding sessions pass the gate"]


def test_the_judge_itself_finds_what_the_answer_came_from() -> None:
    found = measure("toy", [case([True, False, False, False], [0.1, 0.3, 0.2, 0.1])])
    assert found.aucs(JUDGE).tolist() == found.aucs(WORDS).tolist() == [1.0]
    assert found.aucs(COSINE).tolist() == [pytest.approx(1 / 6)]


def test_stuffing_is_measured_against_honest_memories() -> None:
    means = stuffed([case([True, False, False, False], [0.1] * 4)] * 3, Letters())
    assert HONEST in means and len(means) > 5
    assert all(0.0 <= mean <= 1.0 for mean in means.values())
    assert stuffed_gains({"toy": {HONEST: 0.01, "150 common words": 0.02}}) == []
    assert len(stuffed_gains({"toy": {HONEST: 0.01, "150 common words": 0.04}})) == 1


def test_the_summary_is_plain_json() -> None:
    found = summary(outcome([0.9, 0.1, 0.1, 0.1], [0.2, 0.3, 0.1, 0.1]))
    assert json.loads(json.dumps(found))["methods"][JUDGE]["auc"] == 1.0


def test_a_question_becomes_a_session_with_what_recall_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_HOME", str(tmp_path))
    docs = [Doc(f"d{n}", text, f"s{n}", 0, "user", AT) for n, text in enumerate(TEXTS)]
    queries = [
        Query("Where did the office move?", frozenset({"d3"}), "single-hop"),
        Query("What has no gold answer?", frozenset({"d0"}), "single-hop"),
        Query("What is a trap about the office?", frozenset({"d3"}), "adversarial"),
    ]
    answers = {("toy", query.text): ("Lisbon", None) for query in (queries[0], queries[2])}
    monkeypatch.setitem(ANSWERS, "toy", lambda _: answers)
    (only,) = question_cases("toy", [Corpus("toy", docs, queries)], Letters())
    assert only.transcript == (Turn("user", queries[0].text), Turn("assistant", "Lisbon"))
    assert [e.text for e, helped in zip(only.exhibits, only.helped, strict=True) if helped] == [
        TEXTS[3]
    ]
    assert all(exhibit.was_shown for exhibit in only.exhibits[:SHOWN_COUNT])
    assert only.cosine.shape == only.agent_cosine.shape == only.helped.shape


def test_evidence_by_turn_is_preferred_where_the_data_set_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "longmemeval"
    folder.mkdir()
    item = {
        "question": "where?",
        "answer": 3,
        "haystack_session_ids": ["a", "b"],
        "haystack_sessions": [[{"has_answer": False}, {"has_answer": True}], [{}]],
    }
    (folder / "longmemeval_oracle.json").write_text(json.dumps([item]))
    found = judge_cases._longmemeval_answers(tmp_path)
    assert found == {("longmemeval", "where?"): ("3", frozenset({"a/1"}))}


def test_a_coding_session_has_calls_for_what_was_read_and_edits_for_what_was_changed() -> None:
    hour = timedelta(hours=1)
    file = StreamMemory(
        "a.py", None, AT, None, (Version(AT, "a.py\nold"), Version(AT + 3 * hour, "a.py\nold\nnew"))
    )
    session = StreamSession("s", AT + 2 * hour, None, "fix a", {"a.py": 2.0, "b.py": 1.0})
    turns = coding_turns(session, ["fix a", "and b"], {"a.py": file})
    assert [(turn.role, turn.text) for turn in turns] == [
        ("user", "fix a"),
        ("tool", "Read a.py"),
        ("edit", "a.py\nnew"),
        ("user", "and b"),
        ("tool", "Read b.py"),
    ]
    assert added_lines(file, AT + 4 * hour) == []
