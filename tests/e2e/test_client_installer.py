"""tools/clients.py with a stand-in for npm: once, twice, at the same time, and when it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harnesses import ROOT, clients

# Writes down that it was called, then leaves what Claude Code's package would leave.
NPM = """#!/bin/sh
echo called >> "$CALLS"
sleep 0.2
[ -z "$REFUSES" ] || { echo "no such package" >&2; exit 1; }
for last; do :; done
name="${last%@*}"
mkdir -p "$PREFIX/node_modules/$name"
echo program > "$PREFIX/node_modules/$name/claude"
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with a stand-in for npm and a cache folder of its own."""
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(NPM, "ascii")
    npm.chmod(0o755)
    version = clients().named("claude-code").version
    return {
        "PATH": f"{npm.parent}:/usr/bin:/bin",
        "CALLS": str(tmp_path / "calls"),
        "PREFIX": str(tmp_path / "cache" / f"claude-code-{version}"),
        "MERITORY_TEST_CLIENTS": str(tmp_path / "cache"),
    }


def start(env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    """The installer as a process."""
    command = [sys.executable, str(ROOT / "tools" / "clients.py"), "--only", "claude-code", *words]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=env, text=True, **streams)  # type: ignore[call-overload,no-any-return]


def run(env: dict[str, str], *words: str) -> tuple[int, str]:
    """The installer's exit code and what it said."""
    with start(env, *words) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out + err


def calls(env: dict[str, str]) -> int:
    """How often npm was called."""
    path = Path(env["CALLS"])
    return len(path.read_text("ascii").splitlines()) if path.exists() else 0


def test_second_run_finds_what_the_first_installed(env: dict[str, str]) -> None:
    assert run(env, "--check")[0] == 1
    assert calls(env) == 0
    code, said = run(env)
    assert (code, "installed in" in said) == (0, True), said
    code, said = run(env)
    assert (code, "there:" in said, calls(env)) == (0, True, 1)
    assert run(env, "--check")[0] == 0


def test_two_at_once_install_it_once(env: dict[str, str]) -> None:
    processes = [start(env) for _ in range(3)]
    for process in processes:
        with process:
            process.communicate(timeout=60)
            assert process.returncode == 0
    assert calls(env) == 1


def test_what_was_left_half_done_is_done_again(env: dict[str, str]) -> None:
    left = Path(env["PREFIX"])
    left.mkdir(parents=True)
    (left / "half").write_text("half", "ascii")
    assert run(env)[0] == 0
    assert not (left / "half").exists()


def test_refusal_is_told_and_tried_again(env: dict[str, str]) -> None:
    code, said = run({**env, "REFUSES": "1"})
    assert (code, "missing: " in said, "no such package" in said) == (1, True, True)
    assert run(env)[0] == 0


def test_without_npm_it_says_so(env: dict[str, str], tmp_path: Path) -> None:
    code, said = run({**env, "PATH": str(tmp_path)})
    assert (code, "npm is not on the path" in said) == (1, True)


def test_unknown_client_is_wrong_use(env: dict[str, str]) -> None:
    command = [sys.executable, str(ROOT / "tools" / "clients.py"), "--only", "emacs"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "known: claude-code" in done.stderr) == (2, True)


def test_every_version_is_pinned() -> None:
    for client in clients().CLIENTS:
        assert client.version[0].isdigit()
        assert all("{v}" in package for package in client.packages)
