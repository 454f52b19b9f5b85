"""Read settings: a flag beats the environment, which beats config.toml and the default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meritory.domain.errors import SettingsError
from meritory.settings.home import CONFIG_NAME, HOME_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE
from meritory.settings.model import (
    BY_VARIABLE,
    GROUPS,
    REMOVED_VARIABLES,
    SETTINGS,
    Settings,
    build,
    find_setting,
    removed_error,
)
from meritory.settings.value import ENV_PREFIX, Value, check, parse, suggestion

CONFIG_LIMIT_BYTES = 65_536
# Variables of benchmarks, tests and the hook, and those that name a daemon, are not settings.
_FOREIGN_PREFIXES = ("MERITORY_BENCH_", "MERITORY_DEBUG", "MERITORY_HOOK", "MERITORY_TEST_")
_FOREIGN = frozenset({HOME_VARIABLE, URL_VARIABLE, TOKEN_VARIABLE})


def load_settings(
    home: Path, environ: Mapping[str, str], flags: Mapping[str, object] | None = None
) -> Settings:
    """Return the settings of a data folder, each value from the strongest source that has it."""
    config = home / CONFIG_NAME
    values: dict[str, Value] = {setting.name: setting.default for setting in SETTINGS}
    origins = dict.fromkeys(values, "default")
    for name, raw in _flattened(_read_config(config), config):
        setting = find_setting(name, str(config))
        values[name], origins[name] = check(setting, raw, f"{name} in {config}"), CONFIG_NAME
    for variable, text in _variables(environ):
        setting = BY_VARIABLE[variable]
        values[setting.name] = check(setting, parse(setting, text), variable)
        origins[setting.name] = variable
    for name, given in (flags or {}).items():
        setting = find_setting(name, "the flags")
        # A flag that was not given is None; "auto" is the automatic value.
        if given is not None:
            raw = parse(setting, given) if isinstance(given, str) else given
            values[name], origins[name] = check(setting, raw, f"the flag {name}"), "flag"
    return build(home, values, origins)


def _read_config(path: Path) -> dict[str, Any]:
    """Return the tables of the config file; a missing file has none."""
    try:
        if not path.is_file():
            if path.is_symlink() or path.exists():
                raise SettingsError(f"{path} is not a file", hint="move it away or write a file")
            return {}
        with path.open("rb") as file:
            raw = file.read(CONFIG_LIMIT_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > CONFIG_LIMIT_BYTES:
        raise SettingsError(f"{path} is larger than {CONFIG_LIMIT_BYTES} bytes")
    # Imported here: a start without a config file need not load the parser.
    import tomllib

    try:
        # Some editors write a byte order mark, which TOML does not allow.
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SettingsError(
            f"{path} is not UTF-8 in line {line}", hint="save it as UTF-8"
        ) from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error


def _flattened(tables: Mapping[str, Any], path: Path) -> Iterator[tuple[str, object]]:
    """Yield the dotted names of a config file with their values."""
    for key, value in tables.items():
        if key in GROUPS and isinstance(value, dict):
            yield from ((f"{key}.{inner}", raw) for inner, raw in value.items())
        elif key in GROUPS:
            raise SettingsError(f"{key} in {path} is a table", hint=f"write [{key}] above its keys")
        elif "." in key:
            raise SettingsError(f"unknown key {key!r} in {path}", hint="write it without quotes")
        else:
            yield key, value


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that are settings; an empty one counts as not set."""
    for variable in sorted(environ):
        if not variable.startswith(ENV_PREFIX) or variable in _FOREIGN:
            continue
        if variable.startswith(_FOREIGN_PREFIXES):
            continue
        if variable in REMOVED_VARIABLES:
            raise removed_error(variable, "the environment")
        if variable not in BY_VARIABLE:
            hint = suggestion(variable, [*BY_VARIABLE, HOME_VARIABLE])
            raise SettingsError(f"unknown setting {variable!r} in the environment", hint=hint)
        if environ[variable]:
            yield variable, environ[variable]
