"""Files that must not be touched, moments in which things break, and what survives them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from connect_desk import NOW, Desk

from meritory.connect import files
from meritory.connect import plan as planning
from meritory.connect.json_edit import read
from meritory.connect.plan import (
    HARNESS_NAMES,
    harness_checks,
    is_connected,
    is_found,
    prepare_connect,
    prepare_disconnect,
)
from meritory.domain.errors import Conflict, InputError, ReadOnlyStore

BROKEN_JSON = {
    "cut off": '{"a": 1',
    "no comma": '{"a": 1 "b": 2}',
    "a second value": "{} {}",
    "a list": "[]",
    "a text": '"hooks"',
    "single quotes": "{'a': 1}",
    "no quotes": "{a: 1}",
    "a bad escape": '{"a": "\\x"}',
    "a line break in a text": '{"a": "b\nc"}',
    "an open remark": "{} /* oh",
    "leading zero": '{"a": 01}',
    "NaN": '{"a": NaN}',
    "hooks is a list": '{"hooks": []}',
    "hooks is null": '{"hooks": null}',
    "an event is an object": '{"hooks": {"Stop": {}}}',
    "hooks twice": '{"hooks": {}, "hooks": {}}',
    "not UTF-8": b'{"a": "\xff"}',
    "too deep": "[" * 500 + "]" * 500,
    "null": "null",
    "conflict marks": '{\n<<<<<<< HEAD\n  "a": 1\n=======\n  "a": 2\n>>>>>>> other\n}\n',
}
BROKEN_TOML = {
    "cut off": "a = ",
    "twice": "a = 1\na = 2\n",
    "servers inline": 'mcp_servers = {x = {command = "y"}}\n',
    "servers a text": 'mcp_servers = "none"\n',
    "not UTF-8": b'a = "\xff"\n',
}


@pytest.mark.parametrize("case", BROKEN_JSON)
def test_what_cannot_be_read_is_refused_and_left_alone(case: str, desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    desk.put(path, BROKEN_JSON[case])
    before = desk.everything()
    with pytest.raises(InputError) as caught:
        prepare_connect("claude-code", desk.home, desk.env)
    assert str(path) in caught.value.message
    assert caught.value.hint and "again" in caught.value.hint
    assert desk.everything() == before
    assert not desk.home.exists()


@pytest.mark.parametrize("case", BROKEN_TOML)
def test_toml_that_cannot_be_read_is_refused_and_left_alone(case: str, desk: Desk) -> None:
    path = desk.documents("codex")[1].path
    desk.put(path, BROKEN_TOML[case])
    before = desk.everything()
    with pytest.raises(InputError) as caught:
        prepare_connect("codex", desk.home, desk.env)
    assert str(path) in caught.value.message and caught.value.hint
    assert desk.everything() == before


def test_the_place_of_a_mistake_is_told(desk: Desk) -> None:
    desk.put(desk.documents("claude-code")[0].path, '{\n  "a": 1\n  "b": 2\n}\n')
    with pytest.raises(InputError, match="line 3, column 3"):
        prepare_connect("claude-code", desk.home, desk.env)


COMMENT = '{\n  // mine\n  "theme": "a\\"//" /* yours */\n}\n'
COMMA = '{\n  "list": [1, 2],\n}\n'
INNER_COMMA = '{"list": [1, 2, /* 3 */]}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("claude-code", text) for text in (COMMENT, COMMA, INNER_COMMA)),
        *(("codex", text) for text in (COMMENT, COMMA)),
        *(("gemini-cli", text) for text in (COMMA, INNER_COMMA)),
    ],
)
def test_a_file_that_its_client_does_not_load_is_refused(name: str, text: str, desk: Desk) -> None:
    path = desk.documents(name)[0].path
    desk.put(path, text)
    with pytest.raises(InputError, match="its client loads nothing") as caught:
        prepare_connect(name, desk.home, desk.env)
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("name", "text"), [("gemini-cli", COMMENT), ("openclaw", COMMENT), ("openclaw", COMMA)]
)
def test_a_file_that_its_client_loads_is_edited(name: str, text: str, desk: Desk) -> None:
    desk.put(desk.documents(name)[0].path, text)
    assert desk.connect(name).is_real


def test_the_doctor_names_a_file_that_its_client_no_longer_loads(desk: Desk) -> None:
    desk.connect("claude-code")
    path = desk.documents("claude-code")[0].path
    desk.put(path, path.read_text("utf-8").replace("{", "{ // mine", 1))
    (found,) = (one for one in harness_checks(desk.home, desk.env) if one.name == "claude-code")
    assert found.status == "warn" and str(path) in found.detail
    assert desk.disconnect("claude-code").is_real


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_plain_file_is_refused(kind: str, desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    path.parent.mkdir()
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(InputError, match="not a plain file"):
        prepare_connect("claude-code", desk.home, desk.env)


def test_a_link_stays_a_link_and_rights_stay(desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    real = desk.user_home / "dotfiles" / "claude.json"
    before = desk.put(real, '{"theme": "dark"}\n')
    real.chmod(0o644)
    path.parent.mkdir()
    path.symlink_to("../dotfiles/claude.json")
    desk.connect("claude-code")
    assert path.is_symlink() and b"hook/__main__.py" in real.read_bytes()
    assert stat.S_IMODE(real.stat().st_mode) == 0o644
    desk.disconnect("claude-code")
    assert path.is_symlink() and real.read_bytes() == before
    assert stat.S_IMODE(real.stat().st_mode) == 0o644


def test_a_link_that_leads_nowhere_stays_one(desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    path.parent.mkdir()
    path.symlink_to(desk.user_home / "later.json")
    desk.connect("claude-code")
    assert path.is_symlink() and (desk.user_home / "later.json").is_file()
    desk.disconnect("claude-code")
    assert path.is_symlink() and not path.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_protected_file_is_refused(desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    desk.put(path, "{}")
    path.chmod(0o444)
    # What would be put there can be looked at all the same.
    plan = prepare_connect("claude-code", desk.home, desk.env)
    assert plan.changes[0].diff()
    for refuses in (plan.check_writable, lambda: plan.apply(NOW)):
        with pytest.raises(ReadOnlyStore, match="cannot be written"):
            refuses()
    assert path.read_text() == "{}" and not desk.home.exists()


def test_only_looking_needs_no_rights(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    plan = prepare_connect("claude-code", desk.home, desk.env)
    assert plan.changes[0].diff()
    with pytest.raises(ReadOnlyStore, match="cannot be written"):
        plan.check_writable()
    with pytest.raises(ReadOnlyStore, match="cannot be written"):
        plan.apply(NOW)
    assert desk.everything() == {} and not desk.home.exists()


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_numbers_beyond_all_bounds_are_no_bug(name: str, desk: Desk) -> None:
    path = desk.documents(name)[-1].path
    huge = "9" * 6_000
    before = desk.put(path, f"huge = {huge}\n" if name == "codex" else f'{{"huge": {huge}}}\n')
    if name == "codex":
        with pytest.raises(InputError, match="not valid TOML"):
            prepare_connect(name, desk.home, desk.env)
        return
    desk.connect(name)
    assert huge in path.read_text()
    desk.disconnect(name)
    assert path.read_bytes() == before


@pytest.mark.parametrize("inside", ['{"a": [1, // one\n 2,],}', "0x10", "[" * 150 + "]" * 150])
def test_what_is_not_looked_into_is_still_read(inside: str, desk: Desk) -> None:
    before = desk.put(desk.user_home / ".openclaw" / "openclaw.json", f'{{"other": {inside}}}\n')
    if inside.startswith("[["):
        assert read(before.decode(), "json5", ()).parts[0].node.kind == "scalar"
        return
    desk.connect("openclaw")
    desk.disconnect("openclaw")
    assert (desk.user_home / ".openclaw" / "openclaw.json").read_bytes() == before


@pytest.mark.parametrize("wrong", ['{"a" 1}', "[1 2]", "{'a': 1}", '"\\x"', "[NaN]"])
def test_what_is_not_looked_into_must_be_right(wrong: str, desk: Desk) -> None:
    desk.put(desk.documents("claude-code")[0].path, f'{{"other": {wrong}}}')
    with pytest.raises(InputError, match="line 1, column"):
        prepare_connect("claude-code", desk.home, desk.env)


@pytest.mark.parametrize(
    "damage",
    [{"backup": one} for one in (5, {"a": 1}, [], True, "\0", "../../settings.json")]
    + [{"path": "\0"}, {"path": 5}, {"folders": ["\0"]}, {"folders": 5}, {"created": 5}],
)
def test_a_damaged_record_counts_as_lost(damage: dict[str, Any], desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    desk.put(path, '{"theme": "dark"}')
    desk.connect("claude-code")
    (record,) = (desk.home / "connections").glob("claude-code.settings*.json")
    record.write_text(json.dumps({**json.loads(record.read_bytes()), **damage}))
    assert is_connected("claude-code", desk.home, desk.env)
    desk.disconnect("claude-code")
    assert json.loads(path.read_bytes()) == {"theme": "dark"}


def test_a_python_that_does_not_know_itself_is_not_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "")
    with pytest.raises(InputError, match="path of the running Python is unknown"):
        prepare_connect("claude-code", desk.home, desk.env)


def test_ratings_are_hidden_by_choice_until_disconnected(desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    before = desk.put(path, '{"hooks": {"MessageDisplay": [{"hooks": [{"command": "mine"}]}]}}\n')

    def hidden() -> list[str]:
        groups = json.loads(path.read_bytes())["hooks"]["MessageDisplay"]
        return [one["command"] for group in groups for one in group["hooks"]][1:]

    desk.connect("claude-code")
    assert hidden() == []
    plan = prepare_connect("claude-code", desk.home, desk.env, hides_ratings=True)
    plan.apply(NOW)
    (command,) = hidden()
    assert "/hook/__main__.py --harness claude-code --hide-ratings " in command
    # Neither the doctor nor a later connect takes the choice back.
    assert [one.status for one in harness_checks(desk.home, desk.env)] == ["ok"]
    assert not desk.connect("claude-code").is_real
    desk.disconnect("claude-code")
    assert path.read_bytes() == before


def test_hidden_ratings_are_taken_out_without_a_record(desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    prepare_connect("claude-code", desk.home, desk.env, hides_ratings=True).apply(NOW)
    desk.put(path, json.dumps({**json.loads(path.read_bytes()), "theme": "dark"}))
    for record in (desk.home / "connections").glob("*.json"):
        record.unlink()
    desk.disconnect("claude-code")
    assert json.loads(path.read_bytes()) == {"theme": "dark"}


@pytest.mark.parametrize("connects", [True, False])
def test_a_change_by_another_program_meanwhile_is_noticed(connects: bool, desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    desk.put(path, '{"theme": "dark"}')
    if not connects:
        desk.connect("claude-code")
    prepare = prepare_connect if connects else prepare_disconnect
    plan = prepare("claude-code", desk.home, desk.env)
    desk.put(path, '{"theme": "light"}')
    with pytest.raises(Conflict, match="changed by another program"):
        plan.apply(NOW)
    assert path.read_text() == '{"theme": "light"}'
    assert [p.name for p in path.parent.iterdir()] == [path.name]


class Crash(BaseException):
    """The process is gone."""


def crash_after(count: int, patch: pytest.MonkeyPatch) -> None:
    """Lets so many files be put in place and no more."""
    left = [count]

    def replace(source: str, target: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash
        os.rename(source, target)

    patch.setattr(files.os, "replace", replace)


def state(desk: Desk) -> dict[str, bytes]:
    """Every file of the user's but those that a crash left half made."""
    return {path: raw for path, raw in desk.everything().items() if not path.endswith(".meritory")}


