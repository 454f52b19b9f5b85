"""The plugins that are shipped: their files fit together, and their hooks work with a daemon."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from connect_desk import Desk

from meritory.api import client
from meritory.connect import claude_code
from meritory.connect.plan import plugin_folder
from meritory.server import spool
from meritory.text.ratings_trailer import strip_trailers

NODE = shutil.which("node")
HOST = Path(__file__).with_name("plugin_host.mjs")
needs_node = pytest.mark.skipif(
    NODE is None, reason="no node: the JavaScript plugins are NOT tested"
)
Play = Callable[..., dict[str, Any]]
ANSWER = "Use heron.\n\n<!--mf {} m1=0.8-->"


def test_the_plugin_for_claude_code_says_what_connect_says() -> None:
    root = plugin_folder("claude-code")
    market = json.loads((root / ".claude-plugin/marketplace.json").read_text())
    (entry,) = market["plugins"]
    folder = root / entry["source"]
    manifest = json.loads((folder / ".claude-plugin/plugin.json").read_text())
    assert f"{manifest['name']}@{market['name']}" == claude_code.PLUGIN_ID
    hooks = json.loads((folder / "hooks/hooks.json").read_text())["hooks"]
    assert tuple(hooks) == claude_code.EVENTS
    assert {h["command"] for g in hooks.values() for x in g for h in x["hooks"]} == {
        "meritory hook --harness claude-code 2>/dev/null || true"
    }
    server = json.loads((folder / ".mcp.json").read_text())["mcpServers"]["meritory"]
    assert [server["command"], *server["args"]] == ["meritory", "mcp", "--harness", "claude-code"]
    assert len((folder / "README.md").read_text().split()) >= 40


def test_every_plugin_is_of_this_version() -> None:
    from meritory import __version__

    manifests = [plugin_folder("claude-code", "plugins/meritory/.claude-plugin/plugin.json")]
    manifests += [plugin_folder(name, "package.json") for name in ("opencode", "openclaw")]
    assert {json.loads(path.read_text())["version"] for path in manifests} == {__version__}


def test_openclaw_accepts_the_settings_that_connect_writes(desk: Desk) -> None:
    schema = json.loads(plugin_folder("openclaw", "openclaw.plugin.json").read_text())
    desk.connect("openclaw")
    value = json.loads(desk.documents("openclaw")[0].path.read_text())
    config = value["plugins"]["entries"][schema["id"]]["config"]
    assert set(config) <= set(schema["configSchema"]["properties"])
    (path,) = value["plugins"]["load"]["paths"]
    assert (Path(path) / "index.js").is_file()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder with one memory and a daemon."""
    folder = tmp_path_factory.mktemp("plugins") / "home"
    daemon = client.ensure(folder, wait_ms=60_000, options=("--port", "0"))
    body = {"content": "The staging database is called heron", "pinned": True}
    daemon.request("POST", "/api/memories", body)
    yield folder
    client.stop(folder)


@pytest.fixture
def play(tmp_path: Path, home: Path) -> Play:
    """Plays steps to a plugin in a process of its own."""

    def call(kind: str, steps: list[Any], data: Path = home, **options: Any) -> dict[str, Any]:
        entry = plugin_folder(kind, "meritory.js" if kind == "opencode" else "index.js")
        script = tmp_path / "steps.json"
        script.write_text(json.dumps(steps))
        given = {"home": str(data), "cwd": str(tmp_path), "daemon": ["false"], **options}
        done = subprocess.run(
            [str(NODE), str(HOST), kind, entry.as_uri(), json.dumps(given), str(script)],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        )
        assert (done.returncode, done.stderr) == (0, "")
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    return call


def message(key: str, text: str) -> list[Any]:
    """A prompt, as OpenCode gives it to its plugins."""
    part = {"id": "prt_1", "sessionID": key, "messageID": "msg_1", "type": "text", "text": text}
    return ["chat.message", {"sessionID": key}, {"message": {"id": "msg_1"}, "parts": [part]}]


def session(home: Path, key: str) -> dict[str, Any]:
    """A session as the daemon knows it."""
    daemon = client.ensure(home)
    found: dict[str, Any] = daemon.request("GET", f"/api/sessions/{key}")
    return found


def ratings(home: Path, key: str) -> list[float]:
    daemon = client.ensure(home)
    rows = daemon.request("GET", f"/api/sessions/{key}/memories")["results"]
    return [row["agent_relevance_score"] for row in rows if row["agent_feedback_count"]]


def code_in(text: str) -> str:
    """The code of an injection, as the agent reads it."""
    return text.split("<!--mf ")[1].split()[0]


