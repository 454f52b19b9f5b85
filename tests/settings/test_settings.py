"""Settings: sources and their order, bounds of each, hostile values, and the data folder."""

from __future__ import annotations

import dataclasses
import math
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from meritory.api.memory import Memory
from meritory.domain.errors import ReadOnlyStore, SettingsError
from meritory.domain.policy import EmbedderSpec, LlmSpec, Policy
from meritory.settings import SETTINGS, Setting, home_folder, load_settings, prepare_home
from meritory.settings.model import REMOVED

KEY = "sk-do-not-print-me"
NUMBERS = [setting for setting in SETTINGS if setting.form in ("number", "whole number")]
TEXTS = [setting for setting in SETTINGS if setting.form == "text"]


def named(setting: Setting) -> str:
    """The name of a setting, for the ids of parametrised tests."""
    return setting.name


def write_config(home: Path, text: str | bytes) -> Path:
    """A config file in the folder with the given content."""
    path = home / "config.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(
    home: Path, environ: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> SettingsError:
    """The error that loading gives."""
    with pytest.raises(SettingsError) as caught:
        load_settings(home, environ or {}, flags)
    return caught.value


# --- the model -------------------------------------------------------------------------------


def test_defaults_are_typed_and_say_so(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {})
    assert settings.gate.threshold is None
    assert settings.gate.enabled is True
    assert settings.secrets.policy == "refuse"
    assert settings.embedder.kind == "static"
    assert settings.retention.transcript_days == 90
    assert settings.user == "default"
    assert settings.store_file == tmp_path / "meritory.db"
    assert set(settings.origins) == {setting.name for setting in SETTINGS}
    assert set(settings.origins.values()) == {"default"}


def test_the_list_of_settings_is_the_model() -> None:
    names = [setting.name for setting in SETTINGS]
    assert len(names) == len(set(names)) == 40
    assert len({setting.variable for setting in SETTINGS}) == 40
    assert all(setting.help.endswith(".") for setting in SETTINGS)
    secrets = [setting.name for setting in SETTINGS if setting.secret]
    assert secrets == ["embedder.api_key", "database.url", "llm.api_key"]


def test_every_default_lies_within_its_own_bounds(tmp_path: Path) -> None:
    defaults = load_settings(tmp_path, {})
    flags = {
        setting.name: "auto" if setting.default is None else setting.default for setting in SETTINGS
    }
    again = load_settings(tmp_path, {}, flags)
    assert again.shown() == defaults.shown()
    assert set(again.origins.values()) == {"flag"}


def test_a_setting_is_a_field_of_a_policy_with_one_default() -> None:
    settings = load_settings(Path("/nonexistent"), {})
    assert settings.policy == Policy()
    assert settings.embedder == EmbedderSpec()
    assert settings.llm == LlmSpec()


