"""The training process: an order on stdin, a report on stdout. `python -m meritory.trainer`.

It opens the store for reading only and writes nothing but a checkpoint.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from meritory.errors import MeritoryError
from meritory.flow.training import Workshop, train
from meritory.ports.scorer import Shelves
from meritory.ports.trainer import read_order, report_text
from meritory.store.opening import open_reader
from meritory.store.place import Place
from meritory.world import World


def main(store: str, models: str, base: str) -> int:
    """Carries out one order."""
    order = read_order(sys.stdin.read())
    try:
        reader = open_reader(Place.told(store, os.environ))
        shelves = Shelves(Path(models), Path(base), reader.models)
        workshop = Workshop(reader, shelves, World().monotonic_ms)
        report = train(workshop, order)
    except MeritoryError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    reader.close()
    sys.stdout.write(report_text(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
