"""One real daemon for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hook_kit import HERON, Running


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("anna")
    (home / "shop" / ".git").mkdir(parents=True)
    (home / "shop" / "src").mkdir()
    made = Running(home)
    try:
        made.ask("POST", "/api/memories", {"content": HERON, "project": "shop"})
        yield made
    finally:
        made.close()
