"""The command that opens the dashboard: dashboard."""

from __future__ import annotations

import os
import sys
import webbrowser

import click

from meritory.cli.context import current_home, note
from meritory.cli.daemon import ensured, passed_on
from meritory.cli.options import command
from meritory.cli.output import Answer, Lines
from meritory.domain.errors import InputError


@command(
    "dashboard",
    """
    meritory dashboard
    meritory dashboard --no-open
    """,
)
@click.option("--no-open", is_flag=True, help="Only print the link.")
@click.option("--logout-all", is_flag=True, help="End every login, in all browsers.")
def dashboard(no_open: bool, logout_all: bool) -> Answer:
    """Open the dashboard in a browser, starting the daemon when it is down.

    The link works once and for a minute; the browser that used it stays signed in for twelve
    hours, or until the daemon is stopped.
    """
    from meritory.api import client

    home = current_home()
    if logout_all:
        if no_open:
            raise InputError("--logout-all opens nothing", hint="leave --no-open out")
        daemon = client.find(home)
        ended = 0
        if daemon is not None:
            reply = daemon.request("POST", "/api/dashboard/logout?everywhere=true")
            ended = int(reply["ended"])
        word = "login was" if ended == 1 else "logins were"
        return Answer({"ended": ended}, [Lines([f"{ended} {word} ended"])])
    daemon = ensured(home, passed_on(None, None, ()))
    link = daemon.request("POST", "/api/dashboard/links")
    is_open = not no_open and _has_screen() and webbrowser.open(link["url"])
    told = {"url": link["url"], "expires_in_s": link["expires_in_s"], "opened": is_open}
    if is_open:
        return Answer(told, [Lines(["the dashboard opens in your browser"])])
    note(f"the link works once, within {link['expires_in_s']} seconds")
    return Answer(told, [Lines([str(link["url"])])])


def _has_screen() -> bool:
    """Whether a browser would show up; one inside this terminal would be in the way."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
