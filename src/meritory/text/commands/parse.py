"""Shell commands as programs with their words, without running or believing anything.

A line is taken apart as a shell would do it, leniently: what stands in quotes, in a here-document
or behind a `#` is no command, and what cannot be told is left out. To miss a command is better
than to see one that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

# What is read of a line, here-documents apart, and how far those are looked for in a longer one.
COMMAND_LIMIT_CHARS: Final = 16_000
DOCUMENTS_LIMIT_CHARS: Final = 1_000_000
_DOCUMENTS_LIMIT_COUNT: Final = 200
_COMMANDS_LIMIT_COUNT: Final = 2_000
_DEPTH_LIMIT: Final = 2

# Whose first word says what is done, and which of their options take the word behind them.
SUBCOMMANDS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun", "cargo", "go", "pip", "pip3", "uv"), ()),
    **dict.fromkeys(("poetry", "apt", "apt-get", "brew", "systemctl", "gh", "rails"), ()),
    **dict.fromkeys(("terraform", "pulumi", "alembic", "vercel", "netlify", "fly"), ()),
    **dict.fromkeys(("twine", "gem", "supabase", "prisma", "heroku", "rustup", "conda"), ()),
    "git": ("-C", "-c", "--git-dir", "--work-tree"),
    "docker": ("-H", "--context", "--host"),
    "podman": (),
    "kubectl": ("-n", "--namespace", "--context", "--kubeconfig"),
    "helm": ("-n", "--namespace", "--kube-context"),
    "aws": ("--profile", "--region"),
    "gcloud": ("--project",),
    "az": (),
}
# One spelling for each option, where it does the same.
_SPELLINGS: Final[dict[str, dict[str, str]]] = {
    "git push": {"-f": "--force", "-d": "--delete", "-u": "--set-upstream", "-n": "--dry-run"},
    "git commit": {"-n": "--no-verify", "-a": "--all"},
    "git clean": {"--force": "-f"},
    "git branch": {"-M": "-m"},
    "git checkout": {"--force": "-f"},
    "rm": {"-R": "-r", "--recursive": "-r", "--force": "-f"},
    "cp": {"-R": "-r", "--recursive": "-r"},
    "chmod": {"--recursive": "-R"},
    "chown": {"--recursive": "-R"},
}
# Programs that run another one, and their options that take a word.
_CARRIERS: Final[dict[str, tuple[str, ...]]] = {
    "sudo": ("-u", "-g"),
    "env": ("-u",),
    "nice": ("-n",),
    "timeout": ("-s", "-k"),
    "xargs": ("-n", "-I", "-P", "-L", "-d"),
    **dict.fromkeys(("time", "nohup", "command", "exec", "stdbuf", "doas", "builtin"), ()),
}
# Programs that print files, and a word that can be one of their files: `sed -n 1,80p a.py`.
_READERS: Final = frozenset(("cat", "sed", "head", "tail", "less", "more", "nl", "bat", "view"))
_FILE: Final = re.compile(r"[\w.@~+/-]*[\w@~+/-][./][\w.@~+/-]*|[\w.@~+/-]*\.[A-Za-z]\w{0,9}")
_SHELLS: Final = ("bash", "sh", "zsh", "dash")
_KEYWORDS: Final = ("then", "do", "else", "if", "while", "until", "elif", "!", "{", "}", "fi")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?[smhd]?")
# Neither `<<<`, which hands over a word, nor a shift by a number.
_HEREDOC: Final = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1")
# In this order: quotes, an escape, a comment, an end of a command, a redirection, space, the rest.
# A quote that does not end goes on to the end of the line, for which a shell would wait.
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
    """One program with its words: what is named in order, and options in any order."""

    program: str
    named: tuple[str, ...]
    options: frozenset[str]

    @property
    def has_subcommand(self) -> bool:
        """Whether the first named word says what is done."""
        return self.program in SUBCOMMANDS and bool(self.named)

    @property
    def deed(self) -> str:
        """The program with its subcommand, if it has one."""
        return f"{self.program} {self.named[0]}" if self.has_subcommand else self.program


def read_commands(line: str) -> tuple[ShellCommand, ...]:
    """Every command of a line, each once, in order, up to a bound."""
    found = _commands(_without_documents(readable(line)), 0)
    return tuple(dict.fromkeys(islice(found, _COMMANDS_LIMIT_COUNT)))


def files_read(line: str) -> tuple[str, ...]:
    """Return the files that a line's commands print: what an agent without a tool for it opens."""
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
    """As much of a line as is read; a long one is without its here-documents, which are data."""
    if len(line) <= COMMAND_LIMIT_CHARS:
        return line
    return _without_documents(line[:DOCUMENTS_LIMIT_CHARS])[:COMMAND_LIMIT_CHARS]


