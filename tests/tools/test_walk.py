"""tools/walk.py counts the files, functions and file switches of a call."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Three files: `start` goes to `middle` and back twice, and to `end` on another thread.
PLANTED = {
    "start": """
import threading

def run(middle, end):
    middle.step(back)
    middle.step(back)
    thread = threading.Thread(target=end.finish)
    thread.start()
    thread.join()
    return [number for number in range(3)]

def back():
    pass
""",
    "middle": "def step(back):\n    back()\n",
    "end": "def finish():\n    last()\n\ndef last():\n    pass\n",
}


def load(name: str, path: Path) -> ModuleType:
    """Import a file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_a_planted_walk_of_three_files_is_counted(tmp_path: Path) -> None:
    walk = load("tools_walk", ROOT / "tools" / "walk.py")
    for name, source in PLANTED.items():
        (tmp_path / f"{name}.py").write_text(source)
    start, middle, end = (load(f"planted_{name}", tmp_path / f"{name}.py") for name in PLANTED)
    tracer = walk.Tracer(tmp_path)

    with tracer.install():
        found = tracer.trace("planted", lambda: start.run(middle, end))

    assert found.files == ("end.py", "middle.py", "start.py")
    # run, back, step, finish and last; the comprehension is part of run.
    assert found.function_count == 5
    # On the first thread: run, step, back, step, back.
    assert found.switch_count == 4
    assert threading.getprofile() is None and sys.getprofile() is None


def test_calls_outside_the_trace_do_not_count(tmp_path: Path) -> None:
    walk = load("tools_walk", ROOT / "tools" / "walk.py")
    (tmp_path / "end.py").write_text(PLANTED["end"])
    end = load("planted_end", tmp_path / "end.py")
    tracer = walk.Tracer(tmp_path)

    with tracer.install():
        end.finish()
        found = tracer.trace("nothing", lambda: None)

    assert (found.files, found.function_count, found.switch_count) == ((), 0, 0)


@pytest.mark.timeout(300)
def test_every_walk_can_be_traced() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "walk.py"), "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    walks = {walk["name"]: walk for walk in json.loads(done.stdout)}
    expected = {"remember", "recall", "start", "prompt", "end", "learn", "feedback", "guard"}
    assert expected <= set(walks)
    assert all(walk["files"] and walk["functions"] and walk["switches"] for walk in walks.values())
    assert "server/routes/hooks.py" in walks["start"]["paths"]
