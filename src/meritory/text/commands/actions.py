"""The actions of an agent, in one form for the tools of all clients.

A tool belongs to a family (shell, edit, read, web) or stands for itself. Its argument is the
command, the path, the URL, or all of its values. The words of an action decide how risky it is,
never a label.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final

from meritory.domain.rule import RecordedAction
from meritory.text.commands.parse import COMMAND_LIMIT_CHARS, ShellCommand, read_commands, readable
from meritory.text.language import read_language, word_set, words
from meritory.text.secrets import find_secrets
from meritory.text.terms import stem

# How much of an argument is stored; far more of it is read.
ARGUMENT_LIMIT_CHARS: Final = 4_000
# Longer than any secret except a key block: one that starts in the stored part ends in this.
_SECRET_LIMIT_CHARS: Final = 8_000
RISKY: Final = 6
_WORDS_LIMIT_COUNT: Final = 60
_PATHS_LIMIT_COUNT: Final = 32

# Paths of one call in a digest, and the length up to which a text is a path.
CALL_PATHS_LIMIT_COUNT: Final = 200
_PATH_LIMIT_CHARS: Final = 1_024
_NESTING_LIMIT: Final = 4

# The family of a tool by its name in lower case.
TOOL_FAMILIES: Final[Mapping[str, str]] = {
    name: family
    for family, names in read_language("shell")["tools"].items()
    for name in words(names)
}
_COMMAND_KEYS: Final = ("command", "cmd", "script")
# Tools of the family `edit` that do not write.
_DELETING_TOOLS: Final = words("delete delete_file")
# Arguments with one path, and arguments with a list of paths.
PATH_KEYS: Final = (
    *("file_path", "path", "filePath", "notebook_path", "absolute_path", "filename"),
    *("target_file", "target_notebook", "relative_path", "file"),
)
PATH_LIST_KEYS: Final = ("paths", "files", "file_paths", "filePaths", "include")
PATCH_START: Final = "*** Begin Patch"
_PATCH_PATH: Final = re.compile(
    r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE
)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9]+")


_FILE: Final = "en/commands"
# Words that users have for what programs and tools do.
_MEANINGS: Final[Mapping[str, str]] = read_language(_FILE)["meanings"]
_FAMILY_MEANINGS: Final[Mapping[str, str]] = read_language(_FILE)["family_meanings"]

# Deeds with the options or words that they need to be as risky.
_RISKS: Final = tuple(
    (deed, tuple[str, ...](needed.split()), int(risk))
    for risk, deeds in read_language("shell")["risks"].items()
    for deed, _, needed in (entry.partition(": ") for entry in deeds)
)
_SQL: Final = re.compile(r"\b(?:drop\s+(?:table|database|schema)|truncate\s+table)\b", re.I)
_SQL_PROGRAMS: Final = ("psql", "mysql", "sqlite3", "mariadb", "clickhouse-client", "duckdb")
_SQL_RISK: Final = 9

# Files that contain secrets or decide what other machines do.
_RISKY_FILE: Final = re.compile(
    r"(?:^|/)(?:\.env(?:\.(?!example|sample|template)[\w-]+)?|id_(?:rsa|ed25519)|\.npmrc|\.pypirc"
    r"|\.git/(?:config|hooks/.+)|\.ssh/.+|authorized_keys|.*\.pem)$"
)
_FILE_RISK: Final = 7
_BASE_RISKS: Final[dict[str, int]] = {"shell": 2, "edit": 2, "web": 2, "read": 1}
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh"})

_EMPTY_WORDS: Final = word_set(_FILE, "empty")


@dataclass(frozen=True)
class ToolAction:
    """A tool call: the family and name of the tool, and its argument."""

    tool: str
    name: str
    argument: str

    @cached_property
    def commands(self) -> tuple[ShellCommand, ...]:
        """The commands of a shell line."""
        return read_commands(self.argument) if self.tool == "shell" else ()

    @cached_property
    def by_program(self) -> dict[str, list[ShellCommand]]:
        """The commands of each program."""
        by_program: dict[str, list[ShellCommand]] = {}
        for command in self.commands:
            by_program.setdefault(command.program, []).append(command)
        return by_program

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The paths, the URL or the other values of the call."""
        return () if self.tool == "shell" else tuple(self.argument.split("\n"))

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """The keys to look it up by: programs, or the last parts of paths."""
        if self.tool == "shell":
            return tuple(self.by_program)
        return tuple(dict.fromkeys(value.rpartition("/")[2] for value in self.values))

    @cached_property
    def risk(self) -> int:
        """How risky it is, from 1 to 10."""
        base = _BASE_RISKS.get(self.tool, 2)
        if self.tool == "edit" and any(map(_RISKY_FILE.search, self.values)):
            return _FILE_RISK
        return max((base, *map(command_risk, self.commands)))

    @cached_property
    def words(self) -> frozenset[str]:
        """The stems of its words, and of the words that users have for it."""
        texts = [self.argument, _FAMILY_MEANINGS.get(self.tool, self.name)]
        texts += [_MEANINGS.get(command.deed, "") for command in self.commands]
        texts += [_MEANINGS.get(command.program, "") for command in self.commands]
        return stems(" ".join(texts))


def recorded_tool_action(recorded: RecordedAction) -> ToolAction:
    """Return the tool call of a recorded action."""
    return ToolAction(recorded.tool, recorded.tool_name, recorded.argument)