@needs_node
def test_opencode_is_shown_memories_and_its_ratings_arrive(play: Play, home: Path) -> None:
    key = "oc-1"
    told = play("opencode", [message(key, "what is the staging database called?")])
    own, ours = told["results"][0]["output"]["parts"]
    assert "heron" in ours["text"] and ours["synthetic"] and ours["id"] > own["id"]
    assert (ours["type"], ours["messageID"]) == ("text", "msg_1")
    answer = ANSWER.format(code_in(ours["text"]))
    told = play(
        "opencode",
        [
            message(key, "and again, which staging database?"),
            ["experimental.text.complete", {"sessionID": key}, {"text": answer}],
            ["event", {"event": {"type": "session.idle", "properties": {"sessionID": key}}}],
            ["dispose"],
        ],
    )
    assert told["results"][1]["output"]["text"] == "Use heron."
    # Shown once already, so not a second time.
    assert "heron" not in str(told["results"][0]["output"]["parts"][1:])
    assert ratings(home, key) == [0.8]
    assert session(home, key)["state"] != "open"
    assert session(home, key)["harness"] == "opencode"


@needs_node
def test_opencode_goes_on_with_an_ended_session_and_repeats_nothing(play: Play, home: Path) -> None:
    key, prompt = "oc-3", "what is the staging database called?"
    told = play("opencode", [message(key, prompt), ["dispose"]])
    shown = told["results"][0]["output"]["parts"][1]
    assert "heron" in shown["text"] and session(home, key)["state"] != "open"
    history = [{"info": {}, "parts": [{"type": "tool"}, shown]}]
    for past, repeats in ((history, False), ([], True)):
        # Other words: the same ones, said again at once, would be taken for an echo.
        steps = [message(key, f"so, staging? {repeats}"), ["dispose"]]
        told = play("opencode", steps, history=past)
        assert ("heron" in json.dumps(told["results"][0]["output"]["parts"])) is repeats


@needs_node
def test_opencode_shows_again_after_compaction_and_leaves_helpers_alone(
    play: Play, home: Path
) -> None:
    created = {"type": "session.created", "properties": {"info": {"id": "kid", "parentID": "oc-2"}}}
    told = play(
        "opencode",
        [
            message("oc-2", "the staging database?"),
            message("oc-2", "the staging database?"),
            ["experimental.session.compacting", {"sessionID": "oc-2"}, {"context": []}],
            message("oc-2", "what was the staging database?"),
            ["event", {"event": created}],
            message("kid", "the staging database?"),
            ["chat.message", {"sessionID": "oc-2"}, {"message": {"id": "m"}, "parts": []}],
            ["chat.message", {}, None],
        ],
    )
    shown = [
        "heron" in json.dumps((one.get("output") or {}).get("parts")) for one in told["results"]
    ]
    assert shown == [True, False, False, True, False, False, False, False]


@pytest.fixture(scope="module")
def ruled(home: Path) -> Path:
    """The same daemon with a rule that blocks and one that warns."""
    daemon = client.ensure(home)
    for trigger, steps in (("shell: terraform destroy", 2), ("shell: dropdb shop", 1)):
        rule = daemon.request("POST", "/api/rules", {"trigger": trigger, "why": "it was gone"})
        for _ in range(steps):
            daemon.request("POST", f"/api/rules/{rule['id']}/approve", {})
    return home


@needs_node
def test_opencode_asks_the_guard_before_a_tool(play: Play, ruled: Path) -> None:
    def before(key: str, line: str) -> list[Any]:
        call = {"tool": "bash", "sessionID": key, "callID": line}
        return ["tool.execute.before", call, {"args": {"command": line}}]

    after = ["tool.execute.after", {"callID": "dropdb shop"}, {"output": "done"}]
    told = play(
        "opencode",
        [
            *(before("g", line) for line in ("terraform destroy", "git status", "dropdb shop")),
            after,
            ["tool.execute.before", {}, None],
        ],
    )
    thrown = [one.get("thrown") for one in told["results"]]
    assert "it was gone" in thrown[0] and thrown[1:] == [None] * 4
    assert "the user made a rule" in told["results"][3]["output"]["output"]
    away = play("opencode", [before("g", "terraform destroy")], ruled.parent / "nobody")
    assert away["results"][0].get("thrown") is None


@needs_node
def test_openclaw_asks_the_guard_before_a_tool(play: Play, ruled: Path) -> None:
    def before(line: str) -> list[Any]:
        event = {"toolName": "exec", "params": {"command": line}}
        return ["before_tool_call", event, {"sessionId": "g2", "workspaceDir": "/"}]

    told = play("openclaw", [before("terraform destroy"), before("git status")])
    returned = [one.get("returned") for one in told["results"]]
    assert returned[0]["block"] and "it was gone" in returned[0]["blockReason"]
    assert returned[1] is None
    away = play("openclaw", [before("terraform destroy")], ruled.parent / "nobody")
    assert away["results"][0].get("returned") is None


