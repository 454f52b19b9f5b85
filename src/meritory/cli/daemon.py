"""Commands about the daemon: up, down, status, api, dashboard, jobs."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from meritory.api import client
from meritory.api.client import Daemon
from meritory.cli.command import (
    command,
    current_home,
    current_settings,
    group,
    limit_option,
    opened,
    opened_services,
    read_text,
    resumable,
)
from meritory.cli.output import (
    Answer,
    Field,
    Fields,
    RecordView,
    age,
    bar,
    clock_text,
    counts,
    current_flags,
    json_text,
    note,
    text_or_empty,
)
from meritory.domain.errors import InputError, MeritoryError, NotFound
from meritory.domain.job import JOB_STATES, JobState

if TYPE_CHECKING:
    from pathlib import Path

    from meritory.server.connection import Listeners

# A daemon whose store does not answer in this time is unhealthy.
HEALTH_WAIT_MS = 5_000
METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")


@command("up", "meritory up --background", "meritory up --port 0")
@click.option("--background", is_flag=True, help="Return once it answers; it keeps running.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The TCP port; 0 is any free one.")
@click.option("--host", metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="A host name that other machines may use for it; may be repeated.",
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

    It serves one data folder on a Unix socket for its owner and on a TCP port, which needs the
    token in the file `token`. Without --background it stays in the foreground, logs to stderr, and
    Ctrl-C stops it. An address that other machines can reach needs --allow-host for every name
    they use. The daemon has no TLS of its own.
    """
    for name in allow_hosts:
        if not name or not name.isascii() or not name.isprintable() or set(name) & set(" /@"):
            raise InputError(f"--allow-host takes a host name, not {name!r}")
    settings = current_settings({"daemon.port": port, "daemon.host": host})
    if background:
        running = client.find(settings.home)
        daemon = running or ensured(settings.home, daemon_options(port, host, allow_hosts))
        for notice in daemon.notes:
            note(notice)
        state = "the daemon is already running" if running else "the daemon is up"
        line = f"{state}: {daemon.url} (process {daemon.pid})"
        return Answer(_to_json(daemon), line)
    from meritory.server.serve import serve

    if detached:
        # Leave the directory it was started in, so that it can be unmounted or removed.
        os.chdir(settings.home if settings.home.is_dir() else "/")
        is_done = serve(settings, allow_hosts)
    else:
        is_done = serve(settings, allow_hosts, sys.stderr, _print_ready)
    if not is_done:
        # Threads that hang would keep the process from exiting.
        sys.stdout.flush()
        os._exit(1)
    return None


def _print_ready(listeners: Listeners, stop: Callable[[], None]) -> None:
    for notice in listeners.notes:
        click.secho(notice, dim=True, err=True)
    socket = None if listeners.unix_path is None else str(listeners.unix_path)
    if current_flags().as_json:
        click.echo(json_text({"url": listeners.url, "socket": socket, "pid": os.getpid()}))
    else:
        click.echo(f"the daemon is up: {listeners.url} (Ctrl-C stops it)")
    sys.stdout.flush()


def ensured(home: Path, options: Sequence[str] | None = None) -> Daemon:
    """Return the daemon of a data folder; start it, with a progress bar, if it is down."""
    running = client.find(home)
    if running is not None:
        return running
    with bar("starting the daemon"):
        return client.ensure(home, options=daemon_options() if options is None else options)


def daemon_options(
    port: int | None = None, host: str | None = None, allow_hosts: Sequence[str] = ()
) -> list[str]:
    """Return the options of this command line that a daemon it starts needs too."""
    flags = current_flags()
    given: list[tuple[str, Any]] = [("--user", flags.user), ("--port", port), ("--host", host)]
    if flags.store:
        given.append(("--store", os.path.abspath(os.path.expanduser(flags.store))))
    given += [("--allow-host", name) for name in allow_hosts]
    return [word for name, value in given if value is not None for word in (name, str(value))]


