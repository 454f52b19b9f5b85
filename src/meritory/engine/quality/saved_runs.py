"""Saved evaluation runs: files with the results of a run, to list and compare."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from meritory.domain.codec import prepared
from meritory.domain.errors import InputError, NotFound
from meritory.model.checkpoint import write_bytes
from meritory.rank.metrics import METRICS

FORMAT = 1
FOLDER = "evals"
ENDING = ".json"
FILE_LIMIT_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class _Figure(msgspec.Struct):
    mean: float
    low: float
    high: float


class _ProbeResult(msgspec.Struct):
    key: str
    rank: Annotated[int, msgspec.Meta(gt=0)] | None = None
    in_prompt: bool = False


class _SavedRun(msgspec.Struct):
    """The parts of a run that are read."""

    format: Literal[1]
    set_hash: str
    at: str
    probes: int
    scored: int
    drifted: int
    moved: int
    figures: dict[str, _Figure]
    results: list[_ProbeResult]


def runs_folder(home: Path) -> Path:
    """Return the folder of saved runs in a data folder."""
    return home / FOLDER


def checked_run_name(name: str) -> str:
    """Return the name if it is a plain file name."""
    if _NAME.fullmatch(name):
        return name
    raise InputError(
        f"invalid name for a run: {name[:80]!r}",
        hint="use up to 80 letters, digits, dots, dashes and underscores",
    )


def save(home: Path, name: str, run: Mapping[str, Any]) -> Path:
    """Save a run under a name; it replaces a run with the same name."""
    folder = runs_folder(home)
    target = folder / f"{checked_run_name(name)}{ENDING}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_bytes(target, json.dumps({**run, "name": name}, indent=1).encode(), b"\n")
    return target


def load(home: Path, name: str) -> dict[str, Any]:
    """Return a run by its name or by the path of its file."""
    named = runs_folder(home) / f"{name}{ENDING}"
    path = named if _NAME.fullmatch(name) and named.is_file() else Path(os.path.expanduser(name))
    if not path.is_file():
        raise NotFound(
            f"unknown run: {name[:80]!r}",
            hint="saved runs are listed by `meritory eval list`",
        )
    return _read(path)


def saved(home: Path) -> list[dict[str, Any]]:
    """Return all readable runs without their single probes, latest first."""
    return sorted(latest(home), key=lambda run: (run["at"], run["name"]), reverse=True)


def latest(home: Path) -> Iterator[dict[str, Any]]:
    """Yield the same runs, the last written file first."""
    for path in sorted(runs_folder(home).glob(f"*{ENDING}"), key=_written_at, reverse=True):
        # Skip a damaged file.
        with contextlib.suppress(InputError, OSError):
            run = {**_read(path), "name": path.stem}
            del run["results"]
            yield run


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(path: Path) -> dict[str, Any]:
    if path.stat().st_size > FILE_LIMIT_BYTES:
        raise InputError(f"{path} is too large for a saved run")
    try:
        run = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a saved run", hint="save it again") from error
    with contextlib.suppress(msgspec.ValidationError):
        if msgspec.convert(run, prepared(_SavedRun)).figures.keys() <= set(METRICS):
            return dict(run)
    raise InputError(f"{path} is not a saved run of this version", hint="save it again")
