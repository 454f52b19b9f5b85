"""What the end-to-end tests say at the end: a table of checks and clients, and what was not run."""

from __future__ import annotations

import re

import pytest
import selection
from harnesses import HARNESSES, clients

SDK = "claude-agent-sdk"
collect_ignore = [] if selection.selected(SDK) else ["test_agent_sdk.py"]

_NAME = re.compile(r"e2e/test_(?:clients|agent_sdk)\.py::test_(?P<check>\w+)\[(?P<client>[\w-]+)\]")


class Table:
    """Collects what came of every check with every client."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], str] = {}
        self._setup_s = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test; setting up counts, since clients may run then already."""
        found = _NAME.search(report.nodeid)
        if found is None:
            return
        if report.when == "setup":
            self._setup_s = report.duration
        if report.when == "call" or not report.passed:
            word = {"passed": "ok", "skipped": "not run"}.get(report.outcome, "FAILED")
            seconds = report.duration + (self._setup_s if report.when == "call" else 0.0)
            took = "" if report.skipped else f" {seconds:.1f} s"
            self.cells[found["check"], found["client"]] = word + took

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table, and loudly what is missing from it."""
        if not self.cells:
            return
        terminalreporter.section("real clients, scripted model", sep="-")
        for line in self._lines():
            terminalreporter.write_line(line)
        for name, why in selection.MISSING.items():
            terminalreporter.write_line(
                f"NOT RUN: {name} cannot be installed: {why}", yellow=True, bold=True
            )
        known = (*(one.name for one in HARNESSES), SDK)
        others = [name for name in known if not selection.selected(name)]
        if others:
            terminalreporter.write_line(f"not asked for: {', '.join(others)} (`make e2e` runs all)")

    def _lines(self) -> list[str]:
        checks = list(dict.fromkeys(check for check, _ in self.cells))
        names = list(dict.fromkeys(client for _, client in self.cells))
        rows = [["", *names], ["version", *(str(clients().named(name).version) for name in names)]]
        for check in checks:
            cells = [self.cells.get((check, name), "-") for name in names]
            rows.append([check.replace("_", " "), *cells])
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        padded = ([c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in rows)
        return ["  ".join(row).rstrip() for row in padded]


def pytest_configure(config: pytest.Config) -> None:
    """The table listens to every report."""
    config.pluginmanager.register(Table(), "meritory-e2e-table")
