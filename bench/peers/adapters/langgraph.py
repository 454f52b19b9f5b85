"""LangGraph: InMemoryStore with an index over the field `text`, `put` and `search`."""

from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

PACKAGES = ("langgraph", "langgraph-checkpoint")
PLACE = ("memories",)


class Adapter:
    def __init__(self, folder, vector):
        self.count = 0

        def embed(texts):
            return [vector(text) for text in texts]

        self.kept = InMemoryStore(index={"dims": 384, "embed": embed, "fields": ["text"]})

    def store(self, items):
        ids = [f"m{self.count + at}" for at in range(len(items))]
        self.count += len(items)
        rows = [
            PutOp(PLACE, one, {name: item[name] for name in ("text", "session", "turn", "role")})
            for one, item in zip(ids, items, strict=True)
        ]
        self.kept.batch(rows)
        return ids

    def search(self, text, limit, at):
        return [row.key for row in self.kept.search(PLACE, query=text, limit=limit)]

    def close(self):
        """It keeps nothing on disk."""