def test_settings_cannot_be_changed_after_loading(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.gate.enabled = False  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.origins["user"] = "flag"  # type: ignore[index]


def test_a_value_by_name_and_an_unknown_name(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {}, {"retention.transcript_days": 7})
    assert settings.value("retention.transcript_days") == 7
    assert settings.value("user") == "default"
    with pytest.raises(SettingsError, match=r"did you mean retention\.transcript_days"):
        settings.value("retention.transcript_dys")


# --- sources ---------------------------------------------------------------------------------


def test_flags_beat_environment_beats_file_beats_default(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        "[retention]\ntranscript_days = 20\nfeedback_days = 2\n[llm]\ncost_per_day = 0.3\n[gate]\n",
    )
    environ = {
        "MERITORY_RETENTION_TRANSCRIPT_DAYS": "30",
        "MERITORY_RETENTION_FEEDBACK_DAYS": "4",
    }
    flags = {"retention.transcript_days": 40, "user": None}
    settings = load_settings(tmp_path, environ, flags)
    assert settings.retention.transcript_days == 40
    assert settings.retention.feedback_days == 4
    assert settings.llm.cost_per_day == 0.3
    assert settings.origins["retention.transcript_days"] == "flag"
    assert settings.origins["retention.feedback_days"] == "MERITORY_RETENTION_FEEDBACK_DAYS"
    assert settings.origins["llm.cost_per_day"] == "config.toml"
    assert settings.origins["user"] == "default"


def test_a_setting_of_an_older_version_says_that_it_is_a_constant_now(tmp_path: Path) -> None:
    for name in sorted(REMOVED):
        group, _, key = name.partition(".")
        path = write_config(tmp_path, f"[{group}]\n{key} = 1\n")
        error = refusal(tmp_path)
        assert str(error).startswith(f"{name} in {path} is no longer a setting")
        assert "constant now" in str(error)
    path.unlink()
    message = str(refusal(tmp_path, {"MERITORY_PREDICTOR_RRF_K": "60"}))
    assert message.startswith("MERITORY_PREDICTOR_RRF_K in the environment is no longer a setting")
    assert not REMOVED & {setting.name for setting in SETTINGS}


def test_a_copy_may_vary_settings_and_constants(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {})
    varied = settings.vary({"predictor.rrf_k": 3, "predictor.enabled": False, "gate.threshold": 1})
    assert (varied.predictor.rrf_k, varied.predictor.enabled, varied.gate.threshold) == (
        3,
        False,
        1,
    )
    assert settings.predictor == Policy().predictor


@pytest.mark.parametrize("setting", SETTINGS, ids=named)
def test_every_setting_can_be_set_from_every_source(setting: Setting, tmp_path: Path) -> None:
    samples: dict[str, tuple[str, str, object]] = {
        "switch": ("false", "false", False),
        "whole number": ("77", "77", 77),
        "number": ("0.25", "0.25", 0.25),
        "choice": (f'"{setting.choices[-1]}"', setting.choices[-1], setting.choices[-1])
        if setting.choices
        else ("", "", ""),
        "text": ('"some text"', "some text", "some text"),
        "address": ('"http://localhost:1/v1"', "http://localhost:1/v1", "http://localhost:1/v1"),
    }
    toml, text, expected = samples[setting.form]
    by_flag = load_settings(tmp_path, {}, {setting.name: expected})
    by_text_flag = load_settings(tmp_path, {}, {setting.name: text})
    by_variable = load_settings(tmp_path, {setting.variable: text})
    table, _, key = setting.name.rpartition(".")
    write_config(tmp_path, (f"[{table}]\n" if table else "") + f"{key} = {toml}\n")
    by_file = load_settings(tmp_path, {})
    for settings, origin in (
        (by_flag, "flag"),
        (by_text_flag, "flag"),
        (by_variable, setting.variable),
        (by_file, "config.toml"),
    ):
        assert settings.value(setting.name) == expected
        assert settings.origins[setting.name] == origin
        others = {name for name, found in settings.origins.items() if found != "default"}
        assert others == {setting.name}


@pytest.mark.parametrize(
    ("word", "expected"),
    [("true", True), ("1", True), ("ON", True), (" yes ", True), ("false", False), ("0", False)],
)
def test_switches_in_the_environment(tmp_path: Path, word: str, expected: bool) -> None:
    assert load_settings(tmp_path, {"MERITORY_GATE_ENABLED": word}).gate.enabled is expected


def test_auto_brings_the_automatic_value_back(tmp_path: Path) -> None:
    write_config(tmp_path, "[gate]\nthreshold = 0.9\n")
    settings = load_settings(tmp_path, {"MERITORY_GATE_THRESHOLD": "Auto"})
    assert settings.gate.threshold is None
    assert settings.origins["gate.threshold"] == "MERITORY_GATE_THRESHOLD"


def test_whole_numbers_are_accepted_where_numbers_are_meant(tmp_path: Path) -> None:
    write_config(tmp_path, "[gate]\nthreshold = 1\n")
    threshold = load_settings(tmp_path, {}).gate.threshold
    assert threshold == 1.0
    assert isinstance(threshold, float)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    write_config(tmp_path, "[retention]\ntranscript_days = 20\n")
    settings = load_settings(
        tmp_path, {"MERITORY_RETENTION_TRANSCRIPT_DAYS": "", "MERITORY_EMBEDDER_KIND": ""}
    )
    assert settings.retention.transcript_days == 20
    assert settings.embedder.kind == "static"


def test_foreign_variables_are_left_alone(tmp_path: Path) -> None:
    environ = {
        "MERITORY_HOME": "x",
        "MERITORY_BENCH_SIZE": "9",
        "MERITORY_TEST_DATABASE_URL": "x",
        "MERITORYD": "x",
        "meritory_gate": "x",
        "PATH": "x",
    }
    assert set(load_settings(tmp_path, environ).origins.values()) == {"default"}


def test_a_prefix_keeps_its_spaces_and_lines(tmp_path: Path) -> None:
    environ = {"MERITORY_EMBEDDER_QUERY_PREFIX": "Instruct: find notes\nQuery: "}
    settings = load_settings(tmp_path, environ)
    assert settings.embedder.query_prefix == "Instruct: find notes\nQuery: "


def test_a_config_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    write_config(tmp_path, b"\xef\xbb\xbf[retention]\ntranscript_days = 3\n")
    assert load_settings(tmp_path, {}).retention.transcript_days == 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [("", "meritory.db"), ("other.db", "other.db"), ("deep/x.db", "deep/x.db")],
)
def test_a_relative_store_path_starts_at_the_data_folder(
    tmp_path: Path, given: str, expected: str
) -> None:
    settings = load_settings(tmp_path, {}, {"store.path": given})
    assert settings.store_file == tmp_path / expected