def typed(key: str, text: str, **more: Any) -> list[Any]:
    """A prompt, as OpenClaw gives it to its plugins."""
    ctx = {"sessionId": key, "sessionKey": "agent:main:main", "trigger": "user", **more}
    return ["before_prompt_build", {"prompt": text, "messages": []}, ctx]


@needs_node
def test_openclaw_is_shown_memories_and_its_ratings_arrive(play: Play, home: Path) -> None:
    key = "claw-1"
    told = play("openclaw", [typed(key, "what is the staging database called?")])
    text = told["results"][0]["returned"]["prependContext"]
    assert "heron" in text
    answer = ANSWER.format(code_in(text))
    told = play(
        "openclaw",
        [
            typed(key, "and the staging database again?"),
            ["before_agent_finalize", {"sessionId": key, "lastAssistantMessage": answer}, {}],
            ["message_sending", {"to": "x", "content": answer}, {}],
            ["message_sending", {"to": "x", "content": "plain"}, {}],
            ["reply_payload_sending", {"payload": {"text": answer, "media": 1}}, {}],
            typed(key, "something else entirely"),
            ["session_end", {"sessionId": key, "reason": "compaction"}, {}],
            ["session_end", {"sessionId": key, "reason": "reset"}, {"sessionId": key}],
        ],
    )
    returned = [one.get("returned") for one in told["results"]]
    # OpenClaw keeps none of it among its messages: every prompt has it, once.
    for place in (0, 5):
        assert returned[place]["prependContext"].count("is called heron") == 1
    assert returned[2] == {"content": "Use heron."} and returned[3] is None
    assert returned[4] == {"payload": {"text": "Use heron.", "media": 1}}
    assert ratings(home, key) == [0.8]
    assert session(home, key)["state"] != "open"


@needs_node
@pytest.mark.parametrize("has_gateway", [True, False])
def test_a_run_of_openclaw_without_a_gateway_is_a_session(
    has_gateway: bool, play: Play, home: Path
) -> None:
    key = f"claw-3-{has_gateway}"
    steps = [typed(key, "staging database?"), ["agent_end", {"messages": []}, {"sessionId": key}]]
    play("openclaw", [["gateway_start", {}, {}], *steps] if has_gateway else steps)
    assert (session(home, key)["state"] == "open") is has_gateway


@needs_node
def test_openclaw_leaves_alone_what_nobody_typed(play: Play) -> None:
    steps = [
        typed("claw-2", "staging database?", trigger="cron"),
        typed("claw-2", "staging database?", trigger="heartbeat"),
        typed("claw-2", "staging database?", inputProvenance={"kind": "inter_session"}),
        typed("claw-2", "   "),
        ["before_prompt_build", {}, None],
        typed("claw-2", "staging database?", inputProvenance={"kind": "external_user"}),
    ]
    told = play("openclaw", steps)
    shown = [one.get("returned") is not None for one in told["results"]]
    assert shown == [False] * 5 + [True]


@needs_node
@pytest.mark.parametrize("kind", ["opencode", "openclaw"])
def test_without_a_daemon_nothing_is_held_up_and_one_is_started(
    kind: str, play: Play, tmp_path: Path
) -> None:
    steps = [message("x", "hello there"), message("x", "hello again")]
    if kind == "openclaw":
        steps = [typed("x", "hello there"), typed("x", "hello again")]
    mark = tmp_path / "started"
    start = [sys.executable, "-c", f"open({str(mark)!r}, 'a').write('x')"]
    empty = tmp_path / "empty"
    told = play(kind, [*steps, ["sleep", 1_500]], data=empty, daemon=start)
    # Far from a measurement: whoever waited for an answer would have done so for a minute.
    assert max(one["ms"] for one in told["results"]) < 30_000
    deadline = time.monotonic() + 30
    while not (mark.exists() and mark.read_text()):
        assert time.monotonic() < deadline, "nothing was started"
        time.sleep(0.02)
    # However many events there are, it is tried once.
    assert mark.read_text() == "x"
    assert play(kind, steps, data=empty, daemon=["/not/there"])["results"]


@needs_node
@pytest.mark.parametrize("kind", ["opencode", "openclaw"])
def test_a_daemon_that_hangs_is_not_waited_for(kind: str, play: Play, tmp_path: Path) -> None:
    import socket

    step = message("x", "hello there") if kind == "opencode" else typed("x", "hello there")
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "s"))
        deaf.listen()
        (tmp_path / "daemon.json").write_text(json.dumps({"socket": str(tmp_path / "s")}))
        told = play(kind, [step], data=tmp_path, patience=1)
    # Two seconds, and whatever a busy machine adds to them.
    assert 1_500 < told["results"][0]["ms"] < 20_000


