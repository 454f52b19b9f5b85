"""`meritory proposals`, as a person would run it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_types import Run

from meritory.api.memory import Memory


@pytest.fixture
def proposed(home: Path, run: Run) -> tuple[str, str]:
    """A proposed constraint of a project, and a proposed pin of none."""
    home.mkdir(mode=0o700)
    with Memory(home / "meritory.db", background=False) as memory:
        agent = {"origin": "agent"}
        first = memory.remember("Never stop the shop", kind="constraint", project="shop", **agent)
        second = memory.remember("Tests run first", pinned=True, **agent)
    return first.id, second.id


def test_proposals_are_listed_confirmed_and_rejected(run: Run, proposed: tuple[str, str]) -> None:
    first, second = proposed
    listed = run("proposals", "--json").object["results"]
    assert [one["id"] for one in listed] == [second, first]
    one_project = run("proposals", "list", "--project", "shop").out
    assert "proposed:constraint" in one_project and "Never stop the shop" in one_project
    assert run("proposals", "confirm", first, "nothing").code == 1
    assert len(run("proposals", "--json").object["results"]) == 2
    (pin,) = run("proposals", "confirm", second, "--json").object["results"]
    assert pin["pinned"] is True
    (fact,) = run("proposals", "reject", first, "--json").object["results"]
    assert (fact["kind"], fact["tags"]) == ("fact", ["rejected:constraint"])
    assert run("proposals", "--json").object["results"] == []
    run("undo", first)
    assert [one["id"] for one in run("proposals", "--json").object["results"]] == [first]
