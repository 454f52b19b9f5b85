"""Embedders behind optional packages: fastembed, sentence-transformers, onnxruntime."""

from __future__ import annotations

import hashlib
import importlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from meritory.domain.errors import InputError, MissingExtra, PortError
from meritory.domain.policy import EmbedderSpec
from meritory.ports.embedder import VOCABULARY_FILE, BatchEmbedder, Vectors, checked, identity
from meritory.text.tokens import WordPiece

# MiniLM and its kin were trained on at most this many word pieces, the two markers included.
MAX_PIECES = 256
START_PIECE, END_PIECE = "[CLS]", "[SEP]"


class _LocalEmbedder(BatchEmbedder):
    """A model in this process: what it gives is checked in one place."""

    def _embed_batch(self, texts: Sequence[str]) -> Vectors:
        return checked(self._run(texts), len(texts), self._dimension, self.name)

    @abstractmethod
    def _run(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Whatever the model makes of the texts."""


class FastembedEmbedder(_LocalEmbedder):
    """Runs a fastembed model in this process."""

    def __init__(self, spec: EmbedderSpec) -> None:
        super().__init__(_with_model(spec), identity("fastembed", spec))
        module = _imported("fastembed", "fastembed")
        try:
            self._model: Any = module.TextEmbedding(model_name=spec.model)
        except (OSError, ValueError, RuntimeError) as error:
            _cannot_open("fastembed", spec.model, error)

    def _run(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack(list(self._model.embed(list(texts))))


class SentenceTransformersEmbedder(_LocalEmbedder):
    """Runs a sentence-transformers model in this process."""

    def __init__(self, spec: EmbedderSpec) -> None:
        super().__init__(_with_model(spec), identity("sentence-transformers", spec))
        module = _imported("sentence_transformers", "sentence-transformers")
        try:
            self._model: Any = module.SentenceTransformer(spec.model)
        except (OSError, ValueError, RuntimeError) as error:
            _cannot_open("sentence-transformers", spec.model, error)

    def _run(self, texts: Sequence[str]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._model.encode(
            list(texts), convert_to_numpy=True, show_progress_bar=False
        )
        return found


class OnnxEmbedder(_LocalEmbedder):
    """Runs a BERT-like ONNX file; `model` is the file, with vocab.txt in the same folder."""

    def __init__(self, spec: EmbedderSpec) -> None:
        file = Path(_with_model(spec).model)
        runtime = _imported("onnxruntime", "onnx")
        super().__init__(spec, identity("onnx", replace(spec, model=_fingerprint(file))))
        self._pieces, (self._start_id, self._end_id) = _vocabulary(file)
        options = runtime.SessionOptions()
        # One thread: the hosts of an agent are busy, and two threads on a busy machine are slower.
        options.intra_op_num_threads = 1
        self._failures: tuple[type[Exception], ...] = (
            OSError,
            ValueError,
            RuntimeError,
            *_own_errors(runtime),
        )
        try:
            self._session: Any = runtime.InferenceSession(
                str(file), options, providers=["CPUExecutionProvider"]
            )
        except self._failures as error:
            _cannot_open("onnx", str(file), error)
        self._inputs = {item.name for item in self._session.get_inputs()}

    def _run(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [
            [self._start_id, *self._pieces.encode(text)[: MAX_PIECES - 2], self._end_id]
            for text in texts
        ]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row
            mask[at, : len(row)] = 1
        known: dict[str, NDArray[np.generic]] = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
        }
        unknown = self._inputs - known.keys()
        if unknown:
            raise PortError(
                f"the ONNX model asks for unknown inputs: {', '.join(sorted(unknown))}",
                hint="use a BERT-like export with input_ids and attention_mask",
            )
        given = {name: known[name] for name in self._inputs}
        try:
            out: NDArray[np.float32] = self._session.run(None, given)[0]
        except self._failures as error:
            raise PortError(f"the ONNX model failed: {error}") from error
        if out.ndim != 3:
            return out
        # The mean over each text's own pieces; padding does not count.
        weights = mask[:, :, None].astype(np.float32)
        mean: NDArray[np.float32] = (out * weights).sum(axis=1) / weights.sum(axis=1)
        return mean


def _fingerprint(file: Path) -> str:
    """Return a file's name with a digest of its bytes: half the world's models are model.onnx."""
    try:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        _cannot_open("onnx", str(file), error)
    return f"{file.stem}-{digest[:8]}"


def _own_errors(runtime: Any) -> tuple[type[Exception], ...]:
    """Return onnxruntime's errors, which have no base class but Exception in common."""
    state = vars(runtime.capi.onnxruntime_pybind11_state).values()
    return tuple(item for item in state if isinstance(item, type) and issubclass(item, Exception))


def _vocabulary(file: Path) -> tuple[WordPiece, tuple[int, int]]:
    place = file.parent / VOCABULARY_FILE
    try:
        words = place.read_text(encoding="utf-8").rstrip("\n").split("\n")
        return WordPiece(words), (words.index(START_PIECE), words.index(END_PIECE))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"the ONNX embedder needs a BERT vocabulary at {place}: {error}",
            hint="put the model's vocab.txt beside the .onnx file",
        ) from error


def _with_model(spec: EmbedderSpec) -> EmbedderSpec:
    if not spec.model:
        raise InputError(f"the {spec.kind} embedder has no model", hint="set the embedder's model")
    return spec


def _imported(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"the {extra} embedder is not installed", hint=f"pip install 'meritory[{extra}]'"
        ) from error


def _cannot_open(kind: str, model: str, error: Exception) -> NoReturn:
    raise PortError(
        f"{kind} cannot open the model {model}: {error}",
        hint="is the name right, and is the model on this machine or downloadable?",
    ) from error
