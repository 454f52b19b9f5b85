"""The decision records: numbered without gaps, complete, and all in the list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
HEADINGS = ("## Context", "## Decision", "## Cost sketch", "## What would change our mind")


def test_the_numbers_run_from_one_without_gaps() -> None:
    assert [int(page.name[:4]) for page in PAGES] == list(range(1, len(PAGES) + 1))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_a_record_is_complete(page: Path) -> None:
    text = page.read_text("utf-8")
    assert re.fullmatch(r"\d{4}-[a-z0-9]+(-[a-z0-9]+)*\.md", page.name)
    assert text.startswith(f"# {page.name[:4]}: ")
    assert "\nState: " in text
    assert [line for line in text.splitlines() if line in HEADINGS] == list(HEADINGS)


def test_the_list_links_every_record_once_and_nothing_else() -> None:
    linked = re.findall(r"\]\((\d{4}-[^)]+)\)", (FOLDER / "README.md").read_text("utf-8"))
    assert linked == [page.name for page in PAGES]
