"""The bench of misleading memories: they leave the first ten, and its control misses the bars."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from bench.streams_types import Stream, StreamMemory, StreamSession, Version

from bench import harm

BEGUN = datetime(2026, 1, 5, tzinfo=UTC)
BIRDS = ("heron", "osprey", "kestrel", "bittern", "curlew", "dunlin", "godwit", "lapwing")
SESSIONS = 18


def small(name: str) -> Stream:
    """Return a stream whose sessions ask about one bird after the other."""
    texts = [f"The {bird} database listens on port {port}" for bird in BIRDS for port in (70, 71)]
    memories = tuple(
        StreamMemory(str(at), None, BEGUN, None, (Version(BEGUN, text),))
        for at, text in enumerate(texts)
    )
    asked = tuple(
        StreamSession(
            f"s{number}",
            BEGUN + timedelta(days=2 + number),
            None,
            f"Which port does the {BIRDS[number % len(BIRDS)]} database listen on?",
            {str(2 * (number % len(BIRDS))): 2.0},
        )
        for number in range(SESSIONS)
    )
    return Stream(name, memories, asked)


@pytest.mark.parametrize(("way", "is_met"), [("planted", True), ("silent", False)])
def test_only_memories_that_are_reported_leave_the_first_ten(
    monkeypatch: pytest.MonkeyPatch, way: harm.Way, is_met: bool
) -> None:
    monkeypatch.setattr(harm, "load", small)
    report = harm.planted_report(("small",), way, 0, None)
    by_name = {check.name: check for check in report.checks}
    assert by_name["planted memories shown in two sessions"].is_met
    assert by_name["in the first ten after two bad sessions"].is_met == is_met
    assert by_name["most sessions that showed one of them"].is_met == is_met
