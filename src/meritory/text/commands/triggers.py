"""What sets off a rule: a tool and a pattern of its argument, never a bare tag.

For a shell it is a program with words that must all be there, e.g. `git push --force main`; for
files a path with `*`; for other tools values that must all be there. A trigger says of itself how
far its rule may go: one that is not risky by itself, and that nobody forbade in so many words,
never gets beyond a proposal; one with a single word beside its program never blocks unless that
alone is risky.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
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

# -- fitting --------------------------------------------------------------------------------


# -- making ---------------------------------------------------------------------------------


Reach = Literal["proposed", "warns", "blocks"]


WORDS_LIMIT_COUNT: Final = 12


PATTERN_LIMIT_CHARS: Final = 400


# Letters and digits that a pattern must have beside its stars.
_PLAIN_CHARS_MIN: Final = 3


_EXAMPLE: Final = "write it as TOOL: PATTERN, e.g. 'shell: git push --force' or 'edit: */.env'"


def parse_trigger(text: str) -> Trigger:
    """A trigger that somebody wrote; InputError says what is wrong with it."""
    tool, colon, pattern = text.partition(":")
    tool = tool.strip().lower()
    if not colon or not tool or not tool.isprintable() or len(text) > PATTERN_LIMIT_CHARS:
        raise InputError(f"{text[:60]!r} is no trigger", hint=_EXAMPLE)
    return checked_trigger(tool, _words(tool, pattern.strip()))


def _words(tool: str, pattern: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(pattern))
    except ValueError as error:
        raise InputError(f"the pattern cannot be read: {error}", hint=_EXAMPLE) from error
    if tool != "shell" or not words:
        return words
    found = read_commands(pattern)
    return words if len(found) != 1 else _spelled(found[0], words)


def _spelled(command: ShellCommand, words: Sequence[str]) -> tuple[str, ...]:
    """A command's words, options in the spelling by which actions are compared."""
    short = {word for word in command.options if word[1:2] != "-" and len(word) > 2}
    split = {word for word in short if {f"-{letter}" for letter in word[1:]} <= command.options}
    named = [word for word in words[1:] if word in command.named]
    return (command.program, *named, *sorted(command.options - split))


def checked_trigger(tool: str, words: tuple[str, ...]) -> Trigger:
    """A trigger that is specific enough to be one."""
    trigger = Trigger(tool, words)
    if trigger.argument_count < 1 or len(words) > WORDS_LIMIT_COUNT:
        raise InputError(
            f"a trigger needs one to {WORDS_LIMIT_COUNT} words beside its tool or program",
            hint="a name alone would catch everything that is done with it",
        )
    if len(trigger.pattern) > PATTERN_LIMIT_CHARS:
        raise InputError(f"a pattern has at most {PATTERN_LIMIT_CHARS} characters")
    is_empty = any(not word.replace("*", "") for word in words[:1])
    plain = sum(character.isalnum() for character in trigger.pattern)
    if is_empty or (plain < _PLAIN_CHARS_MIN and tool != "shell"):
        raise InputError("a pattern of stars would catch everything", hint=_EXAMPLE)
    return trigger