@needs_node
def test_ratings_are_stripped_as_the_daemon_strips_them(play: Play) -> None:
    texts = [
        "plain <b>text</b> <!-- a remark --> goes on",
        "Done.\n<!--mf abcdef12 m1=0.5 m2=-1-->",
        "Done.\n```\n<!--mf abcdef12 m1=0.5-->\n```",
        'Done.\n<memory-feedback>{"m1": 0.5}</memory-feedback>',
        "Done.\n\n<!-- mf abcdef12 m1=0.5 -->\n",
    ]
    steps: list[Any] = [["message_sending", {"content": text}, {}] for text in texts]
    told = play("openclaw", steps)
    for text, one in zip(texts, told["results"], strict=True):
        kept = (one.get("returned") or {"content": text})["content"]
        assert kept.rstrip() == strip_trailers(text).rstrip(), text


# -- a daemon that is down when a session ends ------------------------------------------------


def prompted(kind: str, key: str, text: str) -> list[Any]:
    return message(key, text) if kind == "opencode" else typed(key, text)


def replied(kind: str, key: str, text: str) -> list[Any]:
    if kind == "opencode":
        return ["experimental.text.complete", {"sessionID": key}, {"text": text}]
    return ["before_agent_finalize", {"lastAssistantMessage": text}, {"sessionId": key}]


def over(kind: str) -> list[Any]:
    return ["dispose"] if kind == "opencode" else ["gateway_stop"]


def come_up(folder: Path) -> client.Daemon:
    return client.ensure(folder, wait_ms=60_000, options=("--port", "0"))


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_ended(daemon: client.Daemon, key: str) -> bool:
    listed = daemon.request("GET", "/api/sessions")["results"]
    return any(one["id"] == key and one["state"] == "finished" for one in listed)


@needs_node
@pytest.mark.parametrize("kind", ["opencode", "openclaw"])
def test_an_end_and_ratings_without_a_daemon_are_taken_by_the_next_one(
    kind: str, play: Play, tmp_path: Path
) -> None:
    data, key, go_on = tmp_path / "data", "left", tmp_path / "go-on"
    daemon = come_up(data)
    try:
        body = {"content": "The staging database is called heron", "pinned": True}
        daemon.request("POST", "/api/memories", body)
        told = play(kind, [prompted(kind, key, "which staging database?")], data)
        answer = ANSWER.format(code_in(json.dumps(told["results"][0])))
        steps = [prompted(kind, key, "and which for tests?"), ["meet", str(go_on)]]
        steps += [replied(kind, key, "The secret plan. " + answer), over(kind)]
        with ThreadPoolExecutor(1) as pool:
            playing = pool.submit(play, kind, steps, data)
            until(lambda: go_on.with_name("go-on.here").exists(), "it did not come so far")
            client.stop(data)
            go_on.touch()
            playing.result()
        rated, _ = sorted((data / "spool").iterdir())
        assert "secret plan" not in rated.read_text()
        daemon = come_up(data)
        until(lambda: is_ended(daemon, key), "it was lost")
        assert ratings(data, key) == [0.8]
        events = daemon.request("GET", f"/api/timeline/{key}")["results"]
        assert [one["event"] for one in events].count("session.end") == 1
        until(lambda: not list((data / "spool").iterdir()), "a file stayed")
    finally:
        client.stop(data)


@needs_node
@pytest.mark.parametrize("kind", ["opencode", "openclaw"])
def test_a_whole_session_without_a_daemon_is_kept_and_learned_from(
    kind: str, play: Play, tmp_path: Path
) -> None:
    data, keys = tmp_path / "data", ["away-1", "away-2"]
    # More than a file may hold, and characters of four bytes that a cut must not halve.
    long = "\N{OWL}" * 10_000 + "x"
    steps = [prompted(kind, key, f"always run make lint {key}") for key in keys]
    steps += [replied(kind, keys[0], text) for text in (*[long] * 6, "I will.")]
    play(kind, [*steps, over(kind)], data)
    files = sorted((data / "spool").iterdir())
    assert [json.loads(one.read_text())["body"]["session_key"] for one in files] == keys
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o600 for one in files)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (data, data / "spool")] == [0o700] * 2
    assert all(one.stat().st_size <= spool.FILE_LIMIT_BYTES for one in files)
    try:
        daemon = come_up(data)
        for key in keys:
            until(lambda k=key: is_ended(daemon, k), "it was lost")  # type: ignore[misc]
        assert session(data, keys[0])["harness"] == kind
    finally:
        client.stop(data)


@needs_node
def test_nothing_is_kept_in_a_folder_that_others_can_read(play: Play, tmp_path: Path) -> None:
    (data := tmp_path / "open").mkdir(mode=0o755)
    play("opencode", [message("x", "hello there"), ["dispose"]], data)
    assert list(data.iterdir()) == []
