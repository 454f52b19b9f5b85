"""Every surface of the product on a team's database: commands, REST, hook, MCP, dashboard."""

from __future__ import annotations

import json
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from team_kit import Team, environment, wait_for

from meritory import Memory
from meritory.api.client import Daemon
from patient_hook import patient_script
from postgres_kit import execute_raw

HERON = "The staging database is called heron"
STRIPE = "Payments use Stripe webhooks with a signature header"


@pytest.fixture(scope="module")
def daemon(team: Team) -> Daemon:
    """A daemon on the team's database."""
    return team.daemon("served", MERITORY_DAEMON_RATE_LIMIT_PER_S="0")


def told(team: Team, name: str, *words: str, **more: Any) -> Any:
    """The one object that a command prints."""
    return json.loads(team.run(name, *words, "--json", **more).stdout)


def is_file_store_there(folder: Path) -> bool:
    return any(folder.rglob("meritory.db"))


def test_commands_of_two_people_work_on_one_store(team: Team) -> None:
    made = told(team, "ann", "remember", HERON)
    found = told(team, "bob", "recall", "what is the staging database called?")
    assert [one["id"] for one in found["results"]] == [made["id"]]
    listed = told(team, "bob", "list")
    assert made["id"] in {one["id"] for one in listed["results"]}
    assert told(team, "bob", "show", made["id"])["memory"]["content"] == HERON
    stats = told(team, "bob", "stats")
    assert stats["live"] == 1
    assert told(team, "bob", "sessions")["results"] == []
    assert told(team, "bob", "predictor", "status")["model_version"] == 0
    told(team, "bob", "forget", made["id"])
    assert told(team, "ann", "stats")["live"] == 0
    told(team, "ann", "undo", made["id"])
    assert not is_file_store_there(team.folder)


def test_the_doctor_finds_it_well_and_shows_no_password(team: Team) -> None:
    team.run("ann", "remember", HERON, MERITORY_USER="ann")
    done = team.run("ann", "doctor", "--deep", "--json", MERITORY_USER="ann")
    checks = {one["id"]: one for one in json.loads(done.stdout)["results"]}
    assert [one for one in checks.values() if one["status"] != "ok"] == []
    assert team.address not in done.stdout + done.stderr
    assert "postgresql://" in checks["store"]["detail"]


def test_rest_keeps_and_finds_and_a_session_is_learned_from(daemon: Daemon, team: Team) -> None:
    ask = daemon.request
    made = ask("POST", "/api/memories", {"content": STRIPE, "user": "ann"})
    path = f"/api/memories/{made['id']}?user=ann"
    assert ask("GET", path)["content"] == STRIPE
    found = ask("POST", "/api/memories/search", {"query": "stripe webhooks", "user": "ann"})
    assert [one["id"] for one in found["results"]] == [made["id"]]
    session = {"session_key": "rest", "user": "ann"}
    started = ask("POST", "/api/hooks/session-start", {**session, "context": "stripe webhooks"})
    assert STRIPE in started["inject"]
    asked = ask("POST", "/api/hooks/user-prompt-submit", {**session, "prompt": "and signatures?"})
    assert asked["recording"]
    ended = ask("POST", "/api/hooks/session-end", {**session, "used": {made["id"]: 1.0}})
    assert ended["queued"]
    compared = """SELECT count(*) FROM predictor_comparisons WHERE "user" = 'ann'"""
    # The last thing that is learned from a session.
    wait_for(lambda: execute_raw(team.address, compared) == [(1,)], "nobody learned")
    assert ask("GET", "/api/sessions/rest?user=ann")["state"] == "finished"


def test_the_hook_tells_an_agent_what_the_team_knows(
    daemon: Daemon, team: Team, tmp_path: Path
) -> None:
    project = team.folder / "shop"
    project.mkdir(exist_ok=True)
    daemon.request("POST", "/api/memories", {"content": HERON, "on_similar": "keep"})
    event = {
        "session_id": "hooked",
        "hook_event_name": "SessionStart",
        "source": "startup",
        "cwd": str(project),
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(patient_script(tmp_path)), "--harness", "claude-code"],
        input=json.dumps(event),
        env=environment(daemon.home, team.address),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert HERON in done.stdout
    assert daemon.request("GET", "/api/sessions/hooked")["state"] == "open"


def test_mcp_over_http_answers(daemon: Daemon) -> None:
    daemon.request("POST", "/api/memories", {"content": HERON, "on_similar": "keep"})
    call = {"name": "memory_search", "arguments": {"query": "staging database"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    told = daemon.request("POST", "/mcp", asked)
    assert HERON in json.dumps(told)


def test_mcp_over_pipes_answers(daemon: Daemon, team: Team) -> None:
    daemon.request("POST", "/api/memories", {"content": HERON, "on_similar": "keep"})
    beginning = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    call = {"name": "memory_search", "arguments": {"query": "staging database"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": beginning},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    done = team.run("served", "mcp", sent="".join(json.dumps(line) + "\n" for line in lines))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert HERON in json.dumps(next(one for one in answers if one.get("id") == 2))


def test_the_dashboard_lets_its_owner_in_and_shows_figures(daemon: Daemon) -> None:
    place = urlsplit(daemon.url)
    link = urlsplit(daemon.request("POST", "/api/dashboard/links")["url"])
    connection = HTTPConnection(place.netloc, timeout=30)
    connection.request("GET", f"{link.path}?{link.query}")
    let_in = connection.getresponse()
    let_in.read()
    assert let_in.status == 303
    cookie = {"cookie": str(let_in.headers["set-cookie"]).partition(";")[0]}
    connection.request("GET", "/dashboard/", headers=cookie)
    page = connection.getresponse()
    body = page.read().decode()
    assert (page.status, "<html" in body) == (200, True)
    connection.request("GET", "/api/stats", headers=cookie)
    figures = connection.getresponse()
    assert (figures.status, bool(figures.read())) == (200, True)
    connection.close()


def test_the_library_works_embedded_on_the_same_store(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(team.folder / "library", team.address).items():
        if name.startswith("MERITORY_"):
            monkeypatch.setenv(name, value)
    with Memory(user="carl") as memory:
        made = memory.remember(STRIPE)
        assert memory.services.store.place.url == team.address
        assert [one.id for one in memory.recall("stripe webhooks")] == [made.id]
    rows = execute_raw(team.address, """SELECT count(*) FROM memories WHERE "user" = 'carl'""")
    assert rows == [(1,)]
