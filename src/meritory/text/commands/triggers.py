"""Triggers of rules: a tool and a pattern of its argument.

For a shell the pattern is a program with words that must all occur, e.g. `git push --force main`;
for files a path with `*`; for other tools values that must all occur. The trigger limits its rule:
one that is neither risky nor explicitly forbidden stays a proposal, and one with a single word
besides its program never blocks unless that alone is risky.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from functools import cache
from typing import Final, Literal

from meritory.domain.errors import InputError
from meritory.domain.rule import _FILE_TOOLS, Trigger
from meritory.text.commands.actions import (
    RISKY,
    ToolAction,
    command_risk,
    risky_words,
    sql_words,
    stems,
)
from meritory.text.commands.parse import SUBCOMMANDS, ShellCommand, read_commands

Reach = Literal["proposed", "warns", "blocks"]

WORDS_LIMIT_COUNT: Final = 12
PATTERN_LIMIT_CHARS: Final = 400
# A pattern must have this many letters and digits besides its stars.
_PLAIN_CHARS_MIN: Final = 3
_EXAMPLE: Final = "write it as TOOL: PATTERN, e.g. 'shell: git push --force' or 'edit: */.env'"

# Every rule is tried on ordinary commands, also before any were recorded. A trigger that fits one
# of them would block everyday work, so its rule stays a proposal.
_ORDINARY_COMMANDS: Final = (
    "git status; git status --short; git diff; git diff --stat HEAD~1; git diff --cached; "
    "git log --oneline -20; git log -p -- src; git show HEAD; git branch; git branch -a; "
    "git checkout -b feature; git checkout main; git switch main; git add .; git add -A; "
    'git add -p; git commit -m "change"; git commit -am "change"; git commit --amend --no-edit; '
    "git push; git push origin HEAD; git push -u origin feature; git pull; git pull --rebase; "
    "git fetch --all; git merge main; git rebase main; git stash; git stash pop; git tag; "
    "git remote -v; git rev-parse HEAD; git blame README.md; "
    "git clone https://example.org/a.git; git worktree list; git ls-files; git grep word; "
    "git restore --staged .; git reset HEAD; git cherry-pick HEAD; ls; ls -la; ls -R src; "
    "cd src; pwd; cat README.md; head -50 main.py; tail -f log.txt; tail -n 100 server.log; "
    'less notes.txt; wc -l src/main.py; find . -name "*.py"; find . -type f; grep -rn word src; '
    "grep -i word file.txt; rg word; rg -n word src; sed -n 1,80p main.py; "
    "sed -i s/a/b/ file.txt; awk {print} file.txt; sort names.txt; uniq -c names.txt; "
    "diff a.txt b.txt; echo hello; printf hello; mkdir -p build; mkdir src; touch file.txt; "
    "cp a.txt b.txt; cp -r src copy; mv a.txt b.txt; rm a.txt; rm -f a.txt; rm -rf node_modules; "
    "rm -rf __pycache__; rm -rf .pytest_cache; rm -rf /tmp/scratch; chmod +x run.sh; "
    "chmod 644 file.txt; ln -s a b; tar -xzf a.tar.gz; unzip a.zip; du -sh .; df -h; ps aux; "
    "kill 1234; which python; env; date; curl http://localhost:8000/health; "
    "curl -s https://example.org/api; wget https://example.org/file; python main.py; "
    'python -m pytest; python -m venv .venv; python -c "print(1)"; python manage.py migrate; '
    "python manage.py test; pytest; pytest -q; pytest -x tests; "
    "pytest -k name tests/test_main.py; ruff check .; ruff format .; mypy src; black .; "
    "pip install -r requirements.txt; pip install requests; pip list; uv sync; uv add requests; "
    "uv run pytest; poetry install; npm install; npm install react; npm ci; npm test; "
    "npm run build; npm run dev; npm run lint; npx tsc --noEmit; pnpm install; yarn install; "
    "yarn build; node index.js; tsc; eslint src; cargo build; cargo test; cargo clippy; "
    "go build ./...; go test ./...; go mod tidy; make; make test; make build; docker ps; "
    "docker build -t app .; docker run --rm app; docker logs app; docker compose up -d; "
    "docker compose down; docker compose logs; kubectl get pods; kubectl logs pod; "
    "kubectl describe pod app; terraform plan; terraform init; gh pr view; gh pr list; "
    'gh pr create; gh issue list; psql -c "select 1"; sqlite3 app.db .tables; ssh host uptime; '
    "jq . data.json; tree -L 2"
)
_ORDINARY_PATHS: Final = (
    "README.md; src/main.py; src/app.ts; src/index.js; src/utils/helpers.py; tests/test_main.py; "
    "package.json; pyproject.toml; docs/index.md; src/components/Button.tsx; Makefile"
)


@cache
def ordinary_actions() -> tuple[ToolAction, ...]:
    """Return everyday actions of any agent."""
    lines = [ToolAction("shell", "shell", line) for line in _ORDINARY_COMMANDS.split("; ")]
    paths = _ORDINARY_PATHS.split("; ")
    return (*lines, *(ToolAction(tool, tool, path) for tool in ("edit", "read") for path in paths))


def parse_trigger(text: str) -> Trigger:
    """Return the trigger that a user wrote; InputError says what is wrong with it."""
    tool, colon, pattern = text.partition(":")
    tool, pattern = tool.strip().lower(), pattern.strip()
    if not colon or not tool or not tool.isprintable() or len(text) > PATTERN_LIMIT_CHARS:
        raise InputError(f"{text[:60]!r} is not a trigger", hint=_EXAMPLE)
    try:
        words = tuple(shlex.split(pattern))
    except ValueError as error:
        raise InputError(f"the pattern cannot be read: {error}", hint=_EXAMPLE) from error
    commands = read_commands(pattern) if tool == "shell" and words else ()
    if len(commands) == 1:
        # Options take the spelling by which actions are compared.
        (command,) = commands
        short = {word for word in command.options if word[1:2] != "-" and len(word) > 2}
        split = {word for word in short if {f"-{letter}" for letter in word[1:]} <= command.options}
        named = [word for word in words[1:] if word in command.named]
        words = (command.program, *named, *sorted(command.options - split))
    return checked_trigger(tool, words)


def checked_trigger(tool: str, words: tuple[str, ...]) -> Trigger:
    """Return a trigger, after checking that it is specific enough."""
    trigger = Trigger(tool, words)
    if trigger.argument_count < 1 or len(words) > WORDS_LIMIT_COUNT:
        raise InputError(
            f"a trigger needs 1 to {WORDS_LIMIT_COUNT} words besides its tool or program",
            hint="a name alone would match everything that is done with it",
        )
    if len(trigger.pattern) > PATTERN_LIMIT_CHARS:
        raise InputError(f"a pattern has at most {PATTERN_LIMIT_CHARS} characters")
    is_empty = any(not word.replace("*", "") for word in words[:1])
    plain = sum(character.isalnum() for character in trigger.pattern)
    if is_empty or (plain < _PLAIN_CHARS_MIN and tool != "shell"):
        raise InputError("a pattern of stars would match everything", hint=_EXAMPLE)
    return trigger


def fits(trigger: Trigger, action: ToolAction) -> bool:
    """Return whether a trigger describes an action."""
    if trigger.tool != action.tool:
        return False
    if trigger.tool == "shell":
        # Most lines lack the words, and searching is faster than parsing. Options have several
        # spellings, so only plain words are searched for.
        plain = (word for word in trigger.words if not word.startswith("-") and "*" not in word)
        return all(_bare(word) in action.argument for word in plain) and any(
            _fits_command(trigger.words, command)
            for command in action.by_program.get(trigger.words[0], ())
        )
    if trigger.tool in _FILE_TOOLS:
        return any(glob(trigger.words[0], value) for value in action.values)
    return all(any(glob(word, value) for value in action.values) for word in trigger.words)


def _fits_command(words: tuple[str, ...], command: ShellCommand) -> bool:
    if words[0] != command.program:
        return False
    options = [word for word in words[1:] if word.startswith("-")]
    named = [word for word in words[1:] if not word.startswith("-")]
    if not command.options.issuperset(options):
        return False
    rest = list(command.named)
    if command.program in SUBCOMMANDS and named and rest and not glob(named[0], rest[0]):
        # `git stash push` is not a push.
        return False
    for word in named:
        while rest and not glob(word, rest[0]):
            del rest[0]
        if not rest:
            return False
        del rest[0]
    return True


def glob(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern in which `*` matches anything, in linear time."""
    first, *middle = pattern.split("*")
    if not middle:
        return _bare(pattern) == _bare(text)
    last = middle.pop()
    if not text.startswith(first):
        return False
    position = len(first)
    for part in middle:
        start = text.find(part, position)
        if start < 0:
            return False
        position = start + len(part)
    return len(text) - position >= len(last) and text.endswith(last)


