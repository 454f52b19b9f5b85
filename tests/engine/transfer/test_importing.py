"""Import from other programs: what each format becomes, that nothing of it is touched or lost."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from import_kit import (
    AT,
    AT_MS,
    Bomb,
    PointStruct,
    claude_mem,
    directive,
    insert,
    mem0_history,
    observation,
    qdrant,
    summary,
)

from meritory import InputError, Memory
from meritory.domain.memory import MemoryRecord
from meritory.engine.transfer import entries, markdown
from meritory.engine.transfer.export import write_export
from meritory.engine.transfer.import_ import (
    READERS,
    ImportOptions,
    ImportReport,
    import_found,
    recognise,
)
from meritory.store.sqlite.store import SqliteStore
from places import Places

WHEN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def no_progress(done: int, total: int) -> None:
    """Ignores the progress of an import."""


def bring_in(memory: Memory, path: Path, form: str = "auto", **how: Any) -> ImportReport:
    found = recognise(path, form)
    return import_found(
        memory.services, memory.scope, found, ImportOptions(**how), lambda done, total: None
    )


def held(memory: Memory) -> dict[str, MemoryRecord]:
    return {record.content: record for record in memory.services.store.walk("default")}


def state(memory: Memory) -> dict[str, MemoryRecord]:
    return {record.id: record for record in memory.services.store.walk("default")}


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


# -- claude-mem -------------------------------------------------------------------------------


def test_claude_mem_observations_summaries_and_directives(memory: Memory, tmp_path: Path) -> None:
    rows = [
        ("observations", observation()),
        ("observations", observation(type="decision", title="TLS", facts=None, narrative="Why")),
        ("observations", observation(title=None, facts=None, narrative=None)),
        ("observations", observation(title="Old", merged_into_project="egret", facts="[broken")),
        ("session_summaries", summary()),
        ("directives", directive("Never push to main")),
        ("directives", directive("Use CVS", status="retired")),
    ]
    (tmp_path / "in").mkdir()
    path = claude_mem(tmp_path / "in" / "claude-mem.db", rows)
    before = hashes(tmp_path / "in")
    report = bring_in(memory, path)
    assert dict(report.outcomes) == {"stored": 5, "refused": 1, "skipped": 1}
    assert sorted(report.problems) == [
        (3, "observations 3: the row has no text"),
        (7, "directives 2: it is not active"),
    ]
    assert hashes(tmp_path / "in") == before
    found = held(memory)
    ports = found["Ports of the services: The gateway listens on 8443; Metrics are on 9100"]
    assert (ports.kind, ports.project, ports.created_at) == ("fact", "heron", WHEN)
    assert (ports.provenance, ports.origin, ports.trust) == (
        "assistant_derived",
        "import",
        "trusted",
    )
    assert ports.tags == ("discovery", "how-it-works")
    assert ports.source is not None
    assert (ports.source.harness, ports.source.session_key) == ("import/claude-mem", "s-1")
    assert found["TLS: Why"].kind == "decision"
    assert found["Old: [broken"].project == "egret"
    told = found["Asked: Move the gateway to TLS\nLearned: The certificate is renewed by cron"]
    assert (told.kind, told.provenance) == ("episode", "episode_summary")
    push = found["Never push to main"]
    assert (push.provenance, push.project, push.tags) == (
        "user_stated",
        None,
        ("proposed:constraint",),
    )


def test_nothing_of_a_long_row_is_lost(memory: Memory, tmp_path: Path) -> None:
    sentences = [f"Rule {n} is about the {n}th of all the cases." for n in range(400)]
    rows = [("directives", directive(" ".join(sentences)))]
    report = bring_in(memory, claude_mem(tmp_path / "claude-mem.db", rows), on_similar="keep")
    assert report.outcomes == {"stored": 3}
    told = " ".join(held(memory))
    assert all(one in told for one in sentences)


def test_what_is_still_in_the_log_is_read_and_nothing_is_written(
    memory: Memory, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = claude_mem(folder / "claude-mem.db", [("observations", observation())])
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA wal_autocheckpoint = 0")
        with raw:
            insert(raw, "observations", observation(title="Late", facts=None))
        before = hashes(folder)
        report = bring_in(memory, folder)
        after = hashes(folder)
    assert before == after
    assert dict(report.outcomes) == {"stored": 2}
    assert "Late: A long story about ports." in held(memory)


def test_an_old_schema_and_times_in_milliseconds(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(
            "CREATE TABLE observations (id INTEGER PRIMARY KEY, sdk_session_id TEXT, project TEXT,"
            " title TEXT, text TEXT, type TEXT, created_at TEXT, created_at_epoch INTEGER)"
        )
        row = {"project": "p", "title": "A", "text": "b", "created_at": "?"}
        insert(raw, "observations", row | {"created_at_epoch": AT_MS})
    assert dict(bring_in(memory, path).outcomes) == {"stored": 1}
    assert held(memory)["A: b"].created_at == WHEN


# -- mem0 -------------------------------------------------------------------------------------


def mem0_memory(**fields: Any) -> dict[str, Any]:
    return {
        "id": "6f5e",
        "memory": "Name is Ada and she likes tea",
        "hash": "x",
        "metadata": {"category": "food"},
        "created_at": AT,
        "updated_at": "2026-04-01T00:00:00-07:00",
        "user_id": "ada",
        **fields,
    }


@pytest.mark.parametrize("shape", ["results", "list", "lines", "indented"])
def test_mem0_json_in_every_shape(memory: Memory, tmp_path: Path, shape: str) -> None:
    rows = [
        mem0_memory(),
        mem0_memory(memory="Works on Mondays", role="user", agent_id="helper", run_id="r1"),
        mem0_memory(memory="Lease ends soon", expiration_date="2027-01-01"),
        mem0_memory(memory=None),
    ]
    whole = {"results": rows, "relations": []}
    texts = {
        "results": json.dumps(whole),
        "list": json.dumps(rows),
        "lines": "\n".join(map(json.dumps, rows)),
        "indented": json.dumps(whole, indent=2),
    }
    path = tmp_path / "mem0.json"
    path.write_text(texts[shape], "utf-8")
    assert recognise(path).form == "mem0"
    report = bring_in(memory, path)
    assert dict(report.outcomes) == {"stored": 3, "refused": 1}
    assert report.problems[0][1].startswith("memory 4: no text")
    found = held(memory)
    tea = found["Name is Ada and she likes tea"]
    assert (tea.provenance, tea.created_at, tea.tags) == ("assistant_derived", WHEN, ("food",))
    assert tea.valid_from == datetime(2026, 4, 1, 7, tzinfo=UTC)
    days = found["Works on Mondays"]
    assert (days.provenance, days.agent) == ("user_stated", "helper")
    assert days.source is not None
    assert (days.source.session_key, days.source.turn) == ("r1", "6f5e")
    assert found["Lease ends soon"].valid_until == datetime(2027, 1, 1, tzinfo=UTC)


def test_memories_of_several_people_are_not_mixed(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    rows = [mem0_memory(), mem0_memory(user_id="bob", memory="Bob's secret garden")]
    path.write_text(json.dumps({"results": rows}), "utf-8")
    with pytest.raises(InputError, match=r"2 users.*--only-user: ada, bob"):
        bring_in(memory, path)
    assert held(memory) == {}
    found = replace(recognise(path), only_user="ada")
    report = import_found(
        memory.services, memory.scope, found, ImportOptions(), lambda done, total: None
    )
    assert dict(report.outcomes) == {"skipped": 1, "stored": 1}
    assert list(held(memory)) == ["Name is Ada and she likes tea"]
    with pytest.raises(InputError, match="no memories of 'eve'"):
        import_found(
            memory.services,
            memory.scope,
            replace(found, only_user="eve"),
            ImportOptions(),
            lambda done, total: None,
        )


def test_memories_of_several_people_in_several_collections_are_not_mixed(
    memory: Memory, tmp_path: Path
) -> None:
    for name in ("alice", "bob"):
        point = PointStruct({"data": f"{name} has a secret garden", "user_id": name})
        qdrant(tmp_path / "all" / name, [point])
    with pytest.raises(InputError, match="2 users"):
        bring_in(memory, tmp_path / "all")
    found = replace(recognise(tmp_path / "all"), only_user="bob")
    import_found(memory.services, memory.scope, found, ImportOptions(), no_progress)
    assert list(held(memory)) == ["bob has a secret garden"]


def test_whose_memories_can_only_be_chosen_where_that_is_told(
    memory: Memory, tmp_path: Path
) -> None:
    path = tmp_path / "CLAUDE.md"
    path.write_text("- Use tabs in all of the files\n")
    found = replace(recognise(path), only_user="bob")
    with pytest.raises(InputError, match="does not name the user"):
        import_found(
            memory.services, memory.scope, found, ImportOptions(), lambda done, total: None
        )
    assert held(memory) == {}


def test_a_number_that_nobody_can_write_out_names_nothing(memory: Memory, tmp_path: Path) -> None:
    point = PointStruct({"data": "The lease ends in May", "user_id": 10**5_000, "id": 10**5_000})
    bring_in(memory, qdrant(tmp_path / "all", [point]))
    (record,) = held(memory).values()
    assert record.sources[0].turn == "point 1"


def test_mem0_history_gives_the_latest_text_of_what_was_not_deleted(
    memory: Memory, tmp_path: Path
) -> None:
    rows = [
        ("a", "Likes tea", "ADD"),
        ("b", "Has a cat", "ADD"),
        ("a", "Likes green tea", "UPDATE"),
        ("b", None, "DELETE"),
    ]
    report = bring_in(memory, mem0_history(tmp_path / "history.db", rows))
    assert dict(report.outcomes) == {"stored": 1}
    assert list(held(memory)) == ["Likes green tea"]


def test_a_local_collection_is_read_without_running_anything(
    memory: Memory, tmp_path: Path
) -> None:
    target = tmp_path / "made-by-a-pickle"
    payload = {"data": "Prefers dark mode", "user_id": "ada", "created_at": AT, "hash": "x"}
    folder = qdrant(tmp_path / "qdrant", [PointStruct(payload), Bomb(target), b"\x80garbage"])
    report = bring_in(memory, folder)
    assert dict(report.outcomes) == {"stored": 1, "refused": 2}
    assert not target.exists()
    assert held(memory)["Prefers dark mode"].created_at == WHEN


# -- basic-memory -----------------------------------------------------------------------------

NOTE = """---
title: Coffee/Tea Brewing
type: note
tags: [coffee, brewing]
permalink: coffee-brewing
created: 2026-03-04T05:06:07Z
---

