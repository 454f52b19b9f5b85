"""Which other value ends, or follows, the value of an older text."""

from __future__ import annotations

import pytest

from meritory.text.claims.compare import compare

UPDATES = (
    ("The gym is FitOne on Hill Street.", "The gym is now Urban Sports in the old mill."),
    ("I go to the gym three times a week.", "Since the operation I go to the gym once a week."),
    ("The contract ends in April.", "I misread the contract, it ends in August."),
    (
        "The prescription is for 10 days.",
        "Sorry, I got that wrong: the prescription is for 15 days.",
    ),
    ("Zoe plays the viola.", "Zoe actually plays the violin."),
    ("The final is in Hamburg.", "The final is not in Hamburg but in Bremen."),
    ("There is a nightly scan of the archive.", "The nightly scan of the archive was abolished."),
    ("Anton maintains the charts.", "Sakura took over the maintenance of the charts from Anton."),
)
CHAINS = (
    ("My desk is on the third floor.", "My desk is on the fifth floor."),
    ("The ticket PAY-812 is in progress.", "The ticket PAY-812 is done."),
    ("I do my tax return with WISO.", "I do my tax return with Taxfix."),
    ("Judith keeps the accounts of the club.", "Bernard keeps the accounts of the club."),
    ("I prefer window seats.", "I prefer aisle seats."),
)
APART = (
    ("The ski bus stops at the church.", "Ski passes are sold at the church."),
    ("Room 12 has a projector.", "Room 21 has a projector."),
    ("I donated blood on 8 June.", "I donated blood on 10 September."),
    ("The report covers revenue.", "The report covers churn as well."),
    ("We sponsor a child in Kenya.", "We sponsor a child in Nepal."),
    ("We buy milk from the farm.", "We now buy eggs from the shop instead of the farm."),
    ("The train goes from Delft to Ghent.", "The train goes from Ghent to Delft."),
)


@pytest.mark.parametrize(("old", "new"), UPDATES)
def test_a_stated_change_supersedes(old: str, new: str) -> None:
    assert compare(old, new).relation == "supersede"


@pytest.mark.parametrize(("old", "new"), CHAINS)
def test_another_value_is_chained(old: str, new: str) -> None:
    assert compare(old, new).relation == "chain"


@pytest.mark.parametrize(("old", "new"), APART)
def test_two_claims_are_kept_apart(old: str, new: str) -> None:
    assert compare(old, new).relation == "keep_both"
