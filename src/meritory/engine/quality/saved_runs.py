"""What a run found, as plain values: to be shown, saved and compared."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meritory.domain.errors import InputError, NotFound
from meritory.rank.probes import METRICS

FORMAT = 1


# -- two runs -------------------------------------------------------------------------------


FOLDER = "evals"
ENDING = ".json"
FILE_LIMIT_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_WHOLE = ("probes", "scored", "drifted", "moved")


def runs_folder(home: Path) -> Path:
    """Where the runs of a data folder are."""
    return home / FOLDER


def checked_run_name(name: str) -> str:
    """A name that is a file's and nothing else."""
    if _NAME.fullmatch(name):
        return name
    raise InputError(
        f"{name[:80]!r} is no name for a run",
        hint="up to 80 letters, digits, dots, dashes and underscores",
    )


def save(home: Path, name: str, run: Mapping[str, Any]) -> Path:
    """Keeps a run under a name, in the place of one that had it before."""
    folder = runs_folder(home)
    target = folder / f"{checked_run_name(name)}{ENDING}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = folder / f".{name}.part-{os.getpid()}"
    try:
        with open(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
            json.dump({**run, "name": name}, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def load(home: Path, name: str) -> dict[str, Any]:
    """A run by its name, or by the path of its file."""
    named = runs_folder(home) / f"{name}{ENDING}"
    path = named if _NAME.fullmatch(name) and named.is_file() else Path(os.path.expanduser(name))
    if not path.is_file():
        raise NotFound(
            f"there is no run {name[:80]!r}",
            hint="`meritory eval list` shows those that were saved",
        )
    return _read(path)


def saved(home: Path) -> list[dict[str, Any]]:
    """All runs that can be read, latest first, without their single probes."""
    return sorted(latest(home), key=lambda run: (run["at"], run["name"]), reverse=True)


def latest(home: Path) -> Iterator[dict[str, Any]]:
    """The same one by one, the file that was written last first."""
    for path in sorted(runs_folder(home).glob(f"*{ENDING}"), key=_written_at, reverse=True):
        # One that is damaged must not hide the others.
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
        raise InputError(f"{path} is no saved run", hint="save it again") from error
    if not _is_run(run):
        raise InputError(f"{path} is no saved run of this version", hint="save it again")
    return dict(run)


def _is_run(run: Any) -> bool:
    return (
        isinstance(run, dict)
        and run.get("format") == FORMAT
        and all(isinstance(run.get(name), str) for name in ("set_hash", "at"))
        and all(isinstance(run.get(name), int) for name in _WHOLE)
        and _are_figures(run.get("figures"))
        and isinstance(run.get("results"), list)
        and all(map(_is_entry, run["results"]))
    )


def _are_figures(figures: Any) -> bool:
    return isinstance(figures, dict) and all(
        name in METRICS
        and isinstance(one, dict)
        and all(isinstance(one.get(part), int | float) for part in ("mean", "low", "high"))
        for name, one in figures.items()
    )


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
        return False
    rank = entry.get("rank")
    is_rank = rank is None or (isinstance(rank, int) and not isinstance(rank, bool) and rank > 0)
    return is_rank and isinstance(entry.get("in_prompt", False), bool)
