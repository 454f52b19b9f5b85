"""Install each peer into an environment of its own, outside the repository."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.peers.catalog import Peer
from bench.peers.client import PeerFailed

CACHE_ENV = "XDG_CACHE_HOME"
FOLDER = "meritory-peers"
INSTALL_TIMEOUT_S = 1800
_MARK = "installed.json"
_LAST_CHARS = 300
_CAN_EXTEND = "import sqlite3; c = sqlite3.connect(':memory:'); c.enable_load_extension(True)"
# Pythons to try for a peer that needs SQLite extensions, after the bench's own.
PYTHONS = ("/usr/bin/python3.11", "/usr/bin/python3.12", "/usr/bin/python3.13", "/usr/bin/python3")


@dataclass(frozen=True, slots=True)
class Environment:
    """An installed peer: its interpreter, and what the installation took."""

    python: Path
    size_mb: float
    packages: int


def default_folder() -> Path:
    """Return the cache folder for environments and vectors."""
    home = os.environ.get(CACHE_ENV)
    return (Path(home) if home else Path.home() / ".cache") / FOLDER


def place_of(peer: Peer, folder: Path) -> Path:
    """Return the folder of a peer's environment; other versions have another one."""
    digest = hashlib.sha256(" ".join(peer.requirements).encode()).hexdigest()[:8]
    return folder / f"{peer.environment}-{digest}"


def is_installed(peer: Peer, folder: Path) -> bool:
    """Return whether `prepare` would find the peer and install nothing."""
    return not peer.requirements or (place_of(peer, folder) / _MARK).is_file()


def prepare(peer: Peer, folder: Path) -> Environment:
    """Install a peer once and return its environment. PeerFailed says why it cannot be."""
    if not peer.requirements:
        return Environment(Path(sys.executable), 0.0, 0)
    place = place_of(peer, folder)
    python = place / "bin" / "python"
    if not is_installed(peer, folder):
        shutil.rmtree(place, ignore_errors=True)
        uv = find_uv()
        pip = ["--without-pip"] if uv else []
        _run([base_python(peer), "-m", "venv", *pip, str(place)], "no environment could be made")
        begun = time.monotonic()
        # uv needs no pip inside the environment.
        command = [uv, "pip", "install", "--python", str(python)] if uv else None
        command = command or [str(python), "-m", "pip", "install"]
        _run([*command, "-q", *peer.requirements], "it could not be installed")
        _note(place, time.monotonic() - begun)
    noted = json.loads((place / _MARK).read_text(encoding="utf-8"))
    return Environment(python, noted["size_mb"], noted["packages"])


def find_uv() -> str | None:
    """Return the uv beside the bench's own Python, or the one on the path."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.is_file() else shutil.which("uv")


def base_python(peer: Peer) -> str:
    """Return the Python to build on: the bench's own, or one that can extend SQLite."""
    if not peer.needs_extensions:
        return sys.executable
    for python in (sys.executable, *PYTHONS):
        command = [python, "-c", _CAN_EXTEND]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=30)
        except OSError:
            continue
        if done.returncode == 0:
            return python
    raise PeerFailed("no Python here can load SQLite extensions")


def _run(command: list[str], problem: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerFailed(f"{problem}: {error}") from error
    if done.returncode:
        raise PeerFailed(f"{problem}: {' '.join(done.stderr.split())[-_LAST_CHARS:]}")


def _note(place: Path, seconds: float) -> None:
    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    noted = {
        "size_mb": round(sum(path.stat().st_size for path in files) / 1e6, 1),
        "packages": sum(path.name == "METADATA" for path in files),
        "seconds": round(seconds, 1),
    }
    (place / _MARK).write_text(json.dumps(noted) + "\n", encoding="utf-8")
