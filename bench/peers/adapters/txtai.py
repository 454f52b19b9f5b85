"""txtai: a hybrid index (vectors and BM25) with content: `index`, `upsert`, `search`."""

import os

import numpy as np
from txtai import Embeddings

PACKAGES = ("txtai", "torch")


class Adapter:
    def __init__(self, folder, vector):
        self.folder, self.count, self.started = folder, 0, False

        def transform(texts):
            return np.array([vector(text) for text in texts], np.float32)

        self.index = Embeddings(method="external", transform=transform, hybrid=True, content=True)

    def store(self, items):
        ids = [f"m{self.count + at}" for at in range(len(items))]
        self.count += len(items)
        rows = [(one, item["text"], None) for one, item in zip(ids, items, strict=True)]
        # The first call builds the index, every later one changes it.
        (self.index.upsert if self.started else self.index.index)(rows)
        self.started = True
        return ids

    def search(self, text, limit, at):
        return [row["id"] for row in self.index.search(text, limit)]

    def close(self):
        os.makedirs(self.folder, exist_ok=True)
        self.index.config.pop("transform", None)
        self.index.save(os.path.join(self.folder, "index"))
        self.index.close()
