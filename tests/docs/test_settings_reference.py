"""The settings reference: complete, made from the code, and true when followed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from meritory.settings import SETTINGS, load_settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "settings.md"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The tool that makes the pages."""
    spec = importlib.util.spec_from_file_location("gen_docs", ROOT / "tools" / "gen_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_pages_are_what_the_code_says() -> None:
    """In a process of its own: of equal annotations, Python keeps the one that it met first."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "gen_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run: .venv/bin/python tools/gen_docs.py\n{done.stdout}"


def test_a_page_that_differs_by_one_letter_is_stale(generator: ModuleType, tmp_path: Path) -> None:
    assert generator.stale_pages(tmp_path) == list(generator.PAGES)
    for name, make in generator.PAGES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(make(), "utf-8")
    assert generator.stale_pages(tmp_path) == []
    copy = tmp_path / "docs" / "reference" / "settings.md"
    copy.write_text(copy.read_text("utf-8").replace("1500", "1501", 1), "utf-8")
    assert generator.stale_pages(tmp_path) == ["docs/reference/settings.md"]


def test_every_setting_is_documented_with_its_variable_and_its_bounds() -> None:
    page = PAGE.read_text("utf-8")
    for setting in SETTINGS:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{setting.name}` |"))
        assert f"`{setting.variable}`" in row
        assert setting.expects in row
        assert setting.help in row


def test_the_example_file_in_the_page_sets_every_default(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert example is not None
    (tmp_path / "config.toml").write_text(example[1], "utf-8")
    followed = load_settings(tmp_path, {})
    assert set(followed.origins.values()) == {"config.toml"}
    assert followed.shown() == load_settings(tmp_path / "absent", {}).shown()
