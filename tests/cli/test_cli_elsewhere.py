"""What the doctor says about a daemon elsewhere: true for hooks too, and never a password."""

from __future__ import annotations

from typing import Any

import pytest
from cli_types import Run


def elsewhere(run: Run) -> tuple[dict[str, Any], str]:
    done = run("doctor", "--json")
    (found,) = (one for one in done.object["results"] if one["id"] == "elsewhere")
    return found, done.out + done.err


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:hunter2@memory.example:port",
        "http://ann:hunter2/x@memory.example",
        "ftp://ann:hunter2@memory.example",
        "https://memory.example:port/?token=hunter2",
        "https://[memory.example/#hunter2",
    ],
)
def test_what_was_written_into_an_address_is_not_quoted(
    run: Run, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("MERITORY_URL", url)
    found, told = elsewhere(run)
    assert found["status"] == "fail"
    assert "hunter2" not in told


def test_an_address_that_hooks_refuse_is_not_called_good(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_URL", "unix:///run/meritory.sock")
    found, _ = elsewhere(run)
    assert (found["status"], "not the address of a daemon" in found["detail"]) == ("fail", True)
