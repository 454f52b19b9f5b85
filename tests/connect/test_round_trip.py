"""Connect, connect again, disconnect: the user's files are theirs to the byte, whatever they hold.

The corpus goes through every file of every harness; the last tests show that a wrong restore,
a lost entry or a change of a foreign one would be noticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from connect_corpus import BOM, user_files
from connect_desk import Desk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meritory.connect.desired import Document, Item, Member, harness_module
from meritory.connect.files import Made
from meritory.connect.json_edit import plain, read
from meritory.connect.merge import is_merged, merged, our_commands, says_the_same, unmerged
from meritory.connect.plan import target_for
from meritory.domain.harness import HARNESS_NAMES


def cases(desk: Desk, name: str) -> Iterator[dict[Path, tuple[str, str]]]:
    """What the files of a harness may hold: each in turn all that it can, side by side."""
    texts = {doc.path: list(user_files(doc).items()) for doc in desk.documents(name)}
    for turn in range(max(map(len, texts.values()))):
        yield {path: choices[turn % len(choices)] for path, choices in texts.items()}


def test_the_corpus_is_not_small(desk: Desk) -> None:
    counts = [len(user_files(doc)) for name in HARNESS_NAMES for doc in desk.documents(name)]
    assert sum(counts) > 400 and len(counts) == 15


@pytest.mark.parametrize("name", HARNESS_NAMES)
def test_every_file_comes_back_to_the_byte(name: str, desk: Desk) -> None:
    for case in cases(desk, name):
        for path, (_, text) in case.items():
            desk.put(path, text)
        # A file in the place of our own plugin, or a server of our name, stays what it is.
        kept = {p for p, (told, _) in case.items() if "another" in told or "a foreign" in told}
        files = desk.everything()
        plan = desk.connect(name)
        connected = desk.everything()
        for path in set(case) - kept:
            place = str(path.relative_to(desk.user_home))
            assert connected[place] != files[place], case
        again = desk.connect(name)
        assert not again.is_real, case
        assert desk.everything() == connected, case
        assert [c.conflicts for c in again.changes] == [c.conflicts for c in plan.changes], case
        desk.disconnect(name)
        assert desk.everything() == files, case
        assert not desk.disconnect(name).is_real, case


@pytest.mark.parametrize("name", HARNESS_NAMES)
def test_files_and_folders_that_were_not_there_are_gone_again(name: str, desk: Desk) -> None:
    desk.connect(name)
    documents = desk.documents(name)
    assert {document.path for document in documents} <= {
        desk.user_home / file for file in desk.everything()
    }
    assert all((document.path.stat().st_mode & 0o777) == 0o600 for document in documents)
    desk.disconnect(name)
    assert desk.everything() == {}
    assert desk.folders() == set()


def _docs() -> list[tuple[str, Document]]:
    desk = Desk(Path("/home/ann"))
    return [(name, document) for name in HARNESS_NAMES for document in desk.documents(name)]


EDITS: dict[str, Callable[[str], str]] = {
    "a value": lambda text: text.replace("dark", "light").replace("best", "worst"),
    "a remark at the end": lambda text: text.rstrip("\r\n") + "\n// changed by hand\n",
    "another line break at the end": lambda text: text + "\n",
}
TOML_EDITS: dict[str, Callable[[str], str]] = {
    "a value": lambda text: text.replace("o9", "o10"),
    "a table at the end": lambda text: text + '\n# mine\n[later]\nx = "y"\n',
}


@pytest.mark.parametrize(("name", "document"), _docs(), ids=lambda v: getattr(v, "path", v))
def test_what_was_edited_by_hand_since_stays(name: str, document: Document) -> None:
    """Edit, then connect and disconnect, is the same as connect, edit, disconnect."""
    if document.syntax == "text":
        return
    edits = TOML_EDITS if document.syntax == "toml" else EDITS
    for case, text in user_files(document).items():
        if "foreign meritory" in case:
            continue
        new = merged(text, document, name)
        for edit in edits.values():
            edited = edit(new.text)
            if document.syntax != "toml" and not text.removeprefix(BOM).strip():
                continue
            back = unmerged(edited, document, name, new.made)
            assert our_commands(back, document, name) == [], case
            if _is_bare(text, document):
                assert says_the_same(back, edit(text), document), case
            else:
                assert back == edit(text), case


def _is_bare(text: str, document: Document) -> bool:
    """Whether blanks inside of empty braces may be lost."""
    return document.syntax != "toml" and ("{ }" in text or "{\n}" in text or "{}" in text)


@pytest.mark.parametrize(("name", "document"), _docs(), ids=lambda v: getattr(v, "path", v))
def test_without_a_record_only_ours_is_taken_out(name: str, document: Document) -> None:
    """The data folder was lost: commands are known by themselves."""
    for case, text in user_files(document).items():
        if document.syntax == "text" or not text.removeprefix(BOM).strip():
            continue
        back = unmerged(merged(text, document, name).text, document, name, None)
        assert our_commands(back, document, name) == [], case
        if "empty containers" not in case:
            assert says_the_same(back, text, document), case


WORDS = st.text("abc{}[]:,\"'\\/ é世\n", max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    value=st.dictionaries(WORDS, VALUES, max_size=4),
    hooks=st.dictionaries(
        st.sampled_from(["Stop", "SessionStart", "Other"]), st.lists(VALUES, max_size=2), max_size=3
    ),
    indent=st.sampled_from([None, 0, 1, 2, 4, "\t"]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_any_settings_come_back(
    value: dict[str, Any], hooks: dict[str, Any], indent: int | str | None, newline: str
) -> None:
    name, document = _docs()[0]
    whole = {**value, "hooks": hooks, "permissions": {"allow": ["x"]}, "z": 1}
    text = json.dumps(whole, indent=indent, ensure_ascii=False).replace("\n", newline)
    new = merged(text, document, name)
    assert is_merged(new.text, document, name)
    assert not is_merged(text, document, name)
    again = merged(new.text, document, name)
    assert plain(read(new.text))["z"] == 1
    assert again.made.created == () and again.conflicts == ()
    back = unmerged(new.text, document, name, new.made)
    assert json.loads(back) == whole
    if "{}" not in text and "[]" not in text:
        assert back == text


def test_what_the_clients_read_is_what_was_meant(desk: Desk) -> None:
    """Every wish is there as a client would read it, with all foreign entries before it."""
    for name in HARNESS_NAMES:
        for document in desk.documents(name):
            if document.syntax in ("text", "toml"):
                continue
            for case, text in user_files(document).items():
                before = plain(read(text or "{}", "json5")) if text.strip(BOM + "\n") else {}
                after = plain(read(merged(text, document, name).text, "json5"))
                for wish in document.wishes:
                    theirs, ours = _at(before, wish.path), _at(after, wish.path)
                    if isinstance(wish, Item):
                        assert ours == [*(theirs or []), wish.value], (name, case)
                    elif isinstance(wish, Member):
                        assert ours == (wish.value if theirs is None else theirs), (name, case)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


# --- the checks themselves can fail -----------------------------------------------------------


def test_a_foreign_wrapper_around_our_hook_is_not_ours(desk: Desk) -> None:
    """Only the exact shape is taken out again."""
    place = target_for("claude-code", desk.home, desk.env)
    line = place.commands.hook_line
    foreign = [f"time {line}", f"{line} | tee log", f"{line} --harness codex", f"echo {line}"]
    foreign += [line.replace("claude-code", "codex"), "meritory hook", "meritory hook --harness x"]
    document = harness_module("claude-code").setup(place).documents[0]
    value = {"hooks": {"Stop": [{"hooks": [{"command": one} for one in foreign]}]}}
    text = json.dumps(value, indent=2)
    assert unmerged(text, document, "claude-code", None) == text
    mine = {"hooks": {"Stop": [{"hooks": [{"command": "meritory hook --harness claude-code"}]}]}}
    assert unmerged(json.dumps(mine), document, "claude-code", None) == "{}"


def test_our_hook_in_a_users_group_is_taken_out_alone(desk: Desk) -> None:
    place = target_for("claude-code", desk.home, desk.env)
    document = harness_module("claude-code").setup(place).documents[0]
    theirs = {"type": "command", "command": "say hi"}
    ours = {"type": "command", "command": place.commands.hook_line}
    value = {"hooks": {"Stop": [{"matcher": "x", "hooks": [theirs, ours]}]}}
    back = unmerged(json.dumps(value), document, "claude-code", Made())
    assert json.loads(back) == {"hooks": {"Stop": [{"matcher": "x", "hooks": [theirs]}]}}


def test_a_permission_that_the_user_gave_before_stays_after_an_edit(desk: Desk) -> None:
    document = desk.documents("claude-code")[0]
    own = "mcp__meritory__memory_search"
    before = json.dumps({"permissions": {"allow": [own]}, "x": 1}, indent=2)
    desk.put(document.path, before)
    desk.connect("claude-code")
    edited = document.path.read_text().replace('"x": 1', '"x": 2')
    desk.put(document.path, edited)
    desk.disconnect("claude-code")
    assert document.path.read_text() == before.replace('"x": 1', '"x": 2')
