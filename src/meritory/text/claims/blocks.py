"""Compares two Chinese claims by the blocks of characters that they share, in another order."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from meritory.text.claims.reading import Claim
from meritory.text.language import read_language

MAX_BLOCKS: Final = 5
MAX_KEYS: Final = 60
MAX_TIME_KEYS: Final = 4
MAX_LOOSE: Final = 3
MIN_MOVED: Final = 2
# Who acts, what is done, and what it is done to.
MAX_PARTS: Final = 3
_PERSONS: Final = frozenset({"user", "we"})
_OWNERS: Final = {"user's": "user", "we's": "we"}


@dataclass(frozen=True, slots=True)
class _BlockText:
    """The keys of a claim without its particles, and what these said."""

    keys: tuple[str, ...]
    # Indexes of the keys that follow a word for the one who acts, or for a place or a means.
    agents: frozenset[int]
    placed: frozenset[int]
    has_duty: bool
    is_order: bool
    is_wish: bool


@cache
def _words() -> dict[str, frozenset[str]]:
    table = read_language("zh/claims")["blocks"]
    return {name: frozenset(text.split()) for name, text in table.items()}


def same_blocks(old: Claim, new: Claim) -> bool:
    """Return whether two Chinese claims have the same blocks in the same roles."""
    if old.language != "zh" or max(len(old.keys), len(new.keys)) > MAX_KEYS:
        return False
    one, other = _text(old), _text(new)
    if one.has_duty != other.has_duty:
        bound, free = (one, other) if one.has_duty else (other, one)
        if _with_duty(free) == bound.keys:
            return True
        # An order asks for the same as "must"; "Lin checks" does not.
        if not free.is_order and not _is_rotated(free.keys, bound.keys):
            return False
    if Counter(one.keys) != Counter(other.keys):
        one, other = _without_loose(one, other), _without_loose(other, one)
        if Counter(one.keys) != Counter(other.keys):
            return False
    if one.is_wish != other.is_wish and not (one.is_order or other.is_order):
        return False
    order = _order(one.keys, other.keys)
    return order is not None and _is_justified(one, other, order)


def _with_duty(text: _BlockText) -> tuple[str, ...]:
    """Return the keys without the word that may mean "must"."""
    return tuple(key for key in text.keys if key not in _words()["wants"])


def _is_rotated(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether one text has the object after the verb, and the other before it."""
    return any((*one[size:], *one[:size]) == tuple(other) for size in range(1, len(one)))


def _text(claim: Claim) -> _BlockText:
    words = _words()
    keys: list[str] = []
    agents: set[int] = set()
    placed: set[int] = set()
    typed = list(claim.words)
    has_duty = False
    is_emphasised = bool(typed) and typed[-1] in words["particles"] and "是" in typed[1:]
    place = 0
    for unit in claim.units:
        key = _OWNERS.get(unit.key, unit.key)
        if key in words["him"] and keys[:1] == ["user"]:
            key = "user"
        before = _typed_before(typed, place, unit.key)
        place = before[1]
        if key in words["agent"]:
            agents.add(len(keys))
            continue
        if key in words["duty"]:
            has_duty = True
            continue
        if key == "是" and is_emphasised:
            is_emphasised = False
            continue
        if key in words["coverbs"] or set(before[0]) & words["coverbs"]:
            placed.add(len(keys))
        keys.append(key)
    joined = "".join(typed)
    is_wish = keys[:1] == ["user"] and "".join(keys[1:4]).startswith(tuple(words["wishes"]))
    if is_wish:
        wish = next(one for one in words["wishes"] if "".join(keys[1:4]).startswith(one))
        keys = keys[1 + len(wish) :]
        agents = {index - 1 - len(wish) for index in agents}
        placed = {index - 1 - len(wish) for index in placed}
    is_order = is_wish or any(one in joined[:8] for one in words["orders"])
    is_order = is_order or (bool(typed) and typed[0] in words["coverbs"])
    return _BlockText(
        tuple(keys), frozenset(agents), frozenset(placed), has_duty, is_order, is_wish
    )


def _typed_before(typed: Sequence[str], start: int, key: str) -> tuple[Sequence[str], int]:
    """Return the silent words between a place and a key, and the place after the key."""
    for index in range(start, len(typed)):
        if typed[index] == key:
            return typed[start:index], index + 1
    return (), start


