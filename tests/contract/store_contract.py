"""What every backend promises, as one class of tests that a backend inherits.

A backend's test module makes a subclass with `make_store`; nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.access import Access
from contract.care import Care
from contract.carrying import Carrying
from contract.comparisons import Comparisons
from contract.consent import Consents
from contract.embedders import Embedders
from contract.entities import Entities
from contract.feedback import Feedback
from contract.finding import Finding
from contract.glance import Glance
from contract.jobs import Jobs
from contract.learning import Learning
from contract.links import Links
from contract.purging import Purging
from contract.refusals import Refusals
from contract.roundtrip import RoundTrip
from contract.rules import Rules
from contract.scoping import Scoping
from contract.searches import Searches
from contract.sessions import Sessions
from contract.shelf import Shelf
from contract.upkeep import Upkeep
from contract.writing import Writing
from meritory.store.contract.store import Store


class StoreContract(
    Finding,
    Scoping,
    Writing,
    Entities,
    Purging,
    Embedders,
    RoundTrip,
    Care,
    Jobs,
    Sessions,
    Learning,
    Comparisons,
    Searches,
    Feedback,
    Rules,
    Upkeep,
    Links,
    Glance,
    Refusals,
    Consents,
    Carrying,
    Access,
):
    """The whole contract of `meritory.store.contract.store`."""

    def make_store(self, folder: Path) -> Store:
        """Opens the store that lives in a folder, new or not."""
        raise NotImplementedError

    @pytest.fixture
    def shelf(self, tmp_path: Path) -> Iterator[Shelf]:
        """A folder with an open store that can be closed and opened again."""
        folder = tmp_path / "shelf"
        folder.mkdir()
        held = Shelf(folder, self.make_store)
        yield held
        held.store.close()

    @pytest.fixture
    def store(self, shelf: Shelf) -> Store:
        """A new store."""
        return shelf.store
