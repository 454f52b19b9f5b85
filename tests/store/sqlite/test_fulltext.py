"""The full-text index says what a plain model says, whatever happened to the memories."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from pathlib import Path

import pytest

from contract.builders import (
    NOW,
    change,
    found,
    indexed,
    insert,
    memory_id,
    record,
    update,
    words_search,
)
from meritory.domain.memory import MemoryRecord, Scope
from meritory.store.contract.memories import Search
from meritory.store.contract.store import Transaction
from meritory.store.sqlite.fulltext import Stemmer
from meritory.store.sqlite.store import SqliteStore

DEFAULT = Scope()
WORDS = ("harbour", "kettle", "bicycle", "lantern", "walnut", "granite", "velvet", "thunder")


class Planted(RuntimeError):
    """A failure in the middle of a transaction."""


class Model:
    """Memories in a dictionary, and random things that happen to them and to the store alike."""

    def __init__(self, store: SqliteStore, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self.memories: dict[int, MemoryRecord] = {}

    def text(self) -> str:
        return " ".join(self.chance.choices(WORDS, k=self.chance.randint(1, 4)))

    def pick(self) -> MemoryRecord | None:
        return self.chance.choice(list(self.memories.values())) if self.memories else None

    def add(self) -> None:
        number = len(self.memories) + self.chance.randrange(1_000) * 1_000
        if number not in self.memories:
            self.memories[number] = record(number, self.text())
            insert(self.store, self.memories[number])

    def alter(self, **fields: object) -> None:
        if memory := self.pick():
            changed = replace(memory, **fields)  # type: ignore[arg-type]
            update(self.store, memory, changed)
            self.memories[int(memory.id)] = changed

    def rewrite(self) -> None:
        self.alter(content=self.text())

    def forget(self) -> None:
        self.alter(deleted_at=NOW)

    def supersede(self) -> None:
        self.alter(superseded_by=memory_id(1))

    def restore(self) -> None:
        self.alter(deleted_at=None, superseded_by=None, content=self.text())

    def touch(self) -> None:
        self.alter(importance=self.chance.random())

    def purge(self) -> None:
        if memory := self.pick():
            self.store.write("default", lambda t: t.purge("default", memory.id))
            del self.memories[int(memory.id)]

    def fail(self) -> None:
        memory = self.pick()

        def work(transaction: Transaction) -> None:
            transaction.insert(indexed(record(10**7, self.text())), change())
            if memory:
                changed = replace(memory, content=self.text(), deleted_at=NOW)
                transaction.update(indexed(changed), change("update", before=memory))
                transaction.purge("default", memory.id)
            raise Planted

        with pytest.raises(Planted):
            self.store.write("default", work)

    def step(self) -> None:
        self.chance.choice(
            [self.add] * 4
            + [self.rewrite] * 2
            + [self.forget, self.supersede, self.restore, self.restore, self.touch]
            + [self.purge, self.fail]
        )()

    def agrees(self) -> None:
        for word in WORDS:
            expected = sorted(
                m.id for m in self.memories.values() if m.is_live and word in m.content.split()
            )
            assert found(self.store, words_search(DEFAULT, word)) == expected, word


@pytest.mark.parametrize("seed", range(4))
def test_words_lead_to_exactly_the_memories_that_hold_them(tmp_path: Path, seed: int) -> None:
    store = SqliteStore(tmp_path / "meritory.db")
    model = Model(store, seed)
    for step in range(100):
        model.step()
        if step % 10 == 9:
            model.agrees()
    with store._engine.read() as connection:
        words = dict(connection.execute("SELECT term, doc FROM memories_vocabulary").fetchall())
    store.close()
    model.store = again = SqliteStore(tmp_path / "meritory.db")
    model.agrees()
    assert list(again.walk("default")) != []
    assert again.check(deep=True) == []
    # No word of a memory that is gone is left in the index.
    live = {word for m in model.memories.values() if m.is_live for word in m.content.split()}
    assert len(words) == len(live)
    again._engine.write(
        lambda c: c.execute("INSERT INTO memories_fts (memories_fts) VALUES ('integrity-check')")
    )
    again.close()


def test_tidying_makes_one_piece_of_the_index_and_changes_no_answer(store: SqliteStore) -> None:
    for n in range(12):
        insert(store, record(n, f"the heron number {n} stands in the reeds"))

    def pieces() -> int:
        with store._engine.read() as connection:
            found = connection.execute("SELECT count(DISTINCT segid) FROM memories_fts_idx")
            return int(found.fetchone()[0])

    asked = Search(Scope(), ("heron", "reeds"))
    before = store.search(asked)
    assert pieces() > 1
    store.tidy(lambda: True)
    assert pieces() > 1
    store.tidy(lambda: False)
    assert pieces() == 1
    after = store.search(asked)
    assert after.rows.tolist() == before.rows.tolist()
    assert after.text.tolist() == before.text.tolist()


def test_a_phrase_has_the_tokens_that_its_words_have() -> None:
    phrases = (
        "running shoes",
        "don't stop",
        "foo_bar naïve",
        "東京 trip",
        "the",
        "",
        "a  b",
        "!? x",
    )
    with contextlib.closing(Stemmer()) as stemmer:
        known = stemmer.tokens_of(phrases)
        # What the tokenizer says of each phrase as a whole.
        assert known == stemmer._tokenize(phrases)
        assert known["running shoes"] == ("run", "shoe")
