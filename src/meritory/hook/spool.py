"""Events that no daemon took, kept as small files until one does.

Part of the hook, so standard library only. Only ends of sessions and ratings in replies are kept:
ids, paths and the line of ratings, never texts. Events for a daemon on another machine have a
folder of their own, from which `remote.py` sends them.
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
    address: str = "",
) -> None:
    """Keep an event; a reply only as its ratings, which the pattern `trailer` finds.

    `address` is the folder in the spool of a daemon on another machine.
    """
    if body.get(_REPLY):
        ratings = "".join(re.findall(trailer, body[_REPLY]))
        if not ratings:
            return
        body = {**body, _REPLY: ratings}
    elif address and event == "stop":
        # The ratings are in a file, which only a daemon on this machine reads.
        return
    content = encoded({"event": event, "body": body})
    if len(content) > FILE_LIMIT_BYTES:
        return
    try:
        _write(home, address, content)
    except FileNotFoundError:
        # A hook has just sent the last file of this folder and removed it.
        _write(home, address, content)


def _write(home: str, address: str, content: bytes) -> None:
    folder = home
    for name in (FOLDER, *filter(None, address.split("/"))):
        folder = os.path.join(folder, name)
        os.makedirs(folder, 0o700, exist_ok=True)
    if len(os.listdir(folder)) >= FILES_LIMIT_COUNT:
        return
    # In the order of their names: the oldest is taken first.
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    unfinished = os.path.join(folder, f".{name}")
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, content)
    finally:
        os.close(file)
    os.rename(unfinished, os.path.join(folder, name))
