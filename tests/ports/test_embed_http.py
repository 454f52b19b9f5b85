"""The HTTP embedder against a real server on the loopback address."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from meritory.domain.errors import BadReply, InputError, PortError, PortTimeout
from meritory.domain.policy import EmbedderSpec
from meritory.ports import embed_http
from meritory.ports import embedder as ports_embedder
from meritory.ports.embed_http import HttpEmbedder
from meritory.ports.embedder import Embedder, open_embedder

KEY = "sk-test-0123456789"


class Server(ThreadingHTTPServer):
    """Answers from a script: each entry is a function of the request, or a status with headers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Any] = []
        self.seen: list[dict[str, Any]] = []
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(
            {"path": self.path, "key": self.headers.get("Authorization"), **body}
        )
        step = self.server.script.pop(0) if self.server.script else good
        status, headers, raw = step(self.server, body) if callable(step) else step
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


Answer = tuple[int, dict[str, str], bytes]


def vector(text: str) -> list[float]:
    return [float(len(text)), 1.0, 2.0]


def reply(items: list[dict[str, Any]]) -> Answer:
    return 200, {}, json.dumps({"object": "list", "data": items}).encode()


def good(server: Server, body: dict[str, Any]) -> Answer:
    return reply(
        [{"index": at, "embedding": vector(text)} for at, text in enumerate(body["input"])]
    )


def backwards_base64(server: Server, body: dict[str, Any]) -> Answer:
    items = [
        {
            "index": at,
            "embedding": base64.b64encode(np.array(vector(text), "<f4").tobytes()).decode(),
        }
        for at, text in enumerate(body["input"])
    ]
    return reply(items[::-1])


def failing(status: int, text: str = "no", **headers: str) -> Answer:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, text.encode()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.release.set()
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed_http, "FIRST_PAUSE_MS", 1.0)
    monkeypatch.setattr(embed_http, "MAX_PAUSE_MS", 20.0)


def opened(server: Server, **fields: Any) -> Embedder:
    spec = EmbedderSpec(kind="openai", model="m", url=server.url, api_key=KEY, **fields)
    return open_embedder(spec)


def unit(text: str) -> np.ndarray:
    row = np.array(vector(text))
    return row / np.linalg.norm(row)


def test_texts_become_unit_rows(server: Server) -> None:
    embedder = opened(server)
    rows = embedder.embed_documents(["a", "bbb"])
    np.testing.assert_allclose(rows, [unit("a"), unit("bbb")], atol=1e-6)
    (request,) = server.seen
    assert request["path"] == "/v1/embeddings"
    assert request["key"] == f"Bearer {KEY}"
    assert request["model"] == "m"
    assert embedder.name == "openai:m"


def test_index_order_and_base64_are_respected(server: Server) -> None:
    server.script = [backwards_base64]
    rows = opened(server).embed_documents(["a", "bbb", "cc"])
    np.testing.assert_allclose(rows, [unit("a"), unit("bbb"), unit("cc")], atol=1e-6)


def test_a_server_without_base64_is_asked_for_floats_from_then_on(server: Server) -> None:
    server.script = [failing(400, "unknown encoding_format")]
    embedder = opened(server)
    embedder.embed_query("a")
    embedder.embed_query("b")
    assert [seen["encoding_format"] for seen in server.seen] == ["base64", "float", "float"]


def test_a_bad_request_that_is_not_about_the_format_is_reported(server: Server) -> None:
    server.script = [failing(400, "input too long")] * 2
    with pytest.raises(PortError, match="400: input too long"):
        opened(server).embed_query("a")


def test_long_lists_go_in_batches(server: Server) -> None:
    texts = ["x" * n for n in range(1, ports_embedder.MAX_BATCH + 6)]
    rows = opened(server).embed_documents(texts)
    assert [len(seen["input"]) for seen in server.seen] == [ports_embedder.MAX_BATCH, 5]
    np.testing.assert_allclose(rows[-1], unit(texts[-1]), atol=1e-6)


def test_prefixes_go_to_their_side(server: Server) -> None:
    embedder = opened(server, query_prefix="query: ", document_prefix="passage: ")
    embedder.embed_documents(["a"])
    embedder.embed_query("a")
    assert [seen["input"] for seen in server.seen] == [["passage: a"], ["query: a"]]


def test_empty_texts_are_not_sent_and_have_no_vector(server: Server) -> None:
    rows = opened(server).embed_documents(["", "a", " \n"])
    assert server.seen[0]["input"] == ["a"]
    assert not rows[[0, 2]].any()
    np.testing.assert_allclose(rows[1], unit("a"), atol=1e-6)


def test_no_texts_and_only_empty_texts_keep_their_shape(server: Server) -> None:
    embedder = opened(server)
    assert embedder.embed_documents([]).shape == (0, 3)
    assert embedder.embed_documents(["", " "]).shape == (2, 3)


def test_the_dimension_is_learned_with_one_question(server: Server) -> None:
    embedder = opened(server)
    assert embedder.dimension == 3
    assert embedder.dimension == 3
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_passing_failure_is_tried_again(server: Server, status: int) -> None:
    server.script = [failing(status), failing(status, Retry_After="0")]
    opened(server).embed_query("a")
    assert len(server.seen) == 3


def test_a_dropped_connection_is_tried_again(server: Server) -> None:
    def drop(running: Server, body: dict[str, Any]) -> Answer:
        return 200, {"Content-Length": "999999"}, b"{"

    server.script = [drop]
    opened(server).embed_query("a")
    assert len(server.seen) == 2


def test_tries_are_counted(server: Server) -> None:
    server.script = [failing(503, "overloaded")] * 20
    with pytest.raises(PortError, match="503: overloaded"):
        opened(server).embed_query("a")
    assert len(server.seen) == embed_http.MAX_ATTEMPTS


