"""The candidates of old sessions: packed into one compressed value each, and thinned later.

A packed session has all its candidates in `session_packs`. Its shown memories also keep a row in
`session_memories` for queries over many sessions: without the numbers of their ranking, and with
those parts of their labels that such queries read. A write to a packed session unpacks it first;
the next maintenance packs it again. A thinned session no longer trains, so its numbers are kept
only as exactly as explanations show them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np

from meritory.domain.errors import Corrupt
from meritory.store.sql.mapper import SqlConnection
from meritory.store.sql.tables import BY_NAME

Columns = Mapping[str, Sequence[Any]]
_TABLE = BY_NAME["session_memories"]
_COLUMNS = tuple(column.name for column in _TABLE.columns if column.name != "session")
_REALS = tuple(column.name for column in _TABLE.columns if column.type == "REAL")
_PLAIN = tuple(name for name in _COLUMNS if name not in (*_REALS, "features"))
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM session_memories WHERE session = ?"  # noqa: S608 - our names
_INSERT = (
    f"INSERT INTO session_memories (session, {', '.join(_COLUMNS)})"  # noqa: S608 - our names
    f" VALUES ({', '.join('?' for _ in ('session', *_COLUMNS))})"
)
# Numbers are written as they were served; those of a thinned session take a third of the space.
_EXACT, _SHORT, _SINGLE = ("<f8", "<f8"), ("<f4", "<f2"), ("<f4", "<f4")
_HALF_MAX = 60_000.0
_SHORT_DECIMALS = 4
# A session that was unpacked has an empty content.
_CONTENT = "SELECT content FROM session_packs WHERE length(content) > 0"
# The numbers of a ranking, which the row of a packed candidate lacks.
_UNKNOWN: Mapping[str, Any] = {
    "origins": "[]",
    "effective_score": None,
    "composite_score": None,
    "predictor_score": None,
    "features": b"",
}


def read_candidates(
    connection: SqlConnection, session: int, names: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return these columns of every candidate of a session, packed or not, in no order."""
    columns = _packed(connection, session)
    if columns is None:
        statement = f"SELECT {', '.join(names)} FROM session_memories WHERE session = ?"  # noqa: S608
        return connection.execute(statement, (session,)).fetchall()
    return list(zip(*(columns[name] for name in names), strict=True))


def _packed(connection: SqlConnection, session: int) -> Columns | None:
    """Return the candidates of a packed session; None for one that is not packed."""
    found = connection.execute(f"{_CONTENT} AND session = ?", (session,)).fetchone()
    return None if found is None else decode(bytes(found[0]))


def pack(connection: SqlConnection, session: int) -> int:
    """Pack the candidates of a session and return their number."""
    rows = connection.execute(_SELECT, (session,)).fetchall()
    columns = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True))
    has_helped = any(
        label is not None and label > 0.0 and source != "fts_only"
        for label, source in zip(columns["label"], columns["source"], strict=True)
    )
    connection.execute(
        """INSERT INTO session_packs (session, has_helped, content) VALUES (?, ?, ?)
            ON CONFLICT (session) DO UPDATE
                SET has_helped = excluded.has_helped, content = excluded.content""",
        (session, int(has_helped), encode(columns)),
    )
    connection.execute("DELETE FROM session_memories WHERE session = ?", (session,))
    narrow = {
        **columns,
        **{name: [value] * len(rows) for name, value in _UNKNOWN.items()},
        "label_parts": [_narrow_parts(parts) for parts in columns["label_parts"]],
    }
    _insert(connection, session, _chosen(narrow, _shown(columns)))
    return len(rows)


def unpack(connection: SqlConnection, session: int) -> None:
    """Restore the rows of a packed session; do nothing for one that is not packed."""
    columns = _packed(connection, session)
    if columns is None:
        return
    # The row stays: it says whether the session was thinned.
    connection.execute("UPDATE session_packs SET content = x'' WHERE session = ?", (session,))
    connection.execute("DELETE FROM session_memories WHERE session = ?", (session,))
    _insert(connection, session, columns)


def unpack_memory(connection: SqlConnection, user: str, memory_id: str) -> None:
    """Unpack every session of a user that considered a memory."""
    packs = connection.execute(
        """SELECT p.session, p.content FROM session_packs p
            JOIN sessions s ON s.session = p.session WHERE s.user = ? AND length(p.content) > 0""",
        (user,),
    ).fetchall()
    for session, content in packs:
        if memory_id.encode() in zlib.decompress(bytes(content)):
            unpack(connection, session)


