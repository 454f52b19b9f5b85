"""Meritory: the library with its default settings and its own bundled embedder."""

from datetime import UTC, datetime
from pathlib import Path

from meritory import Memory
from meritory.settings import load_settings

PACKAGES = ("meritory",)


class Adapter:
    def __init__(self, folder, vector):
        home = Path(folder)
        home.mkdir(parents=True)
        # The defaults, whatever the machine's own configuration says.
        settings = load_settings(home, {})
        self.moment = None
        self.memory = Memory(home / "meritory.db", settings=settings, clock=self.now)

    def now(self):
        return self.moment or datetime.now(UTC)

    def store(self, items):
        # Of many each stays a memory of its own, as in the peers; one alone passes the gate.
        on_similar = {"on_similar": "keep"} if len(items) > 1 else {}
        results = self.memory.remember_many({**self.item(item), **on_similar} for item in items)
        return [None if result.memory is None else result.memory.id for result in results]

    def item(self, item):
        fields = {
            "content": item["text"],
            "provenance": "assistant_derived" if item["derived"] else "user_stated",
            "source": {"session_key": item["session"], "turn": str(item["turn"])},
        }
        if item["at"]:
            fields["created_at"] = datetime.fromisoformat(item["at"])
        return fields

    def search(self, text, limit, at):
        self.moment = datetime.fromisoformat(at) if at else None
        return [hit.id for hit in self.memory.recall(text, limit, min_score=0.0)]

    def close(self):
        self.memory.close()
