"""LanceDB: one table with vectors and a full-text index, hybrid search with its default RRF."""

import lancedb

PACKAGES = ("lancedb",)
# After so many changes its guide says to call `optimize`; searches also read what is not indexed.
CHANGES = 20


class Adapter:
    def __init__(self, folder, vector):
        self.vector, self.count, self.table, self.changes = vector, 0, None, 0
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
            self.changes += 1
            if self.changes % CHANGES == 0:
                self.table.optimize()
        return [row["id"] for row in rows]

    def search(self, text, limit, at):
        query = self.table.search(query_type="hybrid").vector(self.vector(text)).text(text)
        return [row["id"] for row in query.limit(limit).to_list()]

    def close(self):
        self.table = self.db = None