def test_a_long_retry_after_is_cut(server: Server) -> None:
    server.script = [failing(429, Retry_After="86400")]
    opened(server).embed_query("a")
    assert len(server.seen) == 2


def test_a_pause_beyond_the_deadline_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed_http, "MAX_PAUSE_MS", 60_000.0)
    server.script = [failing(429, "slow down", Retry_After="50")]
    with pytest.raises(PortError, match="429"):
        opened(server, timeout_ms=2_000).embed_query("a")
    assert len(server.seen) == 1


def test_silence_ends_with_a_timeout(server: Server) -> None:
    def hang(running: Server, body: dict[str, Any]) -> Answer:
        running.release.wait(10)
        return good(running, body)

    server.script = [hang]
    with pytest.raises(PortTimeout, match="within 150 ms"):
        opened(server, timeout_ms=150).embed_query("a")


@pytest.mark.parametrize(
    ("status", "hint"),
    [(401, "api_key"), (403, "api_key"), (404, "have the model 'm'"), (302, "not followed")],
)
def test_refusals_say_what_to_do_and_are_not_repeated(
    server: Server, status: int, hint: str
) -> None:
    server.script = [failing(status, "nope", Location="http://127.0.0.1:9/")]
    with pytest.raises(PortError, match=hint):
        opened(server).embed_query("a")
    assert len(server.seen) == 1


def test_the_key_is_in_no_message(server: Server) -> None:
    server.script = [failing(401, f"wrong key {KEY}")]
    embedder = opened(server)
    with pytest.raises(PortError) as caught:
        embedder.embed_query("a")
    assert KEY not in str(caught.value)
    assert KEY not in repr(embedder)


def test_nobody_listening_asks_whether_the_server_runs() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    with pytest.raises(PortError, match=f"is the server running at http://127.0.0.1:{port}"):
        open_embedder(EmbedderSpec(kind="openai", model="m", url=url)).embed_query("a")


def _one(embedding: object, **fields: Any) -> Answer:
    return reply([{"index": 0, "embedding": embedding, **fields}])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, {}, b"<html>"), "JSON"),
        ((200, {}, b"[" * 100_000), "JSON"),
        ((200, {}, b"[]"), "no list of 1"),
        ((200, {}, b'{"data": []}'), "0 of 1"),
        (reply([{"embedding": [1.0]}, {"embedding": [1.0]}]), "2 of 1"),
        (reply(["x"]), "not an embedding"),  # type: ignore[list-item]
        (_one([1.0], index=1), "wrong index"),
        (_one([1.0], index=-1), "wrong index"),
        (_one([1.0], index=True), "wrong index"),
        (_one([1.0], index="0"), "wrong index"),
        (_one("not base64!"), "unreadable vector"),
        (_one("AAA="), "unreadable vector"),
        (_one([[1.0]]), "unreadable vector"),
        (_one(["x"]), "unreadable vector"),
        (_one(None), "unreadable vector"),
        (_one([]), "length 0"),
        (_one([float("nan"), 1.0]), "finite"),
        (_one([1e999, 1.0]), "finite"),
    ],
)
def test_nonsense_is_refused(server: Server, answer: Answer, said: str) -> None:
    server.script = [answer]
    with pytest.raises(BadReply, match=said):
        opened(server).embed_query("a")


def test_the_same_index_twice_is_refused(server: Server) -> None:
    server.script = [reply([{"index": 0, "embedding": [1.0]}] * 2)]
    with pytest.raises(BadReply, match="wrong index"):
        opened(server).embed_documents(["a", "b"])


def test_vectors_of_two_lengths_are_refused(server: Server) -> None:
    server.script = [
        reply([{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}])
    ]
    with pytest.raises(BadReply, match="different lengths"):
        opened(server).embed_documents(["a", "b"])


def test_another_dimension_than_agreed_is_refused(server: Server) -> None:
    with pytest.raises(BadReply, match="length 3, not 768"):
        opened(server, dimension=768).embed_query("a")


def test_a_dimension_that_changes_later_is_refused(server: Server) -> None:
    embedder = opened(server)
    embedder.embed_query("a")
    server.script = [_one([1.0, 2.0])]
    with pytest.raises(BadReply, match="length 2, not 3"):
        embedder.embed_query("a")


def test_a_reply_without_end_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed_http, "MAX_REPLY_BYTES", 1_000)
    server.script = [(200, {}, b" " * 5_000)]
    with pytest.raises(BadReply, match="more than 1000 bytes"):
        opened(server).embed_query("a")


@pytest.mark.parametrize(
    "url",
    ["", "localhost:11434", "file:///etc/passwd", "ftp://h/v1", "http://", "http://u:p@h/v1"],
)
def test_only_plain_web_addresses_are_taken(url: str) -> None:
    with pytest.raises(InputError):
        HttpEmbedder(EmbedderSpec(kind="openai", model="m", url=url))


def test_a_url_with_an_impossible_port_is_refused() -> None:
    with pytest.raises(InputError, match="port"):
        HttpEmbedder(EmbedderSpec(kind="openai", model="m", url="http://h:99999/v1"))


def test_a_model_is_needed() -> None:
    with pytest.raises(InputError, match="no model"):
        HttpEmbedder(EmbedderSpec(kind="openai", url="http://h/v1"))


def test_the_full_address_may_be_given(server: Server) -> None:
    spec = EmbedderSpec(kind="openai", model="m", url=server.url + "/embeddings/")
    open_embedder(spec).embed_query("a")
    assert server.seen[0]["path"] == "/v1/embeddings"
    assert server.seen[0]["key"] is None
