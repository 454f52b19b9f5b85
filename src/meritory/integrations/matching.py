"""Which items a search means: by namespace, and by what their values hold."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meritory.errors import InputError

ANY = "*"
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def is_within(namespace: Sequence[str], path: Sequence[str]) -> bool:
    """Whether a namespace begins as a path says; a star stands for any label."""
    pairs = zip(namespace, path, strict=False)
    return len(namespace) >= len(path) and all(want in (ANY, has) for has, want in pairs)


def does_match(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether a value holds all that is wanted."""
    return all(_holds(value.get(name), what) for name, what in (wanted or {}).items())


def _holds(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, name, limit) for name, limit in wanted.items())
        return isinstance(value, Mapping) and does_match(value, wanted)
    if isinstance(wanted, list | tuple):
        is_list = isinstance(value, list | tuple) and len(value) == len(wanted)
        return is_list and all(map(_holds, value, wanted))
    return bool(value == wanted)


def _compares(value: Any, name: str, limit: Any) -> bool:
    if name == "$eq":
        return bool(value == limit)
    if name == "$ne":
        return bool(value != limit)
    if name not in _COMPARISONS:
        raise InputError(
            f"a filter knows no {str(name)[:40]!r}",
            hint=f"known: $eq, $ne, {', '.join(_COMPARISONS)}",
        )
    try:
        return _COMPARISONS[name](float(value), float(limit))
    except (TypeError, ValueError):
        # What is no number is neither more nor less than one.
        return False
