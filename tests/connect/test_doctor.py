"""What the doctor says about agents, and the commands as a person types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from connect_desk import Desk

from meritory.cli.app import APP
from meritory.connect import claude_code, codex, gemini_cli, openclaw
from meritory.connect.desired import TIMEOUT_S, Finding, harness_modules
from meritory.connect.plan import harness_checks, target_for
from meritory.domain.harness import HARNESS_NAMES, HOOK_HARNESS_NAMES
from meritory.hook import main


def said(desk: Desk, name: str) -> list[Finding]:
    return [found for found in harness_checks(desk.home, desk.env) if found.name == name]


def test_a_machine_without_agents_is_told_nothing(desk: Desk) -> None:
    assert harness_checks(desk.home, desk.env) == []


@pytest.mark.parametrize("name", [name for name in HARNESS_NAMES if name != "codex"])
def test_present_connected_and_gone_again(name: str, desk: Desk) -> None:
    desk.connect(name)
    (found,) = said(desk, name)
    assert (found.status, "is connected" in found.detail) == ("ok", True)
    desk.disconnect(name)
    assert said(desk, name) == []


def test_an_agent_that_is_here_and_not_connected_is_named(desk: Desk) -> None:
    (desk.user_home / ".cursor").mkdir()
    (found,) = said(desk, "cursor")
    assert found.status == "ok" and "`meritory connect cursor`" in found.hint


@pytest.mark.parametrize("name", [name for name in HARNESS_NAMES if name != "opencode"])
def test_a_python_that_is_gone_is_a_failure(
    name: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/gone/bin/python3")
    desk.connect(name)
    monkeypatch.undo()
    (found,) = said(desk, name)
    assert found.status == "fail" and "/gone/bin/python3" in found.detail
    desk.connect(name)
    assert all(found.status != "fail" for found in said(desk, name))


def test_a_hook_that_was_taken_out_by_hand_is_missed(desk: Desk) -> None:
    desk.connect("claude-code")
    path = desk.documents("claude-code")[0].path
    value = json.loads(path.read_text())
    del value["hooks"]["Stop"]
    desk.put(path, json.dumps(value))
    (found,) = said(desk, "claude-code")
    assert found.status == "warn" and str(path) in found.detail


def test_settings_that_cannot_be_read_are_a_warning(desk: Desk) -> None:
    desk.put(desk.user_home / ".claude/settings.json", "{oh")
    (found,) = said(desk, "claude-code")
    assert found.status == "warn" and "settings.json" in found.detail


def test_codex_gets_a_timeout_for_the_end_that_it_does_not_shorten(desk: Desk) -> None:
    desk.connect("codex")
    hooks = json.loads(desk.documents("codex")[0].path.read_text())["hooks"]
    timeouts = {event: groups[0]["hooks"][0]["timeout"] for event, groups in hooks.items()}
    assert set(timeouts) == set(codex.EVENTS)
    assert timeouts.pop("SessionEnd") <= 3
    assert set(timeouts.values()) == {TIMEOUT_S}


def test_codex_waits_for_an_approval(desk: Desk) -> None:
    path = desk.documents("codex")[0].path
    foreign = {"hooks": [{"type": "command", "command": "true"}]}
    desk.put(path, json.dumps({"hooks": {"Stop": [foreign]}}))
    desk.connect("codex")
    (found,) = said(desk, "codex")
    assert found.status == "warn" and "/hooks" in found.hint
    assert found.detail.endswith(", ".join(sorted(codex.EVENTS, key=_order)))
    config = desk.documents("codex")[1].path
    # Their hook is approved, ours at the second place is not.
    states = [f'[hooks.state."{path}:stop:0:0"]\ntrusted_hash = "sha256:1"\n']
    desk.put(config, config.read_text() + "".join(states))
    assert "Stop" in said(desk, "codex")[0].detail
    places = {"session_start": 0, "user_prompt_submit": 0, "stop": 1, "pre_compact": 0}
    places |= {"session_end": 0, "pre_tool_use": 0}
    states = [
        f'[hooks.state."{path}:{event}:{place}:0"]\ntrusted_hash = "sha256:1"\n'
        for event, place in places.items()
    ]
    desk.put(config, config.read_text() + "".join(states))
    (found,) = said(desk, "codex")
    assert found.status == "ok"
    # What Codex wrote there is Codex's.
    desk.disconnect("codex")
    assert "trusted_hash" in config.read_text() and "mcp_servers" not in config.read_text()


def _order(event: str) -> int:
    return ("Stop", *(one for one in codex.EVENTS if one != "Stop")).index(event)


def test_nothing_ever_writes_an_approval(desk: Desk) -> None:
    desk.connect("codex")
    assert "trusted" not in str(desk.everything())


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("etc/claude-code/managed-settings.json", '{"disableAllHooks": true}'),
        ("etc/claude-code/managed-settings.d/10.json", '{"allowManagedHooksOnly": true}'),
        (
            "Library/Application Support/ClaudeCode/managed-settings.json",
            '{"allowManagedHooksOnly": true}',
        ),
    ],
)
def test_what_an_administrator_forbids_is_told(
    file: str, content: str, desk: Desk, tmp_path: Path
) -> None:
    place = target_for("claude-code", desk.home, desk.env)
    there = type(place)(place.env, place.user_home, place.commands, tmp_path)
    assert claude_code.checks(there) == []
    desk.put(tmp_path / file, content)
    (found,) = claude_code.checks(there)
    assert found.status == "warn" and file in found.detail
    desk.put(tmp_path / file, content.replace("true", "false"))
    assert claude_code.checks(there) == []


def test_switches_of_other_agents_are_told(desk: Desk) -> None:
    desk.put(desk.user_home / ".codex/config.toml", "[features]\nhooks = false\n")
    place = target_for("codex", desk.home, desk.env)
    assert "features.hooks" in codex.checks(place)[0].detail
    system = desk.user_home / "system.json"
    desk.put(system, '{"hooksConfig": {"enabled": false, "disabled": ["meritory"]}}')
    named = Desk(desk.user_home, {"GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(system)})
    place = target_for("gemini-cli", named.home, named.env)
    assert len(gemini_cli.checks(place)) == 2


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('"allowConversationAccess": true', '"allowConversationAccess": false', "conversations"),
        ('"allowConversationAccess": true', '"allowPromptInjection": false', "prompts"),
        ('"enabled": true', '"enabled": false', "disabled"),
        ('"plugins": {', '"plugins": {"deny": ["meritory"],', "plugins.deny"),
    ],
)
def test_openclaw_that_keeps_the_plugin_out_is_told(
    old: str, new: str, word: str, desk: Desk
) -> None:
    desk.connect("openclaw")
    path = desk.documents("openclaw")[0].path
    text = path.read_text()
    assert old in text
    desk.put(path, text.replace(old, new))
    found = openclaw.checks(target_for("openclaw", desk.home, desk.env))
    assert word in " ".join(one.detail for one in found)


def test_an_allow_list_of_openclaw_is_joined_only_where_there_is_one(desk: Desk) -> None:
    path = desk.documents("openclaw")[0].path
    for before, after in (("[]", []), ('["x"]', ["x", "meritory"])):
        desk.put(path, '{"plugins": {"allow": ' + before + "}}")
        desk.connect("openclaw")
        assert json.loads(path.read_text())["plugins"]["allow"] == after
        desk.disconnect("openclaw")


def test_the_plugin_and_the_settings_are_not_used_together(desk: Desk) -> None:
    settings = desk.user_home / ".claude/settings.json"
    desk.connect("claude-code")
    value = json.loads(settings.read_text())
    desk.put(settings, json.dumps({**value, "enabledPlugins": {"meritory@meritory": True}}))
    assert "twice" in said(desk, "claude-code")[-1].detail
    desk.disconnect("claude-code")
    assert "plugin" in said(desk, "claude-code")[0].detail
    with pytest.raises(Exception, match="plugin is enabled"):
        desk.connect("claude-code")


def test_our_own_module_that_is_gone_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.connect("opencode")
    monkeypatch.setattr("meritory.connect.plan.PACKAGE", desk.user_home / "gone")
    found = said(desk, "opencode")
    assert found and found[0].status == "fail"


# --- the commands -----------------------------------------------------------------------------

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in list(os.environ):
        if name.startswith(("MERITORY_", "CLAUDE", "CODEX", "XDG_", "OPENC", "COPILOT", "GEMINI")):
            monkeypatch.delenv(name)
    for name, value in desk.env.items():
        monkeypatch.setenv(name, value)

    def call(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        done = CliRunner().invoke(APP, list(arguments), input=stdin)
        assert "Traceback" not in done.output
        return done.exit_code, done.stdout, done.stderr

    return call


def test_every_harness_has_a_module_and_a_row() -> None:
    folder = Path(claude_code.__file__).parent
    files = {
        path.stem.replace("_", "-") for path in folder.glob("*.py") if "NAME =" in path.read_text()
    }
    assert {module.NAME for module in harness_modules()} == set(HARNESS_NAMES) == files
    running = {module.NAME for module in harness_modules() if module.HOOK is not None}
    assert running == set(HOOK_HARNESS_NAMES) == set(main.HARNESSES)


def test_a_dry_run_shows_everything_and_changes_nothing(run: Run, desk: Desk) -> None:
    desk.put(desk.user_home / ".claude/settings.json", '{\n  "theme": "dark"\n}\n')
    before = desk.everything()
    code, out, _ = run("connect", "claude-code", "--dry-run")
    assert code == 0 and desk.everything() == before and not desk.home.exists()
    assert '+  "hooks": {' in out and "would be connected" in out
    plain = json.loads(run("connect", "claude-code", "--dry-run", "--json")[1])
    assert plain["results"][0]["files"][0]["change"] == "changed"


def test_nothing_happens_without_a_yes(run: Run, desk: Desk) -> None:
    code, out, err = run("connect", "claude-code", stdin="n\n")
    assert code == 1 and '+  "hooks": {' in out and "nothing was done" in err
    assert run("connect", "claude-code")[0] == 2
    assert run("connect", "claude-code", "--json")[0] == 2
    assert desk.everything() == {}
    code, out, _ = run("connect", "claude-code", stdin="y\n")
    assert code == 0 and out.count('+  "hooks": {') == 1
    assert ".claude/settings.json" in desk.everything()


def test_connect_again_and_disconnect_again_are_no_news(run: Run, desk: Desk) -> None:
    run("connect", "codex", "--yes")
    code, out, _ = run("connect", "codex")
    assert code == 0 and "nothing to change" in out and "/hooks" in out
    assert run("disconnect", "codex", "--yes")[0] == 0
    code, out, _ = run("disconnect", "codex")
    assert code == 0 and "nothing to change" in out
    assert desk.everything() == {}


def test_all_means_those_that_are_here(run: Run, desk: Desk) -> None:
    for folder in (".claude", ".codex", ".gemini", ".copilot", ".cursor", ".openclaw"):
        (desk.user_home / folder).mkdir()
    desk.put(desk.user_home / ".gemini/settings.json", "{oh")
    code, out, _ = run("connect", "--all", "--yes", "--json")
    states = {one["id"]: one["state"] for one in json.loads(out)["results"]}
    assert code == 1 and states.pop("gemini-cli") == "refused"
    assert states == dict.fromkeys(
        ("claude-code", "codex", "copilot-cli", "cursor", "openclaw"), "connected"
    )
    (desk.user_home / ".gemini/settings.json").unlink()
    code, out, _ = run("disconnect", "--all", "--yes", "--json")
    assert code == 0 and len(json.loads(out)["results"]) == 5
    assert desk.everything() == {}
    assert run("disconnect", "--all")[0] == 0


def test_uninstall_leaves_the_agents_files_and_the_memories(run: Run, desk: Desk) -> None:
    """Everything that `connect` wrote is gone, nothing of the user's is."""
    own = desk.put(desk.user_home / ".claude/settings.json", '{"model": "opus"}\n')
    assert run("connect", "claude-code", "--yes")[0] == run("connect", "codex", "--yes")[0] == 0
    assert run("remember", "The staging database is called heron")[0] == 0
    code, out, _ = run("uninstall", "--dry-run", "--json")
    plain = json.loads(out)
    assert (code, plain["stopped"]) == (0, False)
    assert [one["state"] for one in plain["results"]] == ["would be disconnected"] * 2
    assert run("uninstall")[0] == 2, "it asks first"
    code, out, _ = run("uninstall", "--yes")
    assert code == 0 and f"your memories stay in {desk.home}" in out
    assert "pip uninstall meritory" in out and f"rm -r {desk.home}" in out
    assert desk.everything() == {".claude/settings.json": own}
    assert "heron" in run("recall", "staging database")[1]
    assert "no agent is connected" in run("uninstall", "--yes")[1]