def fits(trigger: Trigger, action: ToolAction) -> bool:
    """Whether an action is what a trigger describes."""
    if trigger.tool != action.tool:
        return False
    if trigger.tool == "shell":
        # Taking a line apart takes time, and most have not even the words.
        is_likely = all(_bare(word) in action.argument for word in trigger.words if _is_plain(word))
        return is_likely and any(
            _fits_command(trigger.words, one) for one in action.by_program.get(trigger.words[0], ())
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
    left = list(command.named)
    if command.program in SUBCOMMANDS and named and left and not glob(named[0], left[0]):
        # `git stash push` is no push.
        return False
    for word in named:
        while left and not glob(word, left[0]):
            del left[0]
        if not left:
            return False
        del left[0]
    return True


def glob(pattern: str, text: str) -> bool:
    """Whether a text is like a pattern in which `*` stands for anything; never slow."""
    first, *middle = pattern.split("*")
    if not middle:
        return _bare(pattern) == _bare(text)
    last = middle.pop()
    if not text.startswith(first):
        return False
    place = len(first)
    for part in middle:
        found = text.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return len(text) - place >= len(last) and text.endswith(last)


def _is_plain(word: str) -> bool:
    """Whether a word stands in a line as it is: options have several spellings."""
    return not word.startswith("-") and "*" not in word


def _bare(path: str) -> str:
    """A path in its shortest form: a folder is the same with and without its slash."""
    return path.removeprefix("./").rstrip("/") or path


def derive(action: ToolAction, said: Collection[str]) -> Trigger | None:
    """The trigger for an action that somebody complained about, by what makes it wrong.

    `said` are the stems of the complaint. What is neither risky nor spoken of is left out, so that
    the same mistake is known again elsewhere. None when nothing specific is left.
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
    def weight(command: ShellCommand) -> tuple[int, int]:
        return command_risk(command), len(stems(_text(command)) & set(said))

    if not action.commands:
        return ()
    command = max(action.commands, key=weight)
    risky = risky_words(command)
    has_deed = command.has_subcommand
    if has_deed and not (command_risk(command) >= RISKY or stems(command.named[0]) & set(said)):
        return ()
    deed = command.named[:1] if has_deed else ()
    rest = [word for word in command.named[len(deed) :] if word in risky or _is_said(word, said)]
    options = [word for word in command.options if word in risky or _is_said(word, said)]
    return (command.program, *deed, *rest, *sql_words(command), *sorted(options))


def _text(command: ShellCommand) -> str:
    return " ".join((command.program, *command.named, *command.options))


def _is_said(word: str, said: Collection[str]) -> bool:
    """Whether a word is spoken of; a whole sentence in quotes is nobody's pattern."""
    return (
        len(word) <= PATTERN_LIMIT_CHARS // 4 and " " not in word and bool(stems(word) & set(said))
    )


def _path_words(action: ToolAction, said: Collection[str]) -> tuple[str, ...]:
    """The file itself if it is spoken of, else the folder that is."""
    for path in action.values:
        *folders, file = path.strip("/").split("/")
        if stems(file) & set(said) or (file.startswith(".") and action.risk >= RISKY):
            return (f"*/{file}" if folders else file,)
        for folder in reversed(folders):
            if len(folder) > 2 and stems(folder) & set(said):
                return (f"*/{folder}/*",)
    return ()


def widened(trigger: Trigger, action: ToolAction) -> Trigger | None:
    """The trigger without the named words that another case of the mistake does not have."""
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
    """How far a rule may go by itself, whatever is reported."""
    is_risky = risk >= RISKY
    if not (is_risky or is_forbidden):
        # Complaints about how something was done are lessons; they forbid nothing.
        return "proposed"
    if trigger.tool == "shell" and trigger.argument_count < 2 and not is_risky:
        return "warns"
    return "blocks"


def trigger_risk(trigger: Trigger) -> int:
    """How risky what it describes is by itself."""
    if trigger.tool == "shell":
        found = read_commands(trigger.pattern)
        return max((command_risk(command) for command in found), default=1)
    return ToolAction(trigger.tool, trigger.tool, trigger.words[0].removeprefix("*")).risk


_LINES: Final = """\
git status
git status --short
git diff
git diff --stat HEAD~1
git diff --cached
git log --oneline -20
git log -p -- src
git show HEAD
git branch
git branch -a
git checkout -b feature
git checkout main
git switch main
git add .
git add -A
git add -p
git commit -m "change"
git commit -am "change"
git commit --amend --no-edit
git push
git push origin HEAD
git push -u origin feature
git pull
git pull --rebase
git fetch --all
git merge main
git rebase main
git stash
git stash pop
git tag
git remote -v
git rev-parse HEAD
git blame README.md
git clone https://example.org/a.git
git worktree list
git ls-files
git grep word
git restore --staged .
git reset HEAD
git cherry-pick HEAD
ls
ls -la
ls -R src
cd src
pwd
cat README.md
head -50 main.py
tail -f log.txt
tail -n 100 server.log
less notes.txt
wc -l src/main.py
find . -name "*.py"
find . -type f
grep -rn word src
grep -i word file.txt
rg word
rg -n word src
sed -n 1,80p main.py
sed -i s/a/b/ file.txt
awk {print} file.txt
sort names.txt
uniq -c names.txt
diff a.txt b.txt
echo hello
printf hello
mkdir -p build
mkdir src
touch file.txt
cp a.txt b.txt
cp -r src copy
mv a.txt b.txt
rm a.txt
rm -f a.txt
rm -rf node_modules
rm -rf __pycache__
rm -rf .pytest_cache
rm -rf /tmp/scratch
chmod +x run.sh
chmod 644 file.txt
ln -s a b
tar -xzf a.tar.gz
unzip a.zip
du -sh .
df -h
ps aux
kill 1234
which python
env
date
curl http://localhost:8000/health
curl -s https://example.org/api
wget https://example.org/file
python main.py
python -m pytest
python -m venv .venv
python -c "print(1)"
python manage.py migrate
python manage.py test
pytest
pytest -q
pytest -x tests
pytest -k name tests/test_main.py
ruff check .
ruff format .
mypy src
black .
pip install -r requirements.txt
pip install requests
pip list
uv sync
uv add requests
uv run pytest
poetry install
npm install
npm install react
npm ci
npm test
npm run build
npm run dev
npm run lint
npx tsc --noEmit
pnpm install
yarn install
yarn build
node index.js
tsc
eslint src
cargo build
cargo test
cargo clippy
go build ./...
go test ./...
go mod tidy
make
make test
make build
docker ps
docker build -t app .
docker run --rm app
docker logs app
docker compose up -d
docker compose down
docker compose logs
kubectl get pods
kubectl logs pod
kubectl describe pod app
terraform plan
terraform init
gh pr view
gh pr list
gh pr create
gh issue list
psql -c "select 1"
sqlite3 app.db .tables
ssh host uptime
jq . data.json
tree -L 2
"""
_PATHS: Final = """\
README.md
src/main.py
src/app.ts
src/index.js
src/utils/helpers.py
tests/test_main.py
package.json
pyproject.toml
docs/index.md
src/components/Button.tsx
Makefile
"""


@cache
def ordinary_actions() -> tuple[ToolAction, ...]:
    """What every agent does, whoever it works for."""
    lines = [ToolAction("shell", "shell", line) for line in _LINES.splitlines()]
    paths = _PATHS.splitlines()
    return (*lines, *(ToolAction(tool, tool, path) for tool in ("edit", "read") for path in paths))
