"""Telemetry, import of other formats and export as notes, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_types import Run


def test_telemetry_on_show_export_off(run: Run, home: Path, tmp_path: Path) -> None:
    shown = run("telemetry", "--json")
    assert (shown.code, shown.object["training_data_opt_in"]) == (0, None)
    assert "not answered" in run("telemetry").out
    assert run("telemetry", "on", "--json").object == {"training_data_opt_in": True}
    (home / "telemetry.jsonl").write_text('{"line_version":1}\n', "utf-8")
    done = run("telemetry", "show", "--json")
    assert done.object["training_data_opt_in"] is True
    assert (done.object["line_count"], done.object["example"]) == (1, '{"line_version":1}')
    assert "nothing is sent anywhere" in run("telemetry", "show").out
    target = tmp_path / "numbers.jsonl"
    assert run("telemetry", "export", str(target), "--json").object["line_count"] == 1
    assert target.read_text("utf-8") == '{"line_version":1}\n'
    assert run("telemetry", "export", str(target)).code == 2
    assert "still in" in run("telemetry", "off").err
    done = run("telemetry", "off", "--erase", "--json")
    assert done.object == {"training_data_opt_in": False, "erased": 1}
    assert not (home / "telemetry.jsonl").exists()
    assert run("telemetry", "--json").object["training_data_opt_in"] is False


def test_connect_asks_once_on_a_terminal(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))

    def answer() -> object:
        return run("telemetry", "--json").object["training_data_opt_in"]

    connect = ("connect", "claude-code")
    asks = "Keep telemetry: numbers only"
    # No question without a terminal, or with an option that forbids questions.
    assert asks not in run(*connect, stdin="y\n").err
    monkeypatch.setattr("meritory.cli.connect.is_terminal", lambda stream: True)
    for flag in ("--yes", "--dry-run", "--json"):
        assert asks not in run(*connect, flag).err
    monkeypatch.setenv("MERITORY_URL", "http://elsewhere:1")
    assert asks not in run(*connect).err
    monkeypatch.delenv("MERITORY_URL")
    # Ctrl-D leaves the question open.
    left = run(*connect, stdin="")
    assert (left.code, asks in left.err, answer()) == (0, True, None)
    said = run(*connect, stdin="y\n")
    assert (said.code, asks in said.err, answer()) == (0, True, True)
    assert run("telemetry", "--json").object["last_prompted_at"] is not None
    run("telemetry", "off")
    assert asks not in run(*connect, stdin="y\n").err
    assert answer() is False


def test_import_says_what_it_recognised(run: Run, tmp_path: Path) -> None:
    project = tmp_path / "heron"
    (project / ".git").mkdir(parents=True)
    file = project / "CLAUDE.md"
    file.write_text("@more.md\n\n- Never push to main\n- The queue is egret\n", "utf-8")
    dry = run("import", str(file), "--dry-run", "--json")
    assert (dry.code, dry.object["format"], dry.object["project"]) == (0, "markdown", "heron")
    assert dry.object["outcomes"] == {"skipped": 1, "new": 2}
    assert [one["content"] for one in dry.object["samples"]][1] == "The queue is egret"
    assert run("list", "--project", "heron", "--json").object["results"] == []
    done = run("import", str(file))
    assert done.code == 0
    assert "recognised markdown: a Markdown file" in done.err
    assert "its project is heron" in done.err
    assert "read 3 entries: 1 skipped, 2 stored" in done.out
    assert "CLAUDE.md:1: @more.md is not followed" in done.out
    assert len(run("list", "--project", "heron", "--json").object["results"]) == 2
    again = run("import", str(project), "--project", "heron", "--json")
    assert again.object["outcomes"] == {"skipped": 1, "duplicate": 2}


def test_import_of_several_peoples_memories_asks_whose(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    rows = [
        {"memory": f"Likes {what}", "user_id": who} for who, what in (("a", "tea"), ("b", "rum"))
    ]
    file.write_text(json.dumps({"results": rows}), "utf-8")
    done = run("import", str(file), "--json")
    assert (done.code, done.object["error"]["code"]) == (2, "invalid_input")
    done = run("import", str(file), "--only-user", "b", "--json")
    assert (done.code, done.object["outcomes"]) == (0, {"skipped": 1, "stored": 1})


def test_a_wrong_format_is_refused_with_a_hint(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("- a\n", "utf-8")
    done = run("import", str(tmp_path / "notes.md"), "--from", "claude-mem")
    assert done.code == 2
    assert "try --from markdown" in done.err
    assert run("import", str(tmp_path / "nowhere")).code == 2
    assert run("import", str(tmp_path), "--from", "basic-memory").code == 2


def test_export_as_notes(run: Run, tmp_path: Path) -> None:
    run("remember", "The queue is egret\nand has two workers", "--tag", "infra")
    run("remember", "Prefers tea", "--kind", "preference", "--project", "a/b")
    run("remember", "Prefers rum", "--kind", "preference", "--project", "a b")
    folder = tmp_path / "notes"
    done = run("export", str(folder), "--format", "markdown", "--json")
    assert (done.code, done.object["memory_count"], done.object["file_count"]) == (0, 3, 3)
    assert {file.name for file in folder.iterdir()} == {"everywhere.md", "a-b.md", "a-b-2.md"}
    text = (folder / "everywhere.md").read_text("utf-8")
    assert text.startswith(
        "# Everywhere\n\n## Facts\n\n- The queue is egret\n  and has two workers ("
    )
    assert "#infra" in text
    assert (folder / "a-b-2.md").stat().st_mode & 0o777 == 0o600
    assert run("export", str(folder), "--format", "markdown").code == 2
