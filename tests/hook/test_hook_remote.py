"""What the hook keeps for a daemon on another machine that cannot be reached, and when it sends it.

Between the hook and the daemon stands a proxy, as it does where the daemon is behind HTTPS.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hook_kit import SCRIPT, WAIT_S, Running, clean_environment, faults, run, wait_for

from meritory.hook import main, remote

CLAUDE = ["--harness", "claude-code"]
SAID = "The tide table hangs in the harbour office. " * 10


class Proxy:
    """A reverse proxy in front of a daemon; it notes requests, and answers 502 while cut off."""

    def __init__(self, url: str) -> None:
        self.target, self.seen = url, list[tuple[str, dict[str, Any]]]()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = 502, b"<html>bad gateway</html>"
                if proxy.target:
                    proxy.seen.append((self.path.rpartition("/")[2], json.loads(content)))
                    status, answer = proxy.forward(self.path, content, dict(self.headers))
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def forward(self, path: str, content: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(urlsplit(self.target).netloc, timeout=WAIT_S)
        headers["Host"] = urlsplit(self.target).netloc
        try:
            connection.request("POST", path, content, headers)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def bodies(self, event: str, key: str) -> list[dict[str, Any]]:
        return [body for name, body in self.seen if (name, body["session_key"]) == (event, key)]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_S)


class Client:
    """A machine with an agent whose daemon is elsewhere."""

    def __init__(self, home: Path, url: str, token: str, script: Path) -> None:
        self.home, self.script = home, script
        self.environ = clean_environment(home, MERITORY_URL=url, MERITORY_TOKEN=token)
        for name in (".git", "src"):
            (home / "shop" / name).mkdir(parents=True)

    def hook(self, name: str, key: str, script: Path | None = None, **more: Any) -> bytes:
        """Run the hook as a client does; `script` if not the patient one."""
        fields = {"session_id": key, "hook_event_name": name, "cwd": str(self.home / "shop/src")}
        sent = json.dumps({**fields, **more}).encode()
        ran = run(CLAUDE, sent, self.environ, script or self.script)
        assert faults(ran) == []
        return ran.out

    def start(self, key: str, source: str = "startup") -> bytes:
        return self.hook("SessionStart", key, source=source)

    def end(self, key: str, path: str = "") -> bytes:
        return self.hook("SessionEnd", key, SCRIPT, reason="other", transcript_path=path)

    def transcript(self, key: str) -> str:
        path = self.home / f"{key}.jsonl"
        lines = [
            {"type": role, "message": {"role": role, "content": SAID}, "sessionId": key}
            for role in ("user", "assistant")
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path)

    def kept(self) -> list[Path]:
        """The files of the spool."""
        found = (self.home / "meritory" / "spool").glob("remote/*/*")
        return sorted(one for one in found if one.is_file())


@pytest.fixture
def proxy(running: Running) -> Iterator[Proxy]:
    made = Proxy(running.daemon.url)
    yield made
    made.close()


@pytest.fixture
def far(running: Running, proxy: Proxy, patient: Path, tmp_path: Path) -> Client:
    token = (running.home / "meritory" / "token").read_text().strip()
    return Client(tmp_path / "away", f"http://127.0.0.1:{proxy.port}", token, patient)


def ends(running: Running, key: str) -> int:
    events = running.ask("GET", f"/api/timeline/{key}")["results"]
    return [one["event"] for one in events].count("session.end")


def test_an_end_reaches_a_daemon_elsewhere_once_it_is_back(tmp_path: Path, patient: Path) -> None:
    (tmp_path / "there").mkdir()
    running = Running(tmp_path / "there")
    try:
        url = running.daemon.url
        token = (running.home / "meritory" / "token").read_text().strip()
        client = Client(tmp_path / "away", url, token, patient)
        client.start("down-1")
        running.close()
        path = client.transcript("down-1")
        assert client.end("down-1", path) == b""
        # Nothing but ids and paths, and only for this user.
        (kept,) = client.kept()
        assert "tide table" not in kept.read_text()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        folders = [client.home / "meritory", *list(kept.parents)[:3]]
        assert [stat.S_IMODE(one.stat().st_mode) for one in folders] == [0o700] * 4
        # The project of a session that the daemon never saw is read before its folder is removed.
        client.end("unseen", client.transcript("unseen"))
        shutil.rmtree(client.home / "shop" / ".git")
        running = Running(tmp_path / "there", port=urlsplit(url).port or 0)
        client.start("next")
        wait_for(lambda: running.session("down-1")["state"] == "finished", "it was lost")
        wait_for(lambda: not client.kept(), "not everything was sent")
        assert running.session("unseen")["project"] == "shop"
        assert (ends(running, "down-1"), ends(running, "unseen")) == (1, 1)
        # Nothing left, so that the next event does not even look.
        wait_for(lambda: not (client.home / "meritory/spool/remote").exists(), "a folder stayed")
    finally:
        running.close()


def test_behind_a_proxy_that_answers_for_it_a_daemon_counts_as_away(
    running: Running, proxy: Proxy, far: Client
) -> None:
    far.start("gate")
    proxy.target = ""
    code = "abcdefghij"
    reply = f"The secret plan.\n<!--mf {code} m1=0.5-->\n"
    far.hook("Stop", "gate", SCRIPT, last_assistant_message=reply)
    far.hook("Stop", "gate", SCRIPT, last_assistant_message="Nothing was rated here.")
    path = far.transcript("gate")
    far.end("gate", path)
    rated, ended = (json.loads(one.read_text()) for one in far.kept())
    assert rated["body"]["last_assistant_message"].strip() == f"<!--mf {code} m1=0.5-->"
    assert (ended["event"], ended["body"]["transcript_path"]) == ("session-end", path)
    # While it is away, nothing is sent and everything stays.
    far.start("while-away")
    assert len(far.kept()) == 2
    proxy.target = running.daemon.url
    far.start("back")
    wait_for(lambda: not far.kept(), "not everything was sent")
    (said,) = proxy.bodies("stop", "gate")
    assert "secret plan" not in said["last_assistant_message"]
    (told,) = proxy.bodies("session-end", "gate")
    assert "tide table" in told["transcript"] and "transcript_path" not in told
    assert told["kept_ms"] >= 0 and ends(running, "gate") == 1


def test_without_its_transcript_an_end_is_sent_all_the_same(
    running: Running, proxy: Proxy, far: Client
) -> None:
    far.start("bare")
    proxy.target = ""
    path = far.transcript("bare")
    far.end("bare", path)
    os.unlink(path)
    proxy.target = running.daemon.url
    far.start("bare-next")
    wait_for(lambda: running.session("bare")["state"] != "open", "it was lost")
    (told,) = proxy.bodies("session-end", "bare")
    assert "transcript" not in told


def test_hooks_at_the_same_time_send_every_file_once(
    running: Running, proxy: Proxy, far: Client
) -> None:
    proxy.target = ""
    keys = [f"many-{number}" for number in range(12)]
    for key in keys:
        far.end(key, far.transcript(key))
    # One was claimed by a hook that was killed, one by a hook at work.
    killed, busy = far.kept()[:2]
    for one in (killed, busy):
        os.rename(one, one.with_name(f".{one.name}"))
    long_ago = time.time() - 2 * remote.CLAIM_LIMIT_S
    os.utime(killed.with_name(f".{killed.name}"), (long_ago, long_ago))
    proxy.target = running.daemon.url
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(far.start, [f"at-once-{number}" for number in range(4)]))
    wait_for(lambda: len(far.kept()) == 1, "not everything was sent")
    assert far.kept() == [busy.with_name(f".{busy.name}")]
    held = json.loads(far.kept()[0].read_text())["body"]["session_key"]
    counts = {key: len(proxy.bodies("session-end", key)) for key in keys}
    assert counts == {key: int(key != held) for key in keys}
    # In the order in which they were kept, within each hook.
    assert {ends(running, key) for key in keys if key != held} == {1}


def test_an_event_goes_to_no_other_daemon_and_with_no_other_token(
    running: Running, proxy: Proxy, far: Client
) -> None:
    proxy.target = ""
    far.end("mine", far.transcript("mine"))
    proxy.target = running.daemon.url
    made = running.ask("POST", "/api/tokens", {"name": "t", "role": "write", "user": "hana"})
    own = dict(far.environ)
    for other in (
        {"MERITORY_TOKEN": made["token"]},
        {"MERITORY_URL": f"http://localhost:{proxy.port}"},
    ):
        far.environ = {**own, **other}
        far.start(f"other-{next(iter(other))}")
        # Something of its own is sent, and nothing else.
        proxy.target = ""
        key = f"own-{next(iter(other))}"
        far.end(key, far.transcript(key))
        assert len(far.kept()) == 2
        proxy.target = running.daemon.url
        far.start(f"again-{next(iter(other))}")
        wait_for(lambda: len(far.kept()) == 1, "its own was not sent")
    assert proxy.bodies("session-end", "mine") == []
    far.environ = own
    far.start("right")
    wait_for(lambda: not far.kept(), "it was not sent")
    assert len(proxy.bodies("session-end", "mine")) == 1


def test_a_session_that_is_resumed_is_not_ended_by_its_earlier_end(
    running: Running, proxy: Proxy, far: Client
) -> None:
    far.start("again")
    proxy.target = ""
    far.end("again", far.transcript("again"))
    proxy.target = running.daemon.url
    far.start("again", source="resume")
    wait_for(lambda: not far.kept(), "it was not dropped")
    assert running.session("again")["state"] == "open"
    assert proxy.bodies("session-end", "again") == []


def test_what_a_daemon_refuses_is_set_aside_and_the_rest_is_sent(
    running: Running, proxy: Proxy, far: Client
) -> None:
    proxy.target = ""
    # Unknown to the daemon and without anything to learn from.
    far.end("wordless")
    (folder,) = {one.parent for one in far.kept()}
    (folder / "00000000000000000001-1.json").write_text("{")
    (folder / "00000000000000000002-1.json").write_text('{"event": "session-end", "body": {}}')
    far.end("worded", far.transcript("worded"))
    proxy.target = running.daemon.url
    far.start("sender")
    wait_for(lambda: len(proxy.bodies("session-end", "worded")) == 1, "the rest was not sent")
    wait_for(lambda: all(one.suffix == ".failed" for one in far.kept()), "they are in the way")
    assert len(far.kept()) == 3
    far.start("another")
    assert len(proxy.bodies("session-end", "wordless")) == 1


def test_an_answer_of_something_else_does_not_count(
    running: Running, proxy: Proxy, far: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of a hotel's network has status 200."""
    page = (200, b"<html>accept our terms</html>")
    monkeypatch.setattr(proxy, "forward", lambda *_: page)
    far.end("hotel", far.transcript("hotel"))
    assert len(far.kept()) == 1
    body = {"session_key": "x"}
    address = f"{far.environ['MERITORY_URL']}#{far.home / 'meritory'}"
    monkeypatch.setenv("MERITORY_TOKEN", far.environ["MERITORY_TOKEN"])
    remote.send_kept(address, "pre-tool", body, time.monotonic() + WAIT_S, main._encoded)
    assert len(far.kept()) == 1 and far.kept()[0].suffix == ".json"


