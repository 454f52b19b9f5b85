"""The optional embedders: what is said when they are missing, and ONNX with a graph made here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meritory.domain.errors import InputError, MissingExtra, PortError
from meritory.domain.policy import EmbedderKind, EmbedderSpec
from meritory.ports.embedder import Embedder, open_embedder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "green", "blue", "##ish"]


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [
        ("fastembed", "fastembed", "fastembed"),
        ("sentence-transformers", "sentence_transformers", "sentence-transformers"),
        ("onnx", "onnxruntime", "onnx"),
    ],
)
def test_a_missing_extra_names_the_command(
    kind: EmbedderKind, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra) as caught:
        open_embedder(EmbedderSpec(kind=kind, model="any"))
    assert f"pip install 'meritory[{extra}]'" in str(caught.value)


@pytest.mark.parametrize("kind", ["fastembed", "sentence-transformers", "onnx"])
def test_a_model_is_needed(kind: EmbedderKind) -> None:
    with pytest.raises(InputError, match="no model"):
        open_embedder(EmbedderSpec(kind=kind))


class _Library:
    """Stands in for fastembed and sentence-transformers, which need a model hub to run."""

    def __init__(self, name: str = "", model_name: str = "") -> None:
        if "missing" in (name, model_name):
            raise ValueError("no such model")
        self.seen: list[str] = []

    def embed(self, texts: list[str]) -> Iterator[np.ndarray]:
        yield from self.encode(texts)

    def encode(self, texts: list[str], **options: bool) -> np.ndarray:
        self.seen.extend(texts)
        return np.array([[float(len(text)), 2.0] for text in texts], np.float32)


LIBRARIES = [
    ("fastembed", "fastembed", "TextEmbedding"),
    ("sentence-transformers", "sentence_transformers", "SentenceTransformer"),
]


@pytest.mark.parametrize(("kind", "module", "entry"), LIBRARIES)
def test_a_library_is_asked_with_prefixes_and_in_batches(
    kind: EmbedderKind, module: str, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{entry: _Library}))
    embedder = open_embedder(
        EmbedderSpec(kind=kind, model="m", query_prefix="q: ", document_prefix="d: ")
    )
    texts = ["x" * n for n in range(1, 100)]
    rows = embedder.embed_documents(texts)
    expected = np.array([[len("d: " + text), 2.0] for text in texts])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    assert embedder.dimension == 2
    assert embedder.name.startswith(f"{kind}:m+")
    np.testing.assert_allclose(
        embedder.embed_query("xx"), np.array([5.0, 2.0]) / np.sqrt(29), atol=1e-6
    )
    assert embedder.embed_documents([]).shape == (0, 2)


@pytest.mark.parametrize(("kind", "module", "entry"), LIBRARIES)
def test_a_model_that_is_not_there_is_a_port_error(
    kind: EmbedderKind, module: str, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{entry: _Library}))
    with pytest.raises(PortError, match="is the name right"):
        open_embedder(EmbedderSpec(kind=kind, model="missing"))


def _need(*modules: str) -> list[Any]:
    return [
        pytest.importorskip(name, reason=f"ONNX IS NOT TESTED: {name} is not installed")
        for name in modules
    ]


def _model(folder: Path, pooled: bool) -> Path:
    """Write a graph that looks up one row per piece, with or without a mean over them."""
    onnx, _ = _need("onnx", "onnxruntime")
    make, kinds = onnx.helper, onnx.TensorProto
    table = np.eye(len(WORDS), 5, -3, dtype=np.float32) + 0.01
    table[WORDS.index("red") :] *= 2  # louder than the marker at the end
    nodes = [make.make_node("Gather", ["table", "input_ids"], ["states"])]
    result, shape = "states", ["b", "l", 5]
    if pooled:
        nodes.append(make.make_node("ReduceSum", ["states", "axis"], ["sum"], keepdims=0))
        result, shape = "sum", ["b", 5]
    graph = make.make_graph(
        nodes,
        "tiny",
        [
            make.make_tensor_value_info("input_ids", kinds.INT64, ["b", "l"]),
            make.make_tensor_value_info("attention_mask", kinds.INT64, ["b", "l"]),
        ],
        [make.make_tensor_value_info(result, kinds.FLOAT, shape)],
        [
            onnx.numpy_helper.from_array(table, "table"),
            onnx.numpy_helper.from_array(np.array([1]), "axis"),
        ],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)])
    model.ir_version = 8
    file = folder / "tiny.onnx"
    onnx.save(model, str(file))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return file


def _opened(file: Path, **fields: Any) -> Embedder:
    return open_embedder(EmbedderSpec(kind="onnx", model=str(file), **fields))


def test_onnx_states_are_averaged_over_the_texts_own_pieces(tmp_path: Path) -> None:
    embedder = _opened(_model(tmp_path, pooled=False))
    rows = embedder.embed_documents(["red", "red green blue red greenish"])
    assert embedder.dimension == 5
    assert embedder.name.startswith("onnx:tiny-")
    # The short text is padded beside the long one and must not feel it.
    np.testing.assert_allclose(rows[0], embedder.embed_query("red"), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert rows[0].argmax() == 1


def test_onnx_pooled_output_is_taken_as_it_is(tmp_path: Path) -> None:
    rows = _opened(_model(tmp_path, pooled=True)).embed_documents(["blue"])
    assert rows.shape == (1, 5)
    assert rows[0].argmax() == 3


def test_onnx_long_texts_are_cut(tmp_path: Path) -> None:
    embedder = _opened(_model(tmp_path, pooled=False))
    one, two = embedder.embed_documents(["red " * 254, "red " * 254 + "blue " * 500])
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_another_onnx_file_of_the_same_name_has_another_identity(tmp_path: Path) -> None:
    names = set()
    for folder, pooled in (("one", True), ("two", False)):
        (tmp_path / folder).mkdir()
        names.add(_opened(_model(tmp_path / folder, pooled)).name)
    assert len(names) == 2


def test_onnx_without_a_vocabulary_says_where_it_belongs(tmp_path: Path) -> None:
    file = _model(tmp_path, pooled=False)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(InputError, match=r"vocab\.txt"):
        _opened(file)


def test_a_damaged_onnx_file_is_a_port_error(tmp_path: Path) -> None:
    file = _model(tmp_path, pooled=False)
    file.write_bytes(b"not a model")
    with pytest.raises(PortError, match="cannot open the model"):
        _opened(file)
