"""Mined cases: labels name their texts, halves share no conversation, changed texts are errors."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from bench.datasets import MissingData, WrongData, folder_digest
from bench.everyday_cases import EXPECTED, HALVES, NEAR, Pair, Question
from bench.everyday_mined import Label, Ref, pairs, questions, read_labels, read_ref, resolve
from bench.realmem import DEVELOPED, PEOPLE, REPORTED_PEOPLE

from bench import everyday_mined

OLD, NEW = "Kim drinks green tea.", "Kim drinks mint tea now."


def write(root: Path, name: str, body: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body, "utf-8")
    digest = hashlib.sha256(body.encode()).hexdigest()
    with (path.parent / "SHA256SUMS").open("a") as sums:
        sums.write(f"{digest}  {path.name}\n")


def write_realmem(root: Path, old: str = OLD) -> None:
    dialogues = [
        {"dialogue_turns": [{"content": "And now?"}], "extracted_memory": [{"content": text}]}
        for text in (old, NEW)
    ]
    write(root, f"realmem/{PEOPLE['kim']}", json.dumps({"dialogues": dialogues}))


def cell(place: str, record: str, text: str) -> str:
    """Return the ref of a text, which begins where it is first found in the record."""
    start = record.index(text)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{place} {start}:{start + len(text)} {digest}"


def kim(place: str, record: str, text: str) -> str:
    return cell(f"realmem {PEOPLE['kim']} {place}", record, text)


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    folder = tmp_path / "labels"
    folder.mkdir()
    old, new = kim("d0.m0", OLD, "drinks green tea."), kim("d1.m0", NEW, NEW)
    asked = kim("d1.t0", "And now?", "And now?")
    lines = ("# a comment", "", f"pair\tmemory\tupdate\t{old}\t{new}")
    body = "\n".join((*lines, f"question\tcurrent\t{asked}\t{old}\t{new}", ""))
    (folder / "mined_tune.tsv").write_text(body, "utf-8")
    return folder


def test_labels_become_pairs_and_questions(labels: Path, tmp_path: Path) -> None:
    write_realmem(tmp_path)
    (pair,) = pairs("tune", tmp_path, labels)
    (question,) = questions("tune", tmp_path, labels)
    assert pair == Pair("en", "memory", "update", "drinks green tea.", NEW, "realmem")
    assert question == Question("en", "current", "And now?", "drinks green tea.", NEW, "realmem")


def test_an_audited_pair_keeps_its_first_label(labels: Path, tmp_path: Path) -> None:
    write_realmem(tmp_path)
    path = labels / "mined_tune.tsv"
    lines = [
        f"{line}\twas-same" if line.startswith("pair") else line
        for line in path.read_text("utf-8").splitlines()
    ]
    path.write_text("\n".join(lines).replace("\tupdate\t", "\tnear\t"), "utf-8")
    (audited,) = pairs("tune", tmp_path, labels)
    (first,) = pairs("tune", tmp_path, labels, labelling="first")
    assert (audited.expected, first.expected) == (NEAR, "same")


def test_a_changed_text_is_a_loud_error(labels: Path, tmp_path: Path) -> None:
    write_realmem(tmp_path, OLD.replace("green", "black"))
    with pytest.raises(WrongData, match=r"d0\.m0/4:21 is not the text that was labelled"):
        pairs("tune", tmp_path, labels)


def test_missing_data_is_named(labels: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="SKIP realmem"):
        questions("tune", tmp_path, labels)


@pytest.mark.parametrize("record", ["d9.m0", "d0.x0"])
def test_an_unknown_record_is_refused(record: str, tmp_path: Path) -> None:
    write_realmem(tmp_path)
    with pytest.raises(WrongData, match="no such record"):
        resolve(read_ref(kim(record, OLD, OLD)), tmp_path)


def test_every_data_set_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"question_id": "1a", "question": "How many?", "haystack_sessions": [[], []]}
    asked["haystack_sessions"] = [[{"content": "I have two."}], [{"content": "I have three."}]]
    write(tmp_path, "longmemeval/longmemeval_oracle.json", json.dumps([asked]))
    seen = {"session_3_observation": {"Ann": [["Ann has a dog.", "D3:1"]]}}
    write(tmp_path, "locomo/locomo10.json", json.dumps([{"sample_id": "c-1", "observation": seen}]))
    prompts = json.dumps({"sid": "s0", "all_prompts": ["Go on.", "Use tabs."]})
    write(tmp_path, "streams/agent/sessions.jsonl", prompts + "\n")
    chat = [{"turns": [[{"id": 4, "content": "Budget: $5"}]]}]
    beam = tmp_path / "beam" / "100K"
    write(beam, "1/chat.json", json.dumps(chat))
    probes = {"knowledge_update": [{"question": "Which budget?"}]}
    write(beam, "1/probing_questions/probing_questions.json", json.dumps(probes))
    monkeypatch.setattr(everyday_mined, "BEAM_100K_DIGEST", folder_digest(beam))
    places = {
        "longmemeval longmemeval_oracle.json 1a.q": "How many?",
        "longmemeval longmemeval_oracle.json 1a.s1.t0": "I have three.",
        "locomo locomo10.json c-1.o3.Ann.0": "Ann has a dog.",
        "streams agent/sessions.jsonl s0.p1": "Use tabs.",
        "beam 100K/1/chat.json m4": "Budget: $5",
        "beam 100K/1/probing_questions/probing_questions.json knowledge_update.0": "Which budget?",
    }
    refs = [read_ref(cell(place, text, text)) for place, text in places.items()]
    assert [resolve(ref, tmp_path) for ref in refs] == list(places.values())
    names = ["longmemeval/1a", "longmemeval/1a", "locomo/c-1", "streams/agent"]
    assert [ref.conversation for ref in refs] == [*names, "beam/100K/1", "beam/100K/1"]


@pytest.mark.parametrize(
    "line",
    [
        "pair\tchat\tmaybe\tREF\tREF",
        "pair\tchat\tsame\tREF",
        "pair\tchat\tnear\tREF\tREF\tsame",
        "pair\tchat\tnear\tREF\tREF\twas-near",
        "pair\tchat\tsame\tREF\tREF\twas-same",
        "pair\tchat\tnear\tREF\tREF\twas-same\twas-same",
        "question\tsoon\tREF\tREF\tREF",
        "pair\tchat\tsame\tREF\trealmem a.json d0.m0 4:4 0123456789",
        "pair\tchat\tsame\tREF\trealmem a.json d0.m0 0:401 0123456789",
        "pair\tchat\tsame\tREF\trealmem a.json d0.m0 0:9",
    ],
)
def test_a_wrong_line_is_named(line: str, tmp_path: Path) -> None:
    line = line.replace("REF", "realmem a.json d0.m0 0:9 0123456789")
    (tmp_path / "mined_tune.tsv").write_text(f"# a comment\n{line}\n")
    with pytest.raises(ValueError, match=r"mined_tune\.tsv line 2"):
        read_labels("tune", tmp_path)


def refs(labels: list[Label]) -> set[Ref]:
    return {ref for label in labels for ref in label.refs}


def test_halves_share_no_conversation() -> None:
    tune, report = ({ref.conversation for ref in refs(read_labels(half))} for half in HALVES)
    assert tune
    assert report
    assert not tune & report


def test_people_are_developed_on_or_reported() -> None:
    people = {"tune": DEVELOPED, "report": REPORTED_PEOPLE}
    for half in HALVES:
        files = {ref.file for ref in refs(read_labels(half)) if ref.data_set == "realmem"}
        assert files == {PEOPLE[name] for name in people[half]}


def test_no_case_is_there_twice() -> None:
    cases = [label.refs for half in HALVES for label in read_labels(half)]
    assert [case for case, times in Counter(cases).items() if times > 1] == []
    assert all(len(set(case)) == len(case) for case in cases)


def test_there_are_enough_cases_of_each_kind() -> None:
    labels = [label for half in HALVES for label in read_labels(half)]
    found = Counter(label.expected for label in labels if label.form == "pair")
    least = {"same": 70, "update": 70, "newer": 50, "other": 140}
    assert set(found) == {*EXPECTED, NEAR}
    assert all(found[name] >= count for name, count in least.items())
    assert sum(label.form == "question" for label in labels) >= 160


def test_the_audit_only_moves_same_to_near_and_update_to_newer() -> None:
    labels = [label for half in HALVES for label in read_labels(half)]
    moved = {(label.former, label.expected) for label in labels if label.former}
    assert moved == {("same", NEAR), ("update", "newer")}
    assert all(label.former for label in labels if label.expected == NEAR)


@pytest.mark.parametrize("half", HALVES)
def test_every_label_of_the_real_files_resolves(half: str) -> None:
    try:
        found, asked = pairs(half), questions(half)
    except MissingData as missing:
        pytest.skip(str(missing))
    assert len(found) + len(asked) == len(read_labels(half))
    both = [(one.first, one.second) for one in found]
    assert len({frozenset(texts) for texts in both}) == len(both)
    texts = [text for pair in both for text in pair]
    texts += [text for one in asked for text in (one.text, one.old, one.new)]
    assert all(text == text.strip() != "" for text in texts)
