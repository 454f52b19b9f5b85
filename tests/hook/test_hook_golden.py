"""Recorded events of every client, and exactly what is printed for them.

For Cursor and VS Code, which no test can run, these shapes are all there is.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hook_kit import Running, code_in, plain, wait_for

from meritory.hook import main

GOLDEN = Path(__file__).parent / "golden"


def test_every_client_is_recorded() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(main.HARNESSES)


@pytest.mark.parametrize("harness", main.HARNESSES)
def test_what_is_printed_is_what_was_recorded(running: Running, harness: str) -> None:
    recorded = json.loads((GOLDEN / f"{harness}.json").read_text("utf-8"))
    code = ""
    for one in recorded:
        # Each client has a session of its own here.
        raw = json.dumps(one["stdin"]).replace("{home}", str(running.home))
        raw = raw.replace("0f5c2b1e", f"{harness} 0f5c2b1e").replace("CODE", code or "CODE")
        printed = running.out(harness, raw.encode()).decode()
        if not code and "mf " in printed:
            code = code_in(printed)
        assert (json.loads(plain(printed)) if printed else None) == one["stdout"]
    key = next(value for value in one["stdin"].values() if str(value).startswith("0f5c2b1e"))
    session = f"{harness}%20{key}"
    # Two of them keep their replies in files, which are not there.
    rated = {} if harness in ("copilot-cli", "vscode") else {"m1": 0.8}
    assert running.ratings(session) == rated
    if harness == "vscode":
        assert running.session(session)["state"] == "open"
    else:
        wait_for(lambda: running.session(session)["state"] != "open", "it never ended")
