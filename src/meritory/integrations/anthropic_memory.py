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

    Whoever runs the loop alone hands each call to `MemoryFiles(memory).run(block.input)`.
    """

    def __init__(self, memory: Memory, **options: Any) -> None:
        super().__init__(**options)
        self._files = MemoryFiles(memory)

    def view(self, command: Any) -> str:
        """Shows a file or a folder."""
        return _told(lambda: self._files.view(command.path, command.view_range))

    def create(self, command: Any) -> str:
        """Makes a new file."""
        return _told(lambda: self._files.create(command.path, command.file_text))

    def str_replace(self, command: Any) -> str:
        """Replaces a text in a file."""
        return _told(
            lambda: self._files.str_replace(command.path, command.old_str, command.new_str or "")
        )

    def insert(self, command: Any) -> str:
        """Inserts lines into a file."""
        return _told(
            lambda: self._files.insert(command.path, command.insert_line, command.insert_text)
        )

    def delete(self, command: Any) -> str:
        """Deletes a file or a folder."""
        return _told(lambda: self._files.delete(command.path))

    def rename(self, command: Any) -> str:
        """Renames a file or a folder."""
        return _told(lambda: self._files.rename(command.old_path, command.new_path))


def _told(call: Callable[[], str]) -> str:
    """Return the reply for the model, also for an error."""
    try:
        return call()
    except MeritoryError as error:
        raise ToolError(str(error)) from error
