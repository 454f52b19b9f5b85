"""The tool that keeps what a user says about the work, under both of its names."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_kit import called, post

from meritory.api.client import Daemon

PUSHED = "You pushed to main without asking me first"
HANDSHAKE = {"mcp-protocol-version": "2025-06-18"}


def ask(daemon: Daemon, name: str = "capture_feedback", **arguments: Any) -> Any:
    return post(daemon, called(name, **arguments), HANDSHAKE).json["result"]


@pytest.mark.parametrize("name", ["capture_feedback", "capture_memory_feedback"])
def test_a_correction_becomes_a_lesson_and_recurs(daemon: Daemon, name: str) -> None:
    first = ask(daemon, name, signal="down", context=f"{PUSHED} {name}", tags=["git"])
    assert first["isError"] is False
    told = first["structuredContent"]
    assert (told["accepted"], told["status"], told["occurrence"]) == (True, "promoted", 1)
    again = ask(daemon, name, signal="👎", context=f"{PUSHED} {name}")["structuredContent"]
    assert (again["memory"], again["occurrence"]) == (told["memory"], 2)


def test_a_bare_word_is_asked_about_and_completed(daemon: Daemon) -> None:
    asked = ask(daemon, signal="bad", context="wrong")
    told = asked["structuredContent"]
    assert told["status"] == "clarification_required"
    assert told["missing"] == ["what_went_wrong", "what_to_change"]
    assert "Ask: What exactly went wrong?" in asked["content"][0]["text"]
    done = ask(
        daemon,
        signal="down",
        event=told["event"],
        what_went_wrong="It removed the migrations",
        rubric_scores=[{"criterion": "safety", "score": 1}],
        guardrails={"tests_passed": None},
        last_action={"tool": "Bash"},
    )
    assert done["structuredContent"]["status"] == "promoted"


def test_null_stands_for_a_field_that_is_left_out(daemon: Daemon) -> None:
    told = ask(
        daemon,
        signal="down",
        context=f"{PUSHED} with nulls",
        tags=None,
        reasoning=None,
        memory_ids=None,
        event=None,
        last_action={"tool": "Bash", "context_key": "x", "file": None, "timestamp": None},
        rubric_scores=[{"criterion": "safety", "score": 1, "evidence": None, "judge": None}],
        guardrails={"tests_passed": None},
    )
    assert told["isError"] is False, told
    assert told["structuredContent"]["status"] == "promoted"
    found = ask(daemon, "memory_search", query="pushed to main", limit=None)
    assert found["structuredContent"]["results"]
    assert ask(daemon, "memory_search", query=None)["isError"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"signal": "meh", "context": PUSHED}, "unknown_signal"),
        ({"signal": "up", "context": PUSHED, "guardrails": {"a": "no"}}, "rubric_malformed"),
        (
            {"signal": "up", "context": PUSHED, "rubric_scores": [{"criterion": "x", "score": 1}]},
            "rubric_malformed",
        ),
    ],
)
def test_bad_input_is_kept_and_told(daemon: Daemon, arguments: Any, reason: str) -> None:
    told = ask(daemon, **arguments)["structuredContent"]
    assert (told["accepted"], told["reason"]) == (False, reason)
    assert told["event"]


def test_wrong_arguments_are_refused_with_words(daemon: Daemon) -> None:
    for arguments in ({}, {"signal": 5}, {"signal": "up", "rubric_scores": [{"score": "high"}]}):
        assert ask(daemon, **arguments)["isError"] is True
    assert ask(daemon, signal="up", event="nobody", what_worked="x y")["isError"] is True