@pytest.mark.parametrize(
    "words",
    [
        *[(), ("nothing",), ("codex", "--all"), ("codex", "--plugin"), ("--plugin",)],
        *[("codex", "--hide-ratings"), ("--all", "--hide-ratings")],
        *[("gemini-cli", "--ask-to-keep"), ("--all", "--ask-to-keep")],
        ("claude-code", "--plugin", "--ask-to-keep"),
    ],
)
def test_wrong_use_is_refused(words: tuple[str, ...], run: Run) -> None:
    assert run("connect", *words)[0] == 2


def test_ratings_are_hidden_when_somebody_says_so(run: Run, desk: Desk) -> None:
    file = desk.user_home / ".claude" / "settings.json"
    assert run("connect", "claude-code", "--yes")[0] == 0
    assert "--hide-ratings" not in file.read_text()
    assert run("connect", "claude-code", "--hide-ratings", "--yes")[0] == 0
    assert file.read_text().count("--hide-ratings") == 1
    assert run("disconnect", "claude-code", "--yes")[0] == 0
    assert desk.everything() == {}


@pytest.mark.parametrize(
    ("name", "file"), [("claude-code", ".claude/settings.json"), ("codex", ".codex/hooks.json")]
)
def test_the_question_what_to_keep_is_a_choice(name: str, file: str, run: Run, desk: Desk) -> None:
    path = desk.user_home / file
    assert run("connect", name, "--yes")[0] == 0
    assert "--ask-to-keep" not in path.read_text()
    code, out, _ = run("connect", name, "--ask-to-keep", "--dry-run")
    assert (code, out.count("--ask-to-keep")) == (0, 2)
    assert "--ask-to-keep" not in path.read_text()
    assert run("connect", name, "--ask-to-keep", "--yes")[0] == 0
    hooks = json.loads(path.read_text())["hooks"]
    asking = {
        event
        for event, groups in hooks.items()
        for group in groups
        for one in group["hooks"]
        if " --ask-to-keep " in one["command"]
    }
    assert asking == {"SessionStart", "Stop"}
    # A later connect and the doctor keep the choice.
    code, out, _ = run("connect", name, "--yes", "--json")
    assert (code, json.loads(out)["results"][0]["changed"]) == (0, False)
    assert "outdated" not in run("doctor")[1]
    assert run("disconnect", name, "--yes")[0] == 0
    assert desk.everything() == {}


