"""Installs the real clients that the end-to-end tests run, each in a pinned version.

    python tools/clients.py                     all of them
    python tools/clients.py --only claude-code  some of them
    python tools/clients.py --check             only look, install nothing

They go into $MERITORY_TEST_CLIENTS, else the user's cache folder, a folder per client and version.
Running it twice, or twice at the same time, is harmless. It ends with 1 when a client is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE = "MERITORY_TEST_CLIENTS"
FOLDER_NAME = "meritory-clients"
INSTALL_TIMEOUT_S = 300
COMPLAINT_LIMIT_CHARS = 300
_STAMP = "installed.json"
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class Client:
    """What is installed for a client: packages by name and version, and its program among them."""

    name: str
    version: str
    packages: tuple[str, ...]
    program: str
    registry: str = "npm"


# The one place for versions. {v} is the client's version, {p} the platform, such as linux-x64.
# The packages are those that hold a native program, where there is one: nothing runs at install.
NODE = Client("node", "26.10.0", ("node-{p}@{v}",), "node_modules/node-{p}/bin/node")
CLIENTS = (
    Client(
        "claude-code",
        "2.1.325",
        ("@anthropic-ai/claude-code-{p}@{v}",),
        "node_modules/@anthropic-ai/claude-code-{p}/claude",
    ),
    Client(
        "codex",
        "0.166.0",
        ("@openai/codex@{v}-{p}",),
        "node_modules/@openai/codex/vendor/*/bin/codex",
    ),
    Client("opencode", "1.18.33", ("opencode-{p}@{v}",), "node_modules/opencode-{p}/bin/opencode"),
    Client(
        "gemini-cli",
        "0.61.0",
        ("@google/gemini-cli@{v}",),
        "node_modules/@google/gemini-cli/bundle/gemini.js",
    ),
    Client(
        "copilot-cli",
        "1.0.102",
        ("@github/copilot-{p}@{v}",),
        "node_modules/@github/copilot-{p}/copilot",
    ),
    Client("openclaw", "2026.9.6", ("openclaw@{v}",), "node_modules/openclaw/openclaw.mjs"),
    Client(
        "claude-agent-sdk",
        "0.2.182",
        ("claude-agent-sdk=={v}",),
        "claude_agent_sdk/__init__.py",
        "pypi",
    ),
    NODE,
)


class NotInstalled(Exception):
    """A client that is not there, and why."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A client that is there: its program, and the seconds it took to bring it here."""

    name: str
    version: str
    program: Path
    took_s: float = 0.0
    is_new: bool = False

    @property
    def folder(self) -> Path:
        """Where everything of this client is."""
        return next(
            parent
            for parent in self.program.parents
            if parent.name == f"{self.name}-{self.version}"
        )


def named(name: str) -> Client:
    """The client of that name."""
    for client in CLIENTS:
        if client.name == name:
            return client
    raise NotInstalled(f"there is no client {name!r}; known: {', '.join(c.name for c in CLIENTS)}")


def cache_folder() -> Path:
    """Where clients are kept."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / FOLDER_NAME


def find(client: Client) -> Installed:
    """The client, when it is there in whole; NotInstalled otherwise."""
    folder = cache_folder() / f"{client.name}-{client.version}"
    if not (folder / _STAMP).is_file():
        raise NotInstalled("not installed")
    found = sorted(folder.glob(_filled(client.program, client)))
    if not found:
        raise NotInstalled(f"its packages hold no {_filled(client.program, client)}")
    return Installed(client.name, client.version, found[0])


def install(client: Client) -> Installed:
    """The client, brought here when it is not there; only one process does it at a time."""
    with contextlib.suppress(NotInstalled):
        return find(client)
    root = cache_folder()
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{client.name}.lock"):
        with contextlib.suppress(NotInstalled):
            return find(client)
        folder = root / f"{client.name}-{client.version}"
        # Whatever is there without a stamp was left behind half done.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        began = time.monotonic()
        packages = [_filled(package, client) for package in client.packages]
        _run(_npm(folder, packages) if client.registry == "npm" else _pip(folder, packages))
        took_s = time.monotonic() - began
        stamp = {"packages": packages, "took_s": round(took_s, 1)}
        (folder / _STAMP).write_text(json.dumps(stamp) + "\n", "utf-8")
        there = find(client)
    return Installed(there.name, there.version, there.program, took_s, is_new=True)


def _filled(text: str, client: Client) -> str:
    return text.format(v=client.version, p=_platform())


def _platform() -> str:
    machine = platform.machine().lower()
    return f"{sys.platform}-{_MACHINES.get(machine, machine)}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _npm(folder: Path, packages: list[str]) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("npm is not on the path; it comes with Node.js")
    # Scripts are not run: the native programs need none, and what is installed only gets run.
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel=error"]
    # A registry that is not there should be known after a minute, not after a quarter of an hour.
    patience = ["--fetch-retries=1", "--fetch-timeout=60000"]
    flags = ["--force", "--omit=optional", *quiet, *patience]
    return [npm, "install", *flags, "--prefix", str(folder), *packages]


def _pip(folder: Path, packages: list[str]) -> list[str]:
    quiet = ["-q", "--disable-pip-version-check", "--no-compile"]
    return [sys.executable, "-m", "pip", "install", *quiet, "--target", str(folder), *packages]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"installing it took more than {INSTALL_TIMEOUT_S} s") from error
    if done.returncode:
        told = " ".join((done.stderr or done.stdout).split())
        raise NotInstalled(f"the registry or the disk refused: {told[:COMPLAINT_LIMIT_CHARS]}")


def _line(client: Client, *, only_look: bool) -> tuple[str, bool]:
    """What there is to say about one client, and whether it is there."""
    head = f"{client.name:<17} {client.version:<10}"
    try:
        there = find(client) if only_look else install(client)
    except NotInstalled as error:
        return f"{head} missing: {error}", False
    how = f"installed in {there.took_s:.0f} s" if there.is_new else "there"
    return f"{head} {how}: {there.program}", True


def main(given: Sequence[str] | None = None) -> int:
    """Installs or looks, says for each client what came of it; 1 when one is missing."""
    parser = argparse.ArgumentParser(description="Install the clients that the e2e tests run.")
    parser.add_argument("--only", action="append", metavar="NAME", help="may be given repeatedly")
    parser.add_argument("--check", action="store_true", help="install nothing, only look")
    options = parser.parse_args(given)
    try:
        wanted = [named(name) for name in options.only] if options.only else list(CLIENTS)
    except NotInstalled as error:
        parser.error(str(error))
    all_there = True
    for client in wanted:
        line, is_there = _line(client, only_look=options.check)
        all_there &= is_there
        print(line, flush=True)
    return 0 if all_there else 1


if __name__ == "__main__":
    sys.exit(main())
