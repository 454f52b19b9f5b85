"""Two sides compared row by row: every row of both is looked at, and what differs is named."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from meritory.store.moving.tables import Part, Row

# So many are named, all are counted.
NAMED_LIMIT = 20
_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not the same on both sides; its key is the target's."""

    user: str
    table: str
    key: dict[str, Any]
    # "missing" or "extra" in the target, or the columns that are not the same.
    what: str


@dataclass(slots=True)
class Comparison:
    """What came of comparing one part."""

    row_count: int = 0
    difference_count: int = 0
    differences: list[Difference] = field(default_factory=list)
    # Over all rows of the target in their order.
    digest: str = ""


def compare(part: Part, user: str, expected: Iterable[Row], found: Iterable[Row]) -> Comparison:
    """Walks both sides at once; both come in the order of their keys."""
    result, whole = Comparison(), hashlib.blake2b(digest_size=16)
    names = [column.name for column in part.table.columns]
    places = [names.index(name) for name in part.table.key]

    def note(row: Row, what: str) -> None:
        result.difference_count += 1
        if len(result.differences) < NAMED_LIMIT:
            key = {names[at]: row[at] for at in places}
            result.differences.append(Difference(user, part.table.name, key, what))

    def key_of(row: Row) -> _Key:
        return tuple([row[at] for at in places])

    for wanted, there in _side_by_side(expected, found, key_of):
        result.row_count += wanted is not None
        if there is not None:
            whole.update(repr(there).encode("utf-8", "surrogatepass"))
        if wanted == there:
            continue
        if wanted is None or there is None:
            note(wanted or there or (), "missing" if there is None else "extra")
        else:
            pairs = zip(names, wanted, there, strict=True)
            note(there, ", ".join(name for name, one, other in pairs if one != other))
    result.digest = whole.hexdigest()
    return result


def _side_by_side(
    left: Iterable[Row], right: Iterable[Row], key_of: Callable[[Row], _Key]
) -> Iterator[tuple[Row | None, Row | None]]:
    """Rows of the same key together, None where one side has none."""
    ones, others = iter(left), iter(right)
    one, other = next(ones, None), next(others, None)
    while one is not None or other is not None:
        # Most rows are the same, and then so are their keys.
        if one == other or (one and other and key_of(one) == key_of(other)):
            yield one, other
            one, other = next(ones, None), next(others, None)
        elif other is None or (one is not None and key_of(one) < key_of(other)):
            yield one, None
            one = next(ones, None)
        else:
            yield None, other
            other = next(others, None)
