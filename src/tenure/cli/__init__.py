"""The command line: tables for people, `--json` for programs; nothing heavy until it is used."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Runs the command that was typed and leaves with its exit code."""
    from tenure.cli.app import APP

    APP.main()