def test_a_file_that_is_in_the_way_is_named_once(desk: Desk) -> None:
    path = desk.documents("claude-code")[0].path
    path.mkdir(parents=True)
    (found,) = said(desk, "claude-code")
    assert found.status == "warn" and found.detail.count(str(path)) == 1


def test_the_plugin_says_how_it_is_installed(run: Run) -> None:
    plain = json.loads(run("connect", "claude-code", "--plugin", "--json")[1])
    folder = Path(plain["folder"])
    assert (folder / ".claude-plugin/marketplace.json").is_file()
    assert plain["commands"][0].endswith(str(folder))


def test_the_doctor_reports_agents(run: Run, desk: Desk) -> None:
    run("connect", "codex", "--yes")
    code, out, _ = run("doctor", "--json")
    rows = {one["id"]: one for one in json.loads(out)["results"]}
    assert code == 0 and rows["codex"]["status"] == "warn"


def test_what_connect_writes_can_be_run(desk: Desk) -> None:
    """The hook's own command line, as a client's shell would run it."""
    desk.connect("claude-code")
    value = json.loads((desk.user_home / ".claude/settings.json").read_text())
    (line,) = {
        hook["command"]
        for groups in value["hooks"].values()
        for group in groups
        for hook in group["hooks"]
    }
    assert sys.executable in line
    done = subprocess.run(
        ["/bin/sh", "-c", line], input=b"{}", capture_output=True, timeout=20, env=desk.env
    )
    assert (done.returncode, done.stderr) == (0, b"")
