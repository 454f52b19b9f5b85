"""Where a store lies: in a file of its own, or in a PostgreSQL database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from meritory.domain.errors import InputError

URL_VARIABLE = "MERITORY_DATABASE_URL"
SCHEMES = ("postgresql", "postgres")
# Stands in the place of an address that a process is told by its environment.
_BY_ENVIRONMENT = "postgresql:"
_HINT = (
    "write postgresql://USER@HOST:PORT/DATABASE, other signs in a name or password as %40 and so on"
)
# A percent sign that is not the beginning of another sign, and such a one that nobody takes.
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")


@dataclass(frozen=True, slots=True)
class Place:
    """A file, or else the address of a database; the address may hold a password."""

    file: Path | None = None
    url: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if (self.file is None) is not bool(self.url):
            raise InputError("a store lies in a file or in a database")
        if self.url:
            _demand_address(self.url)

    @classmethod
    def of(cls, text: str) -> Place:
        """The place that a person names: a path, or the address of a database."""
        if is_address(text):
            return cls(url=text)
        if "://" in text:
            raise InputError("only PostgreSQL databases can hold a store", hint=_HINT)
        return cls(file=Path(text).expanduser())

    @classmethod
    def told(cls, argument: str, environ: Mapping[str, str]) -> Place:
        """The place that another process of ours hands over by `argument` and `environment`."""
        if argument != _BY_ENVIRONMENT:
            return cls(file=Path(argument))
        return cls(url=environ.get(URL_VARIABLE, ""))

    @property
    def argument(self) -> str:
        """The place for the command line of a process: arguments are there for all to see."""
        return _BY_ENVIRONMENT if self.file is None else str(self.file)

    @property
    def environment(self) -> dict[str, str]:
        """What the environment of such a process must hold besides."""
        return {} if self.file is not None else {URL_VARIABLE: self.url}

    @property
    def name(self) -> str:
        """The place as people are shown it, without user and password."""
        if self.file is not None:
            return str(self.file)
        parts = urlsplit(self.url)
        # A socket's folder, or several hosts, may be named behind the question mark.
        asked = dict(parse_qsl(parts.query))
        host = parts.netloc.rpartition("@")[2] or asked.get("host", "localhost")
        return f"postgresql://{host}/{parts.path.lstrip('/') or asked.get('dbname', '')}"


def is_address(text: str) -> bool:
    """Whether a text means a database rather than a path."""
    return text.partition("://")[0].lower() in SCHEMES and "://" in text


def _demand_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        known = parts.scheme.lower() in SCHEMES and parts.path.count("/") <= 1
        # A password with such a sign in it would be taken for a host or a path in part: we would
        # show it, and the driver would quote it when it complains.
        known &= url.count("@") == parts.netloc.count("@") <= 1 and "#" not in url
    except ValueError:
        known = False
    is_plain = url.isprintable() and " " not in url and not _BAD_PERCENT.search(url)
    if not known or not is_plain:
        # Not quoted: there may be a password in it.
        raise InputError("this is not the address of a PostgreSQL database", hint=_HINT)
