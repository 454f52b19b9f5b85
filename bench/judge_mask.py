"""Remove every path and file name, so that only the content can show what a session used.

This module runs under version 0.1 as well (see bench.judge_reference): it imports nothing of the
package that it measures.
"""

from __future__ import annotations

import re
from typing import Final

# Extensions by which a word is a file name. Others would hide code: `os.Exit` is no file.
_EXTENSIONS: Final = (
    "bash c cc cfg cjs conf cpp cs css csv env example gif go h hpp html ini ipynb java jpg js json"
    " jsonc jsonl jsx kt lock log lua mdc md mjs mod pdf php plist png proto ps1 py rb rs rst scss"
    " sh sql sqlite sum svelte svg swift tar tf toml ts tsx txt vue xml yaml yml zip zsh"
)
_PLAIN_NAMES: Final = "CODEOWNERS|Dockerfile|Gemfile|Justfile|LICENSE|Makefile|Procfile|README"
# Each alternative begins where no name can have begun before, so that long runs are read once.
_NAMES: Final = re.compile(
    r"(?<![\w.@~+-])[\w.@~+-]*(?:/[\w.@~+-]+)+/?"
    rf"|(?<![\w.@~+-])[\w.@~+-]*\.(?:{'|'.join(_EXTENSIONS.split())})(?!\w)"
    r"|(?<![\w.@~+/-])\.[A-Za-z][\w-]+"
    rf"|(?<![\w.-])(?:{_PLAIN_NAMES})(?![\w-])"
)


def mask_text(text: str) -> str:
    """Return a text without paths and file names."""
    return _NAMES.sub(" ", text)


def mask_memory(text: str) -> str:
    """Return a file as a memory without its title, which is its path, and without other names."""
    _, line_end, body = text.partition("\n")
    return mask_text(line_end + body)
