"""Rules on the command line: from a proposal to a block and back."""

from __future__ import annotations

import json

import pytest
from cli_types import Run

TRIGGER = "shell: git push --force main"


@pytest.fixture
def rule(run: Run) -> str:
    """The id of a proposal."""
    done = run("rules", "propose", TRIGGER, "--why", "it overwrites others", "--json")
    return str(json.loads(done.out)["id"])


def test_a_rule_goes_up_and_down(run: Run, rule: str) -> None:
    states = []
    for verb in ("approve", "approve", "undo", "retire", "undo"):
        done = run("rules", verb, rule, "--json")
        assert done.code == 0, done.err
        states.append(json.loads(done.out)["state"])
    assert states == ["warns", "blocks", "warns", "retired", "warns"]
    told = json.loads(run("rules", "show", rule, "--json").out)
    assert [event["kind"] for event in told["events"]][-1] == "proposed"
    assert told["memory_id"]


def test_the_list_is_for_people_and_programs(run: Run, rule: str) -> None:
    assert "git push main --force" in run("rules").out
    (one,) = json.loads(run("rules", "--json").out)["results"]
    assert (one["id"], one["state"], one["alarm_count"]) == (rule, "proposed", 0)
    run("rules", "retire", rule)
    assert json.loads(run("rules", "--json").out)["results"] == []
    assert len(json.loads(run("rules", "--all", "--json").out)["results"]) == 1


def test_a_trigger_is_tried_before_it_is_wanted(run: Run) -> None:
    done = run("rules", "replay", "shell: git status", "--json")
    assert done.code == 1 and "git status" in json.loads(done.out)["examples"]
    assert run("rules", "replay", TRIGGER).code == 0


def test_mistakes_are_told(run: Run, rule: str) -> None:
    assert run("rules", "propose", "git", "--why", "x").code == 2
    assert run("rules", "approve", "nothing").code == 1
    assert "already" in run("rules", "propose", TRIGGER, "--why", "x").err
    assert json.loads(run("rules", "lift", "nobody", "--json").out) == {"lifted": 0}
