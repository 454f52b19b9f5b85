"""Trying thresholds: the real judge on the user's own memories, and nothing is written."""

from __future__ import annotations

from typing import Any

import pytest
from session_kit import HERON, NOTES, Desk

from meritory.domain.errors import Conflict, InputError, NotFound
from meritory.engine.memories import undo
from meritory.engine.quality import figures
from meritory.engine.quality.figures import Audited
from meritory.lab.gate_tune import AUDITED_MIN, NEW_MERGES_MIN, Row, recommend, tune

PAIRS = (
    ("The staging database is called heron", "I think the staging database is called heron"),
    ("Anna needs an invoice for the hotel", "Anna requires an invoice for the hotel"),
)


def all_of(desk: Desk) -> tuple[object, ...]:
    """Everything that a write would change."""
    records = list(desk.store.walk("default"))
    histories = [desk.store.history("default", one.id) for one in records]
    return records, histories, desk.counters(), desk.store.merge_audits("default")


def test_lower_thresholds_find_more_and_nothing_is_written(desk: Desk) -> None:
    for older, newer in PAIRS:
        desk.note(older)
        desk.clock.go(hours=1)
        desk.note(newer)
    desk.note("The staging database is called osprey")
    before = all_of(desk)
    told: list[tuple[int, int]] = []
    found = tune(desk.memory.services, "default", progress=lambda *at: told.append(at))
    assert all_of(desk) == before
    rows = {row.threshold: row for row in found.rows}
    merges = [row.merged for row in found.rows]
    assert merges == sorted(merges, reverse=True)
    assert rows[0.5].merged == 2
    assert rows[0.5].kept_both >= 1
    assert [row.pair_count for row in found.rows] == sorted(
        (row.pair_count for row in found.rows), reverse=True
    )
    assert found.threshold in rows
    assert (found.looked_at, found.is_cut, told[-1]) == (5, False, (5, 5))


def test_examples_are_of_merges_that_do_not_happen_now(desk: Desk) -> None:
    desk.note("Anna needs an invoice for the hotel")
    desk.clock.go(hours=1)
    desk.note("Anna requires an invoice for the hotel")
    services = desk.memory.services
    desk.equip(policy=_with_threshold(services.policy, 0.999))
    (example,) = tune(desk.memory.services, "default").examples
    assert (example.older.content, example.newer.content) == (
        "Anna needs an invoice for the hotel",
        "Anna requires an invoice for the hotel",
    )
    assert example.cosine >= example.threshold
    desk.equip(policy=_with_threshold(services.policy, 0.5))
    assert tune(desk.memory.services, "default").examples == []


def _with_threshold(policy: Any, threshold: float) -> Any:
    from dataclasses import replace

    return replace(policy, gate=replace(policy.gate, threshold=threshold))


def test_past_merges_tell_what_a_higher_threshold_would_miss(desk: Desk) -> None:
    older, newer = PAIRS[0]
    desk.memory.remember(older)
    desk.memory.remember(newer)
    assert desk.counters()["write.merged"] == 1
    rows = tune(desk.memory.services, "default", (0.5, 1.0)).rows
    assert [(r.past_kept, r.past_lost) for r in (rows[0], rows[-1])] == [(1, 0), (0, 1)]


def test_scopes_are_kept_apart(desk: Desk) -> None:
    older, newer = PAIRS[0]
    desk.note(older)
    desk.clock.go(hours=1)
    desk.note(newer, project="other")
    desk.memory.view("eve", project="shop").remember(newer)
    assert all(row.pair_count == 0 for row in tune(desk.memory.services, "default").rows)


def test_time_is_bounded(desk: Desk) -> None:
    desk.note(*NOTES)
    desk.note(HERON, project="a")
    found = tune(desk.memory.services, "default", time_limit_s=-1.0)
    assert found.is_cut
    assert found.looked_at < 7


@pytest.mark.parametrize(
    "asked",
    [
        {"thresholds": ()},
        {"thresholds": (0.0,)},
        {"thresholds": (1.5,)},
        {"thresholds": (float("nan"),)},
        {"sample_count": 0},
    ],
)
def test_nonsense_is_refused(desk: Desk, asked: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        tune(desk.memory.services, "default", **asked)


def test_without_vectors_there_is_nothing_to_tune(desks: Any) -> None:
    desk = desks(embedder_kind="none")
    desk.note(HERON)
    with pytest.raises(Conflict, match="embedder is off"):
        tune(desk.memory.services, "default")


# -- what is recommended ----------------------------------------------------------------------


def row(threshold: float, merged: int) -> Row:
    return Row(threshold, 100, merged, 0, 10, 0, 0)


SURE = Audited(AUDITED_MIN + 15, 0, 0.0, 0.1)
ROWS = [row(0.5, 22), row(0.6, 20), row(0.7, 12), row(0.75, 2), row(0.9, 0)]


@pytest.mark.parametrize(
    ("known", "rows", "wanted", "why"),
    [
        (SURE, ROWS, 0.6, "18 more"),
        (Audited(AUDITED_MIN - 1, 0, 0.0, 0.1), ROWS, None, "at least 25"),
        (Audited(40, 8, 0.1, 0.35), ROWS, None, "may be wrong"),
        (SURE, [row(0.5, 2 + NEW_MERGES_MIN - 1), row(0.75, 2)], None, "at most 9"),
        (SURE, [row(0.75, 2), row(0.9, 0)], None, "at most 0"),
    ],
)
def test_only_evidence_recommends(
    known: Audited, rows: list[Row], wanted: float | None, why: str
) -> None:
    chosen, told = recommend(rows, 0.75, known)
    assert chosen == wanted
    assert why in told


# -- audits -----------------------------------------------------------------------------------


def merged(desk: Desk) -> int:
    for text in PAIRS[0]:
        desk.memory.remember(text)
    return desk.store.merges_of("default", 1)[0].entry


def test_a_person_says_what_they_think_of_a_merge(desk: Desk) -> None:
    entry = merged(desk)
    services = desk.memory.services
    assert [one.entry.entry for one in figures.unaudited(services, "default", 5)] == [entry]
    assert figures.audited(services, "default") == Audited(0, 0, 0.0, 1.0)
    figures.mark(services, "default", entry, "right")
    assert figures.unaudited(services, "default", 5) == []
    assert [one.verdict for one in figures.merges(services, "default", 5)] == ["right"]
    known = figures.audited(services, "default")
    assert (known.total, known.wrong, known.rate) == (1, 0, 0.0)
    assert 0.5 < known.high < 1.0


@pytest.mark.parametrize("way", ["split", "undo"])
def test_taking_a_merge_apart_says_that_it_was_wrong(desk: Desk, way: str) -> None:
    entry = merged(desk)
    services = desk.memory.services
    record = desk.memory.page()[0]
    changed = undo.split(services, record, entry) if way == "split" else desk.memory.undo(record.id)
    assert len(changed) == 2
    assert desk.store.merge_audits("default") == {entry: "wrong"}
    assert figures.unaudited(services, "default", 5) == []
    assert figures.audited(services, "default").rate == 1.0


@pytest.mark.parametrize("entry", [0, -1, 10**15])
def test_nobody_marks_what_is_no_merge_of_theirs(desk: Desk, entry: int) -> None:
    real = merged(desk)
    created = desk.store.history("default", desk.memory.page()[0].id)[0].entry
    for user, number in (("default", entry), ("default", created), ("eve", real)):
        with pytest.raises(NotFound):
            figures.mark(desk.memory.services, user, number, "wrong")
    assert desk.store.merge_audits("default") == {}
    assert desk.store.merge_audits("eve") == {}
