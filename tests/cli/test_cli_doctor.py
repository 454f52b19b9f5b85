"""Commands that move memories and look after the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_types import Run, Stored

from meritory.cli.app import APP
from meritory.store.sqlite.store import SqliteStore
from places import open_raw

NEW_EMBEDDER = '[embedder]\ndocument_prefix = "passage: "\nkind = "openai"\nmodel = "m"\n'


def test_an_export_comes_back_exactly(run: Run, stored: Stored, tmp_path: Path) -> None:
    memory_id = stored("naïve café ☕", "--project", "p", "--tag", "x")
    run("edit", memory_id, "--pin")
    file = tmp_path / "out.jsonl"
    done = run("export", str(file))
    assert (done.code, done.out) == (0, f"exported 1 memories to {file}\n")
    before = run("history", memory_id, "--json").object
    done = run("import", str(file), "--home", str(tmp_path / "second"), "--json")
    assert done.object["outcomes"] == {"stored": 1}
    assert run("--home", str(tmp_path / "second"), "history", memory_id, "--json").object == before


def test_export_to_stdout_is_the_same_text(run: Run, stored: Stored, tmp_path: Path) -> None:
    stored("naïve café ☕")
    run("export", str(tmp_path / "out.jsonl"))
    lines = run("export", "-").out.splitlines()
    assert lines[1:] == (tmp_path / "out.jsonl").read_text("utf-8").splitlines()[1:]
    done = run("export", "-", "--json")
    assert done.code == 2
    assert done.object["error"]["code"] == "invalid_input"


def test_export_never_overwrites(run: Run, tmp_path: Path) -> None:
    for target in (str(tmp_path), "/dev/null", str(tmp_path / "no" / "x")):
        done = run("export", target)
        assert done.code == 2
        assert "hint:" in done.err


def test_import_reports_outcomes_and_the_first_problems(run: Run, tmp_path: Path) -> None:
    bad = ["{", "[1]", '{"content": ""}', '{"content": "x", "kindd": "fact"}']
    lines = ['{"content": "The port is 5432"}', '"Tea, not coffee"', *bad, *(["nonsense"] * 9)]
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(lines), "utf-8")
    done = run("import", str(file), "--project", "p")
    assert done.code == 1
    assert "read 15 lines: 2 stored, 13 refused" in done.out
    assert "line 3: not a line of JSON" in done.out
    assert "line 6: unknown field 'kindd' (did you mean 'kind'?)" in done.out
    assert "and 3 more" in done.out
    assert "The port is 5432" in run("list", "--project", "p").out
    again = run("import", str(file), "--project", "p", "--json")
    assert (again.code, again.object["resumed_at"]) == (1, 0)
    assert again.object["outcomes"] == {"duplicate": 2, "refused": 13}


def test_a_finished_import_can_be_repeated(run: Run, tmp_path: Path) -> None:
    """A line refused for a secret comes in once the policy allows it."""
    file = tmp_path / "in.jsonl"
    file.write_text('"Tea, not coffee"\n"the key is AKIAIOSFODNN7EXAMPLQ"\n', "utf-8")
    done = run("import", str(file), "--json")
    assert (done.code, done.object["outcomes"]) == (1, {"stored": 1, "refused": 1})
    (tmp_path / "home" / "config.toml").write_text('[secrets]\npolicy = "redact"\n', "utf-8")
    done = run("import", str(file))
    assert (done.code, done.out) == (0, "read 2 lines: 1 duplicate, 1 stored\n")


def test_lines_that_are_kept_come_in_once(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('"Tea, not coffee"\n', "utf-8")
    run("import", str(file), "--keep")
    done = run("import", str(file), "--keep", "--json")
    assert (done.code, done.object["line_count"]) == (0, 0)
    assert "already imported with --keep" in done.object["notes"][0]
    assert run("stats", "--json").object["live"] == 1
    assert run("import", str(file), "--json").object["outcomes"] == {"duplicate": 1}


def test_an_export_tells_of_damaged_memories(run: Run, stored: Stored, tmp_path: Path) -> None:
    stored("Tea, not coffee")
    stored("The port is 5432")
    with open_raw(tmp_path / "home" / "meritory.db") as raw:
        raw.execute("UPDATE memories SET kind = 'rumour' WHERE content LIKE 'Tea%'")
    raw.close()
    done = run("export", str(tmp_path / "out.jsonl"), "--json")
    assert (done.code, done.object["memory_count"]) == (0, 1)
    assert "1 memory is damaged and not exported" in done.object["notes"][0]
    done = run("export", "-")
    assert done.code == 0
    assert "5432" in done.out
    assert "Tea" not in done.out
    assert "1 memory is damaged and not exported" in done.err


def test_an_import_goes_on_where_it_stopped(run: Run, tmp_path: Path) -> None:
    """The note of an interrupted run is planted as the store itself would leave it."""
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(f"claim number {n}") + "\n" for n in range(8)), "utf-8")
    run("import", str(file), "--keep")
    with open_raw(tmp_path / "home" / "meritory.db") as raw:
        raw.execute("UPDATE imports SET line_count = 5")
    raw.close()
    done = run("import", str(file), "--keep")
    assert "resumed after line 5, where it was interrupted" in done.out
    assert "read 8 lines: 3" in done.out


@pytest.mark.parametrize("name", ["missing.jsonl", "", ".", "/dev/zero", "/dev/null", "-"])
def test_import_refuses_what_is_no_file(run: Run, name: str) -> None:
    done = run("import", name)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert "hint:" in done.err


def test_an_empty_file_holds_nothing_to_import(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").touch()
    assert "has no lines" in run("import", str(tmp_path / "in.jsonl")).err


def test_backup_and_restore_bring_the_past_back(run: Run, stored: Stored, home: Path) -> None:
    stored("before the backup")
    made = run("backup", "--json").object
    assert Path(made["file"]).parent == home / "backups"
    assert Path(made["file"]).stat().st_mode & 0o777 == 0o600
    assert made["size_bytes"] == Path(made["file"]).stat().st_size
    stored("after the backup, quite different")
    assert run("restore", made["file"], stdin="n\n").code == 1
    assert len(run("list", "--json").object["results"]) == 2
    done = run("restore", made["file"], stdin="y\n")
    assert done.code == 0
    assert "the former files are in " in done.out
    aside = Path(done.out.split("the former files are in ")[1].strip())
    assert (aside / "meritory.db").is_file()
    listed = run("list", "--json").object["results"]
    assert [record["content"] for record in listed] == ["before the backup"]


def test_backup_refuses_to_overwrite_and_restore_refuses_nonsense(
    run: Run, stored: Stored, tmp_path: Path
) -> None:
    stored("kept")
    text = tmp_path / "note.txt"
    text.write_text("not a database, but long enough to be taken for one" * 50)
    assert run("backup", str(text)).code == 2
    assert run("backup", str(tmp_path / "no" / "x.db")).code == 2
    assert run("restore", str(text), "--yes").code == 1
    for name in ("missing.db", str(tmp_path), "/dev/zero"):
        assert run("restore", name, "--yes").code == 2
    assert "kept" in run("list").out


def test_restore_refuses_while_the_store_is_in_use(run: Run, stored: Stored, home: Path) -> None:
    stored("kept")
    file = run("backup", "--json").object["file"]
    holder = SqliteStore(home / "meritory.db")
    try:
        done = run("restore", file, "--yes", "--json")
    finally:
        holder.close()
    assert (done.code, done.object["error"]["code"]) == (1, "busy")


def test_reembed_says_that_all_is_there(run: Run, stored: Stored) -> None:
    stored("one claim")
    done = run("reembed", "--json").object
    assert (done["complete"], done["memory_count"]) == (True, 1)
    assert "all 1 memories have vectors" in run("reembed").out


def test_reembed_with_the_embedder_off_has_nothing_to_do(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_EMBEDDER_KIND", "none")
    assert "the embedder is off" in run("reembed").out


def test_vectors_are_made_up_for_when_the_embedder_is_switched_on(
    run: Run, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_EMBEDDER_KIND", "none")
    stored("The staging database is called heron")
    monkeypatch.delenv("MERITORY_EMBEDDER_KIND")
    assert "run `meritory reembed`" in run("list").err
    assert run("reembed").code == 0
    assert run("list").err == ""


def test_a_changed_embedder_is_said_on_one_line_and_all_keeps_working(
    run: Run, stored: Stored, home: Path
) -> None:
    memory_id = stored("The staging database is called heron")
    # A server that is not there: what the old vectors answer must still be answered.
    (home / "config.toml").write_text(NEW_EMBEDDER + 'url = "http://127.0.0.1:9/v1"\n')
    for command in (["list"], ["show", memory_id], ["stats"], ["history", memory_id]):
        done = run(*command)
        assert done.code == 0
        assert done.err.splitlines() == [
            "the embedder was changed and vectors are missing; run `meritory reembed`"
        ]
    found = run("recall", "staging database")
    assert (found.code, memory_id in found.out) == (0, True)
    assert "the embedder could not be reached" in found.err
    failed = run("reembed")
    assert failed.code == 1
    assert "hint:" in failed.err


def test_doctor_finds_a_new_folder_well_and_changes_nothing(run: Run, home: Path) -> None:
    done = run("doctor")
    assert done.code == 0
    assert not home.exists()
    assert "fail" not in done.out


def test_doctor_finds_a_used_store_well(run: Run, stored: Stored) -> None:
    stored("one claim")
    run("backup")
    report = run("doctor", "--deep", "--json").object
    assert report["status"] == "ok"
    checked = [check["id"] for check in report["results"]]
    for name in ("settings", "python", "sqlite", "data folder", "disk", "store", "schema"):
        assert name in checked
    for name in ("contents, all rows", "embedder", "vectors", "write-ahead log", "backup"):
        assert name in checked


def test_doctor_names_a_damaged_row(run: Run, stored: Stored, home: Path) -> None:
    memory_id = stored("The port is 5432")
    with open_raw(home / "meritory.db") as raw:
        raw.execute("UPDATE memories SET importance = 0.123")
    raw.close()
    assert run("doctor").code == 0
    done = run("doctor", "--deep")
    assert done.code == 1
    assert memory_id in done.out
    assert "meritory restore" in done.out
    assert run("show", memory_id, "--json").object["error"]["code"] == "corrupt"


def test_doctor_repairs_after_a_copy_and_a_question(run: Run, stored: Stored, home: Path) -> None:
    stored("The port is 5432")
    stored("Tea, not coffee")
    assert run("doctor", "--repair").out.startswith("there is nothing to repair")
    with open_raw(home / "meritory.db") as raw:
        (old,) = raw.execute("SELECT checksum FROM memory_stats WHERE row = 2").fetchone()
        raw.create_function("row_checksum", -1, lambda *_: old, deterministic=True)
        raw.execute("UPDATE memory_stats SET access_count = 64 WHERE row = 2")
        raw.execute("DELETE FROM memories_fts_docsize WHERE id = 1")
    raw.close()
    done = run("doctor", "--deep")
    assert done.code == 1
    assert "memory_stats: 1 row with a wrong checksum: row 2" in " ".join(done.out.split())
    assert run("doctor", "--deep", "--repair", stdin="n\n").code == 1
    assert not (home / "backups").exists()
    done = run("doctor", "--deep", "--repair", "--yes", "--json")
    assert (done.code, done.object["status"]) == (0, "ok")
    copied, *repairs = done.object["repairs"]
    (copy,) = (home / "backups").iterdir()
    assert copied == f"damaged store copied to {copy}"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert "rows restored in which one byte had changed: 1" in repairs
    with open_raw(home / "meritory.db") as raw:
        counts = raw.execute("SELECT access_count FROM memory_stats").fetchall()
    raw.close()
    assert counts == [(0,), (0,)]
    # A copy of damage is no backup.
    (found,) = (check for check in done.object["results"] if check["id"] == "backup")
    assert found["detail"] == "none yet"


def test_doctor_says_what_a_repair_leaves(run: Run, stored: Stored, home: Path) -> None:
    memory_id = stored("The port is 5432")
    with open_raw(home / "meritory.db") as raw:
        raw.execute("UPDATE memories SET content = 'another text'")
    raw.close()
    done = run("doctor", "--deep", "--repair", "--yes")
    assert done.code == 1
    assert "full-text index rebuilt" in done.out
    assert memory_id in done.out
    assert "meritory restore" in done.out


def test_no_repair_while_the_store_is_in_use(run: Run, stored: Stored, home: Path) -> None:
    stored("The port is 5432")
    with open_raw(home / "meritory.db") as raw:
        raw.execute("UPDATE memories SET content = 'another text'")
    raw.close()
    store = SqliteStore(home / "meritory.db")
    done = run("doctor", "--repair", "--yes")
    store.close()
    assert done.code != 0
    assert "in use by another process" in done.err
    assert not (home / "backups").exists()


def test_doctor_fails_when_the_store_cannot_be_opened(run: Run, home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "meritory.db").symlink_to(tmp_path / "unmounted" / "meritory.db")
    assert run("list").code != 0
    done = run("doctor", "--json")
    assert done.code == 1
    (found,) = (check for check in done.object["results"] if check["id"] == "store")
    assert found["status"] == "fail"
    assert "there is no folder" in found["detail"]
    # A link to a place where the first memory can create it is well.
    (tmp_path / "unmounted").mkdir()
    assert run("doctor").code == 0


def test_doctor_fails_when_the_data_folder_is_a_link_to_nothing(
    run: Run, home: Path, tmp_path: Path
) -> None:
    home.symlink_to(tmp_path / "unmounted")
    assert run("list").code != 0
    assert run("doctor").code == 1


def test_doctor_warns_of_a_token_that_is_sent_for_all_to_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERITORY_TOKEN", "meritory_a_b_c")
    for url, told in (("http://memory.example", "no TLS"), ("https://127.0.0.1:1", "127.0.0.1:1")):
        monkeypatch.setenv("MERITORY_URL", url)
        done = run("doctor", "--json")
        (found,) = (check for check in done.object["results"] if check["id"] == "elsewhere")
        # One that nobody else can read is tried, and this one is not there.
        assert found["status"] == ("warn" if told == "no TLS" else "fail")
        assert told in found["detail"]
        assert "meritory_a_b_c" not in done.out


def test_doctor_works_when_nothing_else_does(run: Run, home: Path) -> None:
    home.mkdir(mode=0o755)
    (home / "config.toml").write_text("[retention]\ntranscript_dayss = 3\n")
    (home / "meritory.db").write_text("garbage" * 1000)
    assert run("list").code == 2
    done = run("doctor", "--json")
    assert done.code == 1
    states = {check["id"]: check for check in done.object["results"]}
    assert states["settings"]["status"] == "fail"
    assert "did you mean retention.transcript_days?" in states["settings"]["hint"]
    assert states["data folder"]["status"] == "warn"
    assert states["store"]["status"] == "fail"
    assert run("doctor", "--deeep").code == 2


def test_a_folder_that_was_open_is_closed_and_that_is_said(run: Run, home: Path) -> None:
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    done = run("remember", "a claim")
    assert done.code == 0
    assert "it is private now" in done.err
    assert home.stat().st_mode & 0o777 == 0o700


def test_config_show_says_where_values_come_from_and_masks_secrets(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[retention]\ntranscript_days = 7\n")
    monkeypatch.setenv("MERITORY_EMBEDDER_API_KEY", "sk-very-private")
    done = run("config", "show", "--user", "ann", "--store", "here.db")
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line}
    assert rows["retention.transcript_days"] == ["7", "config.toml"]
    assert rows["user"] == ["ann", "flag"]
    assert rows["embedder.api_key"] == ["********", "MERITORY_EMBEDDER_API_KEY"]
    assert rows["gate.enabled"] == ["true", "default"]
    assert rows["store.path"] == [str(Path("here.db").absolute()), "flag"]
    plain = run("config", "show", "--json")
    assert "very-private" not in plain.out + done.out
    values = {item["id"]: item["value"] for item in plain.object["results"]}
    assert (values["retention.transcript_days"], values["gate.threshold"]) == (7, None)


def test_config_path_helps_even_when_the_file_is_broken(run: Run, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("nonsense")
    assert run("config", "path").out == f"{home / 'config.toml'}\n"
    broken = run("config", "show")
    assert broken.code == 2
    assert "not valid TOML" in broken.err
    assert run("config", "pathh").code == 2
    assert run("config", "--help").code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(run: Run, shell: str) -> None:
    done = run("completion", shell)
    assert done.code == 0
    assert "_MERITORY_COMPLETE" in done.out
    assert run("completion", shell, "--json").object == {"shell": shell, "script": done.out[:-1]}


def test_completion_knows_three_shells_only(run: Run) -> None:
    assert run("completion", "tcsh").code == 2
    assert "~/.bashrc" in run("completion", "--help").out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("meritory rec", {"recall"}),
        ("meritory remember --ki", {"--kind"}),
        ("meritory remember x --kind pre", {"preference"}),
        ("meritory list --kind le", {"lesson"}),
        ("meritory completion f", {"fish"}),
        ("meritory config ", {"show", "path"}),
        ("meritory edit x --clear va", {"valid-from", "valid-until"}),
        ("meritory --js", {"--json"}),
    ],
)
def test_the_shell_is_offered_commands_options_and_choices(typed: str, offered: set[str]) -> None:
    from click.shell_completion import BashComplete

    *arguments, incomplete = typed.split(" ")[1:]
    found = BashComplete(APP, {}, "meritory", "_MERITORY_COMPLETE").get_completions(
        arguments, incomplete
    )
    assert {item.value for item in found} == offered


def test_a_purge_names_the_copies_it_cannot_reach(run: Run, stored: Stored) -> None:
    memory_id = stored("a passing thought")
    assert run("backup").code == 0
    done = run("forget", memory_id, "--purge", "--yes")
    assert "may still contain it" in done.err
