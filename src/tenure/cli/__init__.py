"""The command line: tables for people, `--json` for programs; nothing heavy until it is used."""

from __future__ import annotations

import os
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command that was typed and leaves with its exit code."""
    # Before numpy is loaded: on a busy machine a second thread makes small products slower. A
    # program that uses the library decides this for itself.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from tenure.cli.app import APP

    APP.main()
