"""Chroma: PersistentClient, a collection with its defaults, `add` and `query`."""

import chromadb

PACKAGES = ("chromadb",)
# The most rows Chroma takes in one call.
BATCH = 5000


class Adapter:
    def __init__(self, folder, vector):
        self.vector, self.count = vector, 0
        settings = chromadb.Settings(anonymized_telemetry=False)
        self.client = chromadb.PersistentClient(path=folder, settings=settings)
        # The vectors are handed in, so no embedding function is loaded.
        self.collection = self.client.create_collection("memories", embedding_function=None)

    def store(self, items):
        ids = [f"m{self.count + at}" for at in range(len(items))]
        self.count += len(items)
        for start in range(0, len(items), BATCH):
            part = items[start : start + BATCH]
            self.collection.add(
                ids=ids[start : start + BATCH],
                documents=[item["text"] for item in part],
                embeddings=[self.vector(item["text"]) for item in part],
                metadatas=[
                    {name: item[name] for name in ("session", "turn", "role")} for item in part
                ],
            )
        return ids

    def search(self, text, limit, at):
        found = self.collection.query(query_embeddings=[self.vector(text)], n_results=limit)
        return found["ids"][0]

    def close(self):
        self.client.close()
