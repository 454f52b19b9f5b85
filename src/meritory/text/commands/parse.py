"""Shell commands as programs with their words; nothing is run.

A line is split leniently, as a shell would do it: text in quotes, in a here-document or after a `#`
is not a command, and unclear parts are left out. A missed command is better than an invented one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from meritory.text.language import read_language

# How much of a line is read without its here-documents, and how far those are searched for.
COMMAND_LIMIT_CHARS: Final = 16_000
DOCUMENTS_LIMIT_CHARS: Final = 1_000_000
_DOCUMENTS_LIMIT_COUNT: Final = 200
_COMMANDS_LIMIT_COUNT: Final = 2_000
_DEPTH_LIMIT: Final = 2


def _programs(table: str) -> dict[str, tuple[str, ...]]:
    """Return the programs of a table, each with the options that take the next word."""
    listed = {name: tuple(text.split()) for name, text in read_language("shell")[table].items()}
    return {**dict.fromkeys(listed.pop("plain"), ()), **listed}


# Programs whose first word is a subcommand, and programs that run another program.
SUBCOMMANDS: Final = _programs("subcommands")
_CARRIERS: Final = _programs("carriers")
# One spelling for options with the same effect.
_SPELLINGS: Final[Mapping[str, Mapping[str, str]]] = read_language("shell")["spellings"]

# Programs that print files, and the shape of a file name: `sed -n 1,80p a.py`.
_READERS: Final = frozenset(("cat", "sed", "head", "tail", "less", "more", "nl", "bat", "view"))
_FILE: Final = re.compile(r"[\w.@~+/-]*[\w@~+/-][./][\w.@~+/-]*|[\w.@~+/-]*\.[A-Za-z]\w{0,9}")
_SHELLS: Final = ("bash", "sh", "zsh", "dash")
_KEYWORDS: Final = ("then", "do", "else", "if", "while", "until", "elif", "!", "{", "}", "fi")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?[smhd]?")

# Neither `<<<`, which passes a word, nor a shift by a number.
_HEREDOC: Final = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1")

# In this order: quotes, an escape, a comment, an end of a command, a redirection, space, the rest.
# An open quote extends to the end of the line, where a shell would wait for more.
_PIECE: Final = re.compile(
    r"""'(?P<single>[^']*)(?:'|\Z)
    |"(?P<double>(?:[^"\\]++|\\.)*+)(?:"|\Z)
    |\\(?P<escaped>.)
    |(?P<comment>(?<!\S)\#[^\n]*)
    |(?P<end>\n|;|&&|\|\||\||&(?![>\d])|\$?\(|\)|`)
    |(?P<redirect>\d?&?>{1,2}&?\d?|<(?!<))
    |(?P<space>[ \t\r]+)
    |(?P<plain>[^'"\\\n;&|()`<>\s$\#]+|.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One program with its positional words in order and its options in any order."""

    program: str
    named: tuple[str, ...]
    options: frozenset[str]

    @property
    def has_subcommand(self) -> bool:
        """Whether the first positional word is a subcommand."""
        return self.program in SUBCOMMANDS and bool(self.named)

    @property
    def deed(self) -> str:
        """The program with its subcommand, if it has one."""
        return f"{self.program} {self.named[0]}" if self.has_subcommand else self.program


def read_commands(line: str) -> tuple[ShellCommand, ...]:
    """Return the distinct commands of a line in order, up to a limit."""
    commands = _commands(_without_documents(readable(line)), 0)
    return tuple(dict.fromkeys(islice(commands, _COMMANDS_LIMIT_COUNT)))


def files_read(line: str) -> tuple[str, ...]:
    """Return the files that a line's commands print, such as `cat` does."""
    return tuple(
        dict.fromkeys(
            word
            for command in read_commands(line)
            if command.program in _READERS
            for word in command.named
            if _FILE.fullmatch(word)
        )
    )


def readable(line: str) -> str:
    """Return the part of a line that is read; a long one loses its here-documents."""
    if len(line) <= COMMAND_LIMIT_CHARS:
        return line
    return _without_documents(line[:DOCUMENTS_LIMIT_CHARS])[:COMMAND_LIMIT_CHARS]


def _commands(line: str, depth: int) -> Iterator[ShellCommand]:
    for words in _split(line):
        words = _without_carriers(words)
        if not words:
            continue
        program = words[0].rpartition("/")[2]
        # A shell may be given a whole line to run.
        inner = " ".join(words[1:]).removeprefix("-- ") if program == "eval" else None
        if program in _SHELLS:
            options = enumerate(words[1:-1], 1)
            inner = next((words[i + 1] for i, w in options if re.fullmatch(r"-[a-z]*c", w)), None)
        if inner is not None and depth < _DEPTH_LIMIT:
            yield from _commands(_without_documents(inner), depth + 1)
        else:
            yield _command(program, words[1:])


def _without_documents(line: str) -> str:
    """Return the line without its here-documents."""
    pieces: list[str] = []
    position = 0
    for _ in range(_DOCUMENTS_LIMIT_COUNT if "<<" in line else 0):
        opened = _HEREDOC.search(line, position)
        if opened is None:
            break
        line_end = line.find("\n", opened.end())
        line_end = len(line) if line_end < 0 else line_end
        pieces.append(_HEREDOC.sub("", line[position:line_end]))
        position = line_end
        for mark in _HEREDOC.finditer(line, opened.start(), line_end):
            closing = re.compile(rf"\n[^\S\n]*{mark[2]}[^\S\n]*(?=\n|\Z)").search(line, position)
            # An open document extends to the end.
            position = closing.end() if closing else len(line)
    return "".join((*pieces, line[position:]))


def _split(line: str) -> Iterator[list[str]]:
    """Yield the words of each command, without redirections and their targets."""
    words: list[str] = []
    word: str | None = None
    is_target = False
    for piece in _PIECE.finditer(line):
        kind, text = str(piece.lastgroup), piece[str(piece.lastgroup)]
        if kind in ("single", "double", "escaped", "plain"):
            word = (word or "") + ("" if kind == "escaped" and text == "\n" else text)
            continue
        if word is not None:
            words += [] if is_target else [word]
            word, is_target = None, False
        if kind == "redirect":
            is_target = not text.endswith(("&1", "&2"))
        elif kind == "end":
            is_target = False
            yield words
            words = []
    words += [] if word is None or is_target else [word]
    yield words


def _without_carriers(words: Sequence[str]) -> list[str]:
    """Return the words without keywords, assignments and programs that only run another one."""
    index = 0
    while index < len(words):
        first = words[index].rpartition("/")[2]
        if words[index] in _KEYWORDS or _ASSIGNMENT.match(words[index]):
            index += 1
        elif first in _CARRIERS:
            index += 1
            while index < len(words) and words[index].startswith("-"):
                index += 2 if words[index] in _CARRIERS[first] else 1
            if first == "timeout" and _NUMBER.fullmatch("".join(words[index : index + 1])):
                index += 1
        else:
            break
    return list(words[index:])


def _command(program: str, words: Sequence[str]) -> ShellCommand:
    takes_value = SUBCOMMANDS.get(program, ())
    named: list[str] = []
    options: set[str] = set()
    is_value, is_over = False, False
    for word in words:
        if is_value:
            is_value = False
        elif is_over or not word.startswith("-") or word == "-":
            named.append(word)
        elif word == "--":
            is_over = True
        elif word in takes_value and not named:
            is_value = True
        elif word.startswith("--"):
            options.add(word.partition("=")[0])
        else:
            options.add(word)
            if word[1:].isalpha() and len(word) <= 5:
                # `-rf` is two options, `-name` is one; both readings are kept.
                options.update(f"-{letter}" for letter in word[1:])
    command = ShellCommand(program, tuple(named), frozenset(options))
    spelling = _SPELLINGS.get(command.deed, {})
    spelled = frozenset(spelling.get(option, option) for option in options)
    return ShellCommand(program, tuple(named), spelled)
