"""Events that no daemon took, kept as small files until one does.

Part of the hook, so standard library only. Only ends of sessions and ratings in replies are kept:
ids, paths and the line of ratings, never texts.
"""

from __future__ import annotations

import os
import re
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FOLDER = "spool"
FILES_LIMIT_COUNT, FILE_LIMIT_BYTES = 1_000, 32_768
_REPLY = "last_assistant_message"


def put(
    home: str,
    event: str,
    body: dict[str, Any],
    encoded: Callable[[dict[str, Any]], bytes],
    trailer: str,
) -> None:
    """Keep an event; a reply only as its ratings, which the pattern `trailer` finds."""
    if body.get(_REPLY):
        ratings = "".join(re.findall(trailer, body[_REPLY]))
        if not ratings:
            return
        body = {**body, _REPLY: ratings}
    content = encoded({"event": event, "body": body})
    folder = os.path.join(home, FOLDER)
    os.makedirs(folder, 0o700, exist_ok=True)
    if len(content) > FILE_LIMIT_BYTES or len(os.listdir(folder)) >= FILES_LIMIT_COUNT:
        return
    # In the order of their names: the daemon takes the oldest first.
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    unfinished = os.path.join(folder, f".{name}")
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, content)
    finally:
        os.close(file)
    os.rename(unfinished, os.path.join(folder, name))
