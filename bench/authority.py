"""Whose word it is, whether it was delivered, whether it is intact: attacks and their controls.

`python -m bench.authority` runs every section; `python -m bench.authority tokens faults` runs
some. `--size small` runs each in seconds, as the tests do. A section is a module
`bench.authority_NAME` with a function `measure(size) -> Report`. Each holds a positive control:
the same attack against a weakened product, which must succeed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import asdict, dataclass, field
from typing import Literal

SECTIONS = ("hostile", "ratings", "tokens", "faults", "damage", "secrets")
Size = Literal["small", "full"]


@dataclass(frozen=True, slots=True)
class Check:
    """One figure beside the bar that it must keep."""

    name: str
    figure: float
    bar: str
    is_met: bool
    note: str = ""


@dataclass(slots=True)
class Report:
    """The checks of one section."""

    section: str
    checks: list[Check] = field(default_factory=list)

    def at_most(self, name: str, figure: float, limit: float, note: str = "") -> None:
        """Add a figure that must not be above a limit."""
        self.checks.append(Check(name, figure, f"<= {limit:g}", figure <= limit, note))

    def at_least(self, name: str, figure: float, limit: float, note: str = "") -> None:
        """Add a figure that must not be below a limit; controls use it to show that they fail."""
        self.checks.append(Check(name, figure, f">= {limit:g}", figure >= limit, note))


def measure(section: str, size: Size) -> Report:
    """Return the report of one section."""
    report = importlib.import_module(f"bench.authority_{section}").measure(size)
    assert isinstance(report, Report)
    return report


def main(arguments: list[str]) -> int:
    """Print the checks of the chosen sections; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.authority", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION")
    parser.add_argument("--size", choices=["small", "full"], default="full")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    reports = [measure(name, options.size) for name in options.sections or SECTIONS]
    if options.json:
        print(json.dumps([asdict(report) for report in reports], indent=1))
    else:
        for report in reports:
            for check in report.checks:
                mark = "ok  " if check.is_met else "MISS"
                figure = f"{check.figure:g}"
                row = f"{mark} {report.section:8} {check.name:58} {figure:>9} {check.bar:>9}"
                print(f"{row}  {check.note}".rstrip())
    return int(not all(check.is_met for report in reports for check in report.checks))


if __name__ == "__main__":
    # The sections import this module by its name, which is another copy of its classes.
    sys.exit(importlib.import_module("bench.authority").main(sys.argv[1:]))
