"""What is forbidden in so many words, and what only sounds like it."""

from __future__ import annotations

import pytest

from meritory.text.commands.actions import read_action
from meritory.text.commands.prohibitions import (
    KINDS,
    claim,
    forbids,
    is_ruled_out,
    lifted_kinds,
    ordered_constraints,
    stated_constraints,
)
from meritory.text.extract.attribution import sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("do not push", [("no_push", "")]),
        ("Good work. Don't push anything until I say so.", [("no_push", "")]),
        ("local only", [("local_only", "")]),
        ("keep it local, no push please", [("local_only", ""), ("no_push", "")]),
        ("not in git", [("local_only", "")]),
        ("I told you not to push to main", [("no_push", "main")]),
        ("never push directly to main!", [("no_push", "main")]),
        ("Don\u2019t commit yet", [("no_commit", "")]),
        ("do not delete files", [("no_delete", "")]),
        ("please do not install new packages", [("no_install", "")]),
        ("do not touch src/gen/api.ts. Thanks.", [("no_edit", "src/gen/api.ts")]),
        ("you don't push often enough", []),
        ("why did you not push?", []),
        ("the push did not work", []),
        ("do not push the button in the test", []),
        ("do not delete the word 'never'", []),
        ("don't commit the .env file", []),
        ("the local database only has two rows", []),
        ("push it", []),
        ("The agent said done but there was no commit", []),
        ("It failed because there was no network", []),
        ("It worked with no internet", []),
        ("There is no release yet", []),
        ("never commit without running the tests first", []),
        ("never commit anything without running the tests first", []),
        ("never commit, push or deploy without running the tests", []),
        ("do not push before running the linter", []),
        ("don't push it before the tests pass", []),
        ("do not push until all tests pass", []),
        ("Without running the tests, never commit", []),
        ("if the tests fail, do not push", []),
        ("do not push to main before the tests pass", []),
        ("do not touch src/gen/api.ts without running the generator", []),
        ("never push before I have looked at it", [("no_push", "")]),
        ("never commit without my approval", [("no_commit", "")]),
        ("do not push without being asked", [("no_push", "")]),
        ("never deploy without asking me", [("no_publish", "")]),
        ("do not push to main without my permission", [("no_push", "main")]),
        ("do not push until tomorrow", [("no_push", "")]),
        ("do not push, and run the tests before lunch", [("no_push", "")]),
        ("no install and no tests were run", []),
        ("no commit or push was made", []),
        ("no push or commit is allowed", [("no_push", "")]),
        ("no push and no commit please", [("no_push", ""), ("no_commit", "")]),
        ("no push until it is reviewed", [("no_push", "")]),
    ],
)
def test_constraints_are_read_out_of_a_text(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(one.kind, one.argument) for one in stated_constraints(text)] == expected


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Do not push anything in this session.", [("no_push", "")]),
        ("Do not push in this session", [("no_push", "")]),
        ("Never push to main.", [("no_push", "main")]),
        ("Refactor the parser, but don't commit yet", [("no_commit", "")]),
        ("Fix the bug and please do not push", [("no_push", "")]),
        ("Please don't run git push", [("no_push", "")]),
        ("don't touch the migrations folder", [("no_edit", "migrations")]),
        (
            "Rename the field, don't change anything in db/migrations",
            [("no_edit", "db/migrations")],
        ),
        ("Do not edit `src/gen/api.ts`", [("no_edit", "src/gen/api.ts")]),
        ("leave the config directory alone", [("no_edit", "config")]),
        ("You must not install any packages", [("no_install", "")]),
        ("do not run npm install for now", [("no_install", "")]),
        ("I told you not to push", [("no_push", "")]),
        ("Important: do not deploy today", [("no_publish", "")]),
        ("Work on the importer, local only", [("local_only", "")]),
        ("no commits please", [("no_commit", "")]),
        ("don't make any commits", [("no_commit", "")]),
        ("Do not delete any files", [("no_delete", "")]),
        ("Show the place where the worker waits and do not push", [("no_push", "")]),
        # Descriptions, past statements, reports, tasks about texts, quotes and questions.
        ("Write a test that users do not delete files", []),
        ("The script should never push", []),
        ("Yesterday Bob said do not push", []),
        ("Last week I told Ann not to push", []),
        ("Add to the README: do not push to main", []),
        ('Put "do not push to main" into the docs', []),
        ("Make the deploy job fail so people don't push to main", []),
        ("we never push to main here, where is that written down", []),
        ("The hook does not push", []),
        ("why did the agent not push?", []),
        ("Should I not commit yet?", []),
        ("If the tests fail, do not push", []),
        ("do not push until all tests pass", []),
        ("do not commit secrets", []),
        ("Add a flag so that workers don't install packages", []),
        ("the migrations folder was not touched", []),
        ("I did not push anything", []),
        ("there is a rule that says never commit", []),
        ("find out who changed the migrations folder", []),
        ("Do not change the behaviour of the parser", []),
        ("don't touch anything else", []),
        ("review the branches where we use `git add` but don't change the local folder tree", []),
        ("fix 28, 31 (local only), 33", []),
    ],
)
def test_a_prompt_forbids_by_an_order(prompt: str, expected: list[tuple[str, str]]) -> None:
    found = [
        (one.kind, one.argument)
        for spoken in sentences(prompt)
        for one in ordered_constraints(spoken.text, spoken.bare)
    ]
    assert found == expected


