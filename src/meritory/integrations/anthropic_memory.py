"""Anthropic's memory tool, with memories behind its files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meritory.api.memory import Memory
from meritory.domain.errors import MeritoryError
from meritory.integrations.core import missing
from meritory.integrations.files import MemoryFiles

try:
    from anthropic.lib.tools import BetaAbstractMemoryTool, ToolError
except ImportError as error:
    raise missing("anthropic", error) from error


class MeritoryMemoryTool(BetaAbstractMemoryTool):
    """The six commands for the SDK's tool runner: `tools=[MeritoryMemoryTool(memory)]`.

    A program with its own loop passes each call to `MemoryFiles(memory).run(block.input)`.
    """

    def __init__(self, memory: Memory, **options: Any) -> None:
        super().__init__(**options)
        self._files = MemoryFiles(memory)

    def _run(self, method: Callable[..., str], *args: Any) -> str:
        """Return the reply for the model, also for an error."""
        try:
            return method(*args)
        except MeritoryError as error:
            raise ToolError(str(error)) from error

    def view(self, command: Any) -> str:
        """Show a file or a folder."""
        return self._run(self._files.view, command.path, command.view_range)

    def create(self, command: Any) -> str:
        """Create a file."""
        return self._run(self._files.create, command.path, command.file_text)

    def str_replace(self, command: Any) -> str:
        """Replace a text in a file."""
        texts = (command.old_str, command.new_str or "")
        return self._run(self._files.str_replace, command.path, *texts)

    def insert(self, command: Any) -> str:
        """Insert lines into a file."""
        where = (command.path, command.insert_line)
        return self._run(self._files.insert, *where, command.insert_text)

    def delete(self, command: Any) -> str:
        """Delete a file or a folder."""
        return self._run(self._files.delete, command.path)

    def rename(self, command: Any) -> str:
        """Rename a file or a folder."""
        return self._run(self._files.rename, command.old_path, command.new_path)
