"""Shell lines taken apart: what is a command, what only looks like one, and how risky it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.text.commands.actions import (
    ARGUMENT_LIMIT_CHARS,
    RISKY,
    kept_argument,
    read_action,
    stems,
)
from meritory.text.commands.parse import COMMAND_LIMIT_CHARS, DOCUMENTS_LIMIT_CHARS, read_commands


def deeds(line: str) -> list[str]:
    return [command.deed for command in read_commands(line)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git push --force origin main", ["git push"]),
        ("cd repo && git push", ["cd", "git push"]),
        ("git -C repo -c a=b push", ["git push"]),
        ("sudo -u ann rm -rf x; ls | wc -l", ["rm", "ls", "wc"]),
        ("A=1 B=2 env C=3 timeout 30 npm test", ["npm test"]),
        ("bash -lc 'git reset --hard && ls'", ["git reset", "ls"]),
        ("echo $(git rev-parse HEAD)", ["echo", "git rev-parse"]),
        ("/usr/bin/git status > out.txt 2>&1", ["git status"]),
        ("if [ -f x ]; then rm x; fi", ["[", "rm"]),
        ("make test # rm -rf /", ["make"]),
        ("git commit -m 'rm -rf / && git push --force'", ["git commit"]),
        ("cat > x.sh <<'EOF'\nrm -rf /\nEOF\ngit status", ["cat", "git status"]),
        ("cat <<A <<B\nrm a\nA\nrm b\nB\ngit status", ["cat", "git status"]),
        ("cat <<<word\ngit push", ["cat", "git push"]),
        ("echo $((1 << 2))\ngit push", ["echo", "1", "git push"]),
        ("xargs -n 1 rm < list", ["rm"]),
        ("eval 'git push --force && ls'", ["git push", "ls"]),
        ('sudo eval -- "git reset" --hard', ["git reset"]),
        ("eval", []),
        ("", []),
        ("'unterminated; rm -rf x", ["unterminated; rm -rf x"]),
    ],
)
def test_a_line_is_taken_apart_as_a_shell_would(line: str, expected: list[str]) -> None:
    assert deeds(line) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rm -rf x", "rm -r --force x"),
        ("rm -fr x", "rm --recursive -f x"),
        ("git push -f", "git push --force"),
        ("git commit -n -m x", "git commit --no-verify -m x"),
    ],
)
def test_options_have_one_spelling(one: str, other: str) -> None:
    (first,), (second,) = read_commands(one), read_commands(other)
    whole = first.options & second.options
    assert {word for word in first.options if len(word) == 2 or word[1] == "-"} <= whole | {"-m"}


@pytest.mark.parametrize(
    "before",
    [
        "echo one two three\n" * (COMMAND_LIMIT_CHARS // 20),
        "cat > notes.md <<'EOF'\n" + "git status # is no command here\n" * 30_000 + "EOF\n",
        "; ".join(f"echo {number}" for number in range(1_300)) + "\n",
    ],
    ids=["many characters", "a long document", "many commands"],
)
def test_what_stands_far_back_is_seen(before: str) -> None:
    action = read_action("Bash", {"command": f"{before}git push --force origin main"})
    assert action.commands[-1].deed == "git push" and action.risk >= RISKY
    assert "status" not in {word for command in action.commands for word in command.named}


def test_a_text_that_is_cut_off_is_no_command() -> None:
    for quote in ("'", '"'):
        text = "one word and another; git push --force\n" * 2_000
        assert deeds(f"git commit -m {quote}{text}{quote}") == ["git commit"]


def test_there_is_an_end_to_what_is_read() -> None:
    assert "git push" not in deeds("echo a b c\n" * COMMAND_LIMIT_CHARS + "git push")
    assert len(read_commands(";".join(f"p{number}" for number in range(5_000)))) == 2_000
    document = "cat <<EOF\n" + "x" * DOCUMENTS_LIMIT_CHARS + "\nEOF\n"
    assert deeds(document + "git push") == ["cat"]


TOKEN = "ghp_" + "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW2xY4"
KEY = "-----BEGIN PRIVATE KEY-----\n" + "Q2x9Zz0/kLmN+abcDEF\n" * 900 + "-----END PRIVATE KEY-----"


@pytest.mark.parametrize("secret", [TOKEN, KEY, f"https://ann:{'pa55-wOrd' * 12}@example.org"])
@pytest.mark.parametrize("left", [0, 1, 9, 20, 39])
def test_a_secret_at_the_end_of_what_is_kept_is_not_cut_in_two(secret: str, left: int) -> None:
    before = "echo a; " * (ARGUMENT_LIMIT_CHARS // 8)
    line = before[left:] + "\n" + secret + "\nls"
    kept = kept_argument(read_action("Bash", {"command": line}).argument)
    assert len(kept) <= ARGUMENT_LIMIT_CHARS and kept.startswith(before[left:-1])
    assert not any(part in kept for part in ("aB3d", "Q2x9", "pa55"))


def test_what_is_short_is_kept_whole() -> None:
    assert kept_argument("git push") == "git push"
    assert kept_argument("x" * 9_000) == "x" * ARGUMENT_LIMIT_CHARS


@given(st.text(max_size=300))
def test_no_line_is_too_odd(line: str) -> None:
    for command in read_commands(line):
        assert command.program or command.named or command.options or line


@pytest.mark.parametrize(
    ("line", "is_risky"),
    [
        ("rm -rf src", True),
        ("git push --force", True),
        ("git push --force-with-lease", False),
        ("git reset --hard", True),
        ("git reset --soft HEAD~1", False),
        ("psql -c 'drop table x'", True),
        ("psql -c 'select 1'", False),
        ("echo 'drop table x'", False),
        ("git status", False),
        ("docker compose down", False),
        ("docker compose down -v", True),
    ],
)
def test_risk_follows_from_the_words(line: str, is_risky: bool) -> None:
    assert (read_action("Bash", {"command": line}).risk >= RISKY) is is_risky


@pytest.mark.parametrize(
    ("name", "given_", "tool", "argument"),
    [
        ("Bash", {"command": "ls"}, "shell", "ls"),
        ("shell", {"command": ["bash", "-lc", "ls -l"]}, "shell", "ls -l"),
        ("run_shell_command", {"command": "ls"}, "shell", "ls"),
        ("bash", '{"command": "ls"}', "shell", "ls"),
        ("Write", {"file_path": "/a/b.py", "content": "x" * 9_000}, "edit", "/a/b.py"),
        ("apply_patch", {"input": "*** Begin\n*** Update File: a/b.py\n+x"}, "edit", "a/b.py"),
        ("Read", {"file_path": "/a"}, "read", "/a"),
        ("WebFetch", {"url": "https://example.org"}, "web", "https://example.org"),
        ("mcp__db__query", {"sql": "select 1", "n": 2}, "mcp__db__query", "n=2\nsql=select 1"),
        ("Bash", None, "shell", ""),
        ("Bash", "{broken", "shell", "{broken"),
    ],
)
def test_tools_of_all_clients_are_read(name: str, given_: object, tool: str, argument: str) -> None:
    action = read_action(name, given_)
    assert (action.tool, action.argument) == (tool, argument)


def test_words_are_compared_by_their_stems() -> None:
    assert stems("You force-pushed, deleting commits") == stems("push force delete committed")
