"""Commands about tokens, with which others may come in: token create, list, rotate, revoke."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from meritory.cli.context import current_flags, current_home, note, opened, taken_notes
from meritory.cli.options import HELP_NAMES, command, global_options
from meritory.cli.output import Answer, Block, Column, Lines, Table
from meritory.cli.records import age, clock_text
from meritory.cli.render import show_answer
from meritory.domain.access import ROLES
from meritory.domain.codec import moment_text
from meritory.domain.errors import InputError, SettingsError

if TYPE_CHECKING:
    from meritory.domain.access import AccessToken
    from meritory.engine.access import Minted

GRACE = timedelta(minutes=10)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_COLUMNS = (
    Column("id", "cyan"),
    Column("name", wraps=True),
    Column("role"),
    Column("for"),
    Column("age", "dim"),
    Column("used"),
    Column("ends"),
)


class Span(click.ParamType[timedelta]):
    """A span of time: 30s, 10m, 12h, 90d, 2w."""

    name = "span"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """A text as a span."""
        found = re.fullmatch(r"(\d{1,6})([smhdw])", str(value))
        if found is None:
            self.fail(f"{value!r} is no span; write 30s, 10m, 12h, 90d or 2w", param, ctx)
        return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


@click.group(
    "token",
    invoke_without_command=True,
    context_settings={"help_option_names": list(HELP_NAMES), "max_content_width": 100},
    epilog="\b\nExample:\n  meritory token create laptop --role write\n",
)
@click.pass_context
def token(ctx: click.Context) -> None:
    """List the tokens with which others may come in.

    A token is of one user, or of one agent or project of theirs: it reaches nothing else. One with
    the role read may look, with write also do what agents do, with admin also what cannot be
    undone. The daemon's owner needs none on its machine.
    """
    if ctx.invoked_subcommand is None:
        show_answer(_listing(every=False), current_flags(), taken_notes())


# A group has no answer of its own, so it is no `Command`, but it takes the same options.
token.params += global_options(hidden=True)


@command(
    "create",
    """
    meritory token create laptop --role write
    meritory token create ci --role read --user ada --project api --expires 90d
    """,
)
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it lets its holder do.")
@click.option("--agent", metavar="NAME", help="Only for this agent's memories, and shared ones.")
@click.option(
    "--project", metavar="NAME", help="Only for this project's memories, and shared ones."
)
@click.option("--expires", type=Span(), metavar="SPAN", help="When it ends by itself, e.g. 90d.")
def create(
    name: str, role: str, agent: str | None, project: str | None, expires: timedelta | None
) -> Answer:
    """Make a token.

    NAME says whose it is or what for. Its text is printed once and kept nowhere.
    """
    from meritory.engine import access

    with opened(project, agent, quiet=True) as memory:
        wanted = access.Wanted(name, role, memory.scope, expires)
        return _told(access.create(memory.services, wanted), memory.services.world.now())


@command("list", "meritory token list --all --json")
@click.option("--all", "every", is_flag=True, help="Also those that have ended.")
def list_tokens(every: bool) -> Answer:
    """List tokens, newest first."""
    return _listing(every=every)


@command(
    "rotate",
    """
    meritory token rotate abcd2345
    meritory token rotate abcd2345 --grace 1d
    meritory token rotate --owner
    """,
)
@click.argument("token_id", metavar="[ID]", required=False)
@click.option(
    "--grace",
    type=Span(),
    metavar="SPAN",
    help="For how long the old one still opens; 10m unless given.",
)
@click.option("--owner", is_flag=True, help="The token of the data folder, without any grace.")
def rotate(token_id: str | None, grace: timedelta | None, owner: bool) -> Answer:
    """Make a new token in place of another, which ends soon.

    The new one has the old one's name, role and scope, and an id of its own.
    """
    if owner:
        if token_id is not None or grace is not None:
            raise InputError(
                "--owner is about the data folder's token alone", hint="leave the rest"
            )
        return _rotated_owner()
    if token_id is None:
        raise InputError("which token?", hint="give its id, or --owner")
    from meritory.engine import access

    with opened(quiet=True) as memory:
        known = access.named(memory.services, memory.scope.user, token_id)
        span = GRACE if grace is None else grace
        made = access.rotate(memory.services, known, span)
        note(f"{known.id} opens for {span} more" if span else f"{known.id} opens nothing any more")
        return _told(made, memory.services.world.now())


@command("revoke", "meritory token revoke abcd2345")
@click.argument("token_id", metavar="ID")
def revoke(token_id: str) -> Answer:
    """End a token.

    Daemons that run refuse it within a second.
    """
    from meritory.engine import access

    with opened(quiet=True) as memory:
        known = access.named(memory.services, memory.scope.user, token_id)
        ended = access.revoke(memory.services, known)
        now = memory.services.world.now()
    return Answer(
        _plain(ended, now), [Lines([f"{ended.id} ({ended.name}) opens nothing any more"])]
    )


def _listing(*, every: bool) -> Answer:
    from meritory.engine.access import sorted_tokens

    with opened(quiet=True) as memory:
        now = memory.services.world.now()
        kept = memory.services.store.access_tokens(memory.scope.user)
        found = sorted_tokens(kept, now, every=every)
    if not found:
        note(f"{memory.scope.user} has no tokens; `meritory token create` makes one")
    return Answer({"results": [_plain(one, now) for one in found]}, _table(found, now))


def _table(found: Sequence[AccessToken], now: datetime) -> list[Block]:
    rows = [
        (
            one.id,
            one.name,
            one.role,
            " ".join(part for part in (one.agent and f"agent {one.agent}", one.project) if part)
            or "all",
            age(now, one.created_at),
            "never" if one.last_used_at is None else age(now, one.last_used_at),
            _end(one, now),
        )
        for one in found
    ]
    return [Table(_COLUMNS, rows)] if rows else []


def _end(one: AccessToken, now: datetime) -> str:
    if one.revoked_at is not None:
        return "revoked"
    if one.expires_at is None:
        return "never"
    return clock_text(one.expires_at) if one.is_valid(now) else "expired"


def _told(made: Minted, now: datetime) -> Answer:
    note("nobody is told this text again; keep it where secrets are kept")
    note("programs: Memory(url=..., token=...); agents: MERITORY_URL and MERITORY_TOKEN")
    note("anything else: the header `Authorization: Bearer TOKEN`")
    return Answer({**_plain(made.token, now), "token": made.text}, [Lines([made.text])])


def _rotated_owner() -> Answer:
    from meritory.api import client
    from meritory.server.auth import rotate_token
    from meritory.settings.home import TOKEN_NAME

    home = current_home()
    file = home / TOKEN_NAME
    if not file.is_file():
        raise SettingsError(f"there is no token in {home}", hint="`meritory up` makes one")
    rotate_token(home)
    is_running = client.holder_pid(home) is not None
    word = "the daemon takes it at once" if is_running else "the next daemon takes it"
    note("whoever was let into the dashboard stays; `meritory dashboard --logout-all` ends that")
    return Answer({"file": str(file), "running": is_running}, [Lines([f"{file} is new; {word}"])])


def _plain(one: AccessToken, now: datetime) -> dict[str, Any]:
    moments = ("created_at", "expires_at", "revoked_at", "last_used_at")
    told = {name: getattr(one, name) for name in moments}
    return {
        **{name: getattr(one, name) for name in ("id", "user", "name", "role")},
        **{name: getattr(one, name) for name in ("agent", "project")},
        **{name: None if at is None else moment_text(at) for name, at in told.items()},
        "is_valid": one.is_valid(now),
    }


for _command in (create, list_tokens, rotate, revoke):
    token.add_command(_command)
