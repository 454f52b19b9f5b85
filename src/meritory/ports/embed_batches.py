"""What embedders that run a model have in common: prefixes, batches, a dimension learned once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from meritory.ports.embedder import EmbedderSpec, Vectors, embed_in_batches

MAX_BATCH = 64


class BatchEmbedder(ABC):
    """Texts go to the model with their prefix, at most `max_batch` at a time."""

    max_batch = MAX_BATCH

    def __init__(self, spec: EmbedderSpec, name: str) -> None:
        self._spec = spec
        self._dimension = spec.dimension
        self.name = name

    @property
    def dimension(self) -> int:
        """The length of the vectors; runs the model once when it was not given."""
        if self._dimension is None:
            return int(self.embed_documents(["dimension"]).shape[1])
        return self._dimension

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text."""
        prefix = self._spec.document_prefix
        return self._embed([prefix + text for text in texts])

    def embed_query(self, text: str) -> Vectors:
        """The unit vector of a question."""
        row: Vectors = self._embed([self._spec.query_prefix + text])[0]
        return row

    def _embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        rows = embed_in_batches(texts, self.max_batch, self._embed_batch)
        self._dimension = rows.shape[1]
        return rows

    @abstractmethod
    def _embed_batch(self, texts: Sequence[str]) -> Vectors:
        """The checked rows of one batch."""
