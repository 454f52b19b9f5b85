"""The table of word pieces: which pieces count, and how close they are."""

from __future__ import annotations

import numpy as np
import pytest

from meritory.ports.token_table import token_table


def test_pieces_are_distinct_ascending_and_without_marks() -> None:
    table = token_table()
    found = table.pieces("Deploy, deploy: the server!")
    assert found.tolist() == sorted(set(found.tolist()))
    assert found.tolist() == table.pieces("the server deploy").tolist()
    assert not len(table.pieces("... !!! ([])"))


def test_words_of_like_meaning_are_closer_than_others() -> None:
    table = token_table()
    (car,), (vehicle,), (soup,) = (table.pieces(word) for word in ("car", "vehicle", "soup"))
    near, far = table.cosines(np.array([car]), np.array([vehicle, soup]))[0].tolist()
    assert near > far + 0.2
    assert table.cosines(np.array([car]), np.array([car]))[0, 0] == pytest.approx(1.0, abs=1e-5)


def test_a_word_means_more_than_a_function_word() -> None:
    table = token_table()
    words = np.concatenate([table.pieces("the"), table.pieces("kubernetes")])
    weights = table.weights(words)
    assert weights[1:].sum() > weights[0]