def thin(connection: SqlConnection, session: int) -> None:
    """Erase the candidates of a packed session that were neither shown nor labelled."""
    columns = _packed(connection, session)
    if columns is None:
        return
    is_kept = [
        was_shown or label is not None
        for was_shown, label in zip(_shown(columns), columns["label"], strict=True)
    ]
    connection.execute(
        "UPDATE session_packs SET content = ?, is_old = 1, thinned_count = ? WHERE session = ?",
        (encode_short(_chosen(columns, is_kept)), is_kept.count(False), session),
    )


def _narrow_parts(label_parts: str | None) -> str | None:
    """Return the parts of a label that `proofs` reads: the agent's rating, and a known use."""
    parts = json.loads(label_parts or "{}")
    kept = {} if parts.get("agent") is None else {"agent": parts["agent"]}
    if parts.get("rule") == "known":
        kept["rule"] = "known"
    return json.dumps(kept) if kept else None


def _shown(columns: Columns) -> list[bool]:
    pairs = zip(columns["was_injected"], columns["handle"], strict=True)
    return [bool(was_injected) or handle is not None for was_injected, handle in pairs]


def _chosen(columns: Columns, is_chosen: Sequence[bool]) -> Columns:
    return {name: list(compress(values, is_chosen)) for name, values in columns.items()}


def _insert(connection: SqlConnection, session: int, columns: Columns) -> None:
    rows = zip(*(columns[name] for name in _COLUMNS), strict=True)
    connection.executemany(_INSERT, [(session, *row) for row in rows])


# -- encoding ---------------------------------------------------------------------------------


def encode(columns: Columns) -> bytes:
    """Return candidates as one compressed value; numbers by column, where they repeat most."""
    return zlib.compress(_written(columns, _EXACT), 9)


def encode_short(columns: Columns) -> bytes:
    """Return candidates as a smaller value, with numbers as exact as explanations need them."""
    parts = [
        text and json.dumps({name: _rounded(value) for name, value in json.loads(text).items()})
        for text in columns["label_parts"]
    ]
    return zlib.compress(_written({**columns, "label_parts": parts}, _SHORT), 9)


def _rounded(value: Any) -> Any:
    return round(value, _SHORT_DECIMALS) if isinstance(value, float) else value


def _written(columns: Columns, types: tuple[str, str]) -> bytes:
    """Return the head as JSON on one line, and the numbers behind it."""
    features = [np.frombuffer(bytes(blob), np.float64) for blob in columns["features"]]
    lengths = [len(row) for row in features]
    table = np.zeros((len(features), max(lengths, default=0)))
    for row, values in zip(table, features, strict=True):
        row[: len(values)] = values
    if types == _SHORT and np.abs(table).max(initial=0.0) > _HALF_MAX:
        types = _SINGLE
    # None becomes NaN.
    reals = np.array([columns[name] for name in _REALS], np.float64)
    plain = {name: list(columns[name]) for name in _PLAIN}
    head = {**plain, "lengths": lengths, "types": types}
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    return text + b"\n" + reals.astype(types[0]).tobytes() + table.T.astype(types[1]).tobytes()


def decode(content: bytes) -> Columns:
    """Return the columns of `session_memories` from a compressed value."""
    try:
        text, _, body = zlib.decompress(content).partition(b"\n")
        head = json.loads(text)
        lengths, (real_type, feature_type) = head.pop("lengths"), head.pop("types")
        count = len(lengths)
        numbers = np.frombuffer(body, real_type, len(_REALS) * count).reshape(len(_REALS), count)
        reals = {
            name: [None if number != number else number for number in column]
            for name, column in zip(_REALS, numbers.astype(np.float64).tolist(), strict=True)
        }
        rest = np.frombuffer(body[numbers.nbytes :], feature_type)
        # A session may have no candidate left; numpy cannot tell the rows of nothing.
        table = np.ascontiguousarray(rest.reshape(-1, count or 1).T, np.float64)
        features = [row[:length].tobytes() for row, length in zip(table, lengths, strict=False)]
        return {**head, **reals, "features": features}
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"the packed candidates of a session cannot be read: {error}") from error
