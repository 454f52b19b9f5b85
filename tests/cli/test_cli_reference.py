"""The page about the command line: made from the code, complete, and true where it promises."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import click
import pytest

from meritory.cli.app import APP, entries

ROOT = Path(__file__).resolve().parents[2]
NAME = "docs/reference/cli.md"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The tool that makes the pages."""
    spec = importlib.util.spec_from_file_location("gen_docs", ROOT / "tools" / "gen_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_code_says(generator: ModuleType) -> None:
    made = generator.PAGES[NAME]()
    assert (ROOT / NAME).read_text("utf-8") == made, "run: .venv/bin/python tools/gen_docs.py"


def test_every_command_and_every_option_is_on_the_page() -> None:
    page = (ROOT / NAME).read_text("utf-8")
    context = click.Context(APP)
    for entry in entries():
        assert f"### meritory {entry.name}" in page
        found = APP.get_command(context, entry.name)
        assert found is not None
        section = page.split(f"### meritory {entry.name}", 1)[1].split("\n### ")[0]
        for param in found.params:
            if isinstance(param, click.Option) and not param.hidden and param.name != "as_json":
                assert f"`{param.opts[0]}" in section
                assert (param.help or "?").split("  [")[0] in section


def test_every_section_has_an_example() -> None:
    page = (ROOT / NAME).read_text("utf-8")
    sections = page.split("\n### ")[1:]
    assert all("```sh\nmeritory " in part or 'eval "$(meritory' in part for part in sections)
