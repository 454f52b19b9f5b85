"""What extraction refused: kept as it was, latest first, each user's own, restored once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from contract.builders import NOW, insert, record
from contract.shelf import Shelf
from meritory.domain.errors import InputError, NotFound
from meritory.domain.quality import Refusal
from meritory.store.contract.store import Store

REFUSAL = Refusal(
    id="0a1b2c3d4e5f",
    at=NOW,
    user="default",
    agent="coder",
    project="shop",
    session_key="s",
    content="Always show me the diff in this PR",
    kind="constraint",
    provenance="user_stated",
    origin="user",
    confidence=0.95,
    turn="3",
    quote="always show me the diff in this PR.",
    reason="it is about the current task",
    extractor="rules/1",
)
LATER = replace(REFUSAL, id="0a1b99", at=NOW + timedelta(minutes=1), turn=None, session_key=None)


def put(store: Store, *refusals: Refusal) -> None:
    for refusal in refusals:
        store.write(refusal.user, lambda t, one=refusal: t.put_refusals([one]))


class Refusals:
    """What every store does with refusals."""

    def test_a_refusal_comes_back_as_it_was(self, shelf: Shelf) -> None:
        put(shelf.store, REFUSAL, LATER)
        reopened = shelf.reopen()
        assert reopened.refusals("default", 9) == [LATER, REFUSAL]
        assert reopened.refusals("default", 1, 1) == [REFUSAL]
        assert reopened.refusal("default", REFUSAL.id) == REFUSAL

    def test_a_known_one_is_replaced(self, store: Store) -> None:
        put(store, REFUSAL)
        again = replace(REFUSAL, reason="another one")
        put(store, again)
        assert store.refusals("default", 9) == [again]

    def test_a_beginning_names_one_only(self, store: Store) -> None:
        put(store, REFUSAL, LATER)
        assert store.refusal("default", "0a1b2c") == REFUSAL
        with pytest.raises(InputError):
            store.refusal("default", "0a1b")
        for unknown in ("ffff", "0a1c"):
            with pytest.raises(NotFound):
                store.refusal("default", unknown)
        for odd in ("", "0", "*", "0a1b*", "0a1b' OR 1=1", "é" * 8):
            with pytest.raises((InputError, NotFound)):
                store.refusal("default", odd)

    def test_what_was_restored_is_off_the_list_but_known(self, store: Store) -> None:
        put(store, REFUSAL, LATER)
        store.write("default", lambda t: t.mark_restored("default", REFUSAL.id, "m1"))
        assert store.refusals("default", 9) == [LATER]
        assert store.refusal("default", REFUSAL.id).memory_id == "m1"

    def test_nobody_sees_or_restores_another_users(self, store: Store) -> None:
        theirs = replace(REFUSAL, user="eve", agent=None, project=None)
        put(store, REFUSAL, theirs)
        assert store.refusals("eve", 9) == [theirs]
        store.write("eve", lambda t: t.mark_restored("eve", REFUSAL.id, "m1"))
        assert store.refusals("default", 9) == [REFUSAL]
        assert store.refusals("nobody", 9) == []
        with pytest.raises(NotFound):
            store.refusal("nobody", REFUSAL.id)

    def test_a_transaction_sees_its_own_and_leaves_nothing_when_it_fails(
        self, store: Store
    ) -> None:
        def work(transaction: object) -> None:
            transaction.put_refusals([REFUSAL])  # type: ignore[attr-defined]
            assert transaction.refusal("default", REFUSAL.id) == REFUSAL  # type: ignore[attr-defined]
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.write("default", work)
        assert store.refusals("default", 9) == []

    def test_a_purge_takes_the_same_words_along(self, store: Store) -> None:
        told = replace(LATER, id="0a1b77", content="In other words", quote=f"So {REFUSAL.quote}")
        put(store, REFUSAL, told, replace(LATER, content="Something else", quote="Something else."))
        memory = record(1, REFUSAL.content)
        insert(store, memory)
        store.write("default", lambda t: t.purge("default", memory.id))
        assert [one.content for one in store.refusals("default", 9)] == ["Something else"]
