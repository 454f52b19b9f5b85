"""Feedback over HTTP: reports, completion, figures, and ratings by the same door."""

from __future__ import annotations

from typing import Any

import pytest
from web_types import Served

PLACE = "/api/feedback"
PUSHED = "You pushed to main without asking me first"


def say(daemon: Served, user: str, **body: Any) -> Any:
    reply = daemon.ask("POST", PLACE, {"user": user, **body})
    assert reply.status == 200, reply.content
    return reply.json


def get(daemon: Served, path: str, user: str) -> Any:
    reply = daemon.ask("GET", f"{PLACE}{path}{'&' if '?' in path else '?'}user={user}")
    assert reply.status == 200, reply.content
    return reply.json


def test_a_report_becomes_a_lesson_and_recurs(daemon: Served) -> None:
    for count in (1, 2, 3):
        told = say(daemon, "ann", signal="down", context=PUSHED, tags="git, mine", project="shop")
        assert (told["accepted"], told["status"]) == (True, "promoted")
        assert told["event"]["occurrence"] == count
    assert told["memory"]["kind"] == "lesson"
    assert told["memory"]["usefulness"] > 0.6
    listed = get(daemon, "?limit=2", "ann")
    assert len(listed["results"]) == 2
    rest = get(daemon, f"?before={listed['before']}", "ann")
    assert len(rest["results"]) == 1
    assert get(daemon, f"/{told['event']['id']}", "ann") == listed["results"][0]
    assert get(daemon, "?status=rejected", "ann")["results"] == []
    timeline = daemon.ask("GET", f"/api/timeline/{told['event']['id']}?user=ann").json["results"]
    assert [one["event"] for one in timeline] == ["feedback.captured", "feedback.promoted"]
    timeline = daemon.ask("GET", f"/api/timeline/{told['memory']['id']}?user=ann").json["results"]
    assert [one["event"] for one in timeline].count("feedback.promoted") == 3


def test_an_unclear_one_is_asked_about_and_completed(daemon: Served) -> None:
    asked = say(daemon, "bob", signal="👎", context="wrong")
    assert asked["status"] == "clarification_required"
    assert asked["missing"] == ["what_went_wrong", "what_to_change"]
    assert asked["questions"][0]["question"]
    assert asked["questions"][0]["example"]
    body = {"user": "bob", "what_went_wrong": "It deleted the migrations folder"}
    place = f"{PLACE}/{asked['event']['id']}/complete"
    done = daemon.ask("POST", place, body)
    assert (done.status, done.json["status"]) == (200, "promoted")
    assert daemon.ask("POST", place, body).status == 409
    assert daemon.ask("POST", f"{PLACE}/nothing/complete", body).status == 404


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"signal": "meh", "context": PUSHED}, "unknown_signal"),
        ({"signal": "up", "context": PUSHED, "rubric_scores": "high"}, "rubric_malformed"),
        ({"signal": "up", "context": PUSHED, "guardrails": {"tests": False}}, "rubric_veto"),
        ({"signal": "down", "context": "x " * 500_000}, "not_actionable"),
    ],
)
def test_bad_input_is_answered_and_kept(daemon: Served, body: dict[str, Any], reason: str) -> None:
    told = say(daemon, "eve", **body)
    assert (told["accepted"], told["reason"]) == (False, reason)
    kept = get(daemon, f"/{told['event']['id']}", "eve")
    assert kept["context"].startswith(body["context"][:10])
    assert len(kept["context"]) <= 8_192


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"signal": 5},
        {"signal": "up", "ratings": {}},
        {"ratings": {}},
        {"ratings": {}, "session_key": "x", "context": "y"},
        {"signal": "up", "mood": "x"},
        {"signal": "up", "origin": "web"},
    ],
)
def test_what_is_neither_a_report_nor_ratings_is_refused(daemon: Served, body: Any) -> None:
    assert daemon.ask("POST", PLACE, body).status == 422


def test_figures(daemon: Served) -> None:
    for number in range(4):
        what = f"Deployment {number} broke the login page"
        say(daemon, "fay", signal="down", context=what, last_action={"tool": "Bash"})
    say(daemon, "fay", signal="down", what_went_wrong="edited the lock", what_to_change="uv lock")
    told = get(daemon, "/summary", "fay")
    assert (told["total"], told["positive"], told["negative"]) == (5, 0, 5)
    assert told["approval"]["overall"]["rate"] == 0.0
    assert told["last_updated"]
    risks = get(daemon, "/risk?days=30", "fay")["results"]
    assert "tool:Bash" in {one["id"] for one in risks}
    assert all(0 <= one["low"] <= one["rate"] <= one["high"] <= 1 for one in risks)
    assert get(daemon, "/pairs", "fay")["results"][0]["chosen"] == "uv lock"
    assert get(daemon, "/contested", "fay")["results"] == []
    assert daemon.ask("GET", f"{PLACE}/risk?days=0").status == 422
    assert daemon.ask("GET", f"{PLACE}/nothing").status == 404
