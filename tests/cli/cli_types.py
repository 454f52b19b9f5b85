"""What the tests of the command line call things."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any, Protocol


class Done(Protocol):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str
    object: Any


Run = Callable[..., Done]
Stored = Callable[..., str]
Process = Callable[..., subprocess.CompletedProcess[bytes]]
