"""Which clients the end-to-end tests run, and what is said about those that they do not run."""

from __future__ import annotations

import os

import pytest
from harnesses import clients

VARIABLE = "MERITORY_TEST_E2E"
ALL = "all"
# What `make test` runs, where it can be installed.
USUAL = ("claude-code",)
# Why a client could not be run, for the last lines of the test report.
MISSING: dict[str, str] = {}


def asked_for() -> tuple[str, ...]:
    """The clients that the environment names; none when it is silent."""
    return tuple(name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip())


def selected(name: str) -> bool:
    """Whether a client's tests are to be run."""
    wanted = asked_for() or USUAL
    return name in wanted or ALL in wanted


def install(names: tuple[str, ...]) -> None:
    """Brings the clients here; skips when that cannot be, and fails where it was asked for."""
    tool = clients()
    for name in names:
        try:
            tool.install(tool.named(name))
        except tool.NotInstalled as error:
            MISSING[name] = str(error)
            if asked_for():
                pytest.fail(f"{name} cannot be installed: {error}")
            pytest.skip(f"{name} cannot be installed: {error}")