@command("down", "meritory down")
def down() -> Answer:
    """Stop the daemon.

    It finishes its current work first, for at most five seconds.
    """
    pid = client.stop(current_home())
    line = "no daemon runs" if pid is None else f"stopped process {pid}"
    return Answer({"stopped": pid is not None, "pid": pid}, line)


@command("status", "meritory status --json")
def status() -> Answer:
    """Show whether the daemon runs and is healthy.

    Exits with 1 when it does not run or is unhealthy.
    """
    home = current_home()
    daemon = client.find(home)
    if daemon is None:
        pid = client.holder_pid(home)
        line = "no daemon runs; `meritory up --background` starts one"
        if pid is not None:
            line = f"a daemon (process {pid or 'unknown'}) runs but does not answer"
        names = ("url", "socket", "version", "started_at", "uptime_s", "health")
        known: dict[str, Any] = {"running": False, "pid": pid, "home": str(home), "troubles": []}
        return Answer({**known, **dict.fromkeys(names)}, line, code=1)
    health, troubles = read_health(daemon)
    for notice in (*daemon.notes, *troubles):
        note(notice)
    plain = {"health": health, "troubles": troubles, **_to_json(daemon)}
    pairs = [(name, str(plain[name])) for name in ("health", "url", "socket", "pid", "version")]
    started = datetime.fromisoformat(daemon.started_at)
    since = f"{clock_text(started)}, {timedelta(seconds=plain['uptime_s'])} ago"
    fields = Fields([*pairs, ("started", since), ("home", plain["home"])])
    return Answer(plain, fields, code=int(health == "unhealthy"))


def read_health(daemon: Daemon) -> tuple[str, list[str]]:
    """Return the health in one word and the warnings; unhealthy when it does not answer."""
    try:
        reply = daemon.request("GET", "/api/diagnostics", timeout_ms=HEALTH_WAIT_MS)
    except MeritoryError as error:
        return "unhealthy", [error.message]
    warnings = [warning for part in reply["domains"] for warning in part["warnings"]]
    return reply["status"], [] if reply["status"] == "healthy" else warnings


def _to_json(daemon: Daemon) -> dict[str, Any]:
    started = datetime.fromisoformat(daemon.started_at)
    return {
        "running": True,
        **RecordView("url socket pid version started_at").json(daemon),
        "uptime_s": max(0, round((datetime.now(UTC) - started).total_seconds())),
        "home": str(daemon.home),
    }


@command(
    "api",
    "meritory api /api/stats",
    'meritory api /api/memories --data \'{"content": "We deploy on Mondays"}\'',
    "meritory api /api/memories/01kx3f9qz2 --method DELETE",
)
@click.argument("path")
@click.option(
    "--method",
    type=click.Choice(METHODS, case_sensitive=False),
    help="Default: GET, or POST with --data.",
)
@click.option("--data", metavar="JSON", help="The body, or - to read it from stdin.")
def api(path: str, method: str | None, data: str | None) -> Answer:
    """Send a request to the daemon, starting it if needed.

    PATH is one of those in `meritory api /openapi.json`, query string included.
    """
    try:
        body = None if data is None else json.loads(read_text(data))
    except (ValueError, RecursionError) as error:
        raise InputError(f"--data is not valid JSON: {error}") from error
    daemon = ensured(current_home())
    chosen = method or ("GET" if data is None else "POST")
    reply = daemon.request(chosen.upper(), path, body)
    if isinstance(reply, str):
        return Answer({"text": reply}, *reply.splitlines())
    return Answer(reply, *json.dumps(reply, indent=2, ensure_ascii=False).splitlines())


