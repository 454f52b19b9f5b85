"""The place of a store: a file or a PostgreSQL database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from meritory.domain.errors import InputError

URL_VARIABLE = "MERITORY_DATABASE_URL"
SCHEMES = ("postgresql", "postgres")
# The argument of a process that reads the address from its environment.
_BY_ENVIRONMENT = "postgresql:"
_HINT = (
    "write postgresql://USER@HOST:PORT/DATABASE; encode special characters in names and passwords,"
    " for example %40 for @"
)
# A percent sign that does not start an encoded character, and an encoded NUL.
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")


@dataclass(frozen=True, slots=True)
class Place:
    """A file or the address of a database; the address may contain a password."""

    file: Path | None = None
    url: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if (self.file is None) is not bool(self.url):
            raise InputError("a store is a file or a database, exactly one of them")
        if self.url:
            _require_address(self.url)

    @classmethod
    def of(cls, text: str) -> Place:
        """Return the place of a path or a database address."""
        if is_address(text):
            return cls(url=text)
        if "://" in text:
            raise InputError("only a PostgreSQL database can hold a store", hint=_HINT)
        return cls(file=Path(text).expanduser())

    @classmethod
    def from_process(cls, argument: str, environ: Mapping[str, str]) -> Place:
        """Return the place that the parent process passed as `argument` and `environment`."""
        if argument != _BY_ENVIRONMENT:
            return cls(file=Path(argument))
        return cls(url=environ.get(URL_VARIABLE, ""))

    @property
    def argument(self) -> str:
        """Return the place for a command line, without the address: arguments are public."""
        return _BY_ENVIRONMENT if self.file is None else str(self.file)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that the environment of that process needs."""
        return {} if self.file is not None else {URL_VARIABLE: self.url}

    @property
    def name(self) -> str:
        """Return the place for display, without user and password."""
        if self.file is not None:
            return str(self.file)
        parts = urlsplit(self.url)
        # The query may name the folder of a socket, or several hosts.
        query = dict(parse_qsl(parts.query))
        host = parts.netloc.rpartition("@")[2] or query.get("host", "localhost")
        return f"postgresql://{host}/{parts.path.lstrip('/') or query.get('dbname', '')}"


def is_address(text: str) -> bool:
    """Return whether a text is a database address, not a path."""
    return text.partition("://")[0].lower() in SCHEMES and "://" in text


def _require_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme.lower() in SCHEMES and parts.path.count("/") <= 1
        # Part of a password with such a character would be parsed as a host or a path: it would
        # be displayed here and quoted in errors of the driver.
        is_valid &= url.count("@") == parts.netloc.count("@") <= 1 and "#" not in url
    except ValueError:
        is_valid = False
    is_plain = url.isprintable() and " " not in url and not _BAD_PERCENT.search(url)
    if not is_valid or not is_plain:
        # The address is not quoted: it may contain a password.
        raise InputError("this is not the address of a PostgreSQL database", hint=_HINT)
