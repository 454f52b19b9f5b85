"""Changing the embedder, or losing it: searches stay correct and nothing is lost."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from meritory import Memory
from meritory.domain.errors import PortError
from meritory.domain.memory import EmbeddingState
from meritory.settings import Settings, load_settings
from places import Places

TEXTS = [f"The {animal} lives in the {place}" for animal in ("badger", "heron", "otter")
         for place in ("barn", "reeds", "river")]  # fmt: skip


class Server(ThreadingHTTPServer):
    """An embedding server that knows a few words; `broken` makes it fail."""

    broken = False
    asked = 0
    gate: threading.Event | None = None


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked += 1
        if self.server.gate is not None:
            self.server.gate.wait(20)
        if self.server.broken:
            self.send_error(400)
            return
        data = [{"index": at, "embedding": vector(text)} for at, text in enumerate(body["input"])]
        reply = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        """Keeps the test's output clean."""


def vector(text: str) -> list[float]:
    total = np.zeros(16)
    for word in text.lower().split():
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4])
        total += np.random.default_rng(seed).normal(size=16)
    return [float(value) for value in total]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def over_http(home: Path, server: Server) -> Settings:
    return load_settings(home, {}).vary(
        {
            "embedder.kind": "openai",
            "embedder.model": "toy",
            "embedder.url": f"http://127.0.0.1:{server.server_port}/v1",
            "embedder.timeout_ms": 30_000,
        }
    )


def found(memory: Memory, query: str) -> list[str]:
    return [item.content for item in memory.recall(query, limit=20)]


def test_a_changed_embedder_takes_over_when_it_is_complete(
    places: Places, tmp_path: Path, server: Server
) -> None:
    with places.memory(settings=load_settings(tmp_path, {})) as memory:
        memory.remember_many([{"content": text, "on_similar": "keep"} for text in TEXTS])
        before = found(memory, "heron in the reeds")
    with places.memory(settings=over_http(tmp_path, server), background=False) as memory:
        embedding = memory.services.embedding
        assert not embedding.is_complete()
        # The old embedder answers, over everything, in the old order.
        assert found(memory, "heron in the reeds") == before
        assert memory.get(memory.page()[0].id).embedder == "static-minilm-256-v1"
        steps: list[tuple[int, int]] = []
        assert memory.reembed(lambda done, total: steps.append((done, total)))
        assert steps[-1] == (9, 9)
        assert embedding.is_complete()
        assert memory.get(memory.page()[0].id).embedder == "openai:toy"
        assert memory.page()[0].dimension == 16
        assert found(memory, "heron in the reeds")[0] == "The heron lives in the reeds"
        assert memory.reembed()


def test_recall_stays_correct_while_the_background_works(
    places: Places, tmp_path: Path, server: Server
) -> None:
    with places.memory(settings=load_settings(tmp_path, {})) as memory:
        memory.remember_many([{"content": text, "on_similar": "keep"} for text in TEXTS])
    server.gate = threading.Event()
    server.gate.set()
    with places.memory(settings=over_http(tmp_path, server)) as memory:
        # A changed embedder starts its background work by itself.
        worker = memory.works._reembedding
        assert worker is not None
        assert found(memory, "heron reeds")[0] == "The heron lives in the reeds"
        server.gate.clear()
        late: list[str] = []
        writer = threading.Thread(
            target=lambda: late.append(memory.remember("A vole lives in the wall").id)
        )
        writer.start()
        server.gate.set()
        writer.join()
        worker.join()
        memory.reembed()
        assert memory.services.embedding.is_complete()
        assert found(memory, "vole wall")[0] == "A vole lives in the wall"
        assert memory.get(late[0]).embedder == "openai:toy"


def with_encoder(home: Path) -> Settings:
    return load_settings(home, {}).vary({"embedder.kind": "encoder"})


