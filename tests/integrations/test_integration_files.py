"""The memory tool's files: commands, exactness, and paths that try to lead elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meritory import Memory
from meritory.domain.errors import Conflict, InputError, NotFound
from meritory.integrations.files import (
    FILE_LIMIT_CHARS,
    PART_LIMIT_CHARS,
    TAG,
    MemoryFiles,
    checked_path,
)


@pytest.fixture
def files(memory: Memory) -> MemoryFiles:
    return MemoryFiles(memory)


def text(files: MemoryFiles, path: str) -> str:
    return files._file(path).text


def test_a_file_lives_through_all_six_commands(files: MemoryFiles) -> None:
    path = "/memories/notes/a.md"
    assert "Created" in files.run(
        {"command": "create", "path": path, "file_text": "one\ntwo\nthree\n"}
    )
    assert files.run({"command": "view", "path": path}).splitlines()[1:] == [
        "     1\tone",
        "     2\ttwo",
        "     3\tthree",
    ]
    assert files.view(path, [2, -1]).splitlines()[1:] == ["     2\ttwo", "     3\tthree"]
    files.run({"command": "str_replace", "path": path, "old_str": "two", "new_str": "2"})
    files.run({"command": "insert", "path": path, "insert_line": 0, "insert_text": "zero"})
    assert text(files, path) == "zero\none\n2\nthree\n"
    files.insert(path, 4, "four")
    assert text(files, path) == "zero\none\n2\nthree\nfour"
    files.insert(path, 5, "five\n")
    assert text(files, path).endswith("four\nfive\n")
    files.run({"command": "rename", "old_path": "/memories/notes", "new_path": "/memories/old"})
    with pytest.raises(NotFound):
        files.view(path)
    assert text(files, "/memories/old/a.md").startswith("zero")
    files.run({"command": "delete", "path": "/memories/old"})
    assert files.view("/memories").splitlines()[1:] == ["0\t/memories"]


def test_a_folder_shows_two_levels_with_sizes(files: MemoryFiles) -> None:
    files.create("/memories/a.md", "12345")
    files.create("/memories/x/b.md", "é")
    files.create("/memories/x/y/c.md", "1")
    assert files.view("/memories/").splitlines()[1:] == [
        "8\t/memories",
        "5\t/memories/a.md",
        "3\t/memories/x/",
        "2\t/memories/x/b.md",
        "1\t/memories/x/y/",
    ]


@settings(max_examples=40)
@given(content=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60))
def test_any_text_comes_back_exactly(content: str, shared: MemoryFiles) -> None:
    try:
        shared.create("/memories/any.md", content)
    except (InputError, Conflict) as error:
        assert "may not hold" in str(error) or "empty" in str(error)
        return
    assert text(shared, "/memories/any.md") in (content, "" if not content.strip() else content)
    shared.delete("/memories/any.md")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryFiles]:
    with Memory(tmp_path_factory.mktemp("files") / "meritory.db") as memory:
        yield MemoryFiles(memory)


def test_long_files_are_several_memories(files: MemoryFiles, memory: Memory) -> None:
    lines = "".join(f"{n}: {'word ' * 20}\n" for n in range(500))
    whole = lines + "x" * (PART_LIMIT_CHARS * 2 + 5)
    files.create("/memories/long.md", whole)
    assert text(files, "/memories/long.md") == whole
    parts = memory.page(tag=TAG)
    assert len(parts) > 5
    assert max(len(one.content) for one in parts) <= PART_LIMIT_CHARS
    files.str_replace("/memories/long.md", "499: ", "five hundred: ")
    files.str_replace("/memories/long.md", "x" * (PART_LIMIT_CHARS * 2 + 5), "")
    assert text(files, "/memories/long.md").startswith("0: word")
    assert len(memory.page(tag=TAG)) < len(parts)
    with pytest.raises(InputError):
        files.create("/memories/huge.md", "x" * (FILE_LIMIT_CHARS + 1))


def test_an_empty_file_is_a_file(files: MemoryFiles) -> None:
    files.create("/memories/empty.md", "")
    assert text(files, "/memories/empty.md") == ""
    assert len(files.view("/memories/empty.md").splitlines()) == 1
    files.insert("/memories/empty.md", 0, "now there is something")
    assert text(files, "/memories/empty.md") == "now there is something"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/memories/../etc/passwd",
        "/memories/..",
        "/memories/./x",
        "/memories/.../x",
        "/memories//x",
        "/memoriesx/y",
        "/Memories/x",
        "memories/x",
        "/memories/%2e%2e/x",
        "/memories/%252e%252e/x",
        "/memories/..%2fx",
        "/memories\\x",
        "/memories/a\\..\\b",
        "/memories/a\x00b",
        "/memories/a\nb",
        "/memories/ a",
        "/memories/a /b",
        "/memories/．．/x",
        "/memories/‥/x",
        "/memories/e\u0301",
        "/memories/\u202eexe",
        "/memories/" + "x" * 300,
        "file:///memories/x",
        "~/memories/x",
        "",
        None,
        5,
        ["/memories/x"],
    ],
    ids=repr,
)
def test_a_path_that_could_lead_elsewhere_is_refused(files: MemoryFiles, path: object) -> None:
    with pytest.raises(InputError):
        checked_path(path)
    for told in (
        {"command": "view", "path": path},
        {"command": "create", "path": path, "file_text": "x"},
        {"command": "delete", "path": path},
        {"command": "rename", "old_path": path, "new_path": "/memories/b"},
        {"command": "rename", "old_path": "/memories/b", "new_path": path},
    ):
        assert files.run(told).startswith("Error:")
    assert files.view("/memories").splitlines()[1:] == ["0\t/memories"]


@pytest.mark.parametrize(
    "told",
    [
        None,
        "view",
        {},
        {"command": "format"},
        {"command": ["view"]},
        {"command": "view"},
        {"command": "view", "path": "/memories/nothing"},
        {"command": "view", "path": "/memories/a.md", "view_range": [0, 1]},
        {"command": "view", "path": "/memories/a.md", "view_range": [2, 1]},
        {"command": "view", "path": "/memories/a.md", "view_range": "1-2"},
        {"command": "view", "path": "/memories/a.md", "view_range": [True, 2]},
        {"command": "view", "path": "/memories", "extra": 1},
        {"command": "create", "path": "/memories", "file_text": "x"},
        {"command": "create", "path": "/memories/a.md", "file_text": "x"},
        {"command": "create", "path": "/memories/a.md/b.md", "file_text": "x"},
        {"command": "create", "path": "/memories/b.md", "file_text": 5},
        {"command": "create", "path": "/memories/b.md", "file_text": "nul \0"},
        {"command": "str_replace", "path": "/memories/a.md", "old_str": "zz", "new_str": ""},
        {"command": "str_replace", "path": "/memories/a.md", "old_str": "a", "new_str": "b"},
        {"command": "str_replace", "path": "/memories/a.md", "old_str": "", "new_str": "b"},
        {"command": "insert", "path": "/memories/a.md", "insert_line": 9, "insert_text": "x"},
        {"command": "insert", "path": "/memories/a.md", "insert_line": "0", "insert_text": "x"},
        {"command": "insert", "path": "/memories/c.md", "insert_line": 0, "insert_text": "x"},
        {"command": "delete", "path": "/memories"},
        {"command": "delete", "path": "/memories/nothing"},
        {"command": "rename", "old_path": "/memories", "new_path": "/memories/b"},
        {"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/a.md"},
        {"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/a.md/b"},
        {"command": "rename", "old_path": "/memories/nothing", "new_path": "/memories/b"},
        {"command": "create", "path": "/memories/k.md", "file_text": "ghp_" + "a1B2c3D4e5" * 4},
    ],
    ids=repr,
)
def test_what_cannot_be_done_is_told_and_changes_nothing(
    files: MemoryFiles, memory: Memory, told: object
) -> None:
    files.create("/memories/a.md", "a banana")
    assert files.run(told).startswith("Error:")  # type: ignore[arg-type]
    assert text(files, "/memories/a.md") == "a banana"
    assert len(memory.page()) == 1


def test_what_a_person_pinned_is_not_the_agents_to_change(
    files: MemoryFiles, memory: Memory
) -> None:
    files.create("/memories/a.md", "a banana")
    memory.update(memory.page()[0].id, pinned=True)
    told = {"command": "str_replace", "path": "/memories/a.md", "old_str": "a b", "new_str": "B"}
    assert "only a person" in files.run(told)
