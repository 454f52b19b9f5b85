"""The scripted model itself: it speaks every protocol, and what goes wrong shows."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_server import server
from model_wire import protocol_of, texts

CODE = r"mf ([0-9a-z]{10}) "
TOOL = {"name": "memory_feedback", "arguments": {"injection": "{code}", "ratings": {"m1": 0.5}}}
TOLD = "rate it: <!--mf abcdefghjk m1=N-->"


class Talk:
    """A client of the scripted model, with the folder that steers it."""

    def __init__(self, port: int, folder: Path) -> None:
        self._port, self._folder = port, folder

    def script(self, **script: Any) -> None:
        """What the model shall say."""
        (self._folder / "script.json").write_text(json.dumps(script), "utf-8")

    def post(self, path: str, body: Any) -> tuple[int, str]:
        """One request: status and text of the reply."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("POST", path, content, {"content-type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def log(self) -> list[dict[str, Any]]:
        """What the model wrote down."""
        lines = (self._folder / "requests.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    """A running server."""
    with server(tmp_path) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield Talk(made.server_address[1], tmp_path)
        made.shutdown()
        thread.join()


def request(name: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """A request of each protocol, with a tool on offer."""
    tools: list[dict[str, Any]]
    if name == "gemini":
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        tools = [{"functionDeclarations": [{"name": "mcp_meritory_memory_feedback"}]}]
        contents = [{"role": "user", "parts": [{"text": TOLD}]}]
        return f"/v1beta/models/any:{verb}", {"contents": contents, "tools": tools}
    said = [{"role": "user", "content": TOLD}]
    if name == "anthropic":
        tools = [{"name": "mcp__meritory__memory_feedback", "input_schema": {}}]
        return "/v1/messages?beta=true", {"stream": stream, "messages": said, "tools": tools}
    if name == "chat":
        tools = [{"type": "function", "function": {"name": "meritory_memory_feedback"}}]
        return "/v1/chat/completions", {"stream": stream, "messages": said, "tools": tools}
    inner = [{"type": "function", "name": "memory_feedback"}]
    tools = [{"type": "namespace", "name": "mcp__meritory", "tools": inner}]
    return "/v1/responses", {"stream": stream, "input": said, "tools": tools}


def events(text: str) -> list[Any]:
    """The values of a stream."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", ["anthropic", "chat", "responses", "gemini"])
def test_tool_is_called_once_and_then_the_text_comes(talk: Talk, name: str, stream: bool) -> None:
    talk.script(text="Done. <!--mf {code} m1=0.8-->", find={"code": CODE}, tool=TOOL)
    path, body = request(name, stream=stream)
    (status, called), (_, said) = talk.post(path, body), talk.post(path, body)
    assert status == 200
    read = events if stream else json.loads
    assert "memory_feedback" in called
    assert "abcdefghjk" in called
    assert "Done. <!--mf abcdefghjk m1=0.8-->" in "\n".join(texts(read(said)))
    first, second = talk.log()
    assert first["protocol"] == name
    assert first["body"] == body
    assert first["reply"]["arguments"] == {"injection": "abcdefghjk", "ratings": {"m1": 0.5}}
    assert second["reply"] == "Done. <!--mf abcdefghjk m1=0.8-->"


def test_tool_that_is_not_offered_is_not_called(talk: Talk) -> None:
    talk.script(text="only words", tool=TOOL, find={"code": CODE})
    path, body = request("anthropic", stream=False)
    body["tools"][0]["defer_loading"] = True
    assert "only words" in talk.post(path, body)[1]
    assert talk.log()[0]["reply"] == "only words"


def test_what_is_not_in_the_request_is_not_made_up(talk: Talk) -> None:
    talk.script(text="<!--mf {code} m1=1-->", find={"code": CODE})
    _, said = talk.post("/v1/messages", {"messages": [{"role": "user", "content": "hello"}]})
    assert "<!--mf no-code m1=1-->" in said


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/messages", b"no json", 400),
        ("/v1/nothing", {}, 404),
    ],
)
def test_what_it_does_not_understand_is_refused(
    talk: Talk, path: str, body: Any, status: int
) -> None:
    talk.script(text="hello")
    assert talk.post(path, body)[0] == status
    assert "failed" in talk.log()[0]


def test_without_a_script_it_has_nothing_to_say(talk: Talk) -> None:
    status, said = talk.post("/v1/messages", {"messages": []})
    assert (status, json.loads(said)["error"]["message"]) == (400, "there is no script")


def test_unknown_placeholder_fails(talk: Talk) -> None:
    talk.script(text="{nobody}")
    assert talk.post("/v1/messages", {"messages": []})[0] == 400


def test_paths_belong_to_one_protocol() -> None:
    paths = ("/v1/messages", "/v1/chat/completions", "/v1/responses", "/m/x:generateContent")
    found = [protocol_of(path) for path in paths]
    assert [one.name for one in found if one] == ["anthropic", "chat", "responses", "gemini"]
    assert protocol_of("/v1/messages/batches") is None
