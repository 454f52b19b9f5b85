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
    from meritory.async_memory import AsyncMemory, AsyncSession
    from meritory.errors import (
        Busy,
        Conflict,
        InputError,
        MeritoryError,
        NotFound,
        SecretFound,
        StorageError,
    )
    from meritory.flow.showing import Served, ShownMemory
    from meritory.memory import Memory
    from meritory.session import Session
    from meritory.types import (
        HistoryEntry,
        MemoryRecord,
        Parts,
        Recalled,
        Scope,
        Source,
        WriteResult,
    )

__version__ = "0.1.0"

_HOMES = {
    "Memory": "memory",
    "AsyncMemory": "async_memory",
    "AsyncSession": "async_memory",
    "Session": "session",
    "Served": "flow.showing",
    "ShownMemory": "flow.showing",
    "HistoryEntry": "types",
    "MemoryRecord": "types",
    "Parts": "types",
    "Recalled": "types",
    "Scope": "types",
    "Source": "types",
    "WriteResult": "types",
    "Busy": "errors",
    "Conflict": "errors",
    "InputError": "errors",
    "NotFound": "errors",
    "SecretFound": "errors",
    "StorageError": "errors",
    "MeritoryError": "errors",
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
    """Loads public names on first use, so that `import meritory` costs nothing."""
    if name in _HOMES:
        return getattr(import_module(f"meritory.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'meritory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
