"""Start the daemon from a hook; loaded only when none is running."""

from __future__ import annotations

import fcntl
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# After a failed start, prompts do not start the daemon again for a while.
RETRY_AFTER_S = 30.0


def prepare(home: str) -> None:
    """Make the data folder."""
    os.makedirs(home, 0o700, exist_ok=True)
    if not os.listdir(home) and not os.stat(home).st_mode & 0o1000:
        # The daemon refuses a folder that others can read and that is not empty.
        os.chmod(home, 0o700)


def start(home: str, environ: Mapping[str, str]) -> bool:
    """Start one daemon, even if many hooks try at once; False to try again later."""
    prepare(home)
    error_file = os.path.join(home, "daemon.err")
    locks = [os.open(os.path.join(home, "daemon.start"), os.O_RDWR | os.O_CREAT, 0o600)]
    try:
        # Held by the process that starts a daemon, and by that daemon.
        fcntl.flock(locks[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        locks.append(os.open(os.path.join(home, "daemon.lock"), os.O_RDWR | os.O_CREAT, 0o600))
        fcntl.flock(locks[1], fcntl.LOCK_SH | fcntl.LOCK_NB)
        about = os.stat(error_file) if os.path.exists(error_file) else None
        if about and about.st_size and abs(time.time() - about.st_mtime) < RETRY_AFTER_S:
            return True
        os.set_inheritable(locks[0], True)
        os.close(locks.pop())
        # In its own process session, without a client's variables: it outlives the client.
        command = [sys.executable, "-P", "-m", "meritory", "--home", home, "up", "--detached"]
        clean = {name: value for name, value in environ.items() if not name.startswith("CLAUDE")}
        streams = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, error_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        ]
        os.posix_spawn(sys.executable, command, clean, file_actions=streams, setsid=True)
        return True
    except BlockingIOError:
        # A daemon is running, starting or ending.
        return False
    finally:
        for lock in locks:
            os.close(lock)
