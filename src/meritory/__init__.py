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

_HOMES = {
    "Memory": "api.memory",
    "AsyncMemory": "api.async_memory",
    "AsyncSession": "api.async_memory",
    "Session": "api.session",
    "Served": "engine.sessions.packing",
    "ShownMemory": "engine.sessions.packing",
    "HistoryEntry": "domain.memory",
    "MemoryRecord": "domain.memory",
    "Parts": "domain.memory",
    "Recalled": "domain.memory",
    "Scope": "domain.memory",
    "Source": "domain.memory",
    "WriteResult": "domain.memory",
    "Busy": "domain.errors",
    "Conflict": "domain.errors",
    "InputError": "domain.errors",
    "NotFound": "domain.errors",
    "SecretFound": "domain.errors",
    "StorageError": "domain.errors",
    "MeritoryError": "domain.errors",
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
    if name in _HOMES:
        return getattr(import_module(f"meritory.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'meritory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
