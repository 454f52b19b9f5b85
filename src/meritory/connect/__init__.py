"""Meritory in the agents people already use: added to their files, taken out, looked after."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import cast

from meritory.connect.checks import connection_of, harness_findings
from meritory.connect.desired import Finding, HarnessModule, InstallTarget
from meritory.connect.files import check_writable, read_file
from meritory.connect.install_record import InstallRecord
from meritory.connect.managed import Commands
from meritory.connect.plan import (
    FileChange,
    apply_connect,
    apply_disconnect,
    plan_connect,
    plan_disconnect,
)
from meritory.domain.errors import Conflict, InputError
from meritory.settings.home import HOME_NAME, prepare_home

HARNESS_NAMES = (
    "claude-code",
    "codex",
    "gemini-cli",
    "copilot-cli",
    "cursor",
    "vscode",
    "opencode",
    "openclaw",
)
PACKAGE = Path(__file__).absolute().parents[1]


@dataclass(frozen=True, slots=True)
class ConnectPlan:
    """What would be done for one harness, and what to tell when it is."""

    harness: str
    title: str
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]
    home: Path
    disconnects: bool = False

    @property
    def is_real(self) -> bool:
        """Whether any file would change."""
        return any(change.is_real for change in self.changes)

    def check_writable(self) -> None:
        """Refuses what could not be written, before anybody is asked about it."""
        for change in self.changes:
            if change.is_real:
                check_writable(change.path)

    def apply(self, now: datetime) -> dict[Path, Path]:
        """Changes the files; returns where the copies from before are."""
        self.check_writable()
        ledger = InstallRecord(self.home)
        if self.disconnects:
            apply_disconnect(self.harness, self.changes, ledger)
            return {}
        prepare_home(self.home)
        kept = apply_connect(self.harness, self.changes, ledger, now)
        copies = ((record.path, ledger.copy_path(record)) for record in kept)
        return {path: copy for path, copy in copies if copy is not None}


def prepare_connect(
    name: str, home: Path, env: Mapping[str, str], *, hides_ratings: bool = False
) -> ConnectPlan:
    """What connecting a harness would change; refuses what cannot be done."""
    if not sys.executable:
        raise InputError(
            "Python does not know where it is, so no command can be written that runs it",
            hint="install Meritory with a Python that you may read, and try again",
        )
    harness, place = _harness(name), place_for(name, home, env)
    setup = harness.setup(replace(place, hides_ratings=hides_ratings))
    for obstacle in setup.obstacles:
        raise Conflict(obstacle.detail, hint=obstacle.hint)
    changes = plan_connect(name, setup.documents, InstallRecord(home))
    left = tuple(f"{change.path}: {told}" for change in changes for told in change.conflicts)
    absent = () if is_found(name, home, env) else (f"{harness.TITLE} was not found here",)
    return ConnectPlan(name, harness.TITLE, tuple(changes), (*absent, *left, *setup.notes), home)


def prepare_disconnect(name: str, home: Path, env: Mapping[str, str]) -> ConnectPlan:
    """What disconnecting a harness would change."""
    harness, place = _harness(name), place_for(name, home, env)
    changes = plan_disconnect(name, harness.setup(place).documents, InstallRecord(home))
    return ConnectPlan(name, harness.TITLE, tuple(changes), (), home, disconnects=True)


def is_found(name: str, home: Path, env: Mapping[str, str]) -> bool:
    """Whether a harness is used on this machine: its folder or its program is there."""
    harness = _harness(name)
    if harness.root(place_for(name, home, env)).is_dir():
        return True
    return any(shutil.which(program, path=env.get("PATH")) for program in harness.PROGRAMS)


def is_connected(name: str, home: Path, env: Mapping[str, str]) -> bool:
    """Whether anything of ours is in a harness's files."""
    harness, place = _harness(name), place_for(name, home, env)
    documents = harness.setup(place).documents
    has_records = any(read_file(one.path) is not None for one in InstallRecord(home).records(name))
    return has_records or connection_of(harness, documents).is_any


def harness_checks(home: Path, env: Mapping[str, str]) -> list[Finding]:
    """What the doctor says about every harness that is found or connected."""
    found: list[Finding] = []
    for name in HARNESS_NAMES:
        harness, place = _harness(name), place_for(name, home, env)
        found += harness_findings(harness, place, is_found=is_found(name, home, env))
    return found


def place_for(name: str, home: Path, env: Mapping[str, str]) -> InstallTarget:
    """Where things are for one harness."""
    user_home = Path(env["HOME"]).absolute() if env.get("HOME") else Path.home()
    own = None if home == user_home / HOME_NAME else home
    commands = Commands(name, sys.executable, PACKAGE, own)
    return InstallTarget(env, user_home, commands)


def plugin_folder(*parts: str) -> Path:
    """Where the plugins are that come with Meritory."""
    return PACKAGE.joinpath("data", "plugins", *parts)


def _harness(name: str) -> HarnessModule:
    if name not in HARNESS_NAMES:
        raise InputError(f"there is no harness {name!r}", hint=f"one of {', '.join(HARNESS_NAMES)}")
    module = import_module(f"meritory.connect.{name.replace('-', '_')}")
    return cast(HarnessModule, module)
