"""The command line: tables for people, `--json` for programs; nothing heavy until it is used."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command that was typed and leaves with its exit code."""
    name, rest = sys.argv[1:2], sys.argv[2:]
    # Somebody waits for these two at every prompt and at every start of an agent.
    if name in (["hook"], ["mcp"]) and not {"-h", "--help"} & set(rest):
        sys.exit(_agents_way(name[0], rest))
    # Before numpy is loaded: on a busy machine a second thread makes small products slower. A
    # program that uses the library decides this for itself.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from meritory.cli.app import APP

    APP.main()


def _agents_way(name: str, arguments: list[str]) -> int:
    """What agents' clients run, without anything that is only there for people."""
    if name == "hook":
        from meritory.hook import main as hook_main

        hook_main.run(arguments)
    from meritory.mcp import stdio

    return stdio.main(arguments)
