"""Finds the Chromium that the browser tests drive, and installs the system's package if it may.

    python tools/browser.py           find it, or install it as root on Debian and its like
    python tools/browser.py --check   only look

Prints where it is. It ends with 1 when there is none: the tests then say so and are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

VARIABLE = "MERITORY_TEST_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL_TIMEOUT_S = 300


def find() -> str | None:
    """The program: the one that the environment names, else the first on the path."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return chosen if os.access(chosen, os.X_OK) else None
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def install() -> bool:
    """The package of Debian and its like; nothing is tried where it cannot work."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "-qq", "chromium"]):
        try:
            done = subprocess.run(
                command, env=quiet, capture_output=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        if done.returncode and command[1] == "install":
            return False
    return True


def main() -> int:
    """Say where it is."""
    found = find()
    if found is None and "--check" not in sys.argv[1:] and install():
        found = find()
    if found is None:
        print(f"no Chromium: install one, or name it in {VARIABLE}; browser tests are skipped")
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
