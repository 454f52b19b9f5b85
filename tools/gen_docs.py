"""Writes the reference pages that are made from the code; `--check` only says which are stale."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tenure.settings import SETTINGS, Setting, show

ROOT = Path(__file__).resolve().parents[1]
MADE_BY = "<!-- Made by tools/gen_docs.py: change the code, then run it again. -->"


def settings_page() -> str:
    """The reference of all settings."""
    lines = [
        MADE_BY,
        "# Settings",
        "",
        "A value comes from the strongest source that names it: a flag, else the environment,",
        "else `config.toml` in the data folder, else the default. The data folder is",
        "`$TENURE_HOME`, or `~/.tenure`; it is created private (mode 700). `tenure config show`",
        "prints every value with where it came from. An unknown name is an error, an empty",
        "variable counts as not set, and `TENURE_BENCH_*` and `TENURE_TEST_*` are left alone.",
        "",
        "```toml",
        "# $TENURE_HOME/config.toml, with every default",
        *_example(),
        "```",
        "",
        "| setting | variable | value | default | what it does |",
        "|---|---|---|---|---|",
        *(_row(setting) for setting in SETTINGS),
    ]
    return "\n".join(lines) + "\n"


def _row(setting: Setting) -> str:
    default = show(setting, setting.default)
    cells = (
        f"`{setting.name}`",
        f"`{setting.variable}`",
        setting.expects + (" (secret: never shown)" if setting.secret else ""),
        f"`{default}`" if default else "empty",
        setting.help,
    )
    return "| " + " | ".join(cells) + " |"


def _example() -> list[str]:
    lines: list[str] = []
    table = ""
    for setting in SETTINGS:
        group, _, key = setting.name.rpartition(".")
        if group != table:
            lines += ["", f"[{group}]"]
            table = group
        text = show(setting, setting.default)
        quoted = setting.default is None or isinstance(setting.default, str)
        lines.append(f'{key} = "{text}"' if quoted else f"{key} = {text}")
    return lines


PAGES: dict[str, Callable[[], str]] = {"docs/reference/settings.md": settings_page}


def stale_pages(root: Path) -> list[str]:
    """The pages that differ from what the code says now."""
    return [
        name
        for name, make in PAGES.items()
        if not (root / name).is_file() or (root / name).read_text("utf-8") != make()
    ]


def main(arguments: list[str]) -> int:
    """Writes the stale pages, or with `--check` fails when there are any."""
    stale = stale_pages(ROOT)
    for name in stale:
        print("stale:" if "--check" in arguments else "written:", name)
        if "--check" not in arguments:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(PAGES[name](), "utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
