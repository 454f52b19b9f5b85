"""Which memories a query may see: the scopes that are visible to it, and the rows of its filter."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from meritory.domain.memory import EveryScope, ProjectsScope, RecallFilter, Scope, metadata_text
from meritory.store.contract.memories import IntArray
from meritory.store.sql.mapper import SqlConnection, as_json, chosen_filters

LIVE = "m.deleted_at IS NULL AND m.superseded_by IS NULL"
# By field of a filter, for those that are not None.
_LIMITS = {
    "since": "coalesce(m.valid_from, m.created_at) >= :since",
    "until": "coalesce(m.valid_from, m.created_at) < :until",
}
_IS_OF_KIND = "m.kind IN (SELECT value FROM json_each(:kinds))"


def visible_scopes(connection: SqlConnection, scope: Scope) -> list[int]:
    """Return the scopes that a query of `scope` may see.

    Those are the scopes of its project and agent and the ones without; `EveryScope` sees all, and
    `ProjectsScope` only its projects.
    """
    projects = scope.projects if isinstance(scope, ProjectsScope) else None
    rows = connection.execute(
        """SELECT scope FROM scopes WHERE user = ? AND (? = 1
            OR (agent IS NULL OR agent = ?) AND (? = 0 AND (project IS NULL OR project = ?)
                OR ? = 1 AND coalesce(project, '') IN (SELECT value FROM json_each(?))))
            ORDER BY scope""",
        (
            scope.user,
            int(isinstance(scope, EveryScope)),
            scope.agent,
            int(projects is not None),
            scope.project,
            int(projects is not None),
            as_json(projects or ()),
        ),
    )
    return [number for (number,) in rows]


def allowed_rows(connection: SqlConnection, user: str, wanted: RecallFilter) -> IntArray:
    """Return the rows of all live memories of a user that a filter allows."""
    conditions, chosen = chosen_filters(wanted, _LIMITS)
    values: dict[str, Any] = {**chosen, "user": user}
    if wanted.kinds:
        conditions.append(_IS_OF_KIND)
        values["kinds"] = as_json(wanted.kinds)
    # A tag or a field is found in the JSON text: a quote inside a text is escaped there.
    for tag in wanted.tags:
        name = f"text{len(values)}"
        values[name] = json.dumps(tag, ensure_ascii=False)
        conditions.append(f"instr(m.tags, :{name}) > 0")
    for key, value in wanted.metadata.items():
        name = f"text{len(values)}"
        piece = f"{metadata_text(key)}:{metadata_text(value)}"
        # Between two others, or the last.
        values |= {f"{name}a": f"{piece},", f"{name}b": f"{piece}}}"}
        conditions.append(f"(instr(m.metadata, :{name}a) > 0 OR instr(m.metadata, :{name}b) > 0)")
    found = connection.execute(
        f"SELECT m.row FROM memories m WHERE {' AND '.join(['m.user = :user', LIVE, *conditions])}",  # noqa: S608
        values,
    )
    return np.array([row for (row,) in found.fetchall()], np.int64)
