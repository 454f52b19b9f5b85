"""Settings: one typed model, where each value came from, and the data folder they live in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from meritory.settings.home import home_folder, prepare_home

if TYPE_CHECKING:
    from meritory.settings.model import SETTINGS, Settings, load_settings
    from meritory.settings.value import Setting, show

__all__ = [
    "SETTINGS",
    "Setting",
    "Settings",
    "home_folder",
    "load_settings",
    "prepare_home",
    "show",
]


def __getattr__(name: str) -> Any:
    """Load the model on first use: `from meritory import Memory` needs only the data folder."""
    if name in ("SETTINGS", "Settings", "load_settings"):
        return getattr(import_module("meritory.settings.model"), name)
    if name in ("Setting", "show"):
        return getattr(import_module("meritory.settings.value"), name)
    raise AttributeError(f"module 'meritory.settings' has no attribute {name!r}")
