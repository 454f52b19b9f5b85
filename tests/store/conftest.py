"""What tests of stores share."""

from __future__ import annotations

import pytest

from meritory.domain.place import Place


@pytest.fixture
def database(address: str) -> Place:
    """A database that holds nothing but our schema, as the place of a store."""
    return Place(url=address)
