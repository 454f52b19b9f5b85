"""mcp-memory-service: its SQLite storage with `store_batch`, `store` and `retrieve`.

The variant `hybrid` uses `retrieve_hybrid`, its search by keywords and vectors. The storage gets
an encoder that returns the vectors handed in, in place of its ONNX model.
"""

import asyncio

import numpy as np
from mcp_memory_service.models.memory import Memory
from mcp_memory_service.storage.sqlite_vec import SqliteVecMemoryStorage
from mcp_memory_service.utils.hashing import generate_content_hash

PACKAGES = ("mcp-memory-service", "sqlite-vec")
VARIANT = ""


class Given:
    embedding_dimension = 384

    def __init__(self, vector):
        self.vector = vector

    def encode(self, texts, convert_to_numpy=True):
        return np.array([self.vector(text) for text in texts], np.float32)


class Storage(SqliteVecMemoryStorage):
    async def _initialize_embedding_model(self):
        self.embedding_model = self.given


class Adapter:
    def __init__(self, folder, vector):
        self.loop = asyncio.new_event_loop()
        self.storage = Storage(f"{folder}.db")
        self.storage.given = Given(vector)
        self.loop.run_until_complete(self.storage.initialize())

    def store(self, items):
        rows = []
        for item in items:
            about = {name: item[name] for name in ("session", "turn", "role")}
            key = generate_content_hash(item["text"])
            rows.append(Memory(content=item["text"], content_hash=key, metadata=about))
        if len(rows) == 1:
            stored, reason = self.loop.run_until_complete(self.storage.store(rows[0]))
            results = [(stored, reason)]
        else:
            results = self.loop.run_until_complete(self.storage.store_batch(rows))
        # An exact duplicate is refused: the memory that is there stands for it.
        return [
            row.content_hash if stored or "duplicate" in reason.lower() else None
            for row, (stored, reason) in zip(rows, results, strict=True)
        ]

    def search(self, text, limit, at):
        storage = self.storage
        search = storage.retrieve_hybrid if VARIANT == "hybrid" else storage.retrieve
        found = self.loop.run_until_complete(search(text, n_results=limit))
        return [row.memory.content_hash for row in found]

    def close(self):
        closing = self.storage.close()
        if asyncio.iscoroutine(closing):
            self.loop.run_until_complete(closing)
        self.loop.close()
