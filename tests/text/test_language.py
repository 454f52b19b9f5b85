"""The data files of a language: every pattern compiles, and every list is used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import meritory
from meritory.text.language import pattern, read_language, word_set, written_out

PACKAGE = Path(meritory.__file__).parent
FOLDER = PACKAGE / "data" / "language"
FILES = sorted(
    path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.toml")
)


def test_there_are_files() -> None:
    assert {"en/words", "en/extract", "injection"} <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_pattern_compiles(name: str) -> None:
    for key in read_language(name).get("patterns", {}):
        assert pattern(name, key).pattern


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("/extract")])
def test_every_cue_compiles_and_has_what_it_states(name: str) -> None:
    for entry in read_language(name)["cues"]:
        assert "claim" in re.compile(written_out(name, entry["pattern"])).groupindex


@pytest.mark.parametrize("name", FILES)
def test_no_line_of_a_pattern_loses_a_space(name: str) -> None:
    data: dict[str, Any] = read_language(name)
    entries = [*data.get("cues", []), *([data["after_denial"]] if "after_denial" in data else [])]
    texts = [*data.get("patterns", {}).values(), *(entry["pattern"] for entry in entries)]
    for line in (line for text in texts for line in text.splitlines()):
        assert line == line.strip()


@pytest.mark.parametrize("name", FILES)
def test_every_list_has_words_in_lower_case(name: str) -> None:
    for key, text in read_language(name).get("words", {}).items():
        assert word_set(name, key)
        assert text == text.lower()


@pytest.mark.parametrize("name", FILES)
def test_every_list_and_pattern_is_used(name: str) -> None:
    data = read_language(name)
    code = "".join(path.read_text("utf-8") for path in (PACKAGE / "text").rglob("*.py"))
    file = (FOLDER / f"{name}.toml").read_text("utf-8")
    for key in (*data.get("words", {}), *data.get("patterns", {})):
        assert f'"{key}"' in code or f"{{{key}}}" in file or key.startswith("says_"), key


def test_a_pattern_is_joined_and_its_references_are_written_out() -> None:
    assert written_out("en/extract", "a|\nb{2,3}") == "a|b{2,3}"
    span = re.escape(written_out("en/extract", "{span}"))
    assert re.fullmatch(f"next {span}", written_out("en/extract", "next {span}"))


def test_the_front_door_reads_no_words() -> None:
    code = "import sys; from meritory import Memory; print('meritory.text.language' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
