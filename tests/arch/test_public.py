"""The public names: exactly the documented ones, all importable, none loaded before it is used."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import meritory
from meritory.domain.errors import MeritoryError

PACKAGE = Path(meritory.__file__).parent
CLASSES = (
    "AsyncMemory",
    "AsyncSession",
    "HistoryEntry",
    "Memory",
    "MemoryRecord",
    "Parts",
    "Recalled",
    "Scope",
    "Served",
    "Session",
    "ShownMemory",
    "Source",
    "WriteResult",
)
ERRORS = (
    "Busy",
    "Conflict",
    "InputError",
    "NotFound",
    "PersonOnly",
    "SecretFound",
    "StorageError",
    "MeritoryError",
)
PUBLIC = {*CLASSES, *ERRORS, "__version__"}


def test_the_public_names_are_the_documented_ones() -> None:
    assert set(meritory.__all__) == PUBLIC
    assert len(meritory.__all__) == len(PUBLIC)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(meritory, name) is not None
    assert name in dir(meritory)
    code = f"from meritory import {name}; assert {name}"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", CLASSES)
def test_public_classes_are_classes_with_a_docstring(name: str) -> None:
    found = getattr(meritory, name)
    assert isinstance(found, type)
    assert found.__doc__


@pytest.mark.parametrize("name", ERRORS)
def test_public_errors_share_one_base(name: str) -> None:
    assert issubclass(getattr(meritory, name), MeritoryError)


def test_a_star_import_gives_the_public_names_only() -> None:
    space: dict[str, object] = {}
    exec("from meritory import *", space)
    assert set(space) - {"__builtins__"} == PUBLIC


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Memoryy"):
        meritory.Memoryy  # noqa: B018
    with pytest.raises(ImportError):
        exec("from meritory import Memoryy")


def test_the_version_is_the_one_of_the_package() -> None:
    assert meritory.__version__ == importlib.metadata.version("meritory")


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