def test_an_absolute_store_path_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    elsewhere = tmp_path / "elsewhere.db"
    assert load_settings(tmp_path, {}, {"store.path": str(elsewhere)}).store_file == elsewhere
    at_home = load_settings(tmp_path, {}, {"store.path": "~/x.db"})
    assert at_home.store_file == tmp_path / "me" / "x.db"


def test_a_store_path_in_the_home_of_nobody_is_refused(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {}, {"store.path": "~nobody-of-that-name/x.db"})
    with pytest.raises(SettingsError, match=r"store\.path names an unknown home folder"):
        _ = settings.store_file


# --- unknown names ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "unknown", "suggested"),
    [
        ("[gate]\ntreshold = 0.9\n", "'gate.treshold'", "did you mean gate.threshold?"),
        ("[gates]\nthreshold = 0.9\n", "'gates'", "did you mean gate?"),
        ("threshold = 0.9\n", "'threshold'", "did you mean gate.threshold?"),
        ("usr = 'me'\n", "'usr'", "did you mean user?"),
        ("[gate.threshold]\nx = 1\n", "gate.threshold", ""),
        ("'gate.threshold' = 0.9\n", "'gate.threshold'", "without quotes"),
        ("zzzzzzzz = 1\n", "'zzzzzzzz'", "docs/reference/settings.md lists all settings"),
        ("[empty_table]\n", "'empty_table'", ""),
        ("home = 'x'\n", "'home'", ""),
        ("origins = 1\n", "'origins'", ""),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(
    tmp_path: Path, text: str, unknown: str, suggested: str
) -> None:
    path = write_config(tmp_path, text)
    message = str(refusal(tmp_path))
    assert unknown in message
    assert str(path) in message
    assert suggested in message


@pytest.mark.parametrize(
    ("variable", "suggested"),
    [
        ("MERITORY_GATE_TRESHOLD", "did you mean MERITORY_GATE_THRESHOLD?"),
        ("MERITORY_RETENTION_TRANSCRIP_DAYS", "did you mean MERITORY_RETENTION_TRANSCRIPT_DAYS?"),
        ("MERITORY_HOMES", "did you mean MERITORY_HOME?"),
        ("MERITORY_", "lists all settings"),
        ("MERITORY_SOMETHING_ELSE", "lists all settings"),
    ],
)
def test_an_unknown_variable_is_an_error_with_a_suggestion(
    tmp_path: Path, variable: str, suggested: str
) -> None:
    message = str(refusal(tmp_path, {variable: KEY}))
    assert repr(variable) in message
    assert suggested in message
    assert KEY not in message


def test_an_unknown_flag_is_an_error_even_when_it_was_not_given(tmp_path: Path) -> None:
    assert "did you mean retention.transcript_days?" in str(
        refusal(tmp_path, {}, {"retention.transcript_dayss": None})
    )


# --- bounds and hostile values ---------------------------------------------------------------


@pytest.mark.parametrize("setting", NUMBERS, ids=named)
def test_bounds_are_inside_and_just_beyond_is_outside(setting: Setting, tmp_path: Path) -> None:
    whole = setting.form == "whole number"
    for bound, step in ((setting.low, -1), (setting.high, 1)):
        given = int(bound) if whole else bound
        assert load_settings(tmp_path, {}, {setting.name: given}).value(setting.name) == bound
        assert load_settings(tmp_path, {setting.variable: str(given)}).value(setting.name) == bound
        beyond = given + step if whole else math.nextafter(bound, step * math.inf)
        assert setting.expects in str(refusal(tmp_path, {}, {setting.name: beyond}))


@pytest.mark.parametrize("setting", TEXTS, ids=named)
def test_lengths_are_bounded(setting: Setting, tmp_path: Path) -> None:
    longest = "x" * int(setting.high)
    assert load_settings(tmp_path, {}, {setting.name: longest}).value(setting.name) == longest
    message = str(refusal(tmp_path, {}, {setting.name: longest + "x"}))
    assert setting.expects in message
    assert len(message) < 250


@pytest.mark.parametrize("setting", NUMBERS, ids=named)
@pytest.mark.parametrize(
    "text",
    [
        "nan",
        "inf",
        "-inf",
        "-1",
        "1e999",
        "9" * 5000,
        "1_0",
        "٣",
        "0x1",
        "1,5",
        "ten",
        "None",
        "{}",
    ],
)
def test_hostile_numbers_in_the_environment(setting: Setting, text: str, tmp_path: Path) -> None:
    message = str(refusal(tmp_path, {setting.variable: text}))
    assert message.startswith(f"{setting.variable} must be {setting.expects}, not ")
    assert len(message) < 250


@pytest.mark.parametrize("setting", NUMBERS, ids=named)
@pytest.mark.parametrize(
    "toml", ["true", "'1'", "nan", "inf", "-1", "[1]", "{a = 1}", "1979-05-27", "9" * 400, "''"]
)
def test_hostile_numbers_in_the_file(setting: Setting, toml: str, tmp_path: Path) -> None:
    table, _, key = setting.name.rpartition(".")
    path = write_config(tmp_path, f"[{table}]\n{key} = {toml}\n")
    message = str(refusal(tmp_path))
    assert message.startswith(f"{setting.name} in {path} must be {setting.expects}, not ")


def test_a_fraction_is_no_whole_number(tmp_path: Path) -> None:
    assert "not 10.0" in str(refusal(tmp_path, {}, {"retention.transcript_days": 10.0}))
    assert "not '10.5'" in str(refusal(tmp_path, {"MERITORY_RETENTION_TRANSCRIPT_DAYS": "10.5"}))


@pytest.mark.parametrize("raw", ["maybe", "2", 1, 0, [], {}, "truee", "true\nfalse"])
def test_hostile_switches(raw: object, tmp_path: Path) -> None:
    assert "must be true or false" in str(refusal(tmp_path, {}, {"gate.enabled": raw}))


@pytest.mark.parametrize("raw", ["Static", "static ", "openai\n", "", "pickle", 1, True, [], None])
def test_hostile_choices(raw: object, tmp_path: Path) -> None:
    if raw is None:
        assert load_settings(tmp_path, {}, {"embedder.kind": raw}).embedder.kind == "static"
        return
    message = str(refusal(tmp_path, {}, {"embedder.kind": raw}))
    assert "one of static, encoder, openai, fastembed, sentence-transformers, onnx, none" in message


@pytest.mark.parametrize("setting", TEXTS, ids=named)
@pytest.mark.parametrize("raw", ["a\0b", "a\x1b[31mb", "a\x7fb", "a\x85b", "a\rb"])
def test_control_characters_are_refused(setting: Setting, raw: str, tmp_path: Path) -> None:
    message = str(refusal(tmp_path, {setting.variable: raw}))
    assert message.startswith(f"{setting.variable} holds a control character")
    assert "\x1b" not in message


@pytest.mark.parametrize("setting", TEXTS, ids=named)
def test_what_is_not_utf8_in_the_environment_is_refused(setting: Setting, tmp_path: Path) -> None:
    raw = os.fsdecode(b"caf\xe9")
    assert str(refusal(tmp_path, {setting.variable: raw})) == f"{setting.variable} is not UTF-8"


@pytest.mark.parametrize("setting", [s for s in TEXTS if not s.multiline], ids=named)
@pytest.mark.parametrize("raw", [" a", "a ", "\u00a0a"])
def test_stray_spaces_are_refused(setting: Setting, raw: str, tmp_path: Path) -> None:
    assert "begins or ends with a space" in str(refusal(tmp_path, {setting.variable: raw}))


@pytest.mark.parametrize("raw", [1, True, [], {}, 1.5])
@pytest.mark.parametrize("setting", TEXTS, ids=named)
def test_text_must_be_text(setting: Setting, raw: object, tmp_path: Path) -> None:
    assert setting.expects in str(refusal(tmp_path, {}, {setting.name: raw}))


def test_a_user_must_have_a_name(tmp_path: Path) -> None:
    assert "text of 1 to 256 characters" in str(refusal(tmp_path, {}, {"user": ""}))


@pytest.mark.parametrize(
    "raw",
    [
        "localhost:11434",
        "ftp://x/",
        "file:///etc/passwd",
        "http://",
        "https:///v1",
        "http://[::1",
        "http://x:99999/",
        "http://x:0/",
        "javascript:alert(1)",
        "x",
    ],
)
def test_hostile_addresses(raw: str, tmp_path: Path) -> None:
    message = str(refusal(tmp_path, {"MERITORY_EMBEDDER_URL": raw}))
    assert "must be an http:// or https:// address" in message


def test_a_login_in_an_address_is_refused_and_not_shown(tmp_path: Path) -> None:
    message = str(refusal(tmp_path, {"MERITORY_EMBEDDER_URL": f"https://me:{KEY}@host/v1"}))
    assert "embedder.api_key" in message
    assert KEY not in message


# --- the config file -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"[gate\n", "is not valid TOML"),
        (b"[gate]\nthreshold = \n", "line 2"),
        (b"[gate]\nthreshold = 0.9\nthreshold = 0.8\n", "is not valid TOML"),
        (b"[gate]\nenabled = true\nmodel = \xff\n", "is not UTF-8 in line 3"),
        (b"\xff\xfe[\0g\0", "is not UTF-8 in line 1"),
        (b"user = 'a\0b'\n", "is not valid TOML"),
        (b"x = " + b"[" * 20_000, "is not valid TOML"),
        (b"x = " + b"9" * 5_000, "is not valid TOML"),
        (b"#" * 65_537, "is larger than 65536 bytes"),
        (b"gate = 3\n", "gate in"),
        (b"[[gate]]\nthreshold = 0.9\n", "write [gate] above its keys"),
        (b"[user]\nname = 'me'\n", "user in"),
    ],
)
def test_a_broken_config_file_is_one_clear_sentence(tmp_path: Path, raw: bytes, said: str) -> None:
    path = write_config(tmp_path, raw)
    message = str(refusal(tmp_path))
    assert said in message
    assert str(path) in message
    assert "\n" not in message


