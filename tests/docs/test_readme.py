"""What the README and the quickstart show is run as it stands; every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def blocks(page: str) -> list[str]:
    return _CODE.findall((ROOT / page).read_text(encoding="utf-8"))


def run(code: str, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={"MERITORY_HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_the_readme_does_what_it_says(tmp_path: Path) -> None:
    (code,) = blocks("README.md")
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    lines = run(code, tmp_path / "home").splitlines()
    assert lines[0].endswith("The staging database is called heron")
    assert "Parts(composite=" in lines[2]
    assert lines[3] == "['create', 'delete', 'undo']"


def test_the_example_of_the_quickstart_runs(tmp_path: Path) -> None:
    (code,) = blocks("docs/quickstart.md")
    assert run(code, tmp_path / "home") == "The staging database is called heron\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = _LINK.findall(page.read_text(encoding="utf-8"))
        waiting += [page.parent / link for link in links if "://" not in link]
    assert {page.resolve() for page in PAGES} - seen == set()
