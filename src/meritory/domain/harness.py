"""The agent clients that Meritory connects to: their names, and what serving must know of them.

Everything else about a harness is in `connect/<name>.py`: its files, its hook and its transcripts.
A new harness is one file there and one row here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class HarnessTraits:
    """How a client differs from the others while a session is served."""

    name: str
    # It runs the hook at its events. Without, it loads a plugin that ships with Meritory.
    runs_hook: bool = True
    # It writes the angle brackets of a context as entities, so the context must do without them.
    escapes_brackets: bool = False
    # A resumed session no longer contains the context from its start.
    loses_start_on_resume: bool = False
    # A hook may ask the agent to go on after its reply.
    asks_at_reply: bool = False


HARNESSES: Final = (
    HarnessTraits("claude-code", asks_at_reply=True),
    HarnessTraits("codex", asks_at_reply=True),
    HarnessTraits("gemini-cli", escapes_brackets=True, loses_start_on_resume=True),
    HarnessTraits("copilot-cli", loses_start_on_resume=True),
    HarnessTraits("cursor"),
    HarnessTraits("vscode"),
    HarnessTraits("opencode", runs_hook=False),
    HarnessTraits("openclaw", runs_hook=False),
)
HARNESS_NAMES: Final = tuple(harness.name for harness in HARNESSES)
HOOK_HARNESS_NAMES: Final = tuple(harness.name for harness in HARNESSES if harness.runs_hook)
BY_NAME: Final = {harness.name: harness for harness in HARNESSES}
# The traits of a program that is not listed, and of none.
UNLISTED: Final = HarnessTraits("")