def _without_loose(one: _BlockText, other: _BlockText) -> _BlockText:
    """Return a text without the light words that the other lacks."""
    surplus = Counter(one.keys) - Counter(other.keys)
    loose = _words()["loose"]
    if other.is_wish:
        loose |= _PERSONS
    elif one.has_duty and other.has_duty:
        # "We must pay the rent", "the rent must be paid".
        loose |= {"we"}
    if not surplus or set(surplus) - loose or sum(surplus.values()) > MAX_LOOSE:
        return one
    kept: list[int] = []
    for index, key in enumerate(one.keys):
        if surplus[key]:
            surplus[key] -= 1
        else:
            kept.append(index)

    def shifted(indexes: frozenset[int]) -> frozenset[int]:
        # What a dropped word marked is the word after it.
        return frozenset(bisect_left(kept, index) for index in indexes)

    return _BlockText(
        tuple(one.keys[index] for index in kept),
        shifted(one.agents),
        shifted(one.placed),
        one.has_duty,
        one.is_order,
        one.is_wish,
    )


Block = tuple[int, int, int]


def _order(one: Sequence[str], other: Sequence[str]) -> list[Block] | None:
    """Return the shared blocks (start in each, length) by their start in the first, or None."""
    left, right = [True] * len(one), [True] * len(other)
    blocks: list[Block] = []
    while any(left):
        if len(blocks) == MAX_BLOCKS:
            return None
        start, place, size = _longest(one, other, left, right)
        if not size:
            return None
        blocks.append((start, place, size))
        left[start : start + size] = [False] * size
        right[place : place + size] = [False] * size
    return sorted(blocks)


def _longest(
    one: Sequence[str], other: Sequence[str], left: list[bool], right: list[bool]
) -> Block:
    best: Block = (0, 0, 0)
    ends: dict[int, int] = {}
    for i, key in enumerate(one):
        following: dict[int, int] = {}
        for j, partner in enumerate(other):
            if key == partner and left[i] and right[j]:
                size = ends.get(j - 1, 0) + 1
                following[j] = size
                if size > best[2]:
                    best = (i - size + 1, j - size + 1, size)
        ends = following
    return best


def _is_justified(one: _BlockText, other: _BlockText, blocks: list[Block]) -> bool:
    """Return whether each change of order leaves the roles as they are."""
    if len(blocks) == 2 and "是" not in one.keys and min(b[2] for b in blocks) >= MIN_MOVED:
        # "Lin keeps the keys", "the keys Lin keeps": only one part changes its place.
        return True
    return _is_voice(one, other, blocks) or all(
        _may_swap(one, other, first, second) for first, second in _swapped(blocks)
    )


def _is_voice(one: _BlockText, other: _BlockText, blocks: list[Block]) -> bool:
    """Return whether one text names the one who acts after "by", and what it is done to before."""
    if bool(one.agents) == bool(other.agents):
        return False
    side = int(bool(other.agents))
    passive = other if side else one
    agent = next((block for block in blocks if block[side] in passive.agents), None)
    if agent is None:
        return False
    things = [
        block
        for block in blocks
        if block[side] < agent[side] and not _is_adverbial(passive, block[side], block[2])
    ]
    parts = [block for block in blocks if not _is_adverbial(passive, block[side], block[2])]
    is_turned = all(block[1 - side] > agent[1 - side] for block in things)
    return bool(things) and is_turned and len(parts) <= MAX_PARTS


def _swapped(blocks: list[Block]) -> Iterator[tuple[Block, Block]]:
    for index, first in enumerate(blocks):
        for second in blocks[index + 1 :]:
            if first[1] > second[1]:
                yield first, second


def _may_swap(one: _BlockText, other: _BlockText, first: Block, second: Block) -> bool:
    """Return whether two blocks, the first of them earlier in the first text, may change places."""
    if any(_is_adverbial(one, block[0], block[2]) for block in (first, second)):
        return True
    if any(_is_adverbial(other, block[1], block[2]) for block in (first, second)):
        return True
    # A negation denies the verb, wherever it stands.
    if any(one.keys[block[0]] == "not" and block[2] == 1 for block in (first, second)):
        return True
    # A person without a word before it is the subject wherever it stands.
    if any(one.keys[block[0]] in _PERSONS for block in (first, second)):
        return True
    if one.agents and other.agents:
        return False
    return second[0] in one.agents or first[1] in other.agents


def _is_adverbial(text: _BlockText, start: int, size: int) -> bool:
    """Return whether a block says when, where or with what."""
    words = _words()
    if start in text.placed:
        return True
    head = text.keys[start : start + min(size, MAX_TIME_KEYS)]
    if "".join(head[:2]) in words["times"] or text.keys[start + size - 1] in words["after"]:
        return True
    if head[0].isdigit():
        return bool(words["dated"] & set(head[1:]))
    # "Zhou" is a name, too.
    is_day = len(head) > 1 and (head[1] in words["days"] or head[1].isdigit())
    return head[0] in words["each"] or (head[0] in words["weeks"] and is_day)