def test_an_encoder_takes_over_in_steps_and_gives_back(places: Places, tmp_path: Path) -> None:
    table, encoder = "static-minilm-256-v1", "encoder:compact-6x256-v1"
    with places.memory(settings=load_settings(tmp_path, {})) as memory:
        memory.remember_many([{"content": text, "on_similar": "keep"} for text in TEXTS])
        assert memory.services.embedding.in_making() is None
    monkey = pytest.MonkeyPatch()
    monkey.setattr("meritory.engine.memories.embedding.REEMBED_BATCH", 4)
    with (
        monkey.context(),
        places.memory(settings=with_encoder(tmp_path), background=False) as memory,
    ):
        embedding = memory.services.embedding
        # Interrupted after the first batch.
        seen: list[int] = []
        assert not embedding.reembed(lambda done, total: seen.append(done), lambda: bool(seen))
        assert seen == [4]
        assert embedding.in_making() == (encoder, EmbeddingState(4, 9))
        assert embedding.stored_name() == table
        assert found(memory, "heron reeds")[0] == "The heron lives in the reeds"
        # It goes on where it stopped: no vector is made twice.
        assert memory.reembed(lambda done, total: seen.append(done))
        assert seen == [4, 8, 9]
        assert embedding.in_making() is None
        assert embedding.stored_name() == encoder
        assert found(memory, "heron reeds")[0] == "The heron lives in the reeds"
    monkey.undo()
    with places.memory(settings=load_settings(tmp_path, {})) as memory:
        worker = memory.works._reembedding
        assert worker is not None
        assert found(memory, "heron reeds")[0] == "The heron lives in the reeds"
        worker.join()
        assert memory.services.embedding.stored_name() == table


def test_vectors_of_an_encoder_have_their_own_weight(places: Places, tmp_path: Path) -> None:
    """An answer without a word of the question rises with the weight of the meaning."""

    def score(settings: Settings, folder: str) -> float:
        with places.memory(settings=settings, name=folder) as memory:
            memory.remember("Peanuts make Anna ill.")
            memory.remember("The question about the sister came up in the meeting.")
            hits = memory.recall("Which food is my sister allergic to?")
            return next(hit.score for hit in hits if hit.content.startswith("Peanuts"))

    plain = with_encoder(tmp_path)
    low = plain.vary({"recall.encoder_vector_weight": 0.1})
    other = plain.vary({"recall.vector_weight": 0.1})
    assert score(plain, "a") == score(other, "b") > score(low, "c")


def test_a_dead_embedder_loses_nothing_and_is_counted(
    places: Places, tmp_path: Path, server: Server
) -> None:
    with places.memory(settings=over_http(tmp_path, server)) as memory:
        memory.remember("The badger lives in the barn")
        server.broken = True
        made = memory.remember("The heron lives in the reeds")
        assert made.embedder is None
        assert found(memory, "heron")[0] == "The heron lives in the reeds"
        assert sum(memory.services.embedding.failures.values()) >= 2
        with pytest.raises(PortError):
            memory.reembed()
        server.broken = False
        assert memory.reembed()
        assert memory.get(made.id).embedder == "openai:toy"


def test_the_old_embedder_gone_leaves_words_until_the_new_one_is_done(
    places: Places, tmp_path: Path, server: Server
) -> None:
    with places.memory(settings=over_http(tmp_path, server)) as memory:
        memory.remember_many([{"content": text, "on_similar": "keep"} for text in TEXTS])
    server.broken = True
    with places.memory(settings=load_settings(tmp_path, {})) as memory:
        assert "The heron lives in the reeds" in found(memory, "heron reeds")
        memory.reembed()
        assert memory.services.embedding.is_complete()
        assert found(memory, "heron reeds")[0] == "The heron lives in the reeds"


def test_no_key_is_written_into_the_store(places: Places, tmp_path: Path, server: Server) -> None:
    settings = load_settings(
        tmp_path,
        {},
        {
            "embedder.kind": "openai",
            "embedder.model": "toy",
            "embedder.url": f"http://127.0.0.1:{server.server_port}/v1",
            "embedder.api_key": "hushhush",
        },
    )
    with places.memory(settings=settings) as memory:
        memory.remember("The badger lives in the barn")
        assert "hushhush" not in repr(memory.settings)
    assert places.traces("badger")
    assert places.traces("hushhush") == []
