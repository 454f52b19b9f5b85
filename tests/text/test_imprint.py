"""Words as numbers: the same everywhere, told apart by their beginnings, bounded."""

from __future__ import annotations

import numpy as np

from meritory.text.tokens import MAX_WORDS, imprint


def test_numbers_do_not_depend_on_order_process_or_machine() -> None:
    # The last 16 bits of the crc32 of "deploy".
    assert imprint(["deploy", "staging"]).tolist() == imprint(["staging", "deploy"]).tolist()
    assert imprint(["deploy"]).tolist() == [14586]
    assert imprint([]).dtype == np.uint16


def test_words_with_the_same_beginning_are_one() -> None:
    assert imprint(["migrate", "migration", "migrated"]).size == 1
    assert imprint(["port", "ports"]).size == 2


def test_only_so_many_words_are_kept() -> None:
    assert imprint(f"{number:06d}" for number in range(1000)).size <= MAX_WORDS
