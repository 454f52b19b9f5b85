"""Shell commands as programs with their words, without running or believing anything.

A line is taken apart as a shell would do it, leniently: what stands in quotes, in a here-document
or behind a `#` is no command, and what cannot be told is left out. To miss a command is better
than to see one that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

COMMAND_LIMIT_CHARS: Final = 8_000
_COMMANDS_LIMIT_COUNT: Final = 64
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
_SHELLS: Final = ("bash", "sh", "zsh", "dash")
_KEYWORDS: Final = ("then", "do", "else", "if", "while", "until", "elif", "!", "{", "}", "fi")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?[smhd]?")
_HEREDOC: Final = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
# In this order: quotes, an escape, a comment, an end of a command, a redirection, space, the rest.
_PIECE: Final = re.compile(
    r"""'(?P<single>[^']*)'
    |"(?P<double>(?:[^"\\]|\\.)*)"
    |\\(?P<escaped>.)
    |(?P<comment>(?<!\S)\#[^\n]*)
    |(?P<end>\n|;|&&|\|\||\||&(?![>\d])|\$?\(|\)|`)
    |(?P<redirect>\d?&?>{1,2}&?\d?|<(?!<))
    |(?P<space>[ \t\r]+)
    |(?P<plain>[^'"\\\n;&|()`<>\s$\#]+|.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Command:
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


def read_commands(line: str) -> tuple[Command, ...]:
    """Every command of a line, each once, in order."""
    found = dict.fromkeys(_commands(line[:COMMAND_LIMIT_CHARS], 0))
    return tuple(found)[:_COMMANDS_LIMIT_COUNT]


def _commands(line: str, depth: int) -> Iterator[Command]:
    for words in _split(_without_documents(line)):
        words = _carried(words)
        if not words:
            continue
        program = words[0].rpartition("/")[2]
        inner = _inner(program, words)
        if inner is not None and depth < _DEPTH_LIMIT:
            yield from _commands(inner, depth + 1)
        else:
            yield _command(program, words[1:])


def _without_documents(line: str) -> str:
    """The line without its here-documents, which are data."""
    kept: list[str] = []
    ending: str | None = None
    for part in line.split("\n"):
        if ending is not None:
            ending = None if part.strip() == ending else ending
            continue
        kept.append(_HEREDOC.sub("", part))
        opened = _HEREDOC.search(part)
        ending = opened[2] if opened else None
    return "\n".join(kept)


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
    left = list(words)
    while left:
        first = left[0].rpartition("/")[2]
        if left[0] in _KEYWORDS or _ASSIGNMENT.match(left[0]):
            del left[0]
        elif first in _CARRIERS:
            left = _after_options(left[1:], _CARRIERS[first])
            if first == "timeout" and left and _NUMBER.fullmatch(left[0]):
                del left[0]
        else:
            break
    return left


def _after_options(words: list[str], taking: Sequence[str]) -> list[str]:
    place = 0
    while place < len(words) and words[place].startswith("-"):
        place += 2 if words[place] in taking else 1
    return words[place:]


def _inner(program: str, words: Sequence[str]) -> str | None:
    """The line that a shell is handed to run."""
    if program not in _SHELLS:
        return None
    for place, word in enumerate(words[1:-1], 1):
        if re.fullmatch(r"-[a-z]*c", word):
            return words[place + 1]
    return None


def _command(program: str, words: Sequence[str]) -> Command:
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
    return Command(program, tuple(named), frozenset(spelled.get(one, one) for one in options))


def _options(word: str) -> set[str]:
    """An option without its value; short ones that stand together are several."""
    if word.startswith("--"):
        return {word.partition("=")[0]}
    letters = word[1:]
    if letters.isalpha() and len(letters) <= 4:
        # `-rf` is two options, `-name` one; both ways to read it are kept.
        return {f"-{letter}" for letter in letters} | {word}
    return {word}
