"""The dashboard: its files, the one-time links that sign a browser in, and the logins."""

from __future__ import annotations

import contextlib
import hashlib
import html
import ipaddress
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from urllib.parse import urlsplit

from meritory.domain.errors import MeritoryError
from meritory.settings.home import write_private

PAGES = "/dashboard"
LINK_LIFE_S = 60
LOGIN_LIFE_S = 12 * 60 * 60
# Routes its pages use beyond reading and writing memories; others need the owner's token.
OFFERED = frozenset(
    {
        ("GET", "/api/tokens"),
        ("POST", "/api/feedback"),
        ("POST", "/api/feedback/{id}/complete"),
        ("POST", "/api/memories/{id}/confirm"),
        ("POST", "/api/memories/{id}/reject"),
        ("POST", "/api/predictor/calibration"),
        ("POST", "/api/predictor/train"),
        ("POST", "/api/predictor/rollback"),
        ("POST", "/api/predictor/enable"),
        ("POST", "/api/predictor/disable"),
        ("POST", "/api/quality/janitor"),
        ("POST", "/api/rules/{id}/approve"),
        ("POST", "/api/rules/{id}/retire"),
        ("POST", "/api/rules/{id}/undo"),
    }
)
# Beyond these limits the oldest entry is dropped.
LINK_LIMIT = 16
LOGIN_LIMIT = 64

# No foreign and no inline sources: stored text can never become a script.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # The URL of a one-time link must not reach other sites.
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file of the dashboard."""

    content: bytes
    media_type: str
    etag: str


def read_files(root: Traversable | None = None) -> Mapping[str, StaticFile]:
    """Return every file of the dashboard by its path; no other path can be requested."""
    folder = files("meritory") / "dashboard" if root is None else root
    return dict(_walk(folder, "")) if folder.is_dir() else {}


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, StaticFile]]:
    for file in folder.iterdir():
        if file.is_dir():
            yield from _walk(file, f"{prefix}{file.name}/")
            continue
        kind = _KINDS.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:32]
            yield prefix + file.name, StaticFile(content, kind, f'"{digest}"')


class Logins:
    """The logins of the dashboard; only hashes are stored. A file keeps them over a restart."""

    def __init__(self, now_ms: Callable[[], float], port: int, file: Path | None = None) -> None:
        """Read the logins that an earlier daemon kept; `now_ms` counts since 1970."""
        self._now_ms = now_ms
        self._file = file
        # Cookies ignore ports: two daemons on one machine need two names.
        self.cookie_name = f"meritory_dashboard_{port}"
        # Expiry times by the hash of the secret.
        self._links: dict[bytes, float] = {}
        self._logins = {} if file is None else _kept_logins(file, now_ms())

    def new_link(self) -> str:
        """Return a new code that signs one browser in, once and soon."""
        return self._add(self._links, LINK_LIFE_S, LINK_LIMIT)

    def enter(self, code: str) -> str | None:
        """Return the secret of a new login; None for a code that was used or has expired."""
        ends_ms = self._links.pop(_digest(code), None)
        if ends_ms is None or ends_ms <= self._now_ms():
            return None
        secret = self._add(self._logins, LOGIN_LIFE_S, LOGIN_LIMIT)
        self._keep()
        return secret

    def is_valid(self, secret: str) -> bool:
        """Return whether a secret belongs to a login that has not ended."""
        ends_ms = self._logins.get(_digest(secret))
        return ends_ms is not None and ends_ms > self._now_ms()

    def end(self, secret: str) -> int:
        """End one login; return how many ended."""
        if self._logins.pop(_digest(secret), None) is None:
            return 0
        self._keep()
        return 1

    def end_all(self) -> int:
        """End every login and every link; return the number of logins."""
        many = sum(ends_ms > self._now_ms() for ends_ms in self._logins.values())
        self._logins.clear()
        self._links.clear()
        self._keep()
        return many

    def cookie(self, secret: str, is_https: bool) -> str:
        """Return the Set-Cookie header of a login: hidden from scripts, not sent to other sites."""
        flags = f"Path=/; Max-Age={LOGIN_LIFE_S}; HttpOnly; SameSite=Strict"
        return f"{self.cookie_name}={secret}; {flags}{'; Secure' if is_https else ''}"

    def secrets_in(self, header: str) -> list[str]:
        """Return every login in a Cookie header; other programs may have set more of them."""
        pairs = (part.strip().partition("=") for part in header.split(";"))
        return [value for name, _, value in pairs if name == self.cookie_name and value]

    def _keep(self) -> None:
        """Write the logins; where that fails, a restart ends all of them."""
        if self._file is None:
            return
        entries = {digest.hex(): ends_ms for digest, ends_ms in self._logins.items()}
        try:
            write_private(self._file, json.dumps(entries) + "\n")
        except MeritoryError:
            # An old file would bring back a login that has ended.
            with contextlib.suppress(OSError):
                self._file.unlink()

    def _add(self, entries: dict[bytes, float], life_s: int, limit: int) -> str:
        now = self._now_ms()
        for digest in [digest for digest, ends_ms in entries.items() if ends_ms <= now]:
            del entries[digest]
        while len(entries) >= limit:
            del entries[next(iter(entries))]
        secret = secrets.token_urlsafe(32)
        entries[_digest(secret)] = now + life_s * 1000
        return secret


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _kept_logins(file: Path, now_ms: float) -> dict[bytes, float]:
    """Return the logins in a file that have not ended; none if others could have written it."""
    try:
        info = os.stat(file, follow_symlinks=False)
        is_private = stat.S_ISREG(info.st_mode) and not info.st_mode & 0o077
        if not is_private or info.st_uid != os.geteuid():
            return {}
        entries = json.loads(file.read_bytes())
        kept = {bytes.fromhex(digest): float(ends_ms) for digest, ends_ms in entries.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    # A login that ends too late was made by a wrong clock.
    last_ms = now_ms + LOGIN_LIFE_S * 1000
    return {digest: ends_ms for digest, ends_ms in kept.items() if now_ms < ends_ms <= last_ms}


def own_address(url: str) -> str:
    """Return the URL for a browser on this machine; the daemon may listen on every address."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_every = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        is_every = False
    return f"http://{'127.0.0.1' if '.' in host else '[::1]'}:{parts.port}" if is_every else url


def refusal_page(error: MeritoryError) -> bytes:
    """Return the error page for a browser; it has no script and no style."""
    if error.status in (401, 429):
        title = "Not signed in"
        lines = ["The dashboard opens by a link that works once."]
        lines += ["Run <code>meritory dashboard</code> in a terminal on this machine."]
    else:
        title = error.message[:1].upper() + error.message[1:]
        lines = [] if error.hint is None else [html.escape(error.hint)]
    return _page(html.escape(title), lines)


def used_link_page() -> bytes:
    """Return the page for a link that does not work."""
    lines = ["A link works once, and for a minute."]
    lines += ["Run <code>meritory dashboard</code> again to get a new one."]
    return _page("This link was used already, or has expired", lines)


def _page(title: str, lines: list[str]) -> bytes:
    body = "".join(f"<p>{line}</p>\n" for line in lines)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{title} - Meritory</title>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
    ).encode()
