"""Extraction over HTTP: from a transcript to a memory, and from a refusal to one."""

from __future__ import annotations

import time

from web_types import Served

SAID = "Always use pnpm and never npm. Always show me the diff in this PR."


def test_a_session_is_read_and_a_refusal_restored(daemon: Served) -> None:
    user = "xia"
    session = {"user": user, "session_key": "talk"}
    assert daemon.ask("POST", "/api/hooks/session-start", session).status == 200
    end = {**session, "transcript": [{"role": "user", "text": SAID}]}
    assert daemon.ask("POST", "/api/hooks/session-end", end).status == 200
    until = time.monotonic() + 20
    refusals: list[dict[str, str]] = []
    while not refusals and time.monotonic() < until:
        refusals = daemon.ask("GET", f"/api/extraction/refusals?user={user}").json["results"]
        time.sleep(0.05)
    (one,) = refusals
    assert "current task" in one["reason"] and one["memory_id"] is None
    path = f"/api/extraction/refusals/{one['id']}"
    assert daemon.ask("GET", f"{path}?user={user}").json == one
    assert daemon.ask("GET", f"{path}?user=eve").status == 404
    assert daemon.ask("POST", f"{path}/restore", {"user": "eve"}).status == 404
    reply = daemon.ask("POST", f"{path}/restore", {"user": user})
    assert reply.status == 200 and reply.json["content"] == "Always show me the diff in this PR"
    assert reply.json["sources"][0]["extractor"] == "rules/1"
    assert daemon.ask("POST", f"{path}/restore", {"user": user}).status == 409
    assert daemon.ask("GET", f"/api/extraction/refusals?user={user}").json["results"] == []
    found = daemon.ask("GET", f"/api/memories?user={user}").json["results"]
    assert {one["content"] for one in found} == {
        "Always use pnpm and never npm",
        "Always show me the diff in this PR",
    }


def test_wrong_questions_are_refused(daemon: Served) -> None:
    for query in ("limit=0", "limit=x", "offset=-1", "limit=999999", "unknown=1"):
        assert daemon.ask("GET", f"/api/extraction/refusals?{query}").status in (400, 422), query
    assert daemon.ask("GET", "/api/extraction/refusals/ffffffff").status == 404
    assert daemon.ask("GET", "/api/extraction/refusals/%2A%2A%2A%2A").status == 404
