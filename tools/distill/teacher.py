"""Run all-MiniLM-L6-v2 from its safetensors, through an ONNX graph written here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load_file

from meritory.text.tokens import WordPiece

LAYERS, HEADS, WIDTH = 6, 12, 384
BATCH = 64
Floats = NDArray[np.float32]


class _Graph:
    """Collects nodes and weights."""

    def __init__(self, weights: dict[str, Floats]) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, value: NDArray[Any]) -> str:
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def op(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        out = f"t{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(kind, list(inputs), [out], name=f"n_{out}", **attributes)
        )
        return out

    def linear(self, x: str, name: str) -> str:
        weight = self.constant(f"{name}.w", self.weights[f"{name}.weight"].T)
        bias = self.constant(f"{name}.b", self.weights[f"{name}.bias"])
        return self.op("Add", [self.op("MatMul", [x, weight]), bias])

    def norm(self, x: str, name: str) -> str:
        gain = self.constant(f"{name}.g", self.weights[f"{name}.weight"])
        bias = self.constant(f"{name}.b", self.weights[f"{name}.bias"])
        return self.op("LayerNormalization", [x, gain, bias], axis=-1, epsilon=1e-12)

    def layer(self, x: str, bias: str, at: int) -> str:
        name = f"encoder.layer.{at}."
        split = self.constant("split", np.array([0, 0, HEADS, WIDTH // HEADS]))
        joined = self.constant("joined", np.array([0, 0, WIDTH]))
        scale = self.constant("scale", np.float32((WIDTH // HEADS) ** -0.5))
        heads = {
            part: self.op(
                "Transpose",
                [self.op("Reshape", [self.linear(x, f"{name}attention.self.{part}"), split])],
                perm=[0, 2, 3, 1] if part == "key" else [0, 2, 1, 3],
            )
            for part in ("query", "key", "value")
        }
        scores = self.op("Mul", [self.op("MatMul", [heads["query"], heads["key"]]), scale])
        share = self.op("Softmax", [self.op("Add", [scores, bias])], axis=-1)
        mixed = self.op(
            "Transpose", [self.op("MatMul", [share, heads["value"]])], perm=[0, 2, 1, 3]
        )
        mixed = self.linear(self.op("Reshape", [mixed, joined]), f"{name}attention.output.dense")
        x = self.norm(self.op("Add", [mixed, x]), f"{name}attention.output.LayerNorm")
        wide = self.op("Gelu", [self.linear(x, f"{name}intermediate.dense")])
        return self.norm(
            self.op("Add", [self.linear(wide, f"{name}output.dense"), x]),
            f"{name}output.LayerNorm",
        )


def write_onnx(safetensors: Path, out: Path) -> None:
    """Write the sentence encoder as an ONNX file: ids and mask in, unit rows out."""
    weights = {name: w.astype(np.float32) for name, w in load_file(safetensors).items()}
    graph = _Graph(weights)
    words = graph.constant("words", weights["embeddings.word_embeddings.weight"])
    places = graph.constant("places", weights["embeddings.position_embeddings.weight"])
    kind = graph.constant("kind", weights["embeddings.token_type_embeddings.weight"][0])
    mask = graph.op("Cast", ["attention_mask"], to=TensorProto.FLOAT)
    # Positions are counted from the mask: a Shape and Range chain trips onnxruntime's optimiser.
    counted = graph.op("CumSum", ["attention_mask", graph.constant("along", np.array(1))])
    where = graph.op("Sub", [counted, graph.constant("first", np.array(1))])
    x = graph.op(
        "Add", [graph.op("Gather", [words, "input_ids"]), graph.op("Gather", [places, where])]
    )
    x = graph.norm(graph.op("Add", [x, kind]), "embeddings.LayerNorm")
    one = graph.constant("one", np.float32(1))
    middle = graph.constant("middle", np.array([1, 2]))
    absent = graph.op("Sub", [one, graph.op("Unsqueeze", [mask, middle])])
    bias = graph.op("Mul", [absent, graph.constant("far", np.float32(-1e4))])
    for at in range(LAYERS):
        x = graph.layer(x, bias, at)
    last = graph.op("Unsqueeze", [mask, graph.constant("last", np.array([2]))])
    axis = graph.constant("axis", np.array([1]))
    total = graph.op("ReduceSum", [graph.op("Mul", [x, last]), axis], keepdims=0)
    count = graph.op("ReduceSum", [last, axis], keepdims=0)
    mean = graph.op("Div", [total, count])
    graph.nodes.append(helper.make_node("LpNormalization", [mean], ["sentence"], axis=1, p=2))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"])
        for name in ("input_ids", "attention_mask")
    ]
    outputs = [helper.make_tensor_value_info("sentence", TensorProto.FLOAT, ["b", WIDTH])]
    body = helper.make_graph(graph.nodes, "minilm", inputs, outputs, list(graph.constants.values()))
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 9
    onnx.save(model, str(out))


class Teacher:
    """The sentence encoder, exact or with int8 weights."""

    def __init__(self, folder: Path, home: Path, exact: bool) -> None:
        full, small = home / "teacher-f32.onnx", home / "teacher-i8.onnx"
        if not full.exists():
            write_onnx(folder / "model.safetensors", full)
        if not exact and not small.exists():
            quantize_dynamic(
                full,
                small,
                weight_type=QuantType.QInt8,
                per_channel=True,
                op_types_to_quantize=["MatMul"],
            )
        self.words = (folder / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
        self.pieces = WordPiece(self.words)
        self._ends = self.words.index("[CLS]"), self.words.index("[SEP]")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(full if exact else small), options)

    def embed_ids(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return unit rows for piece ids, the two markers added."""
        first, last = self._ends
        length = max(map(len, rows)) + 2
        ids = np.zeros((len(rows), length), np.int64)
        mask = np.zeros((len(rows), length), np.int64)
        for at, row in enumerate(rows):
            ids[at, : len(row) + 2] = [first, *row, last]
            mask[at, : len(row) + 2] = 1
        given = {"input_ids": ids, "attention_mask": mask}
        found: Floats = self._session.run(None, given)[0]
        return found

    def embed(self, texts: Sequence[str], max_pieces: int) -> NDArray[np.float16]:
        """Return unit rows for texts, short ones first so that little is padded."""
        rows = [self.pieces.encode(text)[:max_pieces] for text in texts]
        order = sorted(range(len(rows)), key=lambda at: len(rows[at]))
        out = np.zeros((len(rows), WIDTH), np.float16)
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            out[some] = self.embed_ids([rows[at] for at in some])
            if start % (BATCH * 200) == 0:
                print(f"teacher: {start} of {len(order)} texts", flush=True)
        return out
