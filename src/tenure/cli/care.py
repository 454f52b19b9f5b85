"""Commands that look after the store: backup, restore, reembed, doctor."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenure.cli.answer import Answer, Column, Lines, Table
from tenure.cli.frame import (
    BACKUPS_NAME,
    current_home,
    current_settings,
    demand_yes,
    embedder_spec,
    named_store_file,
    opened,
    resumable,
    store_file,
)
from tenure.cli.options import command
from tenure.cli.progress import bar

if TYPE_CHECKING:
    from tenure.flow.health import Check
    from tenure.settings import Settings


@command("backup", "tenure backup")
@click.argument("file", required=False)
def backup(file: str | None) -> Answer:
    """Copy the store while it stays in use.

    FILE must not exist yet; without it the copy goes into the folder `backups` of the data
    folder, named by the time. The copy is checked before it is put in place.
    """
    with opened() as memory:
        if file is None:
            folder = memory.settings.home / BACKUPS_NAME
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            target = folder / f"tenure-{memory.services.world.now():%Y%m%dT%H%M%S%f}Z.db"
        else:
            target = Path(file)
        memory.backup(target)
    size = target.stat().st_size
    plain = {"file": str(target.absolute()), "size_bytes": size}
    return Answer(plain, [Lines([f"backed up to {target} ({size:,} bytes, checked)"])])


@command("restore", "tenure restore backups/tenure-20261115T083000Z.db")
@click.argument("file")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def restore(file: str, yes: bool) -> Answer:
    """Put a backup in the store's place.

    The backup is checked first, and the files that were there are kept in a folder beside the
    store. Refused while another process has the store open.
    """
    from tenure.store.backup import restore as put_back
    from tenure.world import World

    target = store_file(current_settings())
    if target.exists():
        demand_yes(f"Replace {target} by {file}? The present files are kept aside.", yes=yes)
    aside = put_back(target, Path(file), World().now())
    lines = [f"restored {target} from {file}"]
    if aside is not None:
        lines.append(f"the former files are in {aside}")
    plain = {
        "file": str(Path(file).absolute()),
        "store": str(target),
        "former_files": None if aside is None else str(aside),
    }
    return Answer(plain, [Lines(lines)])


@command("reembed", "tenure reembed")
def reembed() -> Answer:
    """Make the vectors that are missing.

    Needed after the embedder was changed, or when it failed. Meanwhile, and when interrupted,
    everything keeps working: searches use the former vectors until all new ones are there.
    """
    with resumable(), opened(quiet=True) as memory, bar("embedding") as progress:
        embedding = memory.services.embedding
        if embedding.is_off:
            off = {"complete": True, "embedder": None, "memory_count": 0}
            return Answer(off, [Lines(["the embedder is off (embedder.kind = none)"])])
        name = embedding.wanted().name
        complete = memory.reembed(progress)
        state = memory.services.store.embedding_state(name)
    plain = {"complete": complete, "embedder": name, "memory_count": state.memory_count}
    line = f"all {state.memory_count} memories have vectors of {name}"
    if not complete:
        line = f"{state.embedded_count} of {state.memory_count} memories have vectors of {name}"
    return Answer(plain, [Lines([line])], 0 if complete else 1)


@command("doctor", "tenure doctor --deep")
@click.option("--deep", is_flag=True, help="Also read every memory and compare its checksum.")
def doctor(deep: bool) -> Answer:
    """Check that everything is in order.

    It mends nothing and says what to do. Ends with 1 when a check fails; a warning is no failure.
    """
    from tenure.flow.health import Patient, examine, worst
    from tenure.world import World

    settings, checks = _settings_check()
    patient = Patient(
        home=settings.home,
        store_file=named_store_file(settings),
        backups=settings.home / BACKUPS_NAME,
        spec=embedder_spec(settings),
        now=World().now(),
        deep=deep,
    )
    with bar("checking"):
        checks += examine(patient)
    columns = (Column("check"), Column("state"), Column("what was found", wraps=True))
    rows = [(check.name, check.status, _told(check)) for check in checks]
    results = [{"id": check.name, **_without_name(check)} for check in checks]
    status = worst(checks)
    plain = {"status": status, "results": results}
    return Answer(plain, [Table(columns, rows)], 1 if status == "fail" else 0)


def _settings_check() -> tuple[Settings, list[Check]]:
    """The settings, or their defaults and what is wrong with them."""
    from tenure.errors import SettingsError
    from tenure.flow.health import Check
    from tenure.settings import Settings

    try:
        settings = current_settings()
        named_store_file(settings)
    except SettingsError as error:
        fallback = Settings(home=current_home(), origins={})
        return fallback, [Check("settings", "fail", error.message, error.hint or "")]
    return settings, [Check("settings", "ok", f"data folder {settings.home}")]


def _told(check: Check) -> str:
    return f"{check.detail}; {check.hint}" if check.hint else check.detail


def _without_name(check: Check) -> dict[str, str]:
    return {name: value for name, value in asdict(check).items() if name != "name"}
