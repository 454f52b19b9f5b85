"""Words that contexts share, and memories that helped together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from meritory.rank.usage_history import (
    TOGETHER_SESSIONS,
    WORD_SESSIONS,
    Moment,
    Usage,
    UsedSessions,
    helped_together,
    look_back,
    usage,
)


def told(words: Sequence[Sequence[int]], helped: Sequence[Sequence[int]]) -> UsedSessions:
    """One session a day, with the words of its context and the memories that helped."""
    count = len(words)
    return UsedSessions(
        times_days=np.arange(count, dtype=np.float64),
        contexts=np.zeros((count, 2), np.float32),
        projects=np.zeros(count, np.int64),
        use_session=np.repeat(np.arange(count), [len(one) for one in helped]),
        use_memory=np.array([row for one in helped for row in one], np.int64),
        use_gain=np.ones(sum(map(len, helped))),
        word_session=np.repeat(np.arange(count), [len(one) for one in words]),
        word=np.array([number for one in words for number in one], np.uint16),
    )


def asked(past: UsedSessions, words: Sequence[int], count: int) -> Usage:
    moment = Moment(100.0, np.zeros(2, np.float32), words=np.array(words, np.uint16))
    return usage(look_back(past, moment), np.arange(count, dtype=np.int64))


def test_the_same_words_are_a_whole_overlap_and_none_is_none() -> None:
    past = told([[1, 2, 3], [7, 8, 9]], [[0], [1]])
    found = asked(past, [1, 2, 3], 3)
    assert found.word_overlap == pytest.approx([1.0, 0.0, 0.0])
    assert found.word_association == pytest.approx([1.0, 0.0, 0.0])


def test_a_rare_word_in_common_says_more_than_a_common_one() -> None:
    # Every context has word 1, one has word 5.
    past = told([[1, 2], [1, 5], [1, 3], [1, 4]], [[0], [1], [2], [3]])
    found = asked(past, [1, 5], 4)
    assert found.word_overlap[1] == pytest.approx(1.0)
    assert found.word_overlap[0] < 0.5
    rarity = {1: math.log1p(5 / 5) ** 2, 2: math.log1p(5 / 2) ** 2, 5: math.log1p(5 / 2) ** 2}
    expected = rarity[1] / math.sqrt((rarity[1] + rarity[2]) * (rarity[1] + rarity[5]))
    assert found.word_overlap[0] == pytest.approx(expected)


def test_the_nearest_of_its_contexts_speaks_for_a_memory() -> None:
    past = told([[1, 2], [8, 9]], [[0], [0]])
    assert asked(past, [1, 2], 1).word_overlap == pytest.approx([1.0])


def test_without_words_nothing_is_in_common() -> None:
    past = told([[], [4]], [[0], [1]])
    assert not asked(past, [], 2).word_overlap.any()
    assert not asked(told([[], []], [[0], [1]]), [3], 2).word_association.any()


def test_words_of_long_ago_are_not_looked_at() -> None:
    past = told([[1], *([9] for _ in range(WORD_SESSIONS))], [[0], *([] for _ in range(1000))])
    assert asked(past, [1], 1).word_overlap[0] == 0.0
    younger = told(
        [[1], *([9] for _ in range(WORD_SESSIONS - 1))], [[0], *([] for _ in range(999))]
    )
    assert asked(younger, [1], 1).word_overlap[0] > 0.0


def test_what_helped_in_one_session_has_helped_together() -> None:
    past = told([[]] * 3, [[0, 1], [2], [1, 2]])
    seen = look_back(past, Moment(100.0, np.zeros(2, np.float32)))
    found = helped_together(seen, np.arange(4, dtype=np.int64))
    pairs = {(0, 1), (1, 2)}
    for left in range(4):
        for right in range(left + 1, 4):
            assert found[left, right] == found[right, left] == ((left, right) in pairs)


def test_what_helped_together_long_ago_is_forgotten() -> None:
    past = told([[]] * (TOGETHER_SESSIONS + 1), [[0, 1], *([] for _ in range(TOGETHER_SESSIONS))])
    seen = look_back(past, Moment(1e4, np.zeros(2, np.float32)))
    assert not helped_together(seen, np.arange(2, dtype=np.int64)).any()