def test_the_largest_config_file_is_read(tmp_path: Path) -> None:
    write_config(tmp_path, b"[retention]\ntranscript_days = 5\n".ljust(65_536, b"#"))
    assert load_settings(tmp_path, {}).retention.transcript_days == 5


def test_a_folder_a_pipe_or_a_dead_link_is_no_config_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.mkdir()
    assert f"{path} is not a file" in str(refusal(tmp_path))
    path.rmdir()
    os.mkfifo(path)
    assert f"{path} is not a file" in str(refusal(tmp_path))
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    assert f"{path} is not a file" in str(refusal(tmp_path))


def test_a_missing_folder_has_no_config_file(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "absent", {}).retention.transcript_days == 90


# --- secrets ---------------------------------------------------------------------------------


def test_a_secret_is_used_but_never_shown(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {"MERITORY_EMBEDDER_API_KEY": KEY})
    assert settings.embedder.api_key == KEY
    assert settings.shown()["embedder.api_key"] == "********"
    assert KEY not in repr(settings) + str(settings) + repr(settings.embedder)
    assert load_settings(tmp_path, {}).shown()["embedder.api_key"] == ""


@pytest.mark.parametrize("bad", [KEY + "\n", KEY * 100, KEY + "\0", " " + KEY, KEY + "\udcff"])
def test_a_refused_secret_is_not_in_the_error(tmp_path: Path, bad: str) -> None:
    error = refusal(tmp_path, {"MERITORY_EMBEDDER_API_KEY": bad})
    assert KEY not in str(error)
    assert "MERITORY_EMBEDDER_API_KEY" in str(error)