@pytest.mark.parametrize(
    ("kind", "line", "expected"),
    [
        ("no_push", "cd x && git push -u origin HEAD", True),
        ("no_push", "git stash push", False),
        ("no_push", "git commit -m 'push'", False),
        ("local_only", "npm publish", True),
        ("no_commit", "git commit -m x", True),
        ("no_commit", "git status", False),
        ("no_delete", "rm a.txt", True),
        ("no_install", "npm install left-pad", True),
        ("no_install", "npm install", False),
        ("no_network", "curl https://example.org", True),
    ],
)
def test_a_constraint_rules_out_what_it_names(kind: str, line: str, expected: bool) -> None:
    assert is_ruled_out(kind, "", read_action("Bash", {"command": line})) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git push origin main", True),
        ("git push origin +main", True),
        ("git push origin HEAD:main", True),
        ("git push origin topic:refs/heads/main", True),
        ("git push origin :main", True),
        ("git push origin topic", False),
        ("git push origin domain", False),
        ("git push origin HEAD:domain", False),
        ("git push origin main-menu", False),
        ("git push origin main:topic", False),
    ],
)
def test_a_branch_is_kept_to(line: str, expected: bool) -> None:
    assert is_ruled_out("no_push", "main", read_action("Bash", {"command": line})) is expected


def test_a_path_is_kept_to() -> None:
    for path, expected in (("/p/src/gen/a.ts", True), ("/p/src/general.ts", False)):
        assert (
            is_ruled_out("no_edit", "src/gen", read_action("Edit", {"file_path": path})) is expected
        )


def test_every_kind_can_be_said_as_a_claim() -> None:
    assert all(claim(kind, "src/gen") for kind in KINDS)


def test_a_constraint_is_taken_back_in_words() -> None:
    assert lifted_kinds("ok, you may push now") == ("no_push", "local_only")
    assert lifted_kinds("can you push?") == ()
    assert lifted_kinds("Looks good, go ahead and push") == ("no_push", "local_only")
    assert lifted_kinds("it's fine to install packages now") == ("no_install",)
    assert lifted_kinds("You may edit the migrations again") == ("no_edit",)
    assert lifted_kinds("feel free to commit") == ("no_commit", "local_only")
    assert lifted_kinds("ok, push it now") == ("no_push", "local_only")
    assert lifted_kinds("the docs say users may push tags") == ()
    assert lifted_kinds("it is not fine to push") == ()
    assert lifted_kinds("do not go ahead and push") == ()
    assert lifted_kinds("I never said you can push to main") == ()
    assert lifted_kinds("who told you that you can push now") == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Never edit the generated files by hand", True),
        ("you edited the generated files and they are wrong", False),
        ("why don't you edit the generated files?", False),
        ("never mind", False),
        ("Never edit the generated files without running the tests", False),
        ("never edit the generated files without asking me", True),
    ],
)
def test_forbidding_is_more_than_complaining(text: str, expected: bool) -> None:
    words = read_action("Edit", {"file_path": "/p/generated/a.ts"}).words
    assert forbids(text, words) is expected
