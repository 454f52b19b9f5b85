"""Texts that differ in several ways at once, and texts that only look alike."""

from __future__ import annotations

import pytest

from meritory.text.claims.compare import compare

SAME = (
    # Voice and order.
    ("Before a release, notes are written in English.", "Write notes in English before a release."),
    ("The ministry cut the funds for schools.", "The funds for schools were cut by the ministry."),
    ("Someone stole my bike in March.", "My bike was stolen in March."),
    # A verb and the noun of its action.
    ("The nightly job makes a backup of the wiki.", "The nightly job backs up the wiki."),
    ("The importer performs a validation of the rows.", "The importer validates the rows."),
    # An order, and what the user wants.
    ("Keep replies under five sentences.", "The user wants replies kept under five sentences."),
    ("Answer me in British English.", "The user wants answers in British English."),
    # One and all of a kind, in the passive.
    ("An invoice is archived for ten years.", "Invoices are archived for ten years."),
    ("Each tenant has one parking space.", "All tenants have one parking space each."),
    # Two clauses.
    ("If a test is flaky, quarantine it.", "Quarantine a test if it is flaky."),
    # Measures, times and dates.
    ("The session timeout is 120 minutes.", "The session timeout is 2 hours."),
    ("Dinner is at half past seven in the evening.", "Dinner is at 19:30."),
    ("The surgery is on 2026-03-09.", "The surgery is on 9 March 2026."),
    # Frames.
    ("Reminder to self: the spare key is in the shed.", "The spare key is in the shed."),
    ("The garage code is 4471, by the way.", "The garage code is 4471."),
)
OTHER = (
    ("User has a cat", "User has cats"),
    ("The rows are checked by the importer.", "The importer is checked by the rows."),
    ("Invoices are archived for ten years.", "The invoice is archived for ten years."),
    ("The job makes a backup of the wiki.", "The wiki makes a backup of the job."),
    ("Keep replies under five sentences.", "The user wants replies kept under six sentences."),
    ("Maria values balance in life.", "Maria values balances in life."),
    ("The backup was made by Anna.", "The backup is made by Anna."),
    ("The session timeout is 120 minutes.", "The session timeout is 120 hours."),
    ("The contract of Anna is with Bob.", "The contract of Bob is with Anna."),
)


@pytest.mark.parametrize(("old", "new"), SAME)
def test_texts_with_the_same_parts_are_merged(old: str, new: str) -> None:
    assert compare(old, new).relation == "merge"
    assert compare(new, old).relation == "merge"


@pytest.mark.parametrize(("old", "new"), OTHER)
def test_texts_with_other_parts_are_not_merged(old: str, new: str) -> None:
    assert compare(old, new).relation != "merge"
    assert compare(new, old).relation != "merge"
