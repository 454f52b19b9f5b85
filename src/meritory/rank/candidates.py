"""Candidates: the union of what several searches found, cut to a pool with fair shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

from meritory.domain.policy import CANDIDATE_POOL_SIZE

REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class PooledCandidates:
    """The rows of the candidates, ascending, and which searches found each."""

    rows: tuple[int, ...]
    origins: tuple[frozenset[str], ...]


def pool(
    sources: Mapping[str, Sequence[int]],
    required: Iterable[int] = (),
    size: int = CANDIDATE_POOL_SIZE,
) -> PooledCandidates:
    """Unite the sources, each best first, into at most `size` rows with the required ones on top.

    Over that size all sources are cut at the same depth, so that none crowds out another; in the
    last round, which has no room for all, the sources named first go first.
    """
    if size < 0:
        raise ValueError(f"a pool cannot hold {size} candidates")
    if REQUIRED in sources:
        raise ValueError(f"no source may be called {REQUIRED!r}")
    always = {int(row) for row in required}
    turns = chain.from_iterable(zip_longest(*map(dict.fromkeys, sources.values())))
    # A source that has no more gives None.
    found = (row for row in dict.fromkeys(turns) if row is not None and row not in always)
    kept = sorted(map(int, always.union(islice(found, size))))
    names_of: dict[int, tuple[str, ...]] = dict.fromkeys(kept, ())
    for name, rows in (*sources.items(), (REQUIRED, always)):
        for row in names_of.keys() & rows:
            names_of[row] += (name,)
    # There are few ways to be found: each is made once.
    sets = {names: frozenset(names) for names in set(names_of.values())}
    return PooledCandidates(tuple(kept), tuple(sets[names] for names in names_of.values()))
