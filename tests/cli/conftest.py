"""Runs commands as a person would, in this process, each test with a data folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from meritory.cli.app import APP

Run = Callable[..., "Done"]


@dataclass(frozen=True, slots=True)
class Done:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def object(self) -> Any:
        """The one object on stdout; anything else there is an error."""
        return json.loads(self.out)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that is not there yet, and no settings of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith("MERITORY_") or name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MERITORY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def run(home: Path) -> Run:
    """Runs a command through the whole edge; no traceback may ever come out."""

    def call(*arguments: str, stdin: str | bytes | None = None) -> Done:
        result = CliRunner().invoke(APP, list(arguments), input=stdin)
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return Done(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def stored(run: Run) -> Callable[..., str]:
    """Stores a memory and returns its id."""

    def call(text: str, *options: str) -> str:
        done = run("remember", text, *options, "--json")
        assert done.code == 0, done.out
        return str(done.object["id"])

    return call


@pytest.fixture
def process(home: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs `python -m meritory` as a process of its own."""

    def call(
        *arguments: str | bytes, stdin: bytes = b"", **environ: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "meritory", *arguments],
            input=stdin,
            capture_output=True,
            env={**os.environ, **environ},
            cwd=tmp_path,
            timeout=60,
        )

    return call
