"""Commands that look after the store: backup, restore, reembed, doctor."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from meritory.cli.context import (
    BACKUPS_NAME,
    current_home,
    current_settings,
    demand_file,
    demand_yes,
    environment,
    named_place,
    opened,
    resumable,
    store_place,
)
from meritory.cli.options import command
from meritory.cli.output import Answer, Column, Lines, Table
from meritory.cli.render import bar
from meritory.domain.errors import InputError

if TYPE_CHECKING:
    from meritory.engine.observe.health import HealthCheck
    from meritory.settings import Settings


@command("backup", "meritory backup")
@click.argument("file", required=False)
def backup(file: str | None) -> Answer:
    """Copy the store while it stays in use.

    FILE must not exist yet; without it the copy goes into the folder `backups` of the data
    folder, named by the time. The copy is checked before it is put in place. Learned models go
    into a folder beside it.
    """
    with opened() as memory:
        if file is None:
            folder = memory.settings.home / BACKUPS_NAME
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            target = folder / f"meritory-{memory.services.world.now():%Y%m%dT%H%M%S%f}Z.db"
        else:
            target = Path(file)
        memory.backup(target)
    size, models = target.stat().st_size, _model_count(target)
    plain = {"file": str(target.absolute()), "size_bytes": size, "models": models}
    lines = [f"backed up to {target} ({size:,} bytes, checked)"]
    if models:
        lines.append(f"with {models} learned models in {target.name}-models; keep both together")
    return Answer(plain, [Lines(lines)])


def _model_count(file: Path) -> int:
    folder = Path(f"{file}-models")
    return sum(1 for _ in folder.glob("*/model-*.sgpt"))


@command("restore", "meritory restore backups/meritory-20261115T083000Z.db")
@click.argument("file")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def restore(file: str, yes: bool) -> Answer:
    """Put a backup in the store's place.

    The backup is checked first, and the files that were there are kept in a folder beside the
    store. Learned models come back with it. Refused while another process has the store open.
    """
    from meritory.domain.world import World
    from meritory.engine.transfer.backup import restore_store

    settings = current_settings()
    target = demand_file(settings, "put it back with `pg_restore`")
    store_place(settings)
    if not Path(file).is_file():
        raise InputError(f"there is no backup {file}", hint="check the path")
    if target.exists():
        demand_yes(f"Replace {target} by {file}? The present files are kept aside.", yes=yes)
    aside, models = restore_store(target, Path(file), World().now())
    lines = [f"restored {target} from {file}" + (f", {models} models with it" if models else "")]
    if aside is not None:
        lines.append(f"the former files are in {aside}")
    plain = {
        "file": str(Path(file).absolute()),
        "store": str(target),
        "former_files": None if aside is None else str(aside),
        "models": models,
    }
    return Answer(plain, [Lines(lines)])


@command("reembed", "meritory reembed")
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


@command("doctor", "meritory doctor --deep")
@click.option("--deep", is_flag=True, help="Also read every memory and compare its checksum.")
def doctor(deep: bool) -> Answer:
    """Check that everything is in order.

    It mends nothing and says what to do. Ends with 1 when a check fails; a warning is no failure.
    """
    from meritory.domain.world import World
    from meritory.engine.observe.health import HealthFacts, examine, worst
    from meritory.settings.home import COPIED_MODELS_NAME

    settings, checks = _settings_check()
    patient = HealthFacts(
        home=settings.home,
        place=named_place(settings),
        backups=settings.home / BACKUPS_NAME,
        spec=settings.embedder,
        now=World().now(),
        deep=deep,
        base_weights=settings.predictor.base_weights,
        copied_models=settings.home / COPIED_MODELS_NAME,
    )
    with bar("checking"):
        checks += examine(patient)
        checks += _elsewhere_checks()
        checks += _harness_checks()
    columns = (Column("check"), Column("state"), Column("what was found", wraps=True))
    rows = [(check.name, check.status, _told(check)) for check in checks]
    results = [{"id": check.name, **_without_name(check)} for check in checks]
    status = worst(checks)
    plain = {"status": status, "results": results}
    return Answer(plain, [Table(columns, rows)], 1 if status == "fail" else 0)


def _settings_check() -> tuple[Settings, list[HealthCheck]]:
    """The settings, or their defaults and what is wrong with them."""
    from meritory.domain.errors import SettingsError
    from meritory.engine.observe.health import HealthCheck
    from meritory.settings import Settings

    try:
        settings = current_settings()
        named_place(settings)
    except (SettingsError, InputError) as error:
        fallback = Settings(home=current_home(), origins={})
        return fallback, [HealthCheck("settings", "fail", error.message, error.hint or "")]
    checks = [HealthCheck("settings", "ok", f"data folder {settings.home}")]
    if settings.database.url and settings.origins.get("user", "default") == "default":
        told = f"the memories of {settings.user!r}, which everybody without a name shares"
        checks.append(HealthCheck("user", "warn", told, "set MERITORY_USER to a name of your own"))
    return settings, checks


def _elsewhere_checks() -> list[HealthCheck]:
    """The daemon that agents and programs are told to use instead of this machine's own store."""
    from meritory.api import client
    from meritory.api.memory import Memory
    from meritory.domain.errors import MeritoryError
    from meritory.engine.observe.health import HealthCheck
    from meritory.settings.home import TOKEN_VARIABLE, URL_VARIABLE

    env = environment()
    url = env.get(URL_VARIABLE, "").strip()
    if not url:
        return []
    token = env.get(TOKEN_VARIABLE, "").strip() or None
    if token and client.is_exposed(url):
        told = f"{URL_VARIABLE} has no TLS: token and memories can be read on the way"
        return [
            HealthCheck(
                "elsewhere", "warn", told, "use https://, by a proxy in front of the daemon"
            )
        ]
    try:
        # Hooks and `meritory mcp` read it more strictly than programs do.
        client.elsewhere(env, current_home())
        with Memory(url=url, token=token) as memory:
            user = memory.scope.user
    except MeritoryError as error:
        return [
            HealthCheck("elsewhere", "fail", f"{URL_VARIABLE}: {error.message}", error.hint or "")
        ]
    told = f"agents and programs use {url}, with the memories of {user!r}; commands the store above"
    return [HealthCheck("elsewhere", "ok", told)]


def _harness_checks() -> list[HealthCheck]:
    """The agents on this machine, and whether Meritory is in them."""
    from meritory.connect.plan import harness_checks
    from meritory.engine.observe.health import HealthCheck

    found = harness_checks(current_home(), environment())
    return [HealthCheck(one.name, one.status, one.detail, one.hint) for one in found]


def _told(check: HealthCheck) -> str:
    return f"{check.detail}; {check.hint}" if check.hint else check.detail


def _without_name(check: HealthCheck) -> dict[str, str]:
    return {name: value for name, value in asdict(check).items() if name != "name"}