def _bare(path: str) -> str:
    """Return a path in its shortest form: without `./` and without a trailing slash."""
    return path.removeprefix("./").rstrip("/") or path


def derive(action: ToolAction, said: Collection[str]) -> Trigger | None:
    """Return the trigger for an action that a user complained about, by what makes it wrong.

    `said` are the stems of the complaint. Words that are neither risky nor mentioned are left out,
    so that the trigger finds the same mistake elsewhere. None when nothing specific remains.
    """
    if action.tool == "shell":
        words = _command_words(action, said)
    elif action.tool in _FILE_TOOLS:
        words = _path_words(action, said)
    else:
        words = tuple(value for value in action.values if stems(value) & set(said))
        words = tuple(word for word in words if len(word) <= PATTERN_LIMIT_CHARS // 4)
    try:
        return checked_trigger(action.tool, words[:WORDS_LIMIT_COUNT]) if words else None
    except InputError:
        return None


def _command_words(action: ToolAction, said: Collection[str]) -> tuple[str, ...]:
    """Return the words of the riskiest command, reduced to the risky and mentioned ones."""

    def weight(command: ShellCommand) -> tuple[int, int]:
        text = " ".join((command.program, *command.named, *command.options))
        return command_risk(command), len(stems(text) & set(said))

    if not action.commands:
        return ()
    command = max(action.commands, key=weight)
    risky = risky_words(command)

    def counts(word: str) -> bool:
        is_short = len(word) <= PATTERN_LIMIT_CHARS // 4 and " " not in word
        return word in risky or (is_short and bool(stems(word) & set(said)))

    deed = command.named[:1] if command.has_subcommand else ()
    if deed and not (command_risk(command) >= RISKY or stems(deed[0]) & set(said)):
        return ()
    rest = [word for word in command.named[len(deed) :] if counts(word)]
    options = [word for word in command.options if counts(word)]
    return (command.program, *deed, *rest, *sql_words(command), *sorted(options))


def _path_words(action: ToolAction, said: Collection[str]) -> tuple[str, ...]:
    """Return the file itself if the complaint mentions it, else the folder that it mentions."""
    for path in action.values:
        *folders, file = path.strip("/").split("/")
        if stems(file) & set(said) or (file.startswith(".") and action.risk >= RISKY):
            return (f"*/{file}" if folders else file,)
        for folder in reversed(folders):
            if len(folder) > 2 and stems(folder) & set(said):
                return (f"*/{folder}/*",)
    return ()


def widened(trigger: Trigger, action: ToolAction) -> Trigger | None:
    """Return the trigger without the positional words that another case of the mistake lacks."""
    if trigger.tool != "shell" or trigger.tool != action.tool:
        return None
    for command in action.commands:
        named = set(command.named)
        words = tuple(word for word in trigger.words if word.startswith("-") or word in named)
        words = (trigger.words[0], *(word for word in words if word != trigger.words[0]))
        has_options = any(word.startswith("-") for word in words)
        if has_options and len(words) < len(trigger.words) and _fits_command(words, command):
            return Trigger(trigger.tool, words)
    return None


def reach(trigger: Trigger, risk: int, *, is_forbidden: bool) -> Reach:
    """Return how far a rule with this trigger may go, independent of the reports."""
    is_risky = risk >= RISKY
    if not (is_risky or is_forbidden):
        # A complaint about how something was done is a lesson, not a prohibition.
        return "proposed"
    if trigger.tool == "shell" and trigger.argument_count < 2 and not is_risky:
        return "warns"
    return "blocks"


def trigger_risk(trigger: Trigger) -> int:
    """Return how risky the actions are that a trigger describes."""
    if trigger.tool == "shell":
        commands = read_commands(trigger.pattern)
        return max((command_risk(command) for command in commands), default=1)
    return ToolAction(trigger.tool, trigger.tool, trigger.words[0].removeprefix("*")).risk