def test_where_nothing_is_kept_a_prompt_loads_nothing_for_it(running: Running, far: Client) -> None:
    # In every project: the folders of this file's other tests have the same name.
    running.ask("POST", "/api/memories", {"content": "The ferry database is called egret"})
    asked = {"session_id": "p", "hook_event_name": "UserPromptSubmit", "prompt": "ferry database?"}
    sent = json.dumps({**asked, "cwd": str(far.home / "shop")}).encode()
    command = [sys.executable, "-X", "importtime", "-I", "-S", str(far.script), *CLAUDE]
    ran = subprocess.run(command, input=sent, capture_output=True, env=far.environ, timeout=WAIT_S)
    loaded = set(re.findall(r"\| +(\S+)$", ran.stderr.decode(), re.MULTILINE))
    assert "egret" in ran.stdout.decode() and "http.client" in loaded
    assert loaded.isdisjoint({"hashlib", "json", "fcntl"})
    assert not (far.home / "meritory").exists()


def test_an_address_without_a_scheme_starts_nothing(far: Client) -> None:
    far.environ["MERITORY_URL"] = "memory.example:8080"
    # Not a folder of that name, in which a daemon would be started.
    assert main._place("", far.environ).startswith("://")
    assert far.end("lost", far.transcript("lost")) == b""
    assert far.start("lost") == b""
    assert not (far.home / "meritory").exists()
