"""Folders of one name are told apart, clones and worktrees share, and nothing is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from session_kit import HERON, Desk

from meritory.domain.folder import names_of, remote_identity
from meritory.engine.folders import project_for, remote_of
from meritory.engine.observe import health

USER = "default"
ACME = "git@github.com:acme/api.git"


def folder(place: Path, *names: str) -> Path:
    made = place.joinpath(*names)
    made.mkdir(parents=True, exist_ok=True)
    return made


def repository(place: Path, *names: str, origin: str | None = None) -> Path:
    made = folder(place, *names)
    folder(made, ".git")
    if origin is not None:
        config = f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {origin}\n\tfetch = +x\n'
        (made / ".git" / "config").write_text(config)
    return made


def project(desk: Desk, place: Path | str) -> str | None:
    return project_for(desk.memory.services, USER, str(place))


def test_a_second_folder_of_one_name_gets_a_longer_one(desk: Desk, tmp_path: Path) -> None:
    one, other = folder(tmp_path, "a", "api"), folder(tmp_path, "b", "api")
    third = folder(tmp_path, "c", "b", "api")
    assert [project(desk, place) for place in (one, other, third)] == ["api", "b/api", "c/b/api"]
    # Whatever comes in between, a folder keeps its project.
    assert [project(desk, place) for place in (third, one, other)] == ["c/b/api", "api", "b/api"]
    assert project_for(desk.memory.services, "eve", str(other)) == "api"


def test_memories_of_the_two_stay_apart(desk: Desk, tmp_path: Path) -> None:
    one = project(desk, repository(tmp_path, "a", "api"))
    other = project(desk, repository(tmp_path, "b", "api"))
    desk.memory.view(project=one).remember("The api listens on port 5432")
    found = desk.memory.view(project=other).recall("which port does the api use?")
    assert found == []


def test_clones_share_whatever_the_form_of_the_address(desk: Desk, tmp_path: Path) -> None:
    forms = (ACME, "https://ann:secret@GitHub.com/acme/api", "ssh://git@github.com/acme/api.git/")
    places = [repository(tmp_path, str(n), "api", origin=url) for n, url in enumerate(forms)]
    renamed = repository(tmp_path, "api-2", origin=ACME)
    assert [project(desk, place) for place in (*places, renamed)] == ["api"] * 4
    assert "secret" not in str(desk.store.project_folders(USER))
    fork = repository(tmp_path, "fork", "api", origin="git@github.com:bob/api.git")
    assert project(desk, fork) == "bob/api"


def test_a_clone_of_a_folder_shares_with_it(desk: Desk, tmp_path: Path) -> None:
    origin = repository(tmp_path, "a", "api")
    clone = repository(tmp_path, "b", "api", origin=str(origin))
    assert (project(desk, clone), project(desk, origin)) == ("api", "api")
    relative = repository(tmp_path, "c", "api", origin="../../a/api/.git")
    assert project(desk, relative) == "api"


def test_a_remote_that_came_later_counts_for_the_next_clone(desk: Desk, tmp_path: Path) -> None:
    first = repository(tmp_path, "a", "api")
    assert project(desk, first) == "api"
    repository(tmp_path, "a", "api", origin=ACME)
    assert project(desk, repository(tmp_path, "b", "api", origin=ACME)) == "api"
    assert project(desk, repository(tmp_path, "c", "api", origin="git@x.org:y/api")) == "y/api"


def test_worktrees_are_their_repository(desk: Desk, tmp_path: Path) -> None:
    repository(tmp_path, "a", "api")
    folder(tmp_path, "a", "api", ".git", "worktrees", "fix")
    tree = folder(tmp_path, "b", "api")
    (tree / ".git").write_text(f"gitdir: {tmp_path}/a/api/.git/worktrees/fix\n")
    assert (project(desk, tree), project(desk, tmp_path / "a" / "api")) == ("api", "api")


def test_worktrees_of_a_bare_repository_share_by_its_remote(desk: Desk, tmp_path: Path) -> None:
    bare = folder(tmp_path, "api.git")
    (bare / "config").write_text(f'[remote "origin"]\n  URL = {ACME}\n')
    names = []
    for name in ("main", "fix"):
        folder(bare, "worktrees", name)
        tree = folder(tmp_path, name)
        (tree / ".git").write_text(f"gitdir: {bare}/worktrees/{name}\n")
        names.append(project(desk, tree))
    assert names == ["main", "main"]


def test_a_folder_that_was_moved_keeps_its_project(desk: Desk, tmp_path: Path) -> None:
    old = folder(tmp_path, "a", "api")
    assert project(desk, old) == "api"
    shutil.move(old, folder(tmp_path, "b"))
    assert project(desk, tmp_path / "b" / "api") == "api"


def test_a_deleted_repository_is_no_reason_to_share_with_another(
    desk: Desk, tmp_path: Path
) -> None:
    old = repository(tmp_path, "a", "api", origin=ACME)
    assert project(desk, old) == "api"
    shutil.rmtree(old)
    other = repository(tmp_path, "b", "api", origin="git@gitlab.com:zeta/api.git")
    assert project(desk, other) == "zeta/api"


def test_folders_with_sessions_from_before_keep_their_project(desk: Desk, tmp_path: Path) -> None:
    one, other = folder(tmp_path, "a", "api"), folder(tmp_path, "b", "api", "src")
    for number, place in enumerate((one, other)):
        desk.memory.session(f"old{number}", "api", cwd=str(place))
    assert project(desk, one) == "api"
    assert project(desk, other.parent) == "api"
    # The name of a folder is not a pattern.
    assert project(desk, folder(tmp_path, "c", "api")) == "c/api"


def test_doctor_names_folders_that_share_and_those_told_apart(desk: Desk, tmp_path: Path) -> None:
    desk.note(HERON)
    for place in ("a", "b"):
        project(desk, folder(tmp_path, place, "api"))
    found = health._projects(desk.store)
    assert found.status == "ok"
    assert f"b/api is {tmp_path}/b/api, next to {tmp_path}/a/api" in found.detail
    desk.memory.session("old", "api", cwd=str(folder(tmp_path, "c", "api")))
    project(desk, tmp_path / "c" / "api")
    found = health._projects(desk.store)
    assert found.status == "warn"
    assert f"{tmp_path}/a/api and {tmp_path}/c/api share the project api" in found.detail
    clones = [repository(tmp_path, n, "shop", origin="git@x.org:y/shop") for n in ("d", "e")]
    assert {project(desk, clone) for clone in clones} == {"shop"}
    assert "shop" not in health._projects(desk.store).detail


def test_a_session_says_that_its_project_has_a_longer_name(desk: Desk) -> None:
    plain = desk.memory.session("plain", "api")
    assert "project" not in plain.status_line
    longer = desk.memory.session("longer", "b/api] <x>")
    assert longer.status_line.endswith(" | project b/api x]")


@pytest.mark.parametrize(
    ("url", "identity"),
    [
        (ACME, "git:github.com/acme/api"),
        ("https://github.com/Acme/API", "git:github.com/acme/api"),
        ("ssh://git@host:2222/x/y.git", "git:host/x/y"),
        ("https://u:p@host/x", "git:host/x"),
        ("host:x", "git:host/x"),
        ("/srv/git/api.git", None),
        ("../api", None),
        ("file:///srv/git/api", None),
        ("C:\\work\\api", None),
        ("C:/work/api", None),
        ("https://", None),
        ("https://[bad/x", None),
        ("", None),
    ],
)
def test_one_repository_has_one_identity(url: str, identity: str | None) -> None:
    assert remote_identity(url) == identity


def test_a_broken_repository_has_no_remote(tmp_path: Path) -> None:
    git = repository(tmp_path, "api") / ".git"
    assert remote_of(str(git), str(git.parent)) is None
    for config in (b"\xff\0" * 40_000, b'[remote "origin"]\nurl =\n', b"url = x\n", b"[]"):
        (git / "config").write_bytes(config)
        assert remote_of(str(git), str(git.parent)) is None
    assert remote_of(None, "/") is None


def test_a_name_is_printable_and_never_too_long(tmp_path: Path) -> None:
    assert list(names_of("/home/a\x1b/api", "git:h/o/api")) == [
        "api",
        "o/api",
        "a/api",
        "home/a/api",
    ]
    assert all(len(name) < 256 for name in names_of("/" + "y" * 200 + "/" + "x" * 200, None))
    assert list(names_of("/", None)) == []
