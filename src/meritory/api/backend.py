"""Who does the work of a `Memory`: this process, a daemon that was named, or one that runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from meritory.domain.errors import InputError
from meritory.settings.home import (
    DAEMON_NAME,
    TOKEN_NAME,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    home_folder,
)

_HINT = "write http://127.0.0.1:PORT or unix:///path/to/meritory.sock; `meritory status` shows both"
_OWN_NAMES = ("localhost", "127.0.0.1", "::1")
# What only an engine of one's own can be given.
_OWN_ENGINE = ("path", "settings", "clock")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a daemon is: a socket, a place on the network, or whatever its folder announces."""

    socket: str | None = None
    host: str | None = None
    is_https: bool = False
    token: str | None = field(default=None, repr=False)
    home: Path | None = None


def chosen_daemon(args: Sequence[Any], fields: Mapping[str, Any]) -> Address | None:
    """The daemon that the arguments of `Memory` mean; None for an engine of one's own."""
    given = {**dict(zip(("path",), args, strict=False)), **fields}
    own = [name for name in _OWN_ENGINE if given.get(name) is not None]
    if given.get("url") is not None:
        if own and own != ["settings"]:
            raise InputError(
                f"a daemon has its own {own[0]}", hint=f"give either url or {own[0]}, not both"
            )
        return read_url(given["url"], _token_for(given["url"], given.get("token")))
    if own or given.get("apart") or given.get("token") is not None:
        return None
    elsewhere = os.environ.get(URL_VARIABLE, "").strip()
    if elsewhere:
        return read_url(elsewhere, _token_for(elsewhere, None))
    home = home_folder(os.environ)
    if not (home / DAEMON_NAME).is_file():
        return None
    from meritory.api.client import find

    return None if find(home) is None else Address(home=home)


def _token_for(url: object, given: str | None) -> str | None:
    """The token that was given, else that of the environment, which is for one daemon alone."""
    if given is not None or url != os.environ.get(URL_VARIABLE, "").strip():
        return given
    return os.environ.get(TOKEN_VARIABLE, "").strip() or None


def read_url(url: object, token: str | None = None) -> Address:
    """The address that a url names, with the token that opens it."""
    if not isinstance(url, str):
        raise InputError(f"a url is text, not {type(url).__name__}", hint=_HINT)
    if set(url) & set("@?#"):
        # Before anything quotes it: a password or a token may have been written into it.
        raise InputError("a daemon's url names a place and nothing else", hint=_HINT)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError as error:
        raise InputError(f"{url[:80]!r} is not a url: {error}", hint=_HINT) from error
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return Address(socket=parts.path)
    is_named = bool(host) and str(host).isprintable() and " " not in str(host)
    if parts.scheme not in ("http", "https") or not is_named or parts.path not in ("", "/"):
        raise InputError(f"{url[:80]!r} is not where a daemon can be", hint=_HINT)
    host = str(host)
    named = f"[{host}]" if ":" in host else host
    return Address(
        host=named if port is None else f"{named}:{port}",
        is_https=parts.scheme == "https",
        token=_checked_token(token) if token is not None else _own_token(host, port),
    )


def _checked_token(token: object) -> str:
    if isinstance(token, str) and token.strip().isascii() and token.strip().isprintable():
        return token.strip()
    raise InputError("a token is one line of plain letters and digits")


def _own_token(host: str, port: int | None) -> str | None:
    """The token of the data folder, which goes to nobody but the daemon of that folder.

    Any user of this machine can listen on a port where somebody expects a daemon.
    """
    if host not in _OWN_NAMES:
        return None
    home = home_folder(os.environ)
    try:
        announced = urlsplit(json.loads((home / DAEMON_NAME).read_bytes())["url"]).port
        return (home / TOKEN_NAME).read_text("ascii").strip() if announced == port else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
