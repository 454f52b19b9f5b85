"""Commands about access tokens: token create, list, rotate, revoke."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from meritory.cli.command import command, current_home, group, opened, opened_services
from meritory.cli.output import Answer, Field, RecordView, age, clock_text, note
from meritory.domain.access import ROLES, AccessToken
from meritory.domain.errors import InputError, SettingsError
from meritory.domain.world import World

if TYPE_CHECKING:
    from meritory.engine.access import Minted

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def _view(now: datetime) -> RecordView:
    def scope(token: AccessToken) -> str:
        parts = (token.agent and f"agent {token.agent}", token.project)
        return " ".join(filter(None, parts)) or "all"

    def end(token: AccessToken) -> str:
        if token.revoked_at is not None:
            return "revoked"
        if token.expires_at is None:
            return "never"
        return clock_text(token.expires_at) if token.is_valid(now) else "expired"

    return RecordView(
        Field("id", "id", style="cyan"),
        "user",
        Field("name", "name", wraps=True),
        Field("role", "role"),
        Field("", "for", scope),
        "agent project",
        Field("created_at", "age", show=age, style="dim"),
        "expires_at revoked_at",
        Field("last_used_at", "used", show=age),
        Field("is_valid", read=lambda token: token.is_valid(now)),
        Field("", "ends", end),
    )


class Span(click.ParamType[timedelta]):
    """A span of time: 30s, 10m, 12h, 90d, 2w."""

    name = "span"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Parse a span."""
        match = re.fullmatch(r"(\d{1,6})([smhdw])", str(value))
        if match is None:
            self.fail(
                f"{value!r} is not a span of time; write 30s, 10m, 12h, 90d or 2w", param, ctx
            )
        return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


@group("token", "meritory token create laptop --role write", default="list")
def token() -> None:
    """List access tokens.

    A token gives access to the memories of one user, or of one of their agents or projects. The
    role `read` may read, `write` may also do what agents do, `admin` may also do what cannot be
    undone. The owner of the daemon needs no token on the same machine.
    """


@command("list", "meritory token list --all --json", parent=token)
@click.option("--all", "every", is_flag=True, help="Also revoked and expired tokens.")
def list_tokens(every: bool) -> Answer:
    """List access tokens, newest first."""
    from meritory.engine.access import sorted_tokens

    with opened_services() as (services, user):
        now = services.world.now()
        tokens = sorted_tokens(services.store.access_tokens(user), now, every=every)
    return _view(now).answer(tokens, f"{user} has no tokens; `meritory token create` makes one")


@command(
    "create",
    "meritory token create laptop --role write",
    "meritory token create ci --role read --user ada --project api --expires 90d",
    parent=token,
)
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What its holder may do.")
@click.option("--agent", metavar="NAME", help="Only memories of this agent, and shared ones.")
@click.option("--project", metavar="NAME", help="Only memories of this project, and shared ones.")
@click.option("--expires", type=Span(), metavar="SPAN", help="How long it is valid, e.g. 90d.")
def create(
    name: str, role: str, agent: str | None, project: str | None, expires: timedelta | None
) -> Answer:
    """Create an access token.

    NAME says who or what uses it. The text of the token is printed once and not stored.
    """
    from meritory.engine import access

    with opened(project, agent, quiet=True) as memory:
        made = access.create(memory.services, name, role, memory.scope, expires)
        return _created(made, memory.services.world.now())


def _created(made: Minted, now: datetime) -> Answer:
    note("this text is not shown again; store it with your secrets")
    note("programs: Memory(url=..., token=...); agents: MERITORY_URL and MERITORY_TOKEN")
    note("anything else: the header `Authorization: Bearer TOKEN`")
    return Answer({**_view(now).json(made.token), "token": made.text}, made.text)


@command(
    "rotate",
    "meritory token rotate abcd2345",
    "meritory token rotate abcd2345 --grace 1d",
    "meritory token rotate --owner",
    parent=token,
)
@click.argument("token_id", metavar="[ID]", required=False)
@click.option(
    "--grace",
    type=Span(),
    metavar="SPAN",
    help="How long the old one stays valid. Default: 10m.",
)
@click.option("--owner", is_flag=True, help="The token of the data folder, without any grace.")
def rotate(token_id: str | None, grace: timedelta | None, owner: bool) -> Answer:
    """Replace a token by a new one.

    The new token has the name, role and scope of the old one, and its own id.
    """
    if owner:
        if token_id is not None or grace is not None:
            raise InputError("--owner takes no id and no --grace", hint="remove them")
        from meritory.api import client
        from meritory.server.auth import rotate_token
        from meritory.settings.home import TOKEN_NAME

        home = current_home()
        file = home / TOKEN_NAME
        if not file.is_file():
            raise SettingsError(f"there is no token in {home}", hint="`meritory up` makes one")
        rotate_token(home)
        is_running = client.holder_pid(home) is not None
        note("dashboard logins stay valid; `meritory dashboard --logout-all` ends them")
        user = "the running daemon" if is_running else "the next daemon"
        return Answer({"file": str(file), "running": is_running}, f"{file} is new; {user} uses it")
    if token_id is None:
        raise InputError("no token was named", hint="give its id, or --owner")
    from meritory.engine import access

    with opened(quiet=True) as memory:
        known = access.named(memory.services, memory.scope.user, token_id)
        span = timedelta(minutes=10) if grace is None else grace
        made = access.rotate(memory.services, known, span)
        note(f"{known.id} stays valid for {span}" if span else f"{known.id} is no longer valid")
        return _created(made, memory.services.world.now())


@command("revoke", "meritory token revoke abcd2345", parent=token)
@click.argument("token_id", metavar="ID")
def revoke(token_id: str) -> Answer:
    """Revoke a token.

    Running daemons reject it within a second.
    """
    from meritory.engine import access

    with opened(quiet=True) as memory:
        known = access.named(memory.services, memory.scope.user, token_id)
        ended = access.revoke(memory.services, known)
    plain = _view(World().now()).json(ended)
    return Answer(plain, f"{ended.id} ({ended.name}) is no longer valid")