@command("dashboard", "meritory dashboard", "meritory dashboard --no-open")
@click.option("--no-open", is_flag=True, help="Only print the link.")
@click.option("--logout-all", is_flag=True, help="End every login, in all browsers.")
def dashboard(no_open: bool, logout_all: bool) -> Answer:
    """Open the dashboard in a browser, starting the daemon if needed.

    The link works once and for a minute; the browser that used it stays signed in for twelve
    hours, also when the daemon restarts.
    """
    home = current_home()
    if logout_all:
        if no_open:
            raise InputError("--logout-all opens nothing", hint="remove --no-open")
        running = client.find(home)
        ended = 0
        if running is not None:
            reply = running.request("POST", "/api/dashboard/logout?everywhere=true")
            ended = int(reply["ended"])
        return Answer({"ended": ended}, f"{ended} {'login' if ended == 1 else 'logins'} ended")
    link = ensured(home).request("POST", "/api/dashboard/links")
    # On Linux without a display a browser would open inside this terminal.
    has_screen = sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    is_open = not no_open and has_screen and webbrowser.open(link["url"])
    if not is_open:
        note(f"the link works once, within {link['expires_in_s']} seconds")
    return Answer(
        {"url": link["url"], "expires_in_s": link["expires_in_s"], "opened": is_open},
        "the dashboard opens in your browser" if is_open else str(link["url"]),
    )


# -- jobs -------------------------------------------------------------------------------------

_JOBS = RecordView(
    Field("id", read=lambda job: f"{job.kind}/{job.key}"),
    Field("kind", "kind"),
    Field("key", "key", style="cyan"),
    Field("state", "state"),
    Field("stage", "stage", lambda job: job.stage or None),
    Field("attempt_count", "attempts"),
    Field("created_at", "age", show=age, style="dim"),
    "due_at finished_at",
    Field("error", "error", show=text_or_empty, wraps=True),
)


@group("jobs", "meritory jobs --state parked")
@click.option("--state", type=click.Choice(JOB_STATES), help="Only jobs in this state.")
@limit_option()
def jobs(state: JobState | None, limit: int) -> Answer:
    """List background jobs, newest first.

    The stage is the last one that took effect; no stage takes effect twice. A job that failed too
    often is parked until `meritory jobs retry`.
    """
    with opened_services() as (services, user):
        records = services.store.jobs(user, state, limit)
    return _JOBS.answer(records, f"no job is {state}" if state else "there are no jobs")


@command("retry", "meritory jobs retry 7f3c2a", parent=jobs)
@click.argument("key")
def retry(key: str) -> Answer:
    """Queue parked jobs again.

    KEY is a job's key, or KIND/KEY as `meritory jobs --json` prints it. A parked job resumes where
    it stopped, with new attempts; a job that waits for its next attempt becomes due now.
    """
    with opened_services() as (services, user):
        store, now = services.store, services.world.now()
        retried: tuple[JobState, ...] = ("parked", "queued")
        waiting = [
            job
            for state in retried
            for job in store.jobs(user, state, 10_000)
            if key in (job.key, f"{job.kind}/{job.key}")
        ]
        if not waiting:
            raise NotFound(
                f"no parked or queued job has the key {key[:80]!r}",
                hint="`meritory jobs` lists them",
            )
        queued = store.write(
            user,
            lambda transaction: [
                transaction.resume_job(user, job.kind, job.key, now) for job in waiting
            ],
        )
    note("the daemon runs them when they are due, `meritory jobs run` at once")
    return _JOBS.answer(queued)


@command("run", "meritory jobs run", parent=jobs)
def run() -> Answer:
    """Run the jobs that are due, now and in this process.

    Not needed while the daemon runs. Exits with 1 when jobs are parked.
    """
    with resumable(), opened(quiet=True) as memory:
        done_count = memory.drain()
        states = memory.services.store.job_counts()
    if states["parked"]:
        note("`meritory jobs --state parked` shows why, `meritory jobs retry KEY` tries again")
    line = f"{done_count} jobs done; now {counts(states)}"
    return Answer(
        {"done_count": done_count, "counts": states}, line, code=int(states["parked"] > 0)
    )
