"""The spool: events that hooks kept while no daemon took them.

The hook writes the files (`meritory.hook.spool`). Each is taken as if it came on the socket, and
removed once it has taken effect or can never take any. An end that came both ways counts once, as
a session ends only once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from meritory.domain.errors import InputError, MeritoryError
from meritory.server.app import decode_body
from meritory.server.auth import OWNER
from meritory.server.logs import Log
from meritory.server.routes import hooks
from meritory.server.table import Call, Handler, ServerState
from meritory.settings.home import SPOOL_NAME

# No file of a hook is larger.
FILE_LIMIT_BYTES = 32_768
_HANDLERS: Mapping[str, tuple[type[hooks.Hook], Handler]] = {
    "session-end": (hooks.SessionEnd, hooks.session_end),
    "stop": (hooks.Stop, hooks.stop),
}
# A file that was never finished is removed after this time.
_UNFINISHED_AGE = timedelta(minutes=10)


class SpooledEvent(msgspec.Struct):
    """The content of a file."""

    event: str
    body: dict[str, Any]


class Spool:
    """The folder with kept events."""

    def __init__(self, server: ServerState, log: Log) -> None:
        self._server = server
        self._log = log
        self._folder = server.settings.home / SPOOL_NAME

    def take(self) -> int:
        """Take every event, oldest first; return how many there were.

        What the store cannot take at present stays, with everything after it.
        """
        count = 0
        for path in sorted(self._files()):
            try:
                self._take(path)
            except MeritoryError as error:
                if error.status >= 500:
                    self._server.observer.failed("spool", error)
                    break
                self._log.info("daemon", "spool.refused", code=error.code)
            except Exception as error:
                # Whatever is wrong with one file, the others must be taken. It stays for a look.
                self._log.error("daemon", "spool.bug", error)
                path.rename(path.with_suffix(".failed"))
            path.unlink(missing_ok=True)
            count += 1
        return count

    def _files(self) -> Iterator[Path]:
        """Return the finished files of this user."""
        try:
            entries = list(os.scandir(self._folder))
        except OSError:
            return
        for entry in entries:
            about = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
                continue
            if not entry.name.startswith("."):
                if entry.name.endswith(".json"):
                    yield Path(entry.path)
            elif self._age(about.st_mtime) > _UNFINISHED_AGE:
                Path(entry.path).unlink(missing_ok=True)

    def _age(self, at_s: float) -> timedelta:
        return self._server.world.now() - datetime.fromtimestamp(at_s, UTC)

    def _take(self, path: Path) -> None:
        with path.open("rb") as file:
            kept_at_s = os.fstat(file.fileno()).st_mtime
            content = file.read(FILE_LIMIT_BYTES + 1)
        kept = decode_body(content, SpooledEvent)
        if kept.event not in _HANDLERS:
            raise InputError(f"no event {kept.event[:40]!r} is ever kept")
        kind, handler = _HANDLERS[kept.event]
        body = decode_body(msgspec.json.encode(kept.body), kind)
        if isinstance(body, hooks.SessionEnd):
            body.kept_ms = max(0, round(self._age(kept_at_s).total_seconds() * 1000))
        request_id = self._server.world.new_id()
        call = Call(self._server, OWNER, {}, None, body, request_id, "socket")
        handler(call)