def read_action(tool_name: str, given: Any) -> ToolAction:
    """Return the action of a tool call in the client's own form."""
    tool = tool_family(tool_name)
    argument = _argument(tool, given)
    readable_part = readable(argument) if tool == "shell" else argument[:COMMAND_LIMIT_CHARS]
    return ToolAction(tool, tool_name, readable_part)


def tool_family(tool_name: str) -> str:
    """Return a tool's family (shell, edit, read, web), its own lower-case name if it has none."""
    return TOOL_FAMILIES.get(_short_name(tool_name), tool_name.lower())


def is_writing_tool(tool_name: str) -> bool:
    """Return whether a tool writes files; a tool that deletes them does not."""
    return tool_family(tool_name) == "edit" and _short_name(tool_name) not in _DELETING_TOOLS


def _short_name(tool_name: str) -> str:
    is_mcp = tool_name.startswith("mcp__")
    return (tool_name.rpartition("__")[2] if is_mcp else tool_name).lower()


def call_paths(given: object) -> tuple[str, ...]:
    """Return the distinct paths in a tool's arguments: path arguments, lists of them, patches."""
    paths = (path.strip() for path in _paths(_decoded(given), 0))
    usable = (path for path in paths if 0 < len(path) <= _PATH_LIMIT_CHARS and "\n" not in path)
    return tuple(islice(dict.fromkeys(usable), CALL_PATHS_LIMIT_COUNT))


def _paths(given: object, depth: int) -> Iterator[str]:
    if isinstance(given, str):
        yield from _PATCH_PATH.findall(given) if "*** " in given else ()
    elif depth < _NESTING_LIMIT and isinstance(given, list | tuple):
        for value in given:
            yield from _paths(value, depth + 1)
    elif depth < _NESTING_LIMIT and isinstance(given, Mapping):
        named = [value for key in PATH_KEYS if isinstance(value := given.get(key), str)]
        yield from named
        for key, value in given.items():
            if key in PATH_LIST_KEYS and isinstance(value, list | tuple):
                yield from (item for item in value if isinstance(item, str))
            # The text of a call that names its file is content, not a patch.
            if not isinstance(value, str) or not named:
                yield from _paths(value, depth + 1)


def kept_argument(argument: str) -> str:
    """Return the start of an argument with secrets redacted before it is cut."""
    read, limit = argument[: ARGUMENT_LIMIT_CHARS + _SECRET_LIMIT_CHARS], ARGUMENT_LIMIT_CHARS
    pieces: list[str] = []
    end = 0
    for secret in find_secrets(read):
        if secret.start < limit:
            pieces += (read[end : secret.start], f"[redacted:{secret.kind}]")
            end = secret.end
    return "".join((*pieces, read[end:limit]))[:limit]


def _argument(tool: str, given: Any) -> str:
    given = _decoded(given)
    if isinstance(given, str):
        return "\n".join(_PATCH_PATH.findall(given)) if tool == "edit" else given
    if not isinstance(given, Mapping):
        return ""
    if tool == "shell":
        return _first(given, _COMMAND_KEYS)
    if tool in ("edit", "read"):
        return _first(given, PATH_KEYS) or "\n".join(call_paths(given)[:_PATHS_LIMIT_COUNT])
    if tool == "web":
        return _first(given, ("url", "uri", "query", "prompt"))
    pairs = sorted((str(key), value) for key, value in given.items())
    return "\n".join(f"{key}={value}" for key, value in pairs if isinstance(value, str | int))


def _decoded(given: Any) -> Any:
    """Return arguments that a client passes as the JSON text of the model as an object."""
    if not isinstance(given, str) or not given.startswith("{"):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return given


def _first(given: Mapping[Any, Any], keys: tuple[str, ...]) -> str:
    """Return the first value under these keys; a list is a command given as words."""
    for key in keys:
        value = given.get(key)
        if isinstance(value, list):
            line = [str(word) for word in value]
            is_shell = len(line) > 2 and line[0].rpartition("/")[2] in _SHELLS
            return line[2] if is_shell and re.fullmatch(r"-[a-z]*c", line[1]) else shlex.join(line)
        if isinstance(value, str) and value:
            return value
    return ""


def command_risk(command: ShellCommand) -> int:
    """Return how risky a command is, from 1 to 10."""
    risks = [risk for risk, _ in _risks(command)]
    if sql_words(command):
        risks.append(_SQL_RISK)
    return max(risks, default=2)


def sql_words(command: ShellCommand) -> tuple[str, ...]:
    """Return patterns for the statements of a command that destroy data."""
    if command.program not in _SQL_PROGRAMS:
        return ()
    return tuple(f"*{found[0]}*" for word in command.named if (found := _SQL.search(word)))


def risky_words(command: ShellCommand) -> tuple[str, ...]:
    """Return the words that make a command risky."""
    risk, needed = max(
        _risks(command), default=(0, ()), key=lambda entry: (entry[0], len(entry[1]))
    )
    return needed if risk >= RISKY else ()


def _risks(command: ShellCommand) -> list[tuple[int, tuple[str, ...]]]:
    """Return the entries of the risk table that apply, each with the words it needs."""
    has = command.options | set(command.named)
    return [
        (risk, needed)
        for deed, needed, risk in _RISKS
        if deed in (command.deed, command.program) and has.issuperset(needed)
    ]


def stems(text: str) -> frozenset[str]:
    """Return the stems of the content words of a text, up to a limit."""
    distinct = dict.fromkeys(word.lower() for word in _WORD.findall(text))
    stemmed = (stem(word, aggressive=True) for word in distinct if word not in _EMPTY_WORDS)
    return frozenset(list(dict.fromkeys(stemmed))[:_WORDS_LIMIT_COUNT])
