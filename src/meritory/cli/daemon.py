"""Commands about the daemon: up, down, status, api."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_flags, current_home, current_settings, note
from meritory.cli.options import command
from meritory.cli.output import Answer, Fields, Lines
from meritory.cli.records import clock_text
from meritory.cli.render import bar
from meritory.domain.errors import InputError, MeritoryError

if TYPE_CHECKING:
    from pathlib import Path

    from meritory.api.client import Daemon
    from meritory.server.listeners import Listeners

# Whoever asks how it is waits no longer: one whose store hangs is not well.
HEALTH_WAIT_MS = 5_000
METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")


@command(
    "up",
    """
    meritory up --background
    meritory up --port 0
    """,
)
@click.option("--background", is_flag=True, help="Return once it answers; it goes on by itself.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The TCP port; 0 is any free one.")
@click.option("--host", metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="A name under which other machines may reach it; may be repeated.",
)
@click.option("--detached", is_flag=True, hidden=True)
def up(
    background: bool,
    port: int | None,
    host: str | None,
    allow_hosts: tuple[str, ...],
    detached: bool,
) -> Answer | None:
    """Start the daemon.

    It serves one data folder on a Unix socket of its owner's and on a TCP port of this machine,
    the latter with the token in the file `token`. Without --background it stays in the
    foreground, writes its log to stderr, and Ctrl-C stops it. An address that other machines
    reach needs --allow-host for every name they use, and speaks no TLS by itself.
    """
    for name in allow_hosts:
        if not name or not name.isascii() or not name.isprintable() or set(name) & set(" /@"):
            raise InputError(f"--allow-host takes a name, not {name!r}")
    settings = current_settings({"daemon.port": port, "daemon.host": host})
    if background:
        from meritory.api import client

        running = client.find(settings.home)
        daemon = running or ensured(settings.home, passed_on(port, host, allow_hosts))
        for told in daemon.notes:
            note(told)
        word = "the daemon runs already" if running else "the daemon is up"
        return Answer(_plain(daemon), [Lines([f"{word}: {daemon.url} (process {daemon.pid})"])])
    from meritory.server.serve import ServeOptions, serve

    if detached:
        # Not where it happened to be started: that place may be wanted for something else.
        os.chdir(settings.home if settings.home.is_dir() else "/")
        plan = ServeOptions(settings, allow_hosts)
    else:
        plan = ServeOptions(settings, allow_hosts, sys.stderr, _ready)
    if not serve(plan):
        # What hangs would keep the process from ending.
        sys.stdout.flush()
        os._exit(1)
    return None


def _ready(doors: Listeners, stop: Callable[[], None]) -> None:
    from meritory.cli.render import json_text

    for told in doors.notes:
        click.secho(told, dim=True, err=True)
    socket = None if doors.unix_path is None else str(doors.unix_path)
    if current_flags().as_json:
        click.echo(json_text({"url": doors.url, "socket": socket, "pid": os.getpid()}))
    else:
        click.echo(f"the daemon is up: {doors.url} (Ctrl-C stops it)")
    sys.stdout.flush()


def ensured(home: Path, options: Sequence[str]) -> Daemon:
    """The daemon of a data folder; whoever has to wait for its start sees for what."""
    from meritory.api import client

    running = client.find(home)
    if running is not None:
        return running
    with bar("starting the daemon"):
        return client.ensure(home, options=options)


def passed_on(port: int | None, host: str | None, allow_hosts: Sequence[str]) -> list[str]:
    """The options of this call that a daemon it starts has to be given too."""
    flags = current_flags()
    given: list[tuple[str, Any]] = [("--user", flags.user), ("--port", port), ("--host", host)]
    if flags.store:
        given.append(("--store", os.path.abspath(os.path.expanduser(flags.store))))
    given += [("--allow-host", name) for name in allow_hosts]
    return [word for name, value in given if value is not None for word in (name, str(value))]


@command("down", "meritory down")
def down() -> Answer:
    """Stop the daemon.

    What it is doing is finished first, for at most five seconds.
    """
    from meritory.api import client

    pid = client.stop(current_home())
    if pid is None:
        return Answer({"stopped": False, "pid": None}, [Lines(["no daemon runs"])])
    return Answer({"stopped": True, "pid": pid}, [Lines([f"stopped process {pid}"])])


@command("status", "meritory status --json")
def status() -> Answer:
    """Show whether the daemon runs, and how it is.

    Ends with 1 when it does not run, or cannot do its work.
    """
    from meritory.api import client

    home = current_home()
    daemon = client.find(home)
    if daemon is None:
        return _nobody(home, client.holder_pid(home))
    health, troubles = _health(daemon)
    for told in (*daemon.notes, *troubles):
        note(told)
    plain = {"health": health, "troubles": troubles, **_plain(daemon)}
    pairs = [(name, str(plain[name])) for name in ("health", "url", "socket", "pid", "version")]
    started = datetime.fromisoformat(daemon.started_at)
    since = f"{clock_text(started)}, {timedelta(seconds=plain['uptime_s'])} ago"
    fields = Fields([*pairs, ("started", since), ("home", plain["home"])])
    return Answer(plain, [fields], int(health == "unhealthy"))


def _nobody(home: Path, pid: int | None) -> Answer:
    told = "no daemon runs; `meritory up --background` starts one"
    if pid is not None:
        told = f"a daemon (process {pid or 'unknown'}) runs but does not answer"
    unknown = dict.fromkeys(("url", "socket", "version", "started_at", "uptime_s"))
    known = {"running": False, "pid": pid, "home": str(home)}
    return Answer({**known, "health": None, "troubles": [], **unknown}, [Lines([told])], 1)


def _health(daemon: Daemon) -> tuple[str, list[str]]:
    """How it is doing in a word of its own, and what is wrong; one whose store is away says so."""
    try:
        told = daemon.request("GET", "/api/diagnostics", timeout_ms=HEALTH_WAIT_MS)
    except MeritoryError as error:
        return "unhealthy", [error.message]
    warnings = [warning for domain in told["domains"] for warning in domain["warnings"]]
    return told["status"], [] if told["status"] == "healthy" else warnings


def _plain(daemon: Daemon) -> dict[str, Any]:
    started = datetime.fromisoformat(daemon.started_at)
    return {
        "running": True,
        "url": daemon.url,
        "socket": daemon.socket,
        "pid": daemon.pid,
        "version": daemon.version,
        "started_at": daemon.started_at,
        "uptime_s": max(0, round((datetime.now(UTC) - started).total_seconds())),
        "home": str(daemon.home),
    }


@command(
    "api",
    """
    meritory api /api/stats
    meritory api /api/memories --data '{"content": "We deploy on Mondays"}'
    meritory api /api/memories/01kx3f9qz2 --method DELETE
    """,
)
@click.argument("path")
@click.option(
    "--method",
    type=click.Choice(METHODS, case_sensitive=False),
    help="GET unless --data is given, then POST.",
)
@click.option("--data", metavar="JSON", help="The body, or - to read it from stdin.")
def api(path: str, method: str | None, data: str | None) -> Answer:
    """Ask the daemon, starting it when it is down.

    PATH is one of those in `meritory api /openapi.json`, query string included.
    """
    body = None if data is None else _parsed(data)
    daemon = ensured(current_home(), passed_on(None, None, ()))
    chosen = method or ("GET" if data is None else "POST")
    reply = daemon.request(chosen.upper(), path, body)
    if isinstance(reply, str):
        return Answer({"text": reply}, [Lines(reply.splitlines())])
    return Answer(reply, [Lines(json.dumps(reply, indent=2, ensure_ascii=False).splitlines())])


def _parsed(data: str) -> Any:
    from meritory.cli.context import read_text

    try:
        return json.loads(read_text(data))
    except (ValueError, RecursionError) as error:
        raise InputError(f"--data is not valid JSON: {error}") from error
