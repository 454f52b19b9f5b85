"""What pages ask beside single records: counts, ties, reasons, jobs and the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from web_types import Served, wait_for

from meritory.domain.world import parse_moment
from meritory.server.logs import READ_LIMIT_BYTES, latest_lines

PROJECT = "shop"
TEXTS = (
    "Deploys go through `make ship` in src/ship.py",
    "The cart lives in src/cart.py and calls src/ship.py",
    "Refunds are booked by hand on Fridays",
)


@pytest.fixture(scope="module")
def ids(daemon: Served) -> list[str]:
    """Memories of a project, and one session that was shown them and has ended."""
    made = [
        daemon.ask("POST", "/api/memories", {"content": text, "project": PROJECT}).json["memory"]
        for text in TEXTS
    ]
    found = [one["id"] for one in made]
    start = {"session_key": "team/one", "project": PROJECT, "context": "how are deploys done?"}
    shown = daemon.ask("POST", "/api/hooks/session-start", start).json
    assert found[0] in {one["id"] for one in shown["memories"]}
    end = {"session_key": "team/one", "project": PROJECT, "used": {found[0]: 1.0}}
    daemon.ask("POST", "/api/hooks/session-end", end)
    wait_for(lambda: outcome(daemon) is not None, "the session was not judged")
    return found


def outcome(daemon: Served) -> str | None:
    told: str | None = daemon.ask("GET", "/api/sessions/team/one").json["outcome"]
    return told


def got(daemon: Served, path: str) -> Any:
    """What a browser is answered."""
    reply = daemon.ask("GET", path, tcp=True, headers=daemon.enter())
    assert reply.status == 200, reply.content
    return reply.json


def test_facets_are_of_all_projects_unless_one_is_named(daemon: Served, ids: list[str]) -> None:
    facets = got(daemon, "/api/memories/facets")
    assert facets["state"] == {"live": 3}
    assert facets["project"] == {PROJECT: 3}
    assert set(facets) == {"state", "kind", "provenance", "trust", "project", "pinned"}
    assert got(daemon, "/api/memories/facets?project=other")["state"] == {}
    page = got(daemon, f"/api/memories?everywhere=true&of_project={PROJECT}&state=live")
    assert {one["id"] for one in page["results"]} == set(ids)
    assert got(daemon, "/api/memories?everywhere=true&trust=untrusted")["results"] == []
    assert daemon.ask("GET", "/api/memories?state=gone").status == 422


def test_people_search_everywhere_and_agents_in_their_scope(daemon: Served, ids: list[str]) -> None:
    def found(query: str) -> list[str]:
        results = got(daemon, f"/api/memories/search?query=deploys{query}")["results"]
        return [one["id"] for one in results]

    assert found("") == []
    assert found("&everywhere=true")[0] == ids[0]
    posted = {"query": "deploys", "everywhere": True}
    reply = daemon.ask("POST", "/api/memories/search", posted).json
    assert reply["results"][0]["id"] == ids[0]
    assert got(daemon, "/api/entities")["results"] == []
    entities = {one["id"] for one in got(daemon, "/api/entities?everywhere=true")["results"]}
    assert "path:src/ship.py" in entities
    page = got(daemon, "/api/entities/path:src/ship.py?everywhere=true")
    assert {one["id"] for one in page["results"]} == set(ids[:2])
    assert daemon.ask("GET", "/api/entities/path:src/ship.py").status == 404


def test_the_graph_names_its_ends_as_the_list_does(daemon: Served, ids: list[str]) -> None:
    graph = got(daemon, "/api/entities/graph?limit=20")
    nodes = {one["id"] for one in graph["nodes"]}
    assert {"path:src/ship.py", "path:src/cart.py"} <= nodes
    ends = [frozenset((one["source"], one["target"])) for one in graph["edges"]]
    assert frozenset({"path:src/ship.py", "path:src/cart.py"}) in ends
    assert all(end <= nodes for end in ends)
    assert len(got(daemon, "/api/entities/graph?limit=1")["nodes"]) == 1
    assert got(daemon, "/api/entities/graph?project=other")["nodes"] == []
    assert daemon.ask("GET", "/api/entities/graph?limit=100000").status == 422


def test_many_texts_come_in_one_answer(daemon: Served, ids: list[str]) -> None:
    told = got(daemon, f"/api/memories/texts?ids={ids[2]},nobody,{ids[0]},{ids[0]}")["results"]
    assert [(one["id"], one["content"]) for one in told] == [
        (ids[2], TEXTS[2]),
        (ids[0], TEXTS[0]),
    ]
    assert all(one["is_live"] for one in told)
    many = ",".join(["a" * 26] * 301)
    assert daemon.ask("GET", f"/api/memories/texts?ids={many}").status == 422
    other = daemon.ask("GET", f"/api/memories/texts?ids={ids[0]}&user=somebody").json
    assert other["results"] == []


def test_a_memory_is_one_step_from_why_it_was_shown(daemon: Served, ids: list[str]) -> None:
    sessions = got(daemon, f"/api/memories/{ids[0]}/sessions")["results"]
    assert [one["session_key"] for one in sessions] == ["team/one"]
    assert sessions[0]["label"] == 1.0
    assert sessions[0]["handle"]
    why = got(daemon, f"/api/sessions/team/one/memories/{ids[0]}/why")
    assert why["was_injected"] is True
    assert why["reasons"]
    assert why["baseline"]["parts"]
    by_handle = got(daemon, f"/api/sessions/team/one/memories/{why['handle']}/why")
    assert by_handle["id"] == ids[0]
    assert daemon.ask("GET", f"/api/sessions/nobody/memories/{ids[0]}/why").status == 404
    assert daemon.ask("GET", "/api/memories/00nobody/sessions").status == 404
    foreign = f"/api/memories/{ids[0]}/sessions?project=other"
    assert daemon.ask("GET", foreign).status == 404


def test_sessions_tell_their_outcome_and_are_found_by_it(daemon: Served, ids: list[str]) -> None:
    one = got(daemon, "/api/sessions/team/one")
    listed = got(daemon, f"/api/sessions?outcome={one['outcome']}")["results"]
    assert one in listed
    for other in {"win", "loss", "tie", "excluded"} - {one["outcome"]}:
        assert one["id"] not in [
            found["id"] for found in got(daemon, f"/api/sessions?outcome={other}")["results"]
        ]
    assert got(daemon, "/api/sessions?since=2999-01-01")["results"] == []
    assert got(daemon, "/api/sessions?until=2000-01-01")["results"] == []
    assert got(daemon, "/api/sessions?project=other")["results"] == []
    assert daemon.ask("GET", "/api/sessions?outcome=draw").status == 422
    assert daemon.ask("GET", "/api/sessions?since=yesterday").status == 422
    audit = got(daemon, "/api/predictor/audit/team/one")
    assert audit["session"] == one


def test_activity_is_of_the_last_day_unless_said_otherwise(daemon: Served, ids: list[str]) -> None:
    told = got(daemon, "/api/analytics/activity")
    assert (told["memories"], told["sessions"]) == (3, 1)
    assert told["injected"] >= 1
    assert told["win"] + told["loss"] + told["tie"] + told["excluded"] == 1
    later = got(daemon, "/api/analytics/activity?since=2999-01-01")
    assert (later["memories"], later["sessions"], later["injected"]) == (0, 0, 0)


def test_jobs_are_listed_and_only_a_parked_one_is_tried_again(
    daemon: Served, ids: list[str]
) -> None:
    told = got(daemon, "/api/jobs?limit=5")
    assert told["counts"]["done"] >= 1
    done = next(one for one in told["results"] if one["key"] == "team/one")
    assert done["id"] == f"{done['kind']}/team/one"
    assert got(daemon, "/api/jobs?state=parked")["results"] == []
    again = daemon.ask("POST", f"/api/jobs/{done['id']}/retry")
    assert again.status == 409
    assert daemon.ask("POST", "/api/jobs/nothing/nobody/retry").status == 404


def test_a_person_vouches_for_a_memory_in_the_browser(daemon: Served) -> None:
    new = {"content": "Read on a web page", "origin": "web"}
    made = daemon.ask("POST", "/api/memories", new).json["memory"]
    headers = {**daemon.enter(), "origin": daemon.url}
    place = f"/api/memories/{made['id']}/confirm"
    reply = daemon.ask("POST", place, tcp=True, headers=headers)
    assert reply.status == 200
    assert reply.json["trust"] == "trusted"
    assert daemon.ask("POST", place, tcp=True, headers=daemon.enter()).status == 403


def test_a_person_decides_about_proposals_in_the_browser(daemon: Served) -> None:
    headers = {**daemon.enter(), "origin": daemon.url}
    for verb, kind in (("reject", "fact"), ("confirm", "constraint")):
        new = {"content": f"Never {verb} badgers", "origin": "agent", "kind": "constraint"}
        made = daemon.ask("POST", "/api/memories", {**new, "project": "zoo"}).json
        (listed,) = got(daemon, "/api/proposals?everywhere=true")["results"]
        assert listed["id"] == made["id"] and listed["kind"] == "fact"
        reply = daemon.ask("POST", f"/api/memories/{made['id']}/{verb}", tcp=True, headers=headers)
        assert (reply.status, reply.json["kind"]) == (200, kind)
        assert got(daemon, "/api/proposals?everywhere=true")["results"] == []
        assert daemon.ask("POST", f"/api/memories/{made['id']}/reject").status == 409


def test_what_is_to_be_rated_is_shown_without_asking_for_more(daemon: Served) -> None:
    before = got(daemon, "/api/predictor/calibration")
    assert before == got(daemon, "/api/predictor/calibration")
    assert before["results"] == []
    assert before["days"] == []
    assert before["calibration"]["asked"] == 0


def test_latencies_have_the_latest_for_a_picture(daemon: Served, ids: list[str]) -> None:
    told = {one["id"]: one for one in got(daemon, "/api/analytics/latency")["results"]}
    assert told["remember"]["recent_ms"][-1] == told["remember"]["last_ms"]
    assert len(told["remember"]["recent_ms"]) == told["remember"]["count"] <= 60
    assert told["predictor_train"]["recent_ms"] == []


# -- the log --------------------------------------------------------------------------------------


def test_the_log_is_read_back_newest_first(daemon: Served) -> None:
    refused = daemon.ask("POST", "/api/memories", {"content": ""})
    lines = got(daemon, "/api/logs?limit=1000")["results"]
    moments = [one["at"] for one in lines]
    assert moments == sorted(moments, reverse=True)
    line = next(one for one in lines if one["request_id"] == refused.json["request_id"])
    assert (line["category"], line["event"], line["level"]) == ("http", "request", "info")
    assert line["details"]["status"] == 422
    assert {one["category"] for one in got(daemon, "/api/logs?category=http")["results"]} == {
        "http"
    }
    assert got(daemon, "/api/logs?level=error")["results"] == []
    assert got(daemon, "/api/logs?since=2999-01-01")["results"] == []
    assert len(got(daemon, "/api/logs?limit=1")["results"]) == 1
    assert daemon.ask("GET", "/api/logs?level=loud").status == 422


def line(number: int, level: str = "info", category: str = "http", **more: object) -> str:
    """A line as the log writes it."""
    at = f"2026-05-04T03:{number // 60:02d}:{number % 60:02d}.000+00:00"
    told = {"at": at, "level": level, "category": category, "event": f"e{number}"}
    return json.dumps({**told, "request_id": None, **more}) + "\n"


def events(file: Path, **asked: Any) -> list[str]:
    return [one.event for one in latest_lines(file, **asked)]


def test_lines_of_the_file_before_follow_and_half_lines_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "daemon.log"
    assert events(file) == []
    (tmp_path / "daemon.log.1").write_text(line(1) + "{half\n" + line(2, "error"))
    file.write_text("\n" + line(3, "warning", "predictor") + "[]\n" + line(4) + '{"at": "2026')
    assert events(file) == ["e4", "e3", "e2", "e1"]
    assert events(file, level="warning") == ["e3", "e2"]
    assert events(file, level="error") == ["e2"]
    assert events(file, category="predictor") == ["e3"]
    assert events(file, limit=3) == ["e4", "e3", "e2"]
    assert events(file, since=parse_moment("2026-05-04T03:00:02Z")) == ["e4", "e3", "e2"]


def test_a_long_log_is_read_from_its_end_and_within_bounds(tmp_path: Path) -> None:
    file = tmp_path / "daemon.log"
    filler = "x" * 1_500
    file.write_text("".join(line(number % 3_000, filler=filler) for number in range(4_000)))
    assert file.stat().st_size > READ_LIMIT_BYTES
    assert events(file, limit=2) == ["e999", "e998"]
    rare = latest_lines(file, category="nothing", limit=5)
    assert rare == []
    everything = latest_lines(file, limit=10_000)
    assert 2_000 < len(everything) < 4_000
    assert everything[0].details == {"filler": filler}
