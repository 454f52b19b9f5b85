"""Commands that look after the store: backup, restore, reembed, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from meritory.cli.command import (
    BACKUPS_NAME,
    command,
    current_home,
    current_settings,
    environment,
    named_place,
    opened,
    require_yes,
    resumable,
    store_place,
    yes_option,
)
from meritory.cli.output import Answer, Field, RecordView, bar
from meritory.domain.errors import InputError, MeritoryError, SettingsError
from meritory.domain.world import World

if TYPE_CHECKING:
    from meritory.engine.observe.health import HealthCheck, HealthFacts
    from meritory.settings import Settings

_CHECKS = RecordView(
    Field("id", "check", "name"),
    Field("status", "state"),
    "detail hint",
    Field(
        "",
        "result",
        lambda check: f"{check.detail}; {check.hint}" if check.hint else check.detail,
        wraps=True,
    ),
)


@command("backup", "meritory backup")
@click.argument("file", required=False)
def backup(file: str | None) -> Answer:
    """Copy the store while it is in use.

    FILE must not exist yet. Default: a file named by the time in the folder `backups` of the data
    folder. The copy is checked before it gets its name. Learned models go into a folder next to it.
    """
    with opened() as memory:
        if file is None:
            folder = memory.settings.home / BACKUPS_NAME
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            target = folder / f"meritory-{memory.services.world.now():%Y%m%dT%H%M%S%f}Z.db"
        else:
            target = Path(file)
        memory.backup(target)
    size = target.stat().st_size
    models = sum(1 for _ in Path(f"{target}-models").glob("*/model-*.sgpt"))
    lines = [f"backed up to {target} ({size:,} bytes, checked)"]
    if models:
        lines.append(f"with {models} learned models in {target.name}-models; keep both together")
    plain = {"file": str(target.absolute()), "size_bytes": size, "models": models}
    return Answer(plain, *lines)


@command("restore", "meritory restore backups/meritory-20261115T083000Z.db")
@click.argument("file")
@yes_option
def restore(file: str, yes: bool) -> Answer:
    """Replace the store with a backup.

    The backup is checked first, and the current files are kept in a folder next to the store.
    Learned models are restored too. Refused while another process has the store open.
    """
    from meritory.engine.transfer.backup import restore_store

    settings = current_settings()
    target = named_place(settings).file
    if target is None:
        raise InputError(
            "the store is a PostgreSQL database, not a file", hint="restore it with `pg_restore`"
        )
    store_place(settings)
    if not Path(file).is_file():
        raise InputError(f"there is no backup {file}", hint="check the path")
    if target.exists():
        require_yes(f"Replace {target} by {file}? The current files are kept.", yes=yes)
    aside, models = restore_store(target, Path(file), World().now())
    lines = [f"restored {target} from {file}" + (f", with {models} models" if models else "")]
    if aside is not None:
        lines.append(f"the former files are in {aside}")
    plain = {
        "file": str(Path(file).absolute()),
        "store": str(target),
        "former_files": None if aside is None else str(aside),
        "models": models,
    }
    return Answer(plain, *lines)


@command("reembed", "meritory reembed")
def reembed() -> Answer:
    """Make missing vectors.

    Needed after the embedder was changed, or when it failed. Searches use the former vectors until
    all new ones exist, so nothing stops working while it runs or when it is interrupted.
    """
    with resumable(), opened(quiet=True) as memory, bar("embedding") as progress:
        embedding = memory.services.embedding
        if embedding.is_off:
            line = "the embedder is off (embedder.kind = none)"
            return Answer({"complete": True, "embedder": None, "memory_count": 0}, line)
        name = embedding.wanted().name
        complete = memory.reembed(progress)
        state = memory.services.store.embedding_state(name)
    line = f"all {state.memory_count} memories have vectors of {name}"
    if not complete:
        line = f"{state.embedded_count} of {state.memory_count} memories have vectors of {name}"
    return Answer(
        {"complete": complete, "embedder": name, "memory_count": state.memory_count},
        line,
        code=0 if complete else 1,
    )


@command("doctor", "meritory doctor --deep --repair")
@click.option("--deep", is_flag=True, help="Also read every row and verify its checksum.")
@click.option("--repair", is_flag=True, help="Repair what --deep finds, after a copy of the store.")
@yes_option
def doctor(deep: bool, repair: bool, yes: bool) -> Answer:
    """Check settings, store, models and agents.

    It changes nothing without --repair and says what to do. A repair makes vectors, indexes and
    entities again and restores rows in which one byte changed. Exits with 1 when a check fails; a
    warning is not a failure.
    """
    from meritory.connect.plan import harness_checks
    from meritory.engine.observe.health import HealthCheck, HealthFacts, examine, worst
    from meritory.settings.home import COPIED_MODELS_NAME

    settings, checks = _settings_checks()
    facts = HealthFacts(
        home=settings.home,
        place=named_place(settings),
        backups=settings.home / BACKUPS_NAME,
        spec=settings.embedder,
        now=World().now(),
        deep=deep or repair,
        base_weights=settings.predictor.base_weights,
        copied_models=settings.home / COPIED_MODELS_NAME,
    )
    done = _repaired(facts, yes=yes) if repair else []
    with bar("checking"):
        checks += examine(facts)
        checks += _remote_checks()
        checks += [
            HealthCheck(check.name, check.status, check.detail, check.hint)
            for check in harness_checks(current_home(), environment())
        ]
    status = worst(checks)
    plain = {"status": status, "results": [_CHECKS.json(check) for check in checks]}
    repairs = {"repairs": done} if repair else {}
    return Answer(
        {**plain, **repairs}, *done, _CHECKS.table(checks), code=1 if status == "fail" else 0
    )


def _repaired(facts: HealthFacts, *, yes: bool) -> list[str]:
    """Repair a damaged store after a copy of its file; return what was done."""
    from meritory.engine.memories.repair import copy_damaged, find_damage, repair

    file = facts.place.file
    if file is not None and not file.exists():
        return []
    try:
        with bar("checking"):
            damage = find_damage(facts.place)
    except MeritoryError as error:
        return [f"not repaired: {error.message}"]
    if not damage:
        return ["there is nothing to repair"]
    done = []
    if file is None:
        require_yes(f"Repair {facts.place.name}? Make a backup with `pg_dump` first.", yes=yes)
    else:
        require_yes(f"Repair {file}? A copy of it is kept.", yes=yes)
        done = [f"damaged store copied to {copy_damaged(file, facts.backups, facts.now)}"]
    with opened(quiet=True) as memory, bar("repairing") as progress:
        return done + repair(memory.services, progress)


def _settings_checks() -> tuple[Settings, list[HealthCheck]]:
    """Return the settings with their checks; the defaults when they are invalid."""
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
        detail = f"the memories of {settings.user!r}, shared by everyone without a user name"
        checks.append(HealthCheck("user", "warn", detail, "set MERITORY_USER to your own name"))
    return settings, checks


def _remote_checks() -> list[HealthCheck]:
    """Check the remote daemon that agents and programs use instead of the local store."""
    from meritory.api import client
    from meritory.api.memory import Memory
    from meritory.engine.observe.health import HealthCheck
    from meritory.settings.home import TOKEN_VARIABLE, URL_VARIABLE

    env = environment()
    url = env.get(URL_VARIABLE, "").strip()
    if not url:
        return []
    token = env.get(TOKEN_VARIABLE, "").strip() or None
    if token and client.is_exposed(url):
        detail = f"{URL_VARIABLE} has no TLS: others can read token and memories on the network"
        hint = "use https://, by a proxy in front of the daemon"
        return [HealthCheck("elsewhere", "warn", detail, hint)]
    try:
        # Hooks and `meritory mcp` validate it more strictly than programs do.
        client.elsewhere(env, current_home())
        with Memory(url=url, token=token) as memory:
            user = memory.scope.user
    except MeritoryError as error:
        detail = f"{URL_VARIABLE}: {error.message}"
        return [HealthCheck("elsewhere", "fail", detail, error.hint or "")]
    detail = f"agents and programs use {url} as {user!r}; commands use the local store"
    return [HealthCheck("elsewhere", "ok", detail)]
