"""Import a file as the command line does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from meritory.domain.memory import OnSimilar, Scope
from meritory.engine.services import Services
from meritory.engine.transfer.import_ import ImportOptions, ImportReport, import_found, recognise


def import_file(
    services: Services,
    scope: Scope,
    path: Path,
    *,
    on_similar: OnSimilar = "gate",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ImportReport:
    """Import a file in the format that is recognised."""
    return import_found(services, scope, recognise(path), ImportOptions(on_similar), progress)
