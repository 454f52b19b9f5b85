"""Commands that write, find and change memories: each done rightly and each gone wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_types import Run, Stored

NO_ID = "7zzzzzzzzzzz"


def test_what_is_remembered_is_recalled(run: Run) -> None:
    done = run("remember", "The staging database is called heron")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("stored ")
    found = run("recall", "what is the staging database called?")
    assert found.code == 0
    assert found.out.splitlines()[0].split() == ["ID", "SCORE", "AGE", "KIND", "CONTENT"]
    assert "The staging database is called heron" in found.out
    assert done.out.split()[1] in found.out


def test_every_field_of_remember_is_stored(run: Run, stored: Stored) -> None:
    old = stored("The port is 5432", "--project", "heron", "--agent", "smith")
    words = "--kind decision --tag db --tag net --project heron --agent smith --importance 0.9"
    words += " --confidence 0.7 --pin --about db/port --depends-on network --keep"
    words += f" --valid-from 2030-01-01 --valid-until 2031-01-01T00:00+01:00 --supersedes {old}"
    new = run("remember", "The port of the database is 6543", *words.split(), "--json").object
    record = new["memory"]
    assert record["kind"] == "decision"
    assert record["tags"] == ["db", "net"]
    assert (record["project"], record["agent"]) == ("heron", "smith")
    assert (record["importance"], record["confidence"], record["pinned"]) == (0.9, 0.7, True)
    assert record["valid_from"] == "2030-01-01T00:00:00.000000+00:00"
    assert record["valid_until"] == "2030-12-31T23:00:00.000000+00:00"
    assert record["provenance"] == "user_stated"
    assert (new["outcome"], new["other_id"]) == ("superseded", old)
    view = run("describe", "db", "--project", "heron", "--agent", "smith", "--json").object
    assert view["aspects"] == {"port": [new["id"]]}
    assert [other["name"] for other in view["depends_on"]] == ["network"]


def test_the_same_text_twice_is_one_memory(run: Run) -> None:
    first = run("remember", "Tea, not coffee", "--json").object
    second = run("remember", "tea,  not coffee.", "--json").object
    assert (second["outcome"], second["id"]) == ("duplicate", first["id"])
    assert "already stored" in run("remember", "Tea, not coffee").out


def test_text_comes_from_stdin(run: Run) -> None:
    assert run("remember", "-", stdin="über alles\n").code == 0
    assert "über alles" in run("list").out
    done = run("remember", "-", stdin=b"caf\xe9")
    assert done.code == 2
    assert "error: stdin is not UTF-8: invalid byte at position 4" in done.err
    assert run("remember", "-", stdin=b"x" * (1 << 21)).code == 2
    assert "this one is empty" in run("remember", "-", stdin="").err


def test_a_secret_is_refused_with_advice(run: Run) -> None:
    done = run("remember", "the key is AKIA" + "J7QWX2PLM4ZTR6VB")
    assert (done.code, done.out) == (2, "")
    assert "secret" in done.err
    assert "hint:" in done.err
    assert "AKIA" not in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x", "--kind", "fac"], "'fac' is not one of 'fact'"),
        (["x", "--importance", "2"], "0.0<=x<=1.0"),
        (["x", "--importance", "nan"], "importance must be between 0 and 1"),
        (["x", "--valid-from", "yesterday"], "hint: use ISO 8601"),
        (["x", "--depends-on", "y"], "depends_on needs about"),
        (["x", "--supersedes", NO_ID], "no memory"),
        (["x", "--project", ""], "project must be a name"),
        (["x", "--tag", "t" * 65], "a tag must be text"),
        (["- milk"], "put -- before a text that starts with a dash"),
        ([], "Missing argument 'TEXT'"),
    ],
)
def test_a_wrong_remember_says_what_is_wrong(run: Run, arguments: list[str], said: str) -> None:
    done = run("remember", *arguments)
    assert done.code == (1 if NO_ID in arguments else 2)
    assert done.err.startswith("error: ")
    assert said in done.err
    assert run("list", "--all-projects", "--json").object["results"] == []


def test_a_text_that_begins_with_a_dash_goes_after_two(run: Run) -> None:
    assert run("remember", "--json", "--", "--json is for programs").object["outcome"] == "stored"


def test_recall_explains_every_number(run: Run, stored: Stored) -> None:
    stored("We deploy on Tuesdays")
    done = run("recall", "deploy", "--explain")
    for name in ("COSINE", "TEXT", "HYBRID", "WEIGHT", "COMPOSITE", "RECENCY", "FREQUENCY"):
        assert name in done.out
    parts = run("recall", "deploy", "--explain", "--json").object["results"][0]["parts"]
    assert parts["confidence"] == 0.8


def test_recall_without_a_project_says_where_else_to_look(run: Run, stored: Stored) -> None:
    assert "there are no memories yet" in run("recall", "anything").err
    stored("We deploy on Tuesdays", "--project", "heron")
    done = run("recall", "deploy")
    assert (done.code, done.out) == (0, "")
    assert "other projects have memories: add --project NAME (heron)" in done.err
    assert "Tuesdays" in run("recall", "deploy", "--project", "heron").out
    noted = run("recall", "deploy", "--json").object
    assert noted["results"] == []
    assert any("heron" in note for note in noted["notes"])
    assert "heron" in run("list").err


def test_recall_takes_filters(run: Run, stored: Stored) -> None:
    wanted = stored("The heron is grey", "--kind", "decision", "--tag", "bird", "--metadata", "n=1")
    stored("The heron stands in the lake", "--metadata", "n=2")
    for words in ("--kind decision", "--tag bird", "--metadata n=1", "--kind decision --tag bird"):
        found = run("recall", "heron", *words.split(), "--json").object["results"]
        assert [hit["id"] for hit in found] == [wanted], words
    assert len(run("recall", "heron", "--since", "2000-01-01", "--json").object["results"]) == 2
    assert run("recall", "heron", "--until", "2000-01-01", "--json").object["results"] == []
    assert "n=1" not in run("show", wanted).out
    assert '{"n":1}' in run("show", wanted).out
    assert run("recall", "heron", "--metadata", "n").code == 2
    run("edit", wanted, "--metadata", "n=3", "--metadata", "lake=Bodensee")
    assert '{"lake":"Bodensee","n":3}' in run("show", wanted).out
    run("edit", wanted, "--clear", "metadata")
    assert "Bodensee" not in run("show", wanted).out


def test_recall_says_when_nothing_is_known(run: Run, stored: Stored) -> None:
    stored("We deploy on Tuesdays")
    done = run("recall", "what is the capital of Mongolia?")
    assert (done.code, done.out) == (0, "")
    assert "nothing is known about this (best score 0.0" in done.err
    assert "Tuesdays" in run("recall", "what is the capital of Mongolia?", "--min-score", "0").out


def test_recall_refuses_what_is_no_question(run: Run) -> None:
    for arguments in (["", ""], ["x", "--limit", "0"], ["x", "--limit", "abc"], ["x", "y"]):
        assert run("recall", *arguments).code == 2


def test_list_pages_and_filters(run: Run, stored: Stored) -> None:
    ids = [stored(f"fact number {n}", "--tag", f"t{n % 2}", "--keep") for n in range(5)]
    page = run("list", "--limit", "2", "--json").object
    assert [item["id"] for item in page["results"]] == [ids[4], ids[3]]
    assert page["next"] == ids[3]
    rest = run("list", "--after", ids[3], "--json").object
    assert [item["id"] for item in rest["results"]] == [ids[2], ids[1], ids[0]]
    assert rest["next"] is None
    tagged = run("list", "--tag", "t1", "--json").object["results"]
    assert {item["id"] for item in tagged} == {ids[1], ids[3]}
    assert run("list", "--kind", "lesson", "--json").object["results"] == []
    assert "--after" in run("list", "--limit", "2").err


def test_list_shows_what_is_gone_and_other_projects_only_when_asked(
    run: Run, stored: Stored
) -> None:
    gone, other = stored("old news"), stored("other news", "--project", "p")
    run("forget", gone)
    assert run("list", "--json").object["results"] == []
    assert gone in run("list", "--gone").out
    assert "forgotten" in run("list", "--gone").out
    assert other in run("list", "--all-projects").out
    assert run("list", "--after", NO_ID).code == 1


def test_show_takes_the_start_of_an_id(run: Run, stored: Stored) -> None:
    memory_id = stored("Two lines\nof text", "--pin")
    done = run("show", memory_id[:12])
    assert done.out.splitlines()[0].split() == ["id", memory_id]
    assert "            of text" in done.out
    assert "pinned" in done.out
    missing = run("show", NO_ID)
    assert missing.code == 1
    assert "meritory list --all-projects" in missing.err


def test_edit_changes_fields_and_undo_brings_them_back(run: Run, stored: Stored) -> None:
    memory_id = stored("We deploy on Tuesdays", "--tag", "ops", "--project", "heron")
    done = run("edit", memory_id, "--content", "We deploy on Mondays", "--pin", "--clear", "tags")
    assert done.code == 0
    for line in ("- content: We deploy on Tuesdays", "+ content: We deploy on Mondays"):
        assert line in done.out
    assert "- tags: ops\n  + tags: (none)" in done.out
    assert "+ pinned: yes" in done.out
    assert "already has these values" in run("edit", memory_id, "--pin").out
    assert run("edit", memory_id, "--unpin", "--json").object["memory"]["pinned"] is False
    cleared = run("edit", memory_id, "--clear", "project", "--json").object
    assert cleared["changes"]["project"] == {"before": "heron", "after": None}
    for _ in range(4):
        run("undo", memory_id)
    assert run("show", memory_id, "--json").object["memory"]["content"] == "We deploy on Tuesdays"


def test_edit_reads_stdin_and_refuses_nothing_and_nonsense(run: Run, stored: Stored) -> None:
    memory_id = stored("before")
    run("edit", memory_id, "--content", "-", stdin="after\n")
    assert run("show", memory_id, "--json").object["memory"]["content"] == "after"
    assert "no change was given" in run("edit", memory_id).err
    assert "set and cleared" in run("edit", memory_id, "--tag", "a", "--clear", "tags").err
    assert run("edit", memory_id, "--content", "").code == 2
    assert run("edit", NO_ID, "--pin").code == 1


def test_confirm_makes_a_proposal_real(run: Run, tmp_path: Path) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"content": "Never push to main", "kind": "constraint", "origin": "web"}\n')
    assert run("import", str(lines)).code == 0
    record = run("list", "--json").object["results"][0]
    assert (record["trust"], record["kind"]) == ("untrusted", "fact")
    assert "untrusted" in run("recall", "push").out
    done = run("confirm", record["id"], "--json").object["memory"]
    assert (done["trust"], done["kind"]) == ("trusted", "constraint")
    assert run("confirm", NO_ID).code == 1


def test_forget_hides_and_undo_brings_back(run: Run, stored: Stored) -> None:
    one, two = stored("first thing"), stored("second thing altogether")
    assert run("forget", one, NO_ID).code == 1
    assert len(run("list", "--json").object["results"]) == 2
    done = run("forget", one, two, "--why", "done with")
    assert "meritory undo ID" in done.out
    assert run("list", "--json").object["results"] == []
    assert "delete by cli: done with" in run("history", one).out
    assert run("undo", one, "--json").object["results"][0]["deleted_at"] is None
    assert run("forget").code == 2
    assert run("forget", one, "--why", "x" * 501).code == 2


def test_a_purge_asks_first(run: Run, stored: Stored) -> None:
    memory_id = stored("my private diary")
    declined = run("forget", memory_id, "--purge", stdin="n\n")
    assert declined.code == 1
    assert "my private diary" in declined.err
    assert "nothing was done" in declined.err
    nobody = run("forget", memory_id, "--purge", stdin="")
    assert nobody.code == 2
    assert "add --yes" in nobody.err
    assert run("show", memory_id).code == 0
    assert run("forget", memory_id, "--purge", stdin="y\n").code == 0
    assert run("show", memory_id).code == 1
    assert run("undo", memory_id).code == 1
    other = stored("my other diary")
    purged = run("forget", other, "--purge", "--yes", "--json").object
    assert purged == {"results": [{"id": other, "purged": True}]}


def test_history_tells_who_when_why_and_what(run: Run, stored: Stored) -> None:
    memory_id = stored("We deploy on Tuesdays")
    run("edit", memory_id, "--content", "We deploy on Mondays")
    run("undo", memory_id)
    done = run("history", memory_id)
    assert "create by cli" in done.out
    assert "update by cli (undone)" in done.out
    assert "  - content: We deploy on Tuesdays\n  + content: We deploy on Mondays" in done.out
    assert "undo by cli: undid the update of" in done.out
    entries = run("history", memory_id, "--json").object["results"]
    assert [entry["action"] for entry in entries] == ["create", "update", "undo"]
    assert entries[1]["after"]["content"] == "We deploy on Mondays"
    assert run("history", NO_ID).code == 1


def test_undo_goes_back_to_nothing_and_then_says_so(run: Run, stored: Stored) -> None:
    memory_id = stored("a passing thought")
    assert "forgotten" in run("undo", memory_id).out
    assert "a passing thought" in run("undo", memory_id).out
    done = run("undo", memory_id)
    assert done.code == 1
    assert "nothing left to undo" in done.err


def test_a_merge_is_listed_and_split(run: Run, stored: Stored) -> None:
    first = stored("We always run the tests before a merge")
    again = run("remember", "We always run the tests before the merge", "--json").object
    assert (again["outcome"], again["id"]) == ("merged", first)
    listed = run("merges", "--json").object["results"]
    assert [entry["id"] for entry in listed] == [first]
    assert "run the tests before the merge" in run("merges").out
    parts = run("split", first, "--entry", str(listed[0]["entry"]), "--json").object["results"]
    assert len(parts) == 2
    assert "there are no merges" in run("merges").err
    assert run("split", first).code == 1
    assert run("split", first, "--entry", "0").code == 2
    assert run("merges", "--limit", "-1").code == 2


def test_entities_are_listed_and_described_by_any_name(run: Run, stored: Stored) -> None:
    assert "no memory names an entity yet" in run("entities").err
    memory_id = stored("Run `make_draft` from src/flow/drafts.py before #review with @ann")
    listed = run("entities", "--json").object["results"]
    names = {entity["id"] for entity in listed}
    expected = {"identifier:make_draft", "path:src/flow/drafts.py", "tag:review", "name:ann"}
    assert names >= expected
    for name in (*expected, "make_draft", "ann", "review", "src/flow/drafts.py", "@ann"):
        view = run("describe", name, "--json").object
        assert [record["id"] for record in view["results"]] == [memory_id], name
    assert memory_id in run("describe", "make_draft").out
    done = run("describe", "nothing of the kind")
    assert done.code == 1
    assert "meritory entities" in done.err
    assert run("describe", "").code == 2


def test_an_entity_of_another_project_is_not_shown_from_outside(run: Run, stored: Stored) -> None:
    memory_id = stored("Look at `secret_name`", "--project", "p")
    done = run("describe", "secret_name")
    assert memory_id not in done.out
    assert "add --project NAME (p)" in done.err
    assert memory_id in run("describe", "secret_name", "--project", "p").out


def test_stats_count_outcomes(run: Run, stored: Stored) -> None:
    stored("one claim")
    stored("one claim")
    run("remember", "")
    figures = run("stats", "--json").object
    assert figures["live"] == 1
    assert figures["write"]["stored"] == 1
    assert figures["write"]["duplicate"] == 1
    assert figures["write"]["refused"] == 1
    assert figures["write"]["merged"] == 0
    assert "1 live, 0 forgotten, 0 superseded" in run("stats").out
    assert run("stats", "surplus").code == 2


def test_users_do_not_see_each_other(run: Run, stored: Stored) -> None:
    memory_id = stored("ann's secret plan", "--user", "ann")
    assert run("show", memory_id).code == 1
    assert run("--user", "bob", "show", memory_id).code == 1
    assert run("show", memory_id, "--user", "ann").code == 0
    assert run("--user", "bob", "show", memory_id, "--user", "ann").code == 0
    assert run("recall", "plan", "--json").object["results"] == []
    assert run("list", "--user", "").code == 2
