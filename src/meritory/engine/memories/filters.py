"""The filters of a search, checked: which memories it may return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meritory.domain.errors import InputError
from meritory.domain.memory import KINDS, ProjectsScope, RecallFilter, Scope
from meritory.domain.world import parse_moment
from meritory.engine.memories.validate import (
    checked_choice,
    checked_metadata,
    checked_name,
    checked_share,
    checked_tags,
)

PROJECT_LIMIT_COUNT = 64


def make_filter(given: Mapping[str, Any]) -> RecallFilter:
    """Return the filter of these fields: kind, tags, since, until, metadata and min_score."""
    kinds = _names("kind", given.get("kind"))
    since, until = (
        None if given.get(name) is None else parse_moment(given[name], name)
        for name in ("since", "until")
    )
    if since is not None and until is not None and until <= since:
        raise InputError("until must be after since")
    return RecallFilter(
        kinds=tuple(checked_choice("kind", kind, KINDS) for kind in kinds),
        tags=() if given.get("tags") is None else checked_tags(given["tags"]),
        metadata=checked_metadata(given.get("metadata")),
        since=since,
        until=until,
        min_score=checked_score(given.get("min_score")),
    )


def narrowed(scope: Scope, projects: object) -> Scope:
    """Return the scope of a search in these projects; without them the scope stays."""
    if projects is None:
        return scope
    names = _names("projects", projects)
    # An empty name stands for the memories without a project.
    checked = [str(checked_name("projects", name)) if name else "" for name in names]
    return ProjectsScope(scope.user, scope.agent, scope.project, tuple(dict.fromkeys(checked)))


def checked_score(min_score: object) -> float | None:
    """Return the lowest score of a result; None leaves the choice to the search."""
    return None if min_score is None else checked_share("min_score", min_score)


def _names(what: str, value: object) -> tuple[str, ...]:
    """Return a name, or a list of names, as a tuple."""
    names = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, list | tuple | set | frozenset) or len(names) > PROJECT_LIMIT_COUNT:
        raise InputError(f"{what} must be a name or a list of at most {PROJECT_LIMIT_COUNT}")
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"{what} must be text, not {type(name).__name__}")
    return tuple(sorted(names) if isinstance(names, set | frozenset) else names)
