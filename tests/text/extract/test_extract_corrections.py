"""Corrections: kept only with a subject of their own, never as a constraint by themselves.

The expected answers were written before the rules.
"""

from __future__ import annotations

import pytest

from meritory.domain.session import Turn
from meritory.text.extract import rules

# Without the turn before, nobody knows what these are about.
WITHOUT_SUBJECT = [
    "No, use port 8081 instead.",
    "I said Friday, not Thursday.",
    "No, use the other branch.",
    "Use the other branch",
    "No, use Tuesday's numbers.",
    "No, use the v2 endpoint.",
    "Wrong, use 2025 data.",
    "No, use single quotes here.",
    "No, it's 8090.",
    "That's wrong: it's on port 8090 now.",
    "No, it's the Frankfurt region, we moved.",
    "No, that's the staging one.",
    "No, the other one.",
    "No, the second file is right.",
    "No, the port is 8081.",
    "No, the file is utils.py.",
    "Wrong, the answer is 42.",
    "I told you to use the smaller image.",
    "I already said not to touch it.",
    "Nope, use the previous version.",
    "I said blue, not green.",
    "No, use 30 seconds.",
    "I asked you to rename it.",
    "I asked you to add a button to the header.",
    "No, we want the last commit.",
    "No, there's a newer one.",
    "No, it's the wrong branch.",
    "No, I meant the footer.",
    "No, that's fine.",
    "No, use that instead.",
    "I said 5, not 6.",
    "No, this is the old one, they renamed it.",
    "That's not what I asked. The other table.",
    "Stop using the first.",
    "From now on use the latter.",
    "Always pick the second option.",
    "Use the second one from now on.",
]
# The claim that is kept, and its kind; a constraint is only proposed when it is stored.
WITH_SUBJECT = [
    (
        "No, the staging API is on port 8090, not 8081.",
        ("The staging API is on port 8090, not 8081", "fact"),
    ),
    (
        "No, that's wrong: the staging API moved to port 8090 last week, 8081 is not used any more",
        ("The staging API moved to port 8090 last week, 8081 is not used any more", "fact"),
    ),
    ("No, our CI runs on Buildkite.", ("Our CI runs on Buildkite", "fact")),
    ("No, use pnpm instead of npm.", ("Use pnpm instead of npm", "preference")),
    ("No, use ruff, not flake8.", ("Use ruff, not flake8", "preference")),
    (
        "No, use tabs for indentation in this repo.",
        ("Use tabs for indentation in this repo", "preference"),
    ),
    (
        "That's wrong. The retention job deletes rows after 90 days.",
        ("The retention job deletes rows after 90 days", "fact"),
    ),
    (
        "I told you that we deploy from the release branch.",
        ("We deploy from the release branch", "fact"),
    ),
    ("No, my manager is called Ines Okafor.", ("My manager is called Ines Okafor", "fact")),
    (
        "No, use PostgreSQL 16 for the billing service.",
        ("Use PostgreSQL 16 for the billing service", "preference"),
    ),
    (
        "Wrong. Our production database is Aurora, not RDS.",
        ("Our production database is Aurora, not RDS", "fact"),
    ),
    (
        "No, actually the release train leaves on Thursdays.",
        ("The release train leaves on Thursdays", "fact"),
    ),
    (
        "You're wrong: the invoices table has a soft delete column.",
        ("The invoices table has a soft delete column", "fact"),
    ),
    ("I said that Maria owns the billing module.", ("Maria owns the billing module", "fact")),
    (
        "Nope, the linter runs in pre-commit, not in CI.",
        ("The linter runs in pre-commit, not in CI", "fact"),
    ),
    ("Incorrect, the tenant header is X-Tenant-Id.", ("The tenant header is X-Tenant-Id", "fact")),
    ("No, we use GitHub Actions.", ("We use GitHub Actions", "decision")),
    ("I told you to use pnpm for installs.", ("Use pnpm for installs", "preference")),
    (
        "No, the staging database is now called osprey.",
        ("The staging database is now called osprey", "fact"),
    ),
    (
        "That's not right, the cron job runs at 4 am UTC.",
        ("The cron job runs at 4 am UTC", "fact"),
    ),
    ("No, use Python 3.12.", ("Use Python 3.12", "preference")),
    ("I said never push to main.", ("Never push to main", "constraint")),
    ("No, never commit generated files.", ("Never commit generated files", "constraint")),
    (
        "I told you to always run the formatter before committing.",
        ("Always run the formatter before committing", "constraint"),
    ),
    (
        "I already told you not to use mocks in integration tests.",
        ("Not to use mocks in integration tests", "preference"),
    ),
]


def after_work(text: str) -> rules.Extraction:
    return rules.read(
        [
            Turn("user", "Write the release notes for version 4"),
            Turn("assistant", "Done: I used port 8080, npm and the main branch."),
            Turn("user", text),
        ]
    )


@pytest.mark.parametrize("text", WITHOUT_SUBJECT)
def test_a_correction_without_a_subject_is_not_kept(text: str) -> None:
    extraction = after_work(text)
    assert extraction.candidates == ()
    assert all("release notes" not in item.found.content for item in extraction.refused)


@pytest.mark.parametrize(("text", "expected"), WITH_SUBJECT)
def test_a_correction_with_a_subject_is_kept(text: str, expected: tuple[str, str]) -> None:
    (claim,) = after_work(text).candidates
    assert (claim.content, claim.kind) == expected
    assert claim.provenance == "user_stated" and claim.quote in text
