"""The first minute with Tenure: stores memories, finds them, changes one and undoes it.

Runs on a throw-away store; nothing of yours is touched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Tell it something", ("remember", "The staging database is called heron")),
    ("Something else", ("remember", "Anna prefers short commit messages", "--kind", "preference")),
    ("A rule for one file", ("remember", "Never edit `schema.py` by hand", "--kind", "constraint")),
    ("The same thing in other words does not pile up", (
        "remember", "I think the staging database is called heron")),
    ("Another value is kept apart, never merged away", (
        "remember", "The production database is called heron")),
    ("Ask, in your own words", ("recall", "what is our staging db called?")),
    ("Ask why", ("recall", "how should I write commits?", "--limit", "1", "--explain")),
    ("What happened so far", ("stats",)),
    ("Is everything all right?", ("doctor",)),
)  # fmt: skip


def main() -> int:
    """Runs each step as a person would type it."""
    with tempfile.TemporaryDirectory(prefix="tenure-") as home:
        for title, words in STEPS:
            shown = " ".join(f'"{word}"' if " " in word else word for word in words)
            print(f"\n# {title}\n$ tenure {shown}", flush=True)
            command = [sys.executable, "-m", "tenure", *words]
            done = subprocess.run(command, env={**os.environ, "TENURE_HOME": home}, check=False)  # noqa: S603
            if done.returncode != 0:
                return done.returncode
    print('\nThat was a throw-away store. Yours starts with: .venv/bin/tenure remember "..."')
    return 0


if __name__ == "__main__":
    sys.exit(main())
