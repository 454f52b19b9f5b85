"""Candidates: the union of what several searches found, cut to a pool with fair shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

CANDIDATE_POOL_SIZE = 150
REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Pool:
    """The rows of the candidates, ascending, and which searches found each."""

    rows: tuple[int, ...]
    origins: tuple[frozenset[str], ...]


def pool(
    sources: Mapping[str, Sequence[int]],
    required: Iterable[int] = (),
    size: int = CANDIDATE_POOL_SIZE,
) -> Pool:
    """Unite the sources, each best first, into at most `size` rows with the required ones on top.

    Over that size all sources are cut at the same depth, so that none crowds out another; in the
    last round, which has no room for all, the sources named first go first.
    """
    if size < 0:
        raise ValueError(f"a pool cannot hold {size} candidates")
    if REQUIRED in sources:
        raise ValueError(f"no source may be called {REQUIRED!r}")
    always = {int(row) for row in required}
    found = (row for row in _by_depth(sources.values()) if row not in always)
    kept = always.union(islice(dict.fromkeys(found), size))
    origins: dict[int, set[str]] = {row: set() for row in sorted(kept)}
    for name, rows in (*sources.items(), (REQUIRED, always)):
        for row in rows:
            if row in origins:
                origins[row].add(name)
    return Pool(tuple(origins), tuple(frozenset(names) for names in origins.values()))


def _by_depth(sources: Iterable[Sequence[int]]) -> Iterator[int]:
    unlike = (dict.fromkeys(int(row) for row in rows) for rows in sources)
    for level in zip_longest(*unlike):
        yield from (row for row in level if row is not None)