def test_a_secret_of_the_wrong_type_is_not_in_the_error(tmp_path: Path) -> None:
    write_config(tmp_path, "[embedder]\napi_key = 123456789\n")
    assert "123456789" not in str(refusal(tmp_path))


def test_shown_values_read_like_the_config_file(tmp_path: Path) -> None:
    assert load_settings(tmp_path, {}).shown()["gate.threshold"] == "auto"
    shown = load_settings(tmp_path, {}, {"gate.enabled": False, "gate.threshold": 0.5}).shown()
    assert (shown["gate.enabled"], shown["gate.threshold"]) == ("false", "0.5")


# --- where the data folder is ----------------------------------------------------------------


def test_the_data_folder_is_meritory_home_or_in_the_users_home(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert home_folder({"HOME": home}) == tmp_path / ".meritory"
    assert home_folder({"HOME": home, "MERITORY_HOME": ""}) == tmp_path / ".meritory"
    assert home_folder({"HOME": home, "MERITORY_HOME": f"{home}/data"}) == tmp_path / "data"
    assert home_folder({"HOME": home, "MERITORY_HOME": "~/data"}) == tmp_path / "data"
    assert home_folder({"HOME": home, "MERITORY_HOME": "~"}) == tmp_path


def test_a_relative_data_folder_starts_where_the_program_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert home_folder({"MERITORY_HOME": "data"}) == tmp_path / "data"


@pytest.mark.parametrize("given", ["a\0b", "~nobody-of-that-name/x"])
def test_an_impossible_data_folder_is_refused(given: str) -> None:
    with pytest.raises(SettingsError, match="MERITORY_HOME"):
        home_folder({"MERITORY_HOME": given, "HOME": "/"})


# --- making the data folder ready ------------------------------------------------------------


def mode_of(path: Path) -> int:
    """The permission bits of a path."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Newly made folders are open to everybody, as on a careless machine."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_new_data_folder_is_private(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    assert prepare_home(home) is None
    assert mode_of(home) == 0o700
    assert prepare_home(home) is None


def test_a_new_data_folder_is_usable_under_a_strict_umask(tmp_path: Path) -> None:
    before = os.umask(0o377)
    try:
        prepare_home(tmp_path / "home")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "home") == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o777, 0o701, 0o710])
@pytest.mark.parametrize("inside", [None, "config.toml", "meritory.db"])
def test_an_open_data_folder_is_closed_and_said_so(
    tmp_path: Path, mode: int, inside: str | None
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if inside:
        (home / inside).touch()
        (home / "token").touch()
    home.chmod(mode)
    notice = prepare_home(home)
    assert mode_of(home) == 0o700
    assert notice is not None
    assert f"(mode {mode:03o})" in notice
    assert str(home) in notice
    assert prepare_home(home) is None


@pytest.mark.parametrize(
    ("mode", "inside"), [(0o755, "photos"), (0o1777, "meritory.db"), (0o1777, "")]
)
def test_a_folder_of_others_is_never_closed(tmp_path: Path, mode: int, inside: str) -> None:
    """MERITORY_HOME=/tmp or MERITORY_HOME=$HOME must not lock other programs out."""
    home = tmp_path / "shared"
    home.mkdir()
    if inside:
        (home / inside).touch()
    home.chmod(mode)
    with pytest.raises(SettingsError, match="MERITORY_HOME"):
        prepare_home(home)
    assert mode_of(home) == mode


def test_a_private_folder_with_other_files_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    tmp_path.chmod(0o700)
    assert prepare_home(tmp_path) is None


def test_a_file_in_its_place_is_refused_and_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("precious")
    with pytest.raises(SettingsError, match="is a file, not a folder"):
        prepare_home(home)
    assert home.read_text() == "precious"
    with pytest.raises(SettingsError, match="cannot be prepared"):
        prepare_home(home / "below")


def test_a_link_is_followed_and_a_dead_one_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    home = tmp_path / "home"
    home.symlink_to(target)
    assert prepare_home(home) is None
    assert home.is_symlink()
    target.rmdir()
    with pytest.raises(SettingsError, match="leads nowhere"):
        prepare_home(home)


def test_a_path_the_system_refuses_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be prepared"):
        prepare_home(tmp_path / ("x" * 5000))


AS_NOBODY = """
import os, sys
from pathlib import Path
from meritory.domain.errors import MeritoryError
from meritory.settings import prepare_home
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    prepare_home(Path(sys.argv[1]))
except MeritoryError as error:
    print(type(error).__name__, error)
else:
    print("prepared")
"""


@pytest.mark.parametrize("mode", [0o500, 0o555])
def test_a_read_only_folder_is_refused_and_left_as_it_is(mode: int) -> None:
    # The superuser may write anywhere, so the question is asked as somebody else.
    with tempfile.TemporaryDirectory() as outer:
        Path(outer).chmod(0o755)
        home = Path(outer) / "home"
        home.mkdir()
        if os.geteuid() == 0:
            os.chown(home, 65534, 65534)
        home.chmod(mode)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(AS_NOBODY), str(home)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith(f"{ReadOnlyStore.__name__} the data folder {home} cannot be")
        assert "make it writable" in done.stdout
        assert mode_of(home) == mode
        home.chmod(0o700)


def test_an_engine_without_settings_does_what_the_defaults_say(tmp_path: Path) -> None:
    with Memory(tmp_path / "t.db", settings=load_settings(tmp_path, {})) as memory:
        assert memory.services.policy == Policy()
