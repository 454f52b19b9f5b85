"""The daemon's log: one JSON object per line, for programs and for `grep`."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partialmethod
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any, Literal, get_args

from meritory.domain.errors import InputError
from meritory.domain.world import parse_moment

ROTATE_AT_BYTES = 5 * 1024 * 1024
_TEXT_LIMIT_CHARS = 2_000
_NAME = "meritory.daemon"
# Loggers of the HTTP server, whose messages go to the same file.
_SERVER_NAMES = ("uvicorn", "uvicorn.error", "asyncio")


class Log:
    """Writes events with their details to the file and, if given, to a stream."""

    def __init__(self, file: Path, level: str, stream: IO[str] | None = None) -> None:
        self._logger = logging.Logger(_NAME, level.upper())
        self._handlers: list[logging.Handler] = [
            _PrivateFile(
                file, maxBytes=ROTATE_AT_BYTES, backupCount=3, encoding="utf-8", delay=True
            )
        ]
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

    def write_event(self, category: str, event: str, details: Mapping[str, Any]) -> None:
        """Log an event of the engine."""
        self.info(category, event, **details)

    def error(
        self, category: str, event: str, cause: BaseException | None = None, **details: Any
    ) -> None:
        """Log an error with its traceback."""
        if self._logger.isEnabledFor(logging.ERROR):
            if cause is not None:
                details["trace"] = _traceback(cause)
            self._write(logging.ERROR, category, event, **details)

    def _write(self, level: int, category: str, event: str, /, **details: Any) -> None:
        if self._logger.isEnabledFor(level):
            extra = {"category": category, "details": details}
            self._logger.log(level, "%s", event, extra=extra)

    debug = partialmethod(_write, logging.DEBUG)
    info = partialmethod(_write, logging.INFO)
    warning = partialmethod(_write, logging.WARNING)

    def close(self) -> None:
        """Close the file."""
        for name in _SERVER_NAMES:
            logging.getLogger(name).handlers = []
        for handler in self._handlers:
            handler.close()


def _traceback(cause: BaseException) -> list[str]:
    """Return the type and traceback of an error; its message may contain text of a user."""
    lines = [type(cause).__name__]
    trace = cause.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        lines.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return lines


class _JsonLines(logging.Formatter):
    """Formats a record as one line of ASCII, which cannot control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "category": getattr(record, "category", "server"),
            "event": record.getMessage()[:_TEXT_LIMIT_CHARS],
            "request_id": None,
        }
        for name, value in getattr(record, "details", {}).items():
            line[name] = value[:_TEXT_LIMIT_CHARS] if isinstance(value, str) else value
        if record.exc_info and record.exc_info[1] is not None:
            line["trace"] = _traceback(record.exc_info[1])
        return json.dumps(line, default=str).replace("\x7f", "\\u007f")


class _PrivateFile(RotatingFileHandler):
    """A rotating file that only its owner can read."""

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(handle, "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore a failed write: the log must not fail a request."""


Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)
# At most this much of the log is searched for one page.
READ_LIMIT_BYTES = 4 * 1024 * 1024
_BLOCK_BYTES = 64 * 1024
_FIELDS = ("level", "category", "event", "request_id")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log."""

    at: datetime
    level: str
    category: str
    event: str
    request_id: str | None
    details: dict[str, Any]


def latest_lines(
    file: Path,
    level: Level = "debug",
    category: str | None = None,
    since: datetime | None = None,
    limit: int = 100,
) -> list[LogLine]:
    """Return the latest matching lines, newest first, also from the previous file."""
    lines: list[LogLine] = []
    for raw in _backwards(file):
        try:
            values = json.loads(raw)
            at = parse_moment(values.pop("at"))
            names = {name: values.pop(name) for name in _FIELDS}
        except (ValueError, TypeError, KeyError, AttributeError, InputError):
            # An incomplete line.
            continue
        if since is not None and at < since:
            break
        # An unknown level, such as `critical`, is above all.
        height = LEVELS.index(names["level"]) if names["level"] in LEVELS else len(LEVELS)
        if height >= LEVELS.index(level) and category in (None, names["category"]):
            lines.append(LogLine(at, **names, details=values))
        if len(lines) == limit:
            break
    return lines


def _backwards(file: Path) -> Iterator[bytes]:
    """Yield the lines of the log and of the previous file, last first, within limits."""
    left_bytes = READ_LIMIT_BYTES
    for path in (file, file.with_name(f"{file.name}.1")):
        try:
            handle = open(path, "rb")  # noqa: SIM115 - the file may not exist
        except OSError:
            continue
        with handle:
            position = handle.seek(0, os.SEEK_END)
            rest = b""
            while position > 0 and left_bytes > 0:
                size = min(_BLOCK_BYTES, position)
                position -= size
                left_bytes -= size
                handle.seek(position)
                rest, *lines = (handle.read(size) + rest).split(b"\n")
                yield from reversed(lines)
            if position == 0:
                yield rest