def _commands(line: str, depth: int) -> Iterator[ShellCommand]:
    for words in _split(line):
        words = _carried(words)
        if not words:
            continue
        program = words[0].rpartition("/")[2]
        inner = _inner(program, words)
        if inner is not None and depth < _DEPTH_LIMIT:
            yield from _commands(_without_documents(inner), depth + 1)
        else:
            yield _command(program, words[1:])


def _without_documents(line: str) -> str:
    """The line without its here-documents."""
    kept: list[str] = []
    place = 0
    for _ in range(_DOCUMENTS_LIMIT_COUNT if "<<" in line else 0):
        opened = _HEREDOC.search(line, place)
        if opened is None:
            break
        over = line.find("\n", opened.end())
        over = len(line) if over < 0 else over
        kept.append(_HEREDOC.sub("", line[place:over]))
        place = over
        for one in _HEREDOC.finditer(line, opened.start(), over):
            ending = re.compile(rf"\n[^\S\n]*{one[2]}[^\S\n]*(?=\n|\Z)").search(line, place)
            # One that does not end goes on to the end of all.
            place = ending.end() if ending else len(line)
    return "".join((*kept, line[place:]))


def _split(line: str) -> Iterator[list[str]]:
    """The words of each command; a redirection and its target are left out."""
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


def _carried(words: Sequence[str]) -> list[str]:
    """The words from the program on that really does something."""
    place = 0
    while place < len(words):
        first = words[place].rpartition("/")[2]
        if words[place] in _KEYWORDS or _ASSIGNMENT.match(words[place]):
            place += 1
        elif first in _CARRIERS:
            place = _after_options(words, place + 1, _CARRIERS[first])
            if first == "timeout" and _NUMBER.fullmatch("".join(words[place : place + 1])):
                place += 1
        else:
            break
    return list(words[place:])


def _after_options(words: Sequence[str], place: int, taking: Sequence[str]) -> int:
    while place < len(words) and words[place].startswith("-"):
        place += 2 if words[place] in taking else 1
    return place


def _inner(program: str, words: Sequence[str]) -> str | None:
    """The line that a shell is handed to run."""
    if program == "eval":
        return " ".join(words[1:]).removeprefix("-- ")
    if program not in _SHELLS:
        return None
    for place, word in enumerate(words[1:-1], 1):
        if re.fullmatch(r"-[a-z]*c", word):
            return words[place + 1]
    return None


def _command(program: str, words: Sequence[str]) -> ShellCommand:
    taking = SUBCOMMANDS.get(program, ())
    named: list[str] = []
    options: set[str] = set()
    skips, is_over = False, False
    for word in words:
        if skips:
            skips = False
        elif is_over or not word.startswith("-") or word == "-":
            named.append(word)
        elif word == "--":
            is_over = True
        elif word in taking and not named:
            skips = True
        else:
            options |= _options(word)
    deed = f"{program} {named[0]}" if program in SUBCOMMANDS and named else program
    spelled = _SPELLINGS.get(deed, {})
    return ShellCommand(program, tuple(named), frozenset(spelled.get(one, one) for one in options))


def _options(word: str) -> set[str]:
    """An option without its value; short ones that stand together are several."""
    if word.startswith("--"):
        return {word.partition("=")[0]}
    letters = word[1:]
    if letters.isalpha() and len(letters) <= 4:
        # `-rf` is two options, `-name` one; both ways to read it are kept.
        return {f"-{letter}" for letter in letters} | {word}
    return {word}
