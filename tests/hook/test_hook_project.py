"""Which project a working directory belongs to."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hook_kit import Running

from meritory.domain.memory import NAME_LIMIT_CHARS
from meritory.engine.folders import project_of


def made(place: Path, *names: str) -> Path:
    folder = place.joinpath(*names)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_a_repository_is_one_project_from_everywhere_inside(tmp_path: Path) -> None:
    made(tmp_path, "shop", ".git")
    deep = made(tmp_path, "shop", "src", "deep")
    for place in (tmp_path / "shop", deep, deep / "not" / "there"):
        assert project_of(str(place), str(tmp_path)) == "shop"
        assert project_of(f"{place}/", str(tmp_path)) == "shop"


def test_a_worktree_is_its_repository_and_a_submodule_is_its_own(tmp_path: Path) -> None:
    made(tmp_path, "shop", ".git", "worktrees", "fix")
    tree = made(tmp_path, "elsewhere", "fix")
    (tree / ".git").write_text(f"gitdir: {tmp_path}/shop/.git/worktrees/fix\n")
    assert project_of(str(tree), str(tmp_path)) == "shop"
    (tree / ".git").write_text("gitdir: ../../shop/.git/worktrees/fix\n")
    assert project_of(str(tree), str(tmp_path)) == "shop"
    inner = made(tmp_path, "shop", "vendor", "lib")
    (inner / ".git").write_text("gitdir: ../../.git/modules/lib\n")
    assert project_of(str(inner), str(tmp_path)) == "lib"
    (inner / ".git").write_bytes(b"\xff\0" * 9_000)
    assert project_of(str(inner), str(tmp_path)) == "lib"


def test_without_a_repository_it_is_the_folder_itself(tmp_path: Path) -> None:
    notes = made(tmp_path, "notes", "2026")
    assert project_of(str(notes), str(tmp_path)) == "2026"
    assert project_of("/no/such/place", str(tmp_path)) == "place"


def test_a_home_that_is_a_repository_is_no_project(tmp_path: Path) -> None:
    made(tmp_path, ".git")
    assert project_of(str(tmp_path), str(tmp_path)) is None
    assert project_of(str(made(tmp_path, "letters")), str(tmp_path)) == "letters"


def test_a_link_leads_to_the_project_itself(tmp_path: Path) -> None:
    made(tmp_path, "shop", ".git")
    (tmp_path / "short").symlink_to(tmp_path / "shop")
    assert project_of(str(tmp_path / "short"), str(tmp_path)) == "shop"


@pytest.mark.parametrize(
    "place", [None, "", "shop", "./shop", "/", "//", "~", "/x\0y", "/" + "x" * 5_000, "C:\\shop"]
)
def test_what_is_no_place_is_no_project(place: str | None) -> None:
    assert project_of(place) is None


def test_home_and_the_temporary_folder_are_no_projects() -> None:
    assert project_of(os.path.expanduser("~")) is None
    assert project_of(tempfile.gettempdir()) is None


def test_a_name_that_cannot_be_one_is_made_one(tmp_path: Path) -> None:
    made(tmp_path, "a\x1b[31m\u202eb", ".git")
    assert project_of(str(tmp_path / "a\x1b[31m\u202eb"), "/") == "a[31mb"
    made(tmp_path, "\n", ".git")
    assert project_of(str(tmp_path / "\n"), "/") is None
    long = "y" * 255
    assert len(project_of(f"/{long}") or "") <= NAME_LIMIT_CHARS


def test_the_daemon_goes_by_it_unless_it_is_told(running: Running) -> None:
    place = str(running.home / "shop" / "src")
    for key, more in {"by-place": {}, "by-name": {"project": "other"}}.items():
        body = {"session_key": key, "cwd": place, **more}
        running.ask("POST", "/api/hooks/session-start", body)
    assert running.session("by-place")["project"] == "shop"
    assert running.session("by-name")["project"] == "other"
