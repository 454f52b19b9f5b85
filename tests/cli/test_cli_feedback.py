"""`meritory feedback`: reporting in a word or a sentence, and reading what all of it says."""

from __future__ import annotations

import json

import pytest
from cli_types import Run

PUSHED = "You pushed to main without asking me first"


def test_a_thumbs_down_becomes_a_lesson_that_is_recalled(run: Run) -> None:
    done = run("feedback", "down", PUSHED, "--change", "Open a pull request", "--tool", "Bash")
    assert done.code == 0
    assert done.out.startswith("promoted:")
    assert "Next time: Open a pull request." in done.out
    assert PUSHED in run("recall", "may I push to main?").out


@pytest.mark.parametrize("word", ["👎", "bad", "thumbs-down", "NEGATIVE"])
def test_every_spelling_is_a_command(run: Run, word: str) -> None:
    done = run("feedback", word, PUSHED, "--json")
    assert (done.code, done.object["status"]) == (0, "promoted")
    assert done.object["event"]["polarity"] == -1


def test_an_unknown_word_is_refused_with_the_list(run: Run) -> None:
    done = run("feedback", "sideways", "x")
    assert done.code == 2
    assert "thumbs down" in done.err
    assert "👍" in done.err


def test_a_bare_word_asks_and_is_completed(run: Run) -> None:
    asked = run("feedback", "up", "good")
    assert asked.code == 0
    assert "What exactly worked" in asked.out
    assert "meritory feedback complete" in asked.out
    (event,) = run("feedback", "list", "--json").object["results"]
    assert event["status"] == "clarification_required"
    done = run(
        "feedback", "complete", event["id"][:22], "--worked", "Rebased before the merge", "--json"
    )
    assert (done.code, done.object["accepted"]) == (0, True)
    assert run("feedback", "complete", event["id"], "--worked", "more").code == 1
    assert run("feedback", "complete", "nobody", "--worked", "more").code == 1


def test_a_rubric_on_the_command_line(run: Run) -> None:
    vetoed = run("feedback", "up", PUSHED, "--score", "verification_evidence=5", "--json")
    assert (vetoed.code, vetoed.object["reason"]) == (0, "rubric_veto")
    proven = run("feedback", "up", PUSHED, "--score", "verification_evidence=5:CI run", "--json")
    assert proven.object["status"] == "promoted"
    unknown = run("feedback", "up", PUSHED, "--score", "beauty=5", "--json")
    assert (unknown.code, unknown.object["reason"]) == (2, "rubric_malformed")
    for wrong in (("--score", "safety"), ("--guardrail", "tests=perhaps")):
        assert run("feedback", "up", PUSHED, *wrong).code == 2
    failed = run("feedback", "up", PUSHED, "--guardrail", "tests=fail", "--json")
    assert failed.object["reason"] == "rubric_veto"
    held = run("feedback", "up", PUSHED, "--guardrail", "tests=unknown", "--json")
    assert held.object["accepted"]


def test_what_all_reports_say(run: Run) -> None:
    assert run("feedback").code == 0
    for _ in range(4):
        run("feedback", "down", PUSHED, "--change", "Ask", "--tool", "Bash", "--tag", "mine")
    told = run("feedback", "summary")
    assert "4 (0 up, 4 down)" in told.out
    assert "last 20" in told.out
    assert "30 days" in told.out
    found = run("feedback", "summary", "--json").object
    assert {"total", "positive", "negative", "accepted", "rejected", "domains", "last_updated"} <= (
        set(found)
    )
    assert (found["total"], found["accepted"], found["rejected"]) == (4, 4, 0)
    rows = run("feedback", "risk", "--json").object["results"]
    assert {"tool:Bash", "tag:mine"} <= {row["id"] for row in rows}
    assert "interval" in run("feedback", "risk").out.lower()
    lines = run("feedback", "pairs").out.splitlines()
    assert json.loads(lines[0])["chosen"] == "Ask"
    assert "no memory is contested" in run("feedback", "contested").err
    listed = run("feedback", "list", "--signal", "down", "--limit", "2", "--json").object["results"]
    assert [one["occurrence"] for one in listed] == [4, 3]
    shown = run("feedback", "show", listed[0]["id"])
    assert PUSHED in shown.out
    assert "guardrail_triggered" not in shown.out or "diagnosis" in shown.out
    assert run("feedback", "list", "--signal", "sideways").code == 2


def test_a_contested_memory_is_listed(run: Run) -> None:
    memory = run("remember", "The port is 8080", "--json").object
    name = memory.get("id") or memory["memory"]["id"]
    # One session alone is no contest, however often it changes its mind.
    for number, word in enumerate(("up", "down", "up", "down")):
        assert run("feedback", word, "--memory", name, "--session", f"s{number}").code == 0
    rows = run("feedback", "contested", "--json").object["results"]
    assert [row["id"] for row in rows] == [name]
    assert name in run("feedback", "contested").out
    assert run("show", name).code == 0
