"""The words of the project: the glossary, file names that are found, and idioms that stay out.

Each check is a function over names or texts and is shown a planted violation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "meritory"
GLOSSARY = ROOT / "docs" / "glossary.md"

# Idioms of version 0.1 that readers stumble over.
IDIOMS = re.compile(
    r"\b(whoever|somebody|nobody|anew|is told|are told|is heard|of ours|for ever|be it that"
    r"|has a say)\b"
)
IDIOMS_LIMIT_COUNT = 10
# Private words of version 0.1 that may not name a module or a class again.
PRIVATE_WORDS = {
    *("told", "telling", "standing", "steering", "believing", "mind", "showing", "shelf"),
    *("shelves", "keepsake", "keepsakes", "carrying", "glance", "bell", "following", "turns"),
    *("door", "doors", "walls", "wishes", "ours", "surgery", "journey", "docket", "exhibit"),
    *("upkeep", "heap", "echoes", "confined", "living", "past", "fence", "traces", "care"),
}
# What a newcomer types to find the code: each is in the name of a file or of its folder.
LOOKED_UP = (
    *("rollback", "status", "drift", "canary", "exploration", "dedup", "notify", "cache", "retry"),
    *("breaker", "undo", "doctor", "packing", "render", "token", "rating", "train", "purge"),
    *("budget", "labels", "prompt", "health", "backup", "index", "export", "import", "recall"),
    *("embed", "judge", "janitor", "guard", "migrate", "schema"),
)
# A word that leads to a wrong room: these files are what is meant.
MEANT = {"packing": "rank/packing.py", "render": "text/render.py", "token": "domain/access.py"}


def module_names() -> list[str]:
    """Return the paths of all modules inside the package."""
    return sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def found_by_name(word: str, names: Iterable[str]) -> list[str]:
    """Return the modules that a word leads to: the file's own name, or its folder's."""
    return [name for name in names if any(word in part for part in name.split("/")[-2:])]


def private_names(names: Iterable[str]) -> list[str]:
    """Return the modules whose name is a private word."""
    return [name for name in names if name.split("/")[-1].removesuffix(".py") in PRIVATE_WORDS]


def private_classes(source: str) -> list[str]:
    """Return the classes in whose names a private word stands."""
    names = re.findall(r"^class (\w+)", source, re.MULTILINE)
    return [
        name
        for name in names
        if {part.lower() for part in re.findall(r"[A-Z][a-z0-9]*", name)} & PRIVATE_WORDS
    ]


def glossary_rows(text: str) -> list[tuple[str, str, str]]:
    """Return word, meaning and module of every row."""
    return re.findall(r"^\| ([a-z ]+) \| ([^|]+) \| `([\w/.]+)` \|$", text, re.MULTILINE)


def test_a_newcomer_finds_every_word_by_file_name() -> None:
    names = module_names()
    assert len(LOOKED_UP) == 33
    assert [word for word in LOOKED_UP if not found_by_name(word, names)] == []
    assert {word: path for word, path in MEANT.items() if path not in names} == {}


def test_the_lookup_can_fail() -> None:
    assert found_by_name("cache", ["store/past.py", "rank/x.py"]) == []
    assert found_by_name("cache", ["store/cache/usage.py"]) == ["store/cache/usage.py"]


def test_no_module_or_class_has_a_private_word() -> None:
    assert private_names(module_names()) == []
    found = {name: private_classes((PACKAGE / name).read_text("utf-8")) for name in module_names()}
    assert {name: classes for name, classes in found.items() if classes} == {}


def test_a_private_word_is_caught() -> None:
    assert private_names(["store/glance.py", "store/dashboard.py"]) == ["store/glance.py"]
    assert private_classes("class RuleStanding:\n    ...\nclass Rule: ...") == ["RuleStanding"]


def test_the_glossary_defines_each_word_once_and_names_its_module() -> None:
    rows = glossary_rows(GLOSSARY.read_text("utf-8"))
    words = [word for word, _, _ in rows]
    assert len(rows) > 50
    assert sorted(words) == sorted(set(words))
    assert [row for row in rows if row[2] not in module_names()] == []


@pytest.mark.parametrize("row", glossary_rows(GLOSSARY.read_text("utf-8")), ids=lambda row: row[0])
def test_a_module_with_a_glossary_word_for_a_name_is_about_it(row: tuple[str, str, str]) -> None:
    """Return only modules of the word's own name: one per layer, and the glossary's among them."""
    word = row[0].replace(" ", "_")
    alike = [
        name for name in module_names() if name.split("/")[-1] in (f"{word}.py", f"{word}s.py")
    ]
    layers = [name.rpartition("/")[0] for name in alike]
    assert len(layers) == len(set(layers)), alike


def test_the_idioms_of_the_first_version_do_not_come_back() -> None:
    found = [
        f"{name}: {match[0]}"
        for name in module_names()
        for match in IDIOMS.finditer((PACKAGE / name).read_text("utf-8"))
    ]
    assert len(found) <= IDIOMS_LIMIT_COUNT, found


def test_an_idiom_is_caught() -> None:
    assert IDIOMS.search("What is told to nobody.")
    assert not IDIOMS.search("The daemon publishes the event.")