# Coffee Brewing

Pour over is what we use in the office.

## Observations
- [method] Pour over gives more clarity #brewing
- [preference] Light roasts (own experience)
- [ ] buy filters
- [link](https://example.org) is no observation

## Relations
- depends_on [[Grinder]]
- contrasts_with [[Espresso|the other one]] (at work)
- relates_to [[Tea]]
"""


def test_a_note_may_begin_with_a_byte_order_mark(memory: Memory, tmp_path: Path) -> None:
    note = tmp_path / "plain.md"
    note.write_text("---\npermalink: tea\ntitle: Tea\n---\nJust a line.\n", "utf-8-sig")
    assert recognise(note).form == "basic-memory"
    assert bring_in(memory, note).problems == []
    assert list(held(memory)) == ["Tea: Just a line."]


def test_basic_memory_notes(memory: Memory, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    (vault / "deep").mkdir(parents=True)
    (vault / "deep" / "coffee.md").write_text(NOTE, "utf-8")
    (vault / "plain.md").write_text("Just a line.", "utf-8")
    before = hashes(vault)
    report = bring_in(memory, vault)
    assert report.problems == []
    assert hashes(vault) == before
    found = held(memory)
    title = "Coffee/Tea Brewing"
    method = found[f"{title}: Pour over gives more clarity"]
    assert method.kind == "procedure"
    assert method.tags == ("brewing", "method", "coffee")
    assert (method.provenance, method.created_at) == ("assistant_derived", WHEN)
    assert found[f"{title}: Light roasts (own experience)"].kind == "preference"
    assert f"{title} contrasts with Espresso (at work)" in found
    assert f"{title}: Pour over is what we use in the office." in found
    assert "plain: Just a line." in found
    assert not [text for text in found if "relates to" in text]
    described = memory.services.store.dependencies("default")
    assert [(one.name, other.name) for one, other in described] == [
        ("coffee tea brewing", "grinder")
    ]


# -- Markdown ---------------------------------------------------------------------------------

CLAUDE = """# CLAUDE.md

@docs/style.md

## Commands
- Run tests:
  ```sh
  make test
  ```
- Run `make lint`
  before every commit

## Rules > People
Never commit to main.

We rely on these services:
- heron: the database
- egret: the queue
    - with two workers

1. Build it
2. Ship it

<!-- a hidden
remark -->
"""


def test_an_instruction_file_becomes_claims_that_stand_alone(
    memory: Memory, tmp_path: Path
) -> None:
    path = tmp_path / "CLAUDE.md"
    path.write_text(CLAUDE, "utf-8")
    os.utime(path, (WHEN.timestamp(), WHEN.timestamp()))
    report = bring_in(memory, path)
    assert dict(report.outcomes) == {"skipped": 1, "stored": 6}
    assert report.problems == [
        (1, "CLAUDE.md:3: @docs/style.md is not followed; import that file separately")
    ]
    found = held(memory)
    assert set(found) == {
        "Commands: Run tests:\n```sh\nmake test\n```",
        "Commands: Run `make lint`\nbefore every commit",
        "Rules > People: Never commit to main.",
        "Rules > People > We rely on these services: heron: the database",
        "Rules > People > We rely on these services: egret: the queue\n  - with two workers",
        "Rules > People: 1. Build it\n2. Ship it",
    }
    rule = found["Rules > People: Never commit to main."]
    assert (rule.provenance, rule.tags) == ("user_stated", ("proposed:constraint",))
    assert rule.created_at == WHEN
    assert found["Commands: Run `make lint`\nbefore every commit"].kind == "procedure"
    assert path.read_text("utf-8") == CLAUDE


def test_what_agents_wrote_for_themselves_is_no_persons_word(
    memory: Memory, tmp_path: Path
) -> None:
    (tmp_path / "MEMORY.md").write_text("- The build needs JDK 21\n", "utf-8")
    bring_in(memory, tmp_path / "MEMORY.md")
    assert held(memory)["The build needs JDK 21"].provenance == "assistant_derived"


def test_a_folder_gives_its_known_files_and_follows_no_link(memory: Memory, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "AGENTS.md").write_text("- from outside\n", "utf-8")
    project = tmp_path / "project"
    (project / ".cursor" / "rules").mkdir(parents=True)
    (project / ".cursor" / "rules" / "go.mdc").write_text("---\nglobs: x\n---\n- Use go 1.22\n")
    (project / "AGENTS.md").write_text("- Deploys run on Fridays\n", "utf-8")
    (project / "README.md").write_text("- nobody's memory\n", "utf-8")
    (project / "docs").symlink_to(outside)
    (project / "CLAUDE.md").symlink_to(outside / "AGENTS.md")
    found = recognise(project)
    assert found.remarks == ("2 links are not followed",)
    bring_in(memory, project)
    assert set(held(memory)) == {"Deploys run on Fridays", "Use go 1.22"}


def test_a_table_is_read_by_its_rows(memory: Memory, tmp_path: Path) -> None:
    table = "## Tools\n\n| tool | for |\n|---|:--|\n| `make ship` | deploys |\n| `make lint` | |\n"
    (tmp_path / "AGENTS.md").write_text(table, "utf-8")
    bring_in(memory, tmp_path / "AGENTS.md")
    assert set(held(memory)) == {
        "Tools: tool: `make ship`; for: deploys",
        "Tools: tool: `make lint`",
    }
    places = [record.source.turn for record in held(memory).values() if record.source]
    assert places == ["AGENTS.md > Tools"] * 2


def test_a_long_code_block_is_left_out_and_said(memory: Memory, tmp_path: Path) -> None:
    code = "\n".join(f"line {n}" for n in range(50))
    (tmp_path / "AGENTS.md").write_text(f"Start with this script\n\n```\n{code}\n```\n", "utf-8")
    bring_in(memory, tmp_path / "AGENTS.md")
    assert list(held(memory)) == ["Start with this script\n(a code block of 50 lines is left out)"]


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("#-*` \n\t>1.:@a[](é<!"), max_size=200))
def test_any_text_is_cut_into_claims_without_losing_words(text: str) -> None:
    found = list(markdown.claims(text))
    assert all(claim.text.strip() for claim in found)
    assert all(len(claim.text) <= markdown.CLAIM_LIMIT_CHARS for claim in found)
    said = "".join(claim.text + "".join(claim.path) for claim in found)
    if not any(mark in text for mark in "<`#=") and "---" not in text:
        assert said.count("é") >= text.count("é")


@pytest.mark.parametrize("start", ["# a", "- ", "- [xx] a", "| a"])
def test_a_long_gap_takes_no_time(start: str, tmp_path: Path) -> None:
    # With patterns that try every place of the gap this takes hours.
    path = tmp_path / "note.md"
    path.write_text(f"{start}{' ' * 50_000}b\n- [fact] the port is 5433 (see the wiki)\n")
    assert any("5433" in one.text for one in markdown.claims(path.read_text()))
    assert any("5433" in str(one.value) for one in READERS["basic-memory"](recognise(path)))


def test_a_long_paragraph_is_cut_at_sentences(memory: Memory, tmp_path: Path) -> None:
    long = " ".join(f"Sentence number {n} is here." for n in range(300))
    (tmp_path / "AGENTS.md").write_text(long, "utf-8")
    bring_in(memory, tmp_path / "AGENTS.md")
    texts = sorted(held(memory), key=long.index)
    assert len(texts) > 3
    assert " ".join(texts) == long
    assert all(text.endswith(".") for text in texts)


# -- all of them ------------------------------------------------------------------------------


def everything(folder: Path) -> list[Path]:
    folder.mkdir()
    path = folder / "mem0.json"
    path.write_text(json.dumps({"results": [mem0_memory(), mem0_memory(memory="Has a dog")]}))
    (folder / "CLAUDE.md").write_text(CLAUDE, "utf-8")
    (folder / "vault").mkdir()
    (folder / "vault" / "coffee.md").write_text(NOTE, "utf-8")
    rows = [("observations", observation()), ("session_summaries", summary())]
    return [
        path,
        folder / "CLAUDE.md",
        folder / "vault",
        claude_mem(folder / "claude-mem.db", rows),
    ]


def test_importing_twice_changes_nothing(memory: Memory, tmp_path: Path) -> None:
    paths = everything(tmp_path / "in")
    for path in paths:
        bring_in(memory, path)
    before = state(memory)
    assert len(before) > 10
    for path in paths:
        report = bring_in(memory, path)
        assert set(report.outcomes) <= {"duplicate", "skipped"}
        assert report.outcomes["duplicate"] > 0
    assert state(memory) == before


def test_what_was_forgotten_stays_forgotten_and_only_what_is_new_comes_in(
    memory: Memory, tmp_path: Path
) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_text("- Lunch is at noon\n- Deploys run on Fridays\n", "utf-8")
    bring_in(memory, path)
    memory.forget(held(memory)["Lunch is at noon"].id)
    path.write_text("- The queue is egret\n\n- Lunch is at noon\n- Deploys run on Fridays\n")
    assert dict(bring_in(memory, path).outcomes) == {"duplicate": 2, "stored": 1}
    assert held(memory)["Lunch is at noon"].deleted_at is not None


def test_a_dry_run_says_what_would_come_and_stores_nothing(memory: Memory, tmp_path: Path) -> None:
    memory.remember("Has a dog")
    secret = "the key is AKIAIOSFODNN7EXAMPLQ"
    path = tmp_path / "mem0.json"
    rows = [mem0_memory(), mem0_memory(memory="Has a dog"), mem0_memory(memory=secret)]
    path.write_text(json.dumps(rows), "utf-8")
    before = state(memory)
    report = bring_in(memory, path, is_dry=True)
    assert dict(report.outcomes) == {"refused": 1, "new": 1, "duplicate": 1}
    assert [draft.content for draft in report.samples] == ["Name is Ada and she likes tea"]
    assert dict(report.kinds) == {"preference": 1}
    assert state(memory) == before
    assert bring_in(memory, path).resumed_at == 0


def test_an_interrupted_import_goes_on(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "BATCH_LIMIT", 2)
    path = tmp_path / "AGENTS.md"
    texts = ["badgers dig", "the moon is far", "tea at four", "lunch at noon", "rain again"]
    path.write_text("".join(f"- {text}\n" for text in texts), "utf-8")

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_found(memory.services, memory.scope, recognise(path), ImportOptions(), stop)
    report = bring_in(memory, path)
    assert report.resumed_at in (2, 4)
    assert {record.content for record in state(memory).values()} == set(texts)


@pytest.mark.parametrize("name", ["a.db", "a.json", "a.md", "a.jsonl", "CLAUDE.md", "storage"])
@settings(max_examples=25, deadline=None)
@given(raw=st.binary(max_size=400))
def test_garbage_gets_a_clear_error_or_problems_with_their_place(
    tmp_path_factory: pytest.TempPathFactory, name: str, raw: bytes
) -> None:
    folder = tmp_path_factory.mktemp("garbage")
    path = folder / name
    starts = {"a.db": b"SQLite format 3\0", "a.json": b'{"results": [', "a.md": b"---\ntitle: "}
    path.write_bytes(starts.get(name, b"") + raw)
    try:
        found = recognise(path)
        if found.form in ("meritory", "jsonl"):
            return
        for entry in READERS[found.form](found):
            assert entry.place
    except InputError as error:
        assert name in str(error)


@pytest.mark.parametrize("cut", [100, 5_000, 9_000])
def test_a_damaged_database_is_said_to_be_damaged(memory: Memory, tmp_path: Path, cut: int) -> None:
    rows = [("observations", observation(title=f"t{n} " * 40)) for n in range(100)]
    path = claude_mem(tmp_path / "claude-mem.db", rows)
    raw = bytearray(path.read_bytes())
    raw[cut : cut + 3_000] = os.urandom(3_000)
    path.write_bytes(raw)
    try:
        report = bring_in(memory, path)
    except InputError as error:
        assert "claude-mem.db" in str(error)
    else:
        assert sum(report.outcomes.values()) == report.line_count


def test_what_cannot_be_imported_is_named(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "meritory.db").close()
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "other.json").write_text('{\n"a": 1}', "utf-8")
    (tmp_path / "x.bin").write_bytes(b"\0\1\2")
    with closing(sqlite3.connect(tmp_path / "other.db")) as raw, raw:
        raw.execute("CREATE TABLE songs (name)")
    for path, match in (
        (empty, "has no files to import"),
        (tmp_path / "none", "cannot be read"),
        (tmp_path / "other.json", "not a list of memories"),
        (tmp_path / "other.db", "its tables: songs"),
        (tmp_path / "meritory.db", "is a store of Meritory"),
        (tmp_path / "x.bin", "neither text nor a database"),
        (Path("/dev/null"), "not a regular file"),
    ):
        with pytest.raises(InputError, match=match):
            recognise(path)
    with pytest.raises(InputError, match="is not claude-mem"):
        recognise(_markdown(tmp_path), "claude-mem")


def _markdown(folder: Path) -> Path:
    path = folder / "notes.md"
    path.write_text("- a\n", "utf-8")
    return path


def test_what_extraction_refused_comes_back_with_an_export(
    memory: Memory, places: Places, tmp_path: Path
) -> None:
    said = [{"role": "user", "text": "Always show me the diff in this PR."}]
    memory.session("run").end(said)
    memory.drain()
    write_export(memory.services, "default", tmp_path / "all.jsonl", lambda done, total: None)
    with places.memory("other.db") as other:
        report = bring_in(other, tmp_path / "all.jsonl")
        assert report.problems == []
        told = memory.services.store.refusals("default", 9)
        assert len(told) == 1 and other.services.store.refusals("default", 9) == told


def test_no_file_passes_for_an_extractor(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    source = {"harness": "other", "extractor": "rules/1"}
    path.write_text(json.dumps({"content": "The port is 5433", "source": source}) + "\n")
    bring_in(memory, path)
    (record,) = held(memory).values()
    assert (record.sources[0].harness, record.sources[0].extractor) == ("other", None)
