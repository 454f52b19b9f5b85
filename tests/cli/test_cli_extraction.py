"""Extraction on the command line: what was refused, why, and how it comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_types import Run

from meritory.api.memory import Memory
from meritory.settings import load_settings

FLOORED = "Always show me the diff in this PR."


@pytest.fixture
def refusal(run: Run, home: Path) -> str:
    """The id of something that was refused."""
    assert run("remember", "The staging database is called heron").code == 0
    settings = load_settings(home, {})
    with Memory(home / "meritory.db", settings=settings, background=False) as memory:
        memory.session("talk").end([{"role": "user", "text": FLOORED}])
        memory.session("open")
    assert run("jobs", "run").code == 0
    (one,) = json.loads(run("extraction", "--json").out)["results"]
    return str(one["id"])


def test_the_list_is_for_people_and_programs(run: Run, refusal: str) -> None:
    told = run("extraction", "list").out
    assert "diff in this PR" in told and "current task" in told
    (one,) = json.loads(run("extraction", "list", "--json").out)["results"]
    assert (one["session_key"], one["extractor"], one["quote"]) == ("talk", "rules/1", FLOORED)
    assert json.loads(run("extraction", "list", "--offset", "1", "--json").out)["results"] == []
    assert json.loads(run("extraction", "show", refusal[:8], "--json").out) == one
    assert "rules/1" in run("extraction", "show", refusal).out


def test_the_list_can_be_of_one_project(run: Run, home: Path) -> None:
    assert run("remember", "The staging database is called heron").code == 0
    settings = load_settings(home, {})
    with Memory(home / "meritory.db", settings=settings, background=False) as memory:
        for project in ("heron", "crane"):
            talk = memory.session(project, project)
            talk.end([{"role": "user", "text": f"{FLOORED} The {project} one."}])
    assert run("jobs", "run").code == 0
    assert len(json.loads(run("extraction", "--json").out)["results"]) == 2
    (one,) = json.loads(run("extraction", "list", "--project", "crane", "--json").out)["results"]
    assert (one["project"], one["session_key"]) == ("crane", "crane")
    assert json.loads(run("extraction", "list", "--project", "owl", "--json").out)["results"] == []


def test_a_refusal_comes_back_once(run: Run, refusal: str) -> None:
    done = run("extraction", "restore", refusal, "--json")
    memory_id = json.loads(done.out)["memory_id"]
    assert "diff in this PR" in run("show", memory_id).out
    again = run("extraction", "restore", refusal)
    assert again.code == 1 and "already restored" in again.err
    assert "no claim was rejected" in run("extraction").err + run("extraction").out


def test_a_session_is_read_again(run: Run, refusal: str) -> None:
    done = run("extraction", "run", "talk", "--json")
    assert (done.code, json.loads(done.out)["state"]) == (0, "done")
    assert len(json.loads(run("extraction", "--json").out)["results"]) == 1


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (("show", "zzzz"), 1, "no refusal has an id"),
        (("show", "x"), 1, "`meritory extraction` lists the ids"),
        (("restore", "../../etc"), 1, "no refusal has an id"),
        (("run", "nothing"), 1, "nothing"),
        (("run", "open"), 2, "still open"),
        (("list", "--limit", "0"), 2, "limit"),
        (("list", "--offset", "-1"), 2, "offset"),
        (("restor", "x"), 2, "restor"),
        (("restore",), 2, "ID"),
    ],
)
def test_mistakes_are_told(
    run: Run, refusal: str, given: tuple[str, ...], code: int, told: str
) -> None:
    done = run("extraction", *given)
    assert (done.code, told in done.err) == (code, True), done.err
