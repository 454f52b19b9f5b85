"""The hook with all the time in the world: what it prints must not depend on a busy machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meritory.hook import main

PATIENCE_S = 60.0
_FILES = ("__main__.py", "main.py", "shapes.py", "remote.py", "spool.py", "wake.py")
_BUDGETS = ("BUDGET_S", "GUARD_BUDGET_S", "END_BUDGET_S")


def patient_script(folder: Path) -> Path:
    """A copy of the hook, to be run as a process, that waits as long as it takes."""
    for name in _FILES:
        text = Path(main.__file__).with_name(name).read_text("utf-8")
        if name == "main.py":
            for budget in _BUDGETS:
                text, found = re.subn(rf"(?m)^{budget} = .*$", f"{budget} = {PATIENCE_S}", text)
                assert found == 1, budget
        (folder / name).write_text(text, "utf-8")
    return folder / _FILES[0]


def set_budgets(monkeypatch: pytest.MonkeyPatch, budget_s: float) -> None:
    """Lets the hook in this process wait so long, whatever it is asked."""
    # A tenth of a second is for what comes before the daemon is asked.
    monkeypatch.setattr(main, "BUDGET_S", budget_s + 0.1)
    monkeypatch.setattr(main, "_BUDGETS_S", dict.fromkeys(main._BUDGETS_S, budget_s))
