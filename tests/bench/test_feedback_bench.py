"""The bench of feedback: its stores really hold the reports it says, and its rows its bars."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import feedback
from meritory.api.memory import Memory
from meritory.domain.feedback import FeedbackQuery


def test_the_filled_store_holds_the_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path))
    monkeypatch.setattr(feedback, "FEW", 3)
    monkeypatch.setattr(feedback, "MANY", 30)
    texts = [f"The {word} service keeps its logs for a week" for word in "abcdefghijklmnopqrst"]
    stores = {}
    for count in (3, 30):
        memory = stores[count] = Memory(tmp_path / f"{count}.db", background=False)
        feedback.fill(memory, count, texts[:5])
        assert len(memory.services.store.feedback_events("default", FeedbackQuery())) == count
    rows = feedback.capture_rows(stores, texts[5:], feedback.Plan(1, 2))
    assert [row[2] for row in rows if "p50" in row[0]] == [10.0, 10.0, 10.0, None]
    assert all(row[2] == feedback.RATIO for row in rows if "ratio" in row[0])
    assert stores[30].feedback_summary().total == 30 + 6
    assert len(feedback.read_rows(stores[30])) == 4
    for memory in stores.values():
        memory.close()
