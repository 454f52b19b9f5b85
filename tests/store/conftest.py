"""What tests of stores share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tenure.store.place import Place

if TYPE_CHECKING:
    from postgres_kit import Server


@pytest.fixture
def database(postgres: Server) -> Iterator[Place]:
    """A database that holds nothing but our schema."""
    address = postgres.fresh()
    yield Place(url=address)
    postgres.give_back(address)