@pytest.mark.parametrize("name", HARNESS_NAMES)
@pytest.mark.parametrize("connects", [True, False])
def test_a_crash_at_any_write_leaves_each_file_old_or_new(
    name: str, connects: bool, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for document in desk.documents(name):
        if document.syntax in ("json", "json5"):
            desk.put(document.path, '{\n  "theme": "dark"\n}\n')
    apart = desk.everything()
    desk.connect(name)
    joined = desk.everything()
    desk.disconnect(name)
    prepare = prepare_connect if connects else prepare_disconnect
    for moment in range(20):
        if not connects:
            desk.connect(name)
        with monkeypatch.context() as patch:
            crash_after(moment, patch)
            try:
                prepare(name, desk.home, desk.env).apply(NOW)
                break
            except Crash:
                pass
        now = state(desk)
        for path in set(apart) | set(joined):
            assert now.get(path) in (apart.get(path), joined.get(path)), (moment, path)
        # Whatever is there, connecting and disconnecting lead to where they always do.
        desk.connect(name)
        assert state(desk) == joined, moment
        desk.disconnect(name)
        assert state(desk) == apart, moment
    assert moment > 0


def test_a_failure_at_the_second_file_takes_the_first_one_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (document.path for document in desk.documents("claude-code"))
    desk.put(first, '{"theme": "dark"}')
    before = desk.everything()
    real = planning.replace_file

    def fail(path: Path, old: bytes | None, new: bytes | None) -> None:
        if path == second:
            raise OSError(28, "No space left on device")
        real(path, old, new)

    monkeypatch.setattr(planning, "replace_file", fail)
    with pytest.raises(OSError, match="No space"):
        desk.connect("claude-code")
    assert desk.everything() == before
    assert [path.name for path in (desk.home / "connections").iterdir()] == ["lock"]


@pytest.mark.parametrize("name", HARNESS_NAMES)
def test_a_failure_leaves_neither_folders_nor_records(
    name: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for owner, what in ((planning, "replace_file"), (files, "_write")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, what, fail)
            with pytest.raises(OSError, match="No space"):
                desk.connect(name)
        assert (desk.everything(), desk.folders()) == ({}, set())
        assert [path.name for path in (desk.home / "connections").iterdir()] == ["lock"]


def test_a_failure_keeps_the_record_of_before(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = desk.documents("claude-code")[0].path
    original = desk.put(path, '{"theme": "dark"}')
    desk.connect("claude-code")
    records = {file: file.read_bytes() for file in (desk.home / "connections").iterdir()}

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    plan = prepare_connect("claude-code", desk.home, desk.env, hides_ratings=True)
    assert plan.is_real
    with monkeypatch.context() as patch:
        patch.setattr(planning, "replace_file", fail)
        with pytest.raises(OSError, match="No space"):
            plan.apply(NOW.replace(hour=13))
    assert {file: file.read_bytes() for file in (desk.home / "connections").iterdir()} == records
    desk.disconnect("claude-code")
    assert path.read_bytes() == original


def test_the_copy_from_before_is_kept_and_private(desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    before = desk.put(path, '{"theme": "dark"}')
    copies = prepare_connect("claude-code", desk.home, desk.env).apply(NOW)
    assert copies[path].read_bytes() == before
    assert stat.S_IMODE(copies[path].stat().st_mode) == 0o600
    desk.disconnect("claude-code")
    assert copies[path].read_bytes() == before


def test_no_more_copies_are_kept_than_are_useful(desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    for number in range(files.BACKUPS_KEPT_COUNT + 3):
        desk.put(path, json.dumps({"n": number}))
        prepare_connect("claude-code", desk.home, desk.env).apply(NOW.replace(second=number))
        desk.disconnect("claude-code")
        assert json.loads(path.read_text()) == {"n": number}
    copies = list((desk.home / files.FOLDER_NAME).glob("claude-code.settings.json.*.bak"))
    assert len(copies) == files.BACKUPS_KEPT_COUNT


@pytest.mark.parametrize("name", HARNESS_NAMES)
def test_what_is_out_of_date_is_replaced_and_the_first_state_still_comes_back(
    name: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for document in desk.documents(name):
        if document.syntax in ("json", "json5"):
            desk.put(document.path, '{\n  "theme": "dark"\n}\n')
    original = desk.everything()
    monkeypatch.setattr("sys.executable", "/gone/bin/python3")
    desk.connect(name)
    assert "/gone/bin/python3" in str(desk.everything())
    monkeypatch.undo()
    plan = desk.connect(name)
    assert plan.is_real
    assert "/gone/bin/python3" not in str(desk.everything())
    assert not desk.connect(name).is_real
    desk.disconnect(name)
    assert desk.everything() == original


def test_another_data_folder_is_named_in_the_commands(desk: Desk) -> None:
    other = desk.user_home / "my memories"
    prepare_connect("claude-code", other, desk.env).apply(NOW)
    (settings, state) = (document.path for document in desk.documents("claude-code"))
    hook = json.loads(settings.read_text())["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert f" --home '{other}' " in hook
    assert json.loads(state.read_text())["mcpServers"]["meritory"]["args"][-1] == str(other)
    prepare_disconnect("claude-code", other, desk.env).apply(NOW)
    assert [path for path in desk.everything() if not path.startswith("my memories")] == []


MOVED = {
    "claude-code": ({"CLAUDE_CONFIG_DIR": "{}"}, {"settings.json", ".claude.json"}),
    "codex": ({"CODEX_HOME": "{}"}, {"hooks.json", "config.toml"}),
    "gemini-cli": ({"GEMINI_CLI_HOME": "{}"}, {".gemini/settings.json"}),
    "copilot-cli": ({"COPILOT_HOME": "{}"}, {"hooks/meritory.json", "mcp-config.json"}),
    "vscode": (
        {"XDG_CONFIG_HOME": "{}"},
        {f"Code/User/{name}" for name in ("mcp.json", "settings.json", "meritory-hooks.json")},
    ),
    "opencode": ({"OPENCODE_CONFIG_DIR": "{}"}, {"opencode.json", "plugins/meritory.js"}),
    "openclaw": ({"OPENCLAW_STATE_DIR": "{}"}, {"openclaw.json"}),
}


@pytest.mark.parametrize("name", MOVED)
def test_variables_that_move_the_settings_are_followed(name: str, desk: Desk) -> None:
    variables, expected = MOVED[name]
    moved = desk.user_home / "moved"
    there = Desk(desk.user_home, {key: str(moved) for key in variables})
    there.connect(name)
    assert {path for path in desk.everything()} == {f"moved/{path}" for path in expected}
    # The variable is gone since: what was put there is still found and taken out.
    assert is_connected(name, desk.home, desk.env)
    desk.disconnect(name)
    assert desk.everything() == {}
    assert not is_connected(name, desk.home, desk.env)


def test_more_variables_are_followed(desk: Desk) -> None:
    xdg = Desk(desk.user_home, {"XDG_CONFIG_HOME": str(desk.user_home / "cfg")})
    assert xdg.documents("opencode")[1].path == desk.user_home / "cfg/opencode/opencode.json"
    named = Desk(desk.user_home, {"OPENCLAW_CONFIG_PATH": "~/claw.json5"})
    assert named.documents("openclaw")[0].path == desk.user_home / "claw.json5"
    one = Desk(desk.user_home, {"OPENCODE_CONFIG": str(desk.user_home / "oc.json")})
    assert one.documents("opencode")[1].path == desk.user_home / "oc.json"
    desk.put(desk.user_home / ".config/opencode/opencode.jsonc", "{}")
    assert desk.documents("opencode")[1].path.name == "opencode.jsonc"
    outside = Desk(desk.user_home, {"VSCODE_PORTABLE": "/opt/code"})
    assert [d.path.name for d in outside.documents("vscode")] == ["mcp.json"]


def test_a_harness_is_found_by_its_folder_or_its_program(desk: Desk, tmp_path: Path) -> None:
    assert not any(is_found(name, desk.home, desk.env) for name in HARNESS_NAMES)
    (desk.user_home / ".codex").mkdir()
    program = tmp_path / "bin" / "gemini"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    env = {**desk.env, "PATH": str(program.parent)}
    found = [name for name in HARNESS_NAMES if is_found(name, desk.home, env)]
    assert found == ["codex", "gemini-cli"]


def test_memory_files_of_others_are_never_touched(desk: Desk) -> None:
    for name in ("CLAUDE.md", ".claude/CLAUDE.md", ".codex/AGENTS.md", ".gemini/GEMINI.md"):
        desk.put(desk.user_home / name, "# mine\n")
    before = {path: (desk.user_home / path).stat() for path in desk.everything()}
    for name in HARNESS_NAMES:
        desk.connect(name)
    for path, was in before.items():
        now = (desk.user_home / path).stat()
        assert (now.st_mtime_ns, now.st_ino) == (was.st_mtime_ns, was.st_ino)


def test_a_path_that_is_not_utf_8_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/opt/\udcff/python3")
    for name in HARNESS_NAMES:
        with pytest.raises(InputError, match="UTF-8"):
            prepare_connect(name, desk.home, desk.env)
    assert desk.everything() == {}
