"""What every backend promises about the rows that an export carries."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from contract.shelf import Shelf
from meritory.domain.quality import (
    Carried,
    CarriedAudit,
    CarriedBelief,
    CarriedLesson,
    CarriedRefusal,
    CarriedTestimony,
    CarriedWording,
    MemoryLink,
)

AT = datetime(2026, 3, 2, 9, 0, 0, 123456, tzinfo=UTC)
ROWS: tuple[Carried, ...] = (
    CarriedWording(agent="", project="shop", fingerprint="f", memory_id="m"),
    CarriedLesson(memory_id="m", polarity=-1, report_count=3, first_at=AT, last_at=AT),
    CarriedTestimony(memory_id="m", feedback_id="e", at=AT, witness="person", value=-0.5),
    CarriedBelief(
        memory_id="m", support=0.1, doubt=2.5, undecided=0.0, as_of_day=20_514.25, is_contested=True
    ),
    CarriedRefusal(
        id="r",
        at=AT,
        agent=None,
        project="shop",
        session_key="run",
        content="tea",
        kind="fact",
        provenance="user_stated",
        origin="user",
        confidence=0.25,
        turn=None,
        quote="tea",
        reason="no",
        extractor="rules/1",
        memory_id="m",
    ),
    CarriedAudit(entry=7, at=AT, verdict="wrong"),
    MemoryLink(
        older_id="m",
        newer_id="n",
        kind="alike",
        cosine=0.5,
        reason="r",
        at=AT,
        decision="separate",
        decided_by="a person",
        decided_at=AT,
    ),
)


class Carrying:
    """Rows come back exactly, one user's are not another's, and what is there stays."""

    @pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row).__name__)
    def test_a_row_comes_back_exactly_and_only_to_its_user(
        self, shelf: Shelf, row: Carried
    ) -> None:
        assert shelf.store.carried("ada", type(row)) == []
        shelf.store.write("ada", lambda t: t.carry("ada", [row, row]))
        for store in shelf.before_and_after_reopening():
            assert store.carried("ada", type(row)) == [row]
            assert store.carried("bob", type(row)) == []

    def test_what_is_there_stays_as_it_is(self, shelf: Shelf) -> None:
        known = CarriedAudit(entry=7, at=AT, verdict="right")
        shelf.store.write("ada", lambda t: t.carry("ada", [known]))
        other = replace(known, verdict="wrong")
        shelf.store.write("ada", lambda t: t.carry("ada", [other, replace(other, entry=2)]))
        found = shelf.store.carried("ada", CarriedAudit)
        assert [(one.entry, one.verdict) for one in found] == [(2, "wrong"), (7, "right")]
