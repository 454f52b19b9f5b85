"""LanceDB: one table with vectors and a full-text index, hybrid search with its default RRF."""

import lancedb

PACKAGES = ("lancedb",)


class Adapter:
    def __init__(self, folder, vector):
        self.vector, self.count, self.table = vector, 0, None
        self.db = lancedb.connect(folder)

    def store(self, items):
        rows = []
        for item in items:
            about = {name: item[name] for name in ("session", "turn", "role", "text")}
            rows.append({"id": f"m{self.count}", "vector": self.vector(item["text"]), **about})
            self.count += 1
        if self.table is None:
            self.table = self.db.create_table("memories", rows)
            self.table.create_fts_index("text")
        else:
            self.table.add(rows)
            # Searches also read what is not indexed yet; after many rows the index is renewed.
            if len(rows) > 1:
                self.table.optimize()
        return [row["id"] for row in rows]

    def search(self, text, limit, at):
        query = self.table.search(query_type="hybrid").vector(self.vector(text)).text(text)
        return [row["id"] for row in query.limit(limit).to_list()]

    def close(self):
        self.table = self.db = None
