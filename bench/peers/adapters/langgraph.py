"""LangGraph: InMemoryStore with an index over the field `text`, `put` and `search`."""

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
        # One by one: a batch with the same text twice fails in this version.
        for one, item in zip(ids, items, strict=True):
            value = {name: item[name] for name in ("text", "session", "turn", "role")}
            self.kept.put(PLACE, one, value)
        return ids

    def search(self, text, limit, at):
        return [row.key for row in self.kept.search(PLACE, query=text, limit=limit)]

    def close(self):
        """It keeps nothing on disk."""
