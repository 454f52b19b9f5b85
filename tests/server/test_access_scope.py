"""How far a token goes: its user, its agent, its project, and what its holder can do with it."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from access_kit import Holder, holder
from web_types import Served, clean_environment

from meritory import Memory
from meritory.api.client import Refused
from meritory.domain.errors import InputError, NotFound
from meritory.server.auth import ScopedMemory
from meritory.store.sqlite.store import SqliteStore
from patient_hook import patient_script


def stored(by: Holder | Served, content: str, **fields: Any) -> str:
    reply = by.ask("POST", "/api/memories", {"content": content, **fields})
    assert reply.status == 200, reply.content
    return str(reply.json["id"])


def texts(by: Holder, query: str = "", path: str = "/api/memories") -> set[str]:
    return {one["content"] for one in by.ask("GET", path + query).json["results"]}


# -- names --------------------------------------------------------------------------------------


def test_a_token_is_its_users_without_naming_them_and_nobody_elses(daemon: Served) -> None:
    ada, bob = holder(daemon, "write", user="ada1"), holder(daemon, "write", user="bob1")
    mine = stored(ada, "The heron stands in the reeds")
    assert texts(ada) == {"The heron stands in the reeds"}
    assert texts(ada, "?user=ada1") == texts(ada)
    assert texts(bob) == set()
    assert bob.ask("GET", f"/api/memories/{mine}").status == 404
    for path in ("/api/memories", "/api/stats", "/api/sessions", "/api/predictor/status"):
        assert bob.ask("GET", f"{path}?user=ada1").status == 403
    assert bob.ask("POST", "/api/memories", {"content": "x", "user": "ada1"}).status == 403
    hooked = {"session_key": "k", "user": "ada1"}
    assert bob.ask("POST", "/api/hooks/session-start", hooked).status == 403
    assert bob.verb("remember-many", {"user": "ada1"}, items=["x"]).status == 403
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    assert bob.ask("POST", "/mcp?user=ada1", {**message, "params": {"name": "x"}}).status == 403


def test_two_tenants_who_say_the_same_are_not_each_others_echo(daemon: Served) -> None:
    """One session key, one prompt, at one moment: each is shown its own memory."""
    people = [holder(daemon, "write", user=name) for name in ("ada2", "bob2")]
    for number, one in enumerate(people):
        stored(one, f"The staging database is called heron{number}")
    said = {"session_key": "same", "relayed": True, "harness": "claude-code", "source": "startup"}
    shown = [one.ask("POST", "/api/hooks/session-start", said).json["inject"] for one in people]
    assert "heron0" in shown[0]
    assert "heron1" in shown[1]
    again = [one.ask("POST", "/api/hooks/session-start", said).json["inject"] for one in people]
    assert again == ["", ""]


def test_what_is_about_everybody_is_not_told(daemon: Served) -> None:
    someone = holder(daemon, "admin", user="cem3")
    jobs = someone.ask("GET", "/api/jobs").json
    assert sum(jobs["counts"].values()) == len(jobs["results"]) == 0
    kept = someone.ask("GET", "/api/telemetry").json
    assert (kept["line_count"], kept["size_bytes"]) == (None, None)
    assert daemon.ask("GET", "/api/telemetry").json["line_count"] is not None


# -- one project or agent -----------------------------------------------------------------------


@pytest.fixture
def places(daemon: Served) -> dict[str, str]:
    """Memories of one user, in two projects and in none."""
    found = daemon.ask("GET", "/api/memories?user=dora&everywhere=true").json["results"]
    if not found:
        for project in ("api", "web", None):
            fields = {"project": project} if project else {}
            text = f"The {project or 'shared'} server is made of basalt"
            stored(daemon, text, user="dora", on_similar="keep", **fields)
        found = daemon.ask("GET", "/api/memories?user=dora&everywhere=true").json["results"]
    return {one["project"] or "": one["id"] for one in found if "basalt" in one["content"]}


@pytest.fixture
def narrow(daemon: Served) -> Holder:
    """Somebody who may do everything in one project."""
    return holder(daemon, "admin", user="dora", project="api")


def test_a_narrow_token_sees_its_project_and_what_is_shared(
    narrow: Holder, places: dict[str, str]
) -> None:
    assert {
        one for one in places if narrow.ask("GET", f"/api/memories/{places[one]}").status == 200
    } == {"api", ""}
    found = texts(narrow, "?query=basalt+server", "/api/memories/search")
    assert found == {
        "The api server is made of basalt",
        "The shared server is made of basalt",
    }
    assert not any("web" in text for text in texts(narrow))
    named = narrow.ask("GET", "/api/memories/facets").json["project"]
    assert "web" not in named
    assert "api" in named


def test_a_narrow_token_is_refused_what_leads_out_of_it(
    narrow: Holder, places: dict[str, str]
) -> None:
    mine, other = places["api"], places["web"]
    for method, path, body in (
        ("GET", "/api/memories?project=web", None),
        ("GET", "/api/memories?everywhere=true", None),
        ("GET", "/api/memories/search?query=x&everywhere=true", None),
        ("GET", "/api/sessions", None),
        ("POST", "/api/memories", {"content": "x", "project": "web"}),
        ("PATCH", f"/api/memories/{mine}", {"project": "web"}),
        ("PATCH", f"/api/memories/{mine}", {"project": None}),
        ("POST", "/api/hooks/session-start", {"session_key": "n", "project": "web"}),
    ):
        assert narrow.ask(method, path, body).status == 403, path
    for method, path, body in (
        ("GET", f"/api/memories/{other}", None),
        ("GET", f"/api/memories/{other}/history", None),
        ("PATCH", f"/api/memories/{other}", {"content": "taken"}),
        ("DELETE", f"/api/memories/{other}", None),
        ("POST", f"/api/memories/{other}/purge", {"confirm": other}),
        ("POST", "/api/memories", {"content": "x", "supersedes": other}),
    ):
        assert narrow.ask(method, path, body).status == 404, path
    assert narrow.verb("remember-many", items=[{"content": "x", "project": "web"}]).json[0][
        "error"
    ]["status"] == 403  # fmt: skip
    assert narrow.verb("get", {"everywhere": True}, memory_id=other).status == 403
    assert narrow.verb("page", everywhere=True).status == 403
    assert narrow.verb("page", nonsense=True).status == 422
    assert narrow.verb("page", limit=5).status == 200
    assert narrow.verb("update", memory_id=mine, project="web").status == 403
    assert narrow.verb("session/start", key="n", project="web").status == 403
    refused = narrow.tool("memory_store", content="for everybody here", everywhere=True)
    assert refused["isError"]
    assert narrow.tool("memory_get", id=other)["isError"]
    assert not narrow.tool("memory_get", id=mine)["isError"]


def test_a_narrow_token_has_no_part_in_other_sessions(
    daemon: Served, narrow: Holder, places: dict[str, str]
) -> None:
    begun = {"user": "dora", "session_key": "web-session", "project": "web", "context": "basalt"}
    theirs = daemon.ask("POST", "/api/hooks/session-start", begun).json
    assert theirs["injection"]
    for event, more in (
        ("session-start", {}),
        ("user-prompt-submit", {"prompt": "basalt"}),
        ("delivered", {"receipt": theirs["injection"]}),
        ("stop", {"last_assistant_message": "done"}),
        ("pre-compact", {}),
        ("session-end", {}),
        ("pre-tool", {"tool_name": "Bash", "tool_input": {"command": "ls"}}),
    ):
        body = {"session_key": "web-session", **more}
        assert narrow.ask("POST", f"/api/hooks/{event}", body).status == 403, event
    rated = {"session_key": "web-session", "ratings": {"m1": 1}}
    assert narrow.ask("POST", "/api/feedback", rated).status == 403
    thumb = {"signal": "up", "context": "good work on it", "what_worked": "all of it"}
    with_key = {**thumb, "session_key": "web-session"}
    assert narrow.ask("POST", "/api/feedback", with_key).status == 403
    with_id = {**thumb, "memory_ids": [places["web"]]}
    assert narrow.ask("POST", "/api/feedback", with_id).status == 404
    assert narrow.verb("capture-feedback", **with_key).status == 403
    assert narrow.verb("capture-feedback", **with_id).status == 404
    for name, more in (
        *(("start", {}), ("prompt", {"prompt": "basalt"}), ("compact", {}), ("end", {})),
        *(("rate", {"scores": {}}), ("reply", {"text": "x"})),
    ):
        assert narrow.verb(f"session/{name}", key="web-session", **more).status == 403
    tool = {"injection": theirs["injection"], "ratings": {"m1": 1}}
    assert narrow.tool("memory_feedback", **tool)["isError"]
    told = {"id": places["api"], "session": "web-session"}
    assert narrow.tool("memory_explain", **told)["isError"]
    cursor = {"cursor": "cw=="}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": cursor}
    assert b"web-session" not in narrow.ask("POST", "/mcp", listing).content
    uri = {"uri": "meritory://session/web-session"}
    read = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": uri}
    assert "error" in narrow.ask("POST", "/mcp", read).json
    report = daemon.ask("POST", "/api/feedback", {**thumb, "user": "dora", "project": "web"}).json
    event = report["event"]["id"]
    assert narrow.verb("complete-feedback", event_id=event, context="mine").status == 404
    # Its own are its own, but are not about those of others.
    event = narrow.ask("POST", "/api/feedback", thumb).json["event"]["id"]
    told = {"event_id": event, "memory_ids": [places["web"]]}
    assert narrow.verb("complete-feedback", **told).status == 404
    told["memory_ids"] = [places["api"]]
    assert narrow.verb("complete-feedback", **told).status == 200
    own = {"session_key": "api-session", "context": "basalt"}
    assert narrow.ask("POST", "/api/hooks/session-start", own).json["injection"]
    assert narrow.ask("POST", "/api/hooks/session-end", own | {"context": None}).status in (
        200,
        422,
    )


def test_a_token_of_an_agent_keeps_to_that_agent(daemon: Served) -> None:
    claude = holder(daemon, "write", user="eli", agent="claude")
    codex = holder(daemon, "write", user="eli", agent="codex")
    mine = stored(claude, "Claude keeps a list of owls")
    assert codex.ask("GET", f"/api/memories/{mine}").status == 404
    assert texts(codex) == set()
    assert codex.ask("GET", "/api/memories?agent=claude").status == 403
    assert texts(claude, "?agent=claude") == {"Claude keeps a list of owls"}
    claude.ask("POST", "/api/hooks/session-start", {"session_key": "owls"})
    assert codex.ask("POST", "/api/hooks/session-start", {"session_key": "owls"}).status == 403
    # A project is not what it is narrowed to.
    assert claude.ask("GET", "/api/memories?project=any").status == 200


# -- roles in MCP -------------------------------------------------------------------------------


def test_a_reading_token_uses_the_tools_that_read(daemon: Served) -> None:
    writer, reader = (holder(daemon, role, user="fay") for role in ("write", "read"))
    made = writer.tool("memory_store", content="The kettle is on the left")
    assert not made["isError"]
    one = made["structuredContent"]["id"]
    assert reader.tool("memory_search", query="kettle")["structuredContent"]["results"]
    assert not reader.tool("memory_get", id=one)["isError"]
    for name, arguments in (
        ("memory_store", {"content": "x"}),
        ("memory_forget", {"id": one}),
        ("capture_feedback", {"signal": "up", "context": "x"}),
        ("capture_memory_feedback", {"signal": "up", "context": "x"}),
        ("memory_feedback", {"injection": "x", "ratings": {}}),
    ):
        refused = reader.tool(name, **arguments)
        assert refused["isError"], name
        assert "may only read" in refused["content"][0]["text"]


# -- from another machine -----------------------------------------------------------------------


@pytest.fixture
def away(daemon: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no daemon of its own."""
    for name in list(os.environ):
        if name.startswith("MERITORY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_narrow_admin_leaves_what_all_projects_share(daemon: Served) -> None:
    narrow = holder(daemon, "admin", user="mia", project="api")
    new = {"content": "The otter swims for all", "user": "mia", "origin": "agent", "pinned": True}
    shared = daemon.ask("POST", "/api/memories", new).json["id"]
    place = f"/api/memories/{shared}"
    for method, path, body in (
        ("POST", f"{place}/purge", {"confirm": shared}),
        ("POST", f"{place}/confirm", None),
        ("POST", f"{place}/reject", None),
        ("PATCH", place, {"pinned": True}),
        ("PATCH", place, {"kind": "constraint"}),
        ("POST", "/api/library/purge", {"arguments": {"memory_id": shared}}),
        ("POST", "/api/library/confirm", {"arguments": {"memory_id": shared}}),
    ):
        assert narrow.ask(method, path, body).status == 403, (method, path)
    kept = daemon.ask("GET", f"{place}?user=mia").json
    assert (kept["pinned"], kept["tags"]) == (False, ["proposed:pin"])
    own = narrow.ask("POST", "/api/memories", {"content": "The api is small", "pinned": True})
    assert own.json["memory"]["pinned"] is True
    gone = f"/api/memories/{own.json['id']}/purge"
    assert narrow.ask("POST", gone, {"confirm": own.json["id"]}).status == 200


def test_a_program_works_with_a_writing_token(
    daemon: Served, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    someone = holder(daemon, "write", user="gil")
    with Memory(url=daemon.url, token=someone.token) as memory:
        assert memory.scope.user == "gil"
        made = memory.remember("The otter swims at noon")
        assert memory.recall("when does the otter swim?")[0].id == made.id
        assert memory.get(made.id[:12]).content == made.content
        assert memory.view(project="x").remember("The otter has a project").project == "x"
        with memory.session("gil-1", context="the otter") as session:
            assert made.id in session.ranking
            session.end(used={made.id: 1.0})
        memory.forget(made.id)
        memory.undo(made.id)
        with pytest.raises(Refused) as refused:
            memory.forget(made.id, purge=True)
        assert refused.value.status == 403
    with pytest.raises(Refused, match="another user"):
        Memory(url=daemon.url, token=someone.token, user="ada1")
    monkeypatch.setenv("MERITORY_URL", daemon.url)
    monkeypatch.setenv("MERITORY_TOKEN", someone.token)
    with Memory() as memory:
        assert memory.scope.user == "gil"
        assert memory.get(made.id).id == made.id
    # A path is meant as it is said, and a token goes to nobody else's address.
    with Memory(away / "own.db") as memory, pytest.raises(NotFound):
        memory.get(made.id)
    monkeypatch.setenv("MERITORY_URL", "nonsense")
    with pytest.raises(InputError, match="not the url of a daemon"):
        Memory()
    with pytest.raises(Refused) as unauthorized:
        Memory(url=daemon.url)
    assert unauthorized.value.status == 401


def _hooked(environ: dict[str, str], event: dict[str, Any], script: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(script), "--harness", "claude-code"],
        input=json.dumps(event).encode(),
        capture_output=True,
        env=environ,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def test_a_hook_tells_a_daemon_on_another_machine(
    daemon: Served, away: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = patient_script(tmp_path_factory.mktemp("hook"))
    someone = holder(daemon, "write", user="hana")
    stored(someone, "The lighthouse keeper is called Marisol", project="beacon")
    folder = away / "work" / "beacon" / "src"
    folder.mkdir(parents=True)
    (folder.parent / ".git").mkdir()
    said = away / "transcript.jsonl"
    turn = {"type": "user", "message": {"role": "user", "content": "Who keeps the lighthouse?"}}
    said.write_text(json.dumps(turn) + "\n")
    environ = clean_environment(
        HOME=str(away),
        MERITORY_HOME=str(away / "home"),
        MERITORY_URL=daemon.url,
        MERITORY_TOKEN=someone.token,
    )
    common = {"session_id": "hana-1", "cwd": str(folder), "transcript_path": str(said)}
    begun = {**common, "hook_event_name": "SessionStart", "source": "startup"}
    assert "Marisol" in _hooked(environ, begun, script)
    _hooked(environ, {**common, "hook_event_name": "SessionEnd", "reason": "exit"}, script)
    session = someone.ask("GET", "/api/sessions/hana-1").json
    assert session["project"] == "beacon"
    assert session["state"] != "open"
    # What the daemon cannot read by itself was sent along.
    store = SqliteStore(daemon.home / "meritory.db")
    turns = store.transcript("hana", "hana-1")
    store.close()
    assert [(one.role, one.text) for one in turns] == [("user", "Who keeps the lighthouse?")]
    # Whoever is refused, or finds nobody, is not kept from working, and starts no daemon.
    assert _hooked({**environ, "MERITORY_TOKEN": "wrong"}, begun, script) == ""
    assert _hooked({**environ, "MERITORY_URL": "http://127.0.0.1:1"}, begun, script) == ""
    assert _hooked({**environ, "MERITORY_URL": "nonsense://"}, begun, script) == ""
    assert not (away / "home").exists()


def test_the_tools_reach_a_daemon_on_another_machine(daemon: Served, away: Path) -> None:
    someone = holder(daemon, "write", user="ida")
    folder = away / "harbour"
    (folder / ".git").mkdir(parents=True)
    environ = clean_environment(
        HOME=str(away),
        MERITORY_HOME=str(away / "home"),
        MERITORY_URL=daemon.url,
        MERITORY_TOKEN=someone.token,
    )
    calls = [
        {"method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},  # noqa: E501
        {"method": "tools/call", "params": {"name": "memory_store", "arguments": {"content": "The harbour freezes in March"}}},  # noqa: E501
    ]  # fmt: skip
    lines = [{"jsonrpc": "2.0", "id": number, **call} for number, call in enumerate(calls)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "meritory", "mcp"],
        input="".join(json.dumps(line) + "\n" for line in lines).encode(),
        capture_output=True,
        cwd=folder,
        env=environ,
        timeout=60,
        check=False,
    )
    assert done.stderr == b""
    replies = {one["id"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert not replies[1]["result"]["isError"], replies[1]
    assert texts(someone, "?project=harbour") == {"The harbour freezes in March"}
    assert not (away / "home" / "meritory.db").exists()


def test_a_narrow_token_reaches_only_the_methods_that_are_listed() -> None:
    checked = {name for name in vars(ScopedMemory) if not name.startswith("_")}
    # The others are the methods of `Memory` themselves.
    public = checked | set(ScopedMemory.__annotations__)
    assert not issubclass(ScopedMemory, Memory)
    for name in checked:
        # The same arguments, so that a program cannot tell the two apart.
        own, whole = (inspect.signature(getattr(kind, name)) for kind in (ScopedMemory, Memory))
        assert list(own.parameters.values()) == list(whole.parameters.values()), name
    assert not {"stats", "backup", "drain", "reembed", "feedback_events", "view"} & public
