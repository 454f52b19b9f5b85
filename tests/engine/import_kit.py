"""Real files of other programs, as they write them."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

CLAUDE_MEM = """
CREATE TABLE sdk_sessions (id INTEGER PRIMARY KEY, memory_session_id TEXT UNIQUE,
    project TEXT NOT NULL, started_at TEXT NOT NULL);
CREATE TABLE observations (id INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_session_id TEXT NOT NULL, project TEXT NOT NULL, text TEXT, type TEXT NOT NULL,
    title TEXT, subtitle TEXT, facts TEXT, narrative TEXT, concepts TEXT, files_read TEXT,
    files_modified TEXT, prompt_number INTEGER, discovery_tokens INTEGER DEFAULT 0,
    content_hash TEXT, merged_into_project TEXT, created_at TEXT NOT NULL,
    created_at_epoch INTEGER NOT NULL);
CREATE TABLE session_summaries (id INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_session_id TEXT NOT NULL, project TEXT NOT NULL, request TEXT, investigated TEXT,
    learned TEXT, completed TEXT, next_steps TEXT, files_read TEXT, files_edited TEXT, notes TEXT,
    prompt_number INTEGER, merged_into_project TEXT, created_at TEXT NOT NULL,
    created_at_epoch INTEGER NOT NULL);
CREATE TABLE directives (id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL DEFAULT 'global', project TEXT, content TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active', source TEXT, created_at TEXT NOT NULL,
    created_at_epoch INTEGER NOT NULL, updated_at_epoch INTEGER NOT NULL);
"""
AT = "2026-03-04T05:06:07.000Z"
AT_MS = 1_772_600_767_000


def insert(raw: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    raw.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))


def observation(**fields: Any) -> dict[str, Any]:
    return {
        "memory_session_id": "s-1",
        "project": "heron",
        "type": "discovery",
        "title": "Ports of the services",
        "narrative": "A long story about ports.",
        "facts": json.dumps(["The gateway listens on 8443", "Metrics are on 9100"]),
        "concepts": json.dumps(["how-it-works"]),
        "created_at": AT,
        "created_at_epoch": AT_MS,
        **fields,
    }


def summary(**fields: Any) -> dict[str, Any]:
    return {
        "memory_session_id": "s-1",
        "project": "heron",
        "request": "Move the gateway to TLS",
        "learned": "The certificate is renewed by cron",
        "completed": "",
        "created_at": AT,
        "created_at_epoch": AT_MS,
        **fields,
    }


def directive(content: str, **fields: Any) -> dict[str, Any]:
    times = {"created_at": AT, "created_at_epoch": AT_MS, "updated_at_epoch": AT_MS}
    return {"content": content, **times, **fields}


def claude_mem(path: Path, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Path:
    """A database of claude-mem."""
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.executescript(CLAUDE_MEM)
        for table, row in rows:
            insert(raw, table, row)
    return path


def mem0_history(path: Path, rows: Sequence[tuple[str, str | None, str]]) -> Path:
    """The history database of mem0: (memory, text, event) in order."""
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(
            """CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT,
                new_memory TEXT, event TEXT, created_at DATETIME, updated_at DATETIME,
                is_deleted INTEGER, actor_id TEXT, role TEXT)"""
        )
        for number, (memory_id, text, event) in enumerate(rows):
            row = {"id": str(number), "memory_id": memory_id, "new_memory": text, "event": event}
            times = {"created_at": AT, "updated_at": None, "is_deleted": int(event == "DELETE")}
            insert(raw, "history", row | times)
    return path


class PointStruct:
    """Stands in for the class whose pickles Qdrant's local mode keeps."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self.payload = payload

    def __getstate__(self) -> dict[str, Any]:
        """As the models of its library hand themselves to a pickle."""
        held = {"id": "p-1", "vector": [0.1], "payload": self.payload}
        return {"__dict__": held, "__pydantic_fields_set__": {"id", "payload"}}


class Bomb:
    """A pickle that would make a file if anything of it were run."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def qdrant(folder: Path, points: Sequence[object]) -> Path:
    """A local Qdrant collection as mem0 has it by default."""
    place = folder / "collection" / "mem0"
    place.mkdir(parents=True)
    with closing(sqlite3.connect(place / "storage.sqlite")) as raw, raw:
        raw.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
        for number, point in enumerate(points):
            blob = point if isinstance(point, bytes) else pickle.dumps(point)
            raw.execute("INSERT INTO points VALUES (?, ?)", (str(number), blob))
    return folder
