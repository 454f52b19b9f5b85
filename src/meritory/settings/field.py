"""How a field of the settings is written down."""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeVar

T = TypeVar("T")


def setting(default: T, help: str, **details: Any) -> T:
    """A field of the model with its documentation and bounds."""
    metadata = {"setting": {"help": help, **details}}
    made: T = field(default=default, repr=not details.get("secret"), metadata=metadata)
    return made
