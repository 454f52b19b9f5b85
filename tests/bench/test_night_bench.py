"""The bench of the nightly search: it finds what it planted, and its bars can be missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import night


def test_a_small_store_is_searched_in_one_night(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--memories", "60", "--json", str(tmp_path / "night.json")]
    assert night.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "planted pairs missed" in printed
    assert (tmp_path / "night.json").is_file()
    # Two texts that have nothing in common are no pair.
    monkeypatch.setattr(night, "PLANTED", (("The heron fishes", "Anna leads design"),))
    assert night.main(arguments) == 1
