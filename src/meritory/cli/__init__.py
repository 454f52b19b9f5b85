"""The command line: tables for people, `--json` for programs. Heavy imports wait until needed."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command that was typed and exit with its code."""
    name, arguments = sys.argv[1:2], sys.argv[2:]
    # Agents run these two at every prompt and start, so they skip click and all tables.
    if name in (["hook"], ["mcp"]) and not {"-h", "--help"} & set(arguments):
        if name == ["hook"]:
            from meritory.hook import main as hook_main

            hook_main.run(arguments)
        from meritory.mcp import stdio

        sys.exit(stdio.main(arguments))
    # Before numpy is loaded: on a busy machine a second thread makes small products slower. A
    # program that uses the library decides this for itself.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from meritory.cli.app import APP

    APP.main()
