"""mem0 (open source): Memory with local Qdrant, `add(infer=False)` and `search`.

infer=False stores the text as it is; with True a language model would write the memories. The
vectors come in through its LangChain embedder. Nothing asks its language model, so any key will do.
Without downloads its keyword search is off; the variant `keywords` turns it on with the stop words
of the worker in place of the downloaded ones. Its lemmatizer and entity boosts stay off.
"""

import os

from langchain.embeddings.base import Embeddings
from mem0 import Memory

PACKAGES = ("mem0ai", "qdrant-client")
USER = "bench"
VARIANT = ""


class Given(Embeddings):
    def __init__(self, vector):
        self.vector = vector

    def embed_query(self, text):
        return self.vector(text)

    def embed_documents(self, texts):
        return [self.vector(text) for text in texts]


def keyword_encoder(folder):
    from fastembed import SparseTextEmbedding

    from __main__ import STOP

    # The model is stop words alone, so an empty folder and a list of our own are all it needs.
    os.makedirs(folder)
    return SparseTextEmbedding("Qdrant/bm25", specific_model_path=folder, stopwords=set(STOP))


class Adapter:
    def __init__(self, folder, vector):
        self.memory = Memory.from_config(
            {
                "vector_store": {
                    "provider": "qdrant",
                    "config": {"path": folder, "embedding_model_dims": 384, "on_disk": True},
                },
                "embedder": {"provider": "langchain", "config": {"model": Given(vector)}},
                "llm": {"provider": "openai", "config": {"api_key": "unused"}},
                "history_db_path": f"{folder}-history.db",
            }
        )
        if VARIANT == "keywords":
            self.memory.vector_store._bm25_encoder = keyword_encoder(f"{folder}-bm25")

    def store(self, items):
        ids = []
        for item in items:
            about = {name: item[name] for name in ("session", "turn")}
            message = {"role": item["role"], "content": item["text"]}
            found = self.memory.add([message], user_id=USER, metadata=about, infer=False)
            ids += [row["id"] for row in found["results"]] or [None]
        return ids

    def search(self, text, limit, at):
        found = self.memory.search(text, top_k=limit, filters={"user_id": USER})
        return [row["id"] for row in found["results"]]

    def close(self):
        self.memory.vector_store.client.close()
        self.memory.db.close()
