"""The daemon's log: one JSON object a line, for programs and for `grep`."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any, Literal, get_args

from meritory.domain.codec import parse_moment
from meritory.domain.errors import InputError

ROTATE_AT_BYTES = 5 * 1024 * 1024
KEPT_FILES = 3
_TEXT_LIMIT_CHARS = 2_000
_NAME = "meritory.daemon"
# The server's own remarks go where ours go.
_SERVER_NAMES = ("uvicorn", "uvicorn.error", "asyncio")


class Log:
    """Writes events with their numbers; the same line to the file and, if given, to a stream."""

    def __init__(self, file: Path, level: str, stream: IO[str] | None = None) -> None:
        self._logger = logging.Logger(_NAME, level.upper())
        self._handlers: list[logging.Handler] = [_PrivateFile(file)]
        if stream is not None:
            self._handlers.append(logging.StreamHandler(stream))
        for handler in self._handlers:
            handler.setFormatter(_JsonLines())
            self._logger.addHandler(handler)
        for name in _SERVER_NAMES:
            server = logging.getLogger(name)
            server.setLevel(logging.WARNING)
            server.handlers = list(self._handlers)
            server.propagate = False

    def debug(self, category: str, event: str, **details: Any) -> None:
        """What only matters when something is looked into."""
        self._write(logging.DEBUG, category, event, details)

    def info(self, category: str, event: str, **details: Any) -> None:
        """What happened."""
        self._write(logging.INFO, category, event, details)

    def warning(self, category: str, event: str, **details: Any) -> None:
        """What somebody may want to look at."""
        self._write(logging.WARNING, category, event, details)

    def error(
        self, category: str, event: str, cause: BaseException | None = None, **details: Any
    ) -> None:
        """What went wrong, with where it happened."""
        if self._logger.isEnabledFor(logging.ERROR):
            if cause is not None:
                details["trace"] = _places(cause)
            self._write(logging.ERROR, category, event, details)

    def _write(self, level: int, category: str, event: str, details: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            extra = {"category": category, "details": details}
            self._logger.log(level, "%s", event, extra=extra)

    def close(self) -> None:
        """Lets go of the file."""
        for name in _SERVER_NAMES:
            logging.getLogger(name).handlers = []
        for handler in self._handlers:
            handler.close()


def _places(cause: BaseException) -> list[str]:
    """Type and places of an error, without its message: that may hold what a user wrote."""
    found = [type(cause).__name__]
    trace = cause.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        found.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return found


class _JsonLines(logging.Formatter):
    """A record as one line of plain ASCII: nothing in it can steer a terminal or end the line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "category": getattr(record, "category", "server"),
            "event": record.getMessage()[:_TEXT_LIMIT_CHARS],
            "request_id": None,
        }
        line |= {name: _plain(value) for name, value in getattr(record, "details", {}).items()}
        if record.exc_info and record.exc_info[1] is not None:
            line["trace"] = _places(record.exc_info[1])
        return json.dumps(line, default=str).replace("\x7f", "\\u007f")


def _plain(value: Any) -> Any:
    return value[:_TEXT_LIMIT_CHARS] if isinstance(value, str) else value


class _PrivateFile(RotatingFileHandler):
    """A file only its owner can read; when it grows too large the next one is begun."""

    def __init__(self, file: Path) -> None:
        super().__init__(
            file, maxBytes=ROTATE_AT_BYTES, backupCount=KEPT_FILES, encoding="utf-8", delay=True
        )

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(handle, "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:
        """A log that cannot be written must not be what fails a request."""


Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)
# However much was logged, no more than this is looked through for a page.
READ_LIMIT_BYTES = 4 * 1024 * 1024
_BLOCK_BYTES = 64 * 1024
_FIELDS = ("at", "level", "category", "event", "request_id")


@dataclass(frozen=True, slots=True)
class LineQuery:
    """Which lines are wanted: of this level or worse, of one category, since a moment."""

    level: Level = "debug"
    category: str | None = None
    since: datetime | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log."""

    at: datetime
    level: str
    category: str
    event: str
    request_id: str | None
    details: dict[str, Any]


def latest_lines(file: Path, query: LineQuery) -> list[LogLine]:
    """The latest lines that fit, newest first; from the file before where this one is short."""
    found: list[LogLine] = []
    for raw in _backwards(file):
        line = _parsed(raw)
        if line is None:
            continue
        if query.since is not None and line.at < query.since:
            break
        if _fits(line, query):
            found.append(line)
        if len(found) == query.limit:
            break
    return found


def _fits(line: LogLine, query: LineQuery) -> bool:
    # A level nobody here knows, such as `critical`, is worse than all.
    level = LEVELS.index(line.level) if line.level in LEVELS else len(LEVELS)
    is_bad_enough = level >= LEVELS.index(query.level)
    return is_bad_enough and query.category in (None, line.category)


def _backwards(file: Path) -> Iterator[bytes]:
    """The lines of a log and of the one before it, last first, within bounds."""
    left_bytes = READ_LIMIT_BYTES
    for path in (file, file.with_name(f"{file.name}.1")):
        try:
            handle = open(path, "rb")  # noqa: SIM115 - it may not be there
        except OSError:
            continue
        with handle:
            place = handle.seek(0, os.SEEK_END)
            rest = b""
            while place > 0 and left_bytes > 0:
                size = min(_BLOCK_BYTES, place)
                place -= size
                left_bytes -= size
                handle.seek(place)
                rest, *lines = (handle.read(size) + rest).split(b"\n")
                yield from reversed(lines)
            if place == 0:
                yield rest


def _parsed(raw: bytes) -> LogLine | None:
    """A line as it was written, or None for half a one."""
    try:
        told = json.loads(raw)
        at = parse_moment(told["at"])
        names = {name: told[name] for name in _FIELDS[1:]}
    except (ValueError, TypeError, KeyError, InputError):
        return None
    return LogLine(at, **names, details={k: v for k, v in told.items() if k not in _FIELDS})
