"""Memory for AI agents that has to earn its place.

>>> from meritory import Memory                                           # doctest: +SKIP
>>> memory = Memory()
>>> memory.remember("The staging database is called heron")
>>> memory.recall("what is the staging database called?")[0].content
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meritory.api.async_memory import AsyncMemory, AsyncSession
    from meritory.api.memory import Memory
    from meritory.api.session import Session
    from meritory.domain.errors import (
        Busy,
        Conflict,
        InputError,
        MeritoryError,
        NotFound,
        PersonOnly,
        SecretFound,
        StorageError,
    )
    from meritory.domain.memory import (
        HistoryEntry,
        MemoryRecord,
        Parts,
        Recalled,
        Scope,
        Source,
        WriteResult,
    )
    from meritory.engine.sessions.packing import Served, ShownMemory

__version__ = "0.1.0"

# The module of each public name.
_HOMES = {
    "api.memory": ("Memory",),
    "api.async_memory": ("AsyncMemory", "AsyncSession"),
    "api.session": ("Session",),
    "engine.sessions.packing": ("Served", "ShownMemory"),
    "domain.memory": (
        *("HistoryEntry", "MemoryRecord", "Parts", "Recalled", "Scope", "Source", "WriteResult"),
    ),
    "domain.errors": (
        *("Busy", "Conflict", "InputError", "MeritoryError", "NotFound", "PersonOnly"),
        *("SecretFound", "StorageError"),
    ),
}

__all__ = [
    "AsyncMemory",
    "AsyncSession",
    "Busy",
    "Conflict",
    "HistoryEntry",
    "InputError",
    "Memory",
    "MemoryRecord",
    "MeritoryError",
    "NotFound",
    "Parts",
    "PersonOnly",
    "Recalled",
    "Scope",
    "SecretFound",
    "Served",
    "Session",
    "ShownMemory",
    "Source",
    "StorageError",
    "WriteResult",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that `import meritory` stays cheap."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"meritory.{home}"), name)
    raise AttributeError(f"module 'meritory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
