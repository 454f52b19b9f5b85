"""Which daemon a `Memory` uses, if any: one that is named, or the one of the data folder."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
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
OWN_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a daemon: a socket, a host, or a data folder where it is announced."""

    socket: str | None = None
    host: str | None = None
    is_https: bool = False
    token: str | None = field(default=None, repr=False)
    home: Path | None = None


def choose_daemon(given: Mapping[str, Any]) -> Address | None:
    """Return the daemon that the arguments of `Memory` name; None for an engine in this process."""
    # Only an engine in this process can use these.
    own = [name for name in ("path", "settings", "clock") if given.get(name) is not None]
    url, token = given.get("url"), given.get("token")
    environ_url = os.environ.get(URL_VARIABLE, "").strip()
    if url is not None:
        if own and own != ["settings"]:
            raise InputError(
                f"a daemon has its own {own[0]}", hint=f"give either url or {own[0]}, not both"
            )
    elif own or given.get("apart") or token is not None:
        return None
    elif environ_url:
        url = environ_url
    else:
        home = home_folder(os.environ)
        if not (home / DAEMON_NAME).is_file():
            return None
        from meritory.api.client import find

        return None if find(home) is None else Address(home=home)
    # The token of the environment is for the daemon of the environment alone.
    if token is None and url == environ_url:
        token = os.environ.get(TOKEN_VARIABLE, "").strip() or None
    return read_url(url, token)


def read_url(url: object, token: str | None = None) -> Address:
    """Return the address that a url names, with the token for it."""
    if not isinstance(url, str):
        raise InputError(f"a url is text, not {type(url).__name__}", hint=_HINT)
    if set(url) & set("@?#"):
        # The url is not quoted here: it may hold a password or a token.
        raise InputError("a daemon's url holds a host and port and nothing else", hint=_HINT)
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
        raise InputError(f"{url[:80]!r} is not the url of a daemon", hint=_HINT)
    host = str(host)
    if token is None and host in OWN_NAMES:
        # Any user of this machine can listen on a port where a program expects a daemon, so the
        # token of the data folder is only for the daemon that the folder announces.
        home = home_folder(os.environ)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            announced = urlsplit(json.loads((home / DAEMON_NAME).read_bytes())["url"]).port
            if announced == port:
                token = (home / TOKEN_NAME).read_text("ascii").strip()
    elif token is not None:
        token = token.strip() if isinstance(token, str) else "\n"
        if not token.isascii() or not token.isprintable():
            raise InputError("a token is one line of plain letters and digits")
    named = f"[{host}]" if ":" in host else host
    return Address(
        host=named if port is None else f"{named}:{port}",
        is_https=parts.scheme == "https",
        token=token,
    )
