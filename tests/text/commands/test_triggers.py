"""Triggers: what they fit, how they are made, how far they may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meritory.domain.errors import InputError
from meritory.domain.rule import stored_trigger
from meritory.text.commands.actions import read_action, stems
from meritory.text.commands.triggers import (
    derive,
    fits,
    glob,
    parse_trigger,
    reach,
    trigger_risk,
    widened,
)


def does(trigger: str, line: str) -> bool:
    return fits(parse_trigger(f"shell: {trigger}"), read_action("Bash", {"command": line}))


@pytest.mark.parametrize(
    ("trigger", "line"),
    [
        ("git push --force", "git push -f origin main"),
        ("git push --force main", "cd x; git push origin main --force"),
        ("rm -rf build", "rm -r -f ./build/"),
        ("rm -rf build", "rm -rf dist build"),
        ("npm publish", "npm publish --access public"),
        ("psql '*drop table*'", "psql shop -c 'drop table x'"),
    ],
)
def test_what_it_describes_sets_it_off(trigger: str, line: str) -> None:
    assert does(trigger, line)


@pytest.mark.parametrize(
    ("trigger", "line"),
    [
        ("git push --force", "git push"),
        ("git push --force", "git push --force-with-lease"),
        ("git push", "git stash push"),
        ("git push main", "git push origin maintenance"),
        ("git push --force", "git commit -m 'git push --force'"),
        ("git push --force", "grep -rn 'git push --force' docs"),
        ("rm -rf build", "rm -rf rebuild"),
        ("rm -rf build", "ls build"),
        ("npm publish", "npm run publish-docs"),
    ],
)
def test_what_only_looks_like_it_does_not(trigger: str, line: str) -> None:
    assert not does(trigger, line)


def test_paths_and_values_of_other_tools_are_matched_with_stars() -> None:
    env = parse_trigger("edit: */.env")
    assert fits(env, read_action("Write", {"file_path": "/p/.env"}))
    assert not fits(env, read_action("Write", {"file_path": "/p/.env.example"}))
    assert not fits(env, read_action("Read", {"file_path": "/p/.env"}))
    table = parse_trigger("mcp__db__query: 'sql=*DELETE*' 'base=prod'")
    given_ = {"sql": "DELETE FROM a", "base": "prod"}
    assert fits(table, read_action("mcp__db__query", given_))
    assert not fits(table, read_action("mcp__db__query", {**given_, "base": "test"}))


@pytest.mark.parametrize(
    "text", ["git", "shell: git", "shell:", "edit: *", "edit: */*", ": x", "shell: 'x", "tag git"]
)
def test_a_bare_name_is_no_trigger(text: str) -> None:
    with pytest.raises(InputError):
        parse_trigger(text)


@given(st.text(max_size=30), st.text(max_size=30))
def test_a_pattern_without_stars_is_the_text_itself(pattern: str, text: str) -> None:
    if "*" not in pattern:
        assert glob(pattern, pattern)
    assert glob("*", text) and glob(f"*{text}*", f"a{text}b")


@pytest.mark.parametrize(
    ("line", "said", "expected"),
    [
        ("git push --force origin main", "you force-pushed to main", "git push main --force"),
        ("cd x && rm -rf build/", "you deleted my build folder", "rm build/ -f -r"),
        ("terraform destroy -auto-approve", "all is gone", "terraform destroy"),
        ("git status", "git", None),
        ("npm test", "slow and wrong", None),
        ("ls", "this is wrong", None),
        ("git commit -m 'Push to main'", "you pushed to main", None),
    ],
)
def test_a_trigger_keeps_what_is_risky_or_spoken_of(
    line: str, said: str, expected: str | None
) -> None:
    found = derive(read_action("Bash", {"command": line}), stems(said))
    assert (found and found.pattern) == expected


def test_a_file_or_the_folder_that_is_spoken_of_is_kept() -> None:
    action = read_action("Edit", {"file_path": "/p/src/generated/api.ts"})
    for said, expected in (("never edit api.ts", "*/api.ts"), ("generated!", "*/generated/*")):
        found = derive(action, stems(said))
        assert found is not None and found.words == (expected,)
    assert derive(action, stems("all wrong")) is None


def test_a_second_case_on_another_branch_widens_it() -> None:
    trigger = parse_trigger("shell: git push --force main")
    other = widened(trigger, read_action("Bash", {"command": "git push -f origin release"}))
    assert other is not None and other.words == ("git", "push", "--force")
    # Without the option it would be any push.
    assert widened(trigger, read_action("Bash", {"command": "git push origin release"})) is None


@pytest.mark.parametrize(
    ("trigger", "is_forbidden", "expected"),
    [
        ("shell: git status", False, "proposed"),
        ("shell: git status", True, "warns"),
        ("shell: npm test unit", False, "proposed"),
        ("shell: npm test unit", True, "blocks"),
        ("shell: git push --force", False, "blocks"),
        ("shell: terraform destroy", False, "blocks"),
        ("edit: */main.py", False, "proposed"),
        ("edit: */main.py", True, "blocks"),
        ("edit: */.env", False, "blocks"),
    ],
)
def test_how_far_a_trigger_may_go(trigger: str, is_forbidden: bool, expected: str) -> None:
    found = parse_trigger(trigger)
    assert reach(found, trigger_risk(found), is_forbidden=is_forbidden) == expected


@pytest.mark.parametrize(
    "text", ["shell: git push --force main", "edit: '*/a b.py'", "x: 'k=a\"b'", "shell: rm -rf a"]
)
def test_a_trigger_can_be_stored(text: str) -> None:
    trigger = parse_trigger(text)
    assert stored_trigger(trigger.tool, trigger.pattern) == trigger
    assert parse_trigger(str(trigger)) == trigger
