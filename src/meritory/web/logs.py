"""The daemon's log: one JSON object a line, for programs and for `grep`."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any

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
