"""The settings of a data folder: the groups of `domain.policy`, read from all their sources.

A flag beats the environment, which beats `$MERITORY_HOME/config.toml`, which beats the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from meritory.domain import policy
from meritory.domain.errors import SettingsError
from meritory.domain.memory import DEFAULT_USER, NAME_LIMIT_CHARS
from meritory.settings.home import (
    CONFIG_NAME,
    HOME_VARIABLE,
    STORE_NAME,
    TOKEN_VARIABLE,
    URL_VARIABLE,
)
from meritory.settings.value import (
    ENV_PREFIX,
    Setting,
    Value,
    check,
    parse,
    show,
    suggestion,
    variable_of,
)

_TEXT_LIMIT_CHARS = 1_024
# Settings of version 0.1 that are constants now (ADR 0033), by group.
_REMOVED = {
    "embedder": "dimension timeout_ms",
    "recall": "limit relevance_floor vector_weight",
    "ranking": "weight_user_stated weight_episode_summary weight_assistant_derived"
    " confidence_slope",
    "database": "pool_size",
    "session": "start_limit prompt_limit",
    "predictor": "influence base_weights train_interval_sessions crash_disable_threshold"
    " drift_reset_window composite candidate_pool_size min_training_sessions rrf_k"
    " exploration_rate feedback_weight fts_weight continuity_weight",
    "llm": "calls_per_hour",
    "janitor": "user_stated_months episode_summary_months assistant_derived_months"
    " flush_interval_ms",
    "retention": "event_days action_days refusal_days",
    "daemon": "in_flight_limit",
}
REMOVED = frozenset(f"{group}.{key}" for group, keys in _REMOVED.items() for key in keys.split())
CONFIG_LIMIT_BYTES = 65_536
# Variables of benchmarks, tests and the hook, and those that name a daemon, are not settings.
_FOREIGN_PREFIXES = ("MERITORY_BENCH_", "MERITORY_DEBUG", "MERITORY_HOOK", "MERITORY_TEST_")
_FOREIGN = frozenset({HOME_VARIABLE, URL_VARIABLE, TOKEN_VARIABLE})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, the data folder they belong to, and the origin of each value."""

    home: Path
    origins: Mapping[str, str]
    user: str = policy.setting(
        DEFAULT_USER, "The user whose memories these are by default.", low=1, high=NAME_LIMIT_CHARS
    )
    gate: policy.GatePolicy = field(default_factory=policy.GatePolicy)
    secrets: policy.SecretsPolicy = field(default_factory=policy.SecretsPolicy)
    embedder: policy.EmbedderSpec = field(default_factory=policy.EmbedderSpec)
    recall: policy.RecallPolicy = field(default_factory=policy.RecallPolicy)
    ranking: policy.SourceWeights = field(default_factory=policy.SourceWeights)
    store: policy.StorePolicy = field(default_factory=policy.StorePolicy)
    database: policy.DatabasePolicy = field(default_factory=policy.DatabasePolicy)
    session: policy.SessionPolicy = field(default_factory=policy.SessionPolicy)
    predictor: policy.PredictorPolicy = field(default_factory=policy.PredictorPolicy)
    judge: policy.JudgePolicy = field(default_factory=policy.JudgePolicy)
    extraction: policy.ExtractionPolicy = field(default_factory=policy.ExtractionPolicy)
    llm: policy.LlmSpec = field(default_factory=policy.LlmSpec)
    janitor: policy.JanitorPolicy = field(default_factory=policy.JanitorPolicy)
    retention: policy.RetentionPolicy = field(default_factory=policy.RetentionPolicy)
    daemon: policy.DaemonPolicy = field(default_factory=policy.DaemonPolicy)

    @property
    def policy(self) -> policy.Policy:
        """The groups that the engine goes by."""
        return policy.Policy(
            **{group.name: getattr(self, group.name) for group in fields(policy.Policy)}
        )

    def vary(self, values: Mapping[str, object]) -> Settings:
        """Return a copy with other values, settings or constants, for evaluation and tests."""
        groups: dict[str, Any] = {}
        for name, value in values.items():
            group, _, key = name.partition(".")
            groups[group] = replace(groups.get(group, getattr(self, group)), **{key: value})
        return replace(self, **groups)

    @property
    def store_file(self) -> Path:
        """Return the database file that the settings name."""
        try:
            return self.home / Path(self.store.path or STORE_NAME).expanduser()
        except RuntimeError as error:
            raise SettingsError(
                f"store.path names an unknown home folder: {self.store.path}",
                hint="write the whole path",
            ) from error

    def value(self, name: str) -> Value:
        """Return the value of a setting by its dotted name."""
        return self.field(find_setting(name, "the call").name)

    def field(self, name: str) -> Value:
        """Return the value of a setting or of a constant by its dotted name."""
        owner: Any = self
        for part in name.split("."):
            owner = getattr(owner, part)
        value: Value = owner
        return value

    def shown(self) -> dict[str, str]:
        """Return every value as text for people, secrets masked."""
        return {setting.name: show(setting, self.value(setting.name)) for setting in SETTINGS}


def _walk(model: type, prefix: str = "") -> Iterator[Setting]:
    """Yield the settings of a model and its groups, in the order in which they are declared."""
    hints = get_type_hints(model)
    for item in fields(model):
        hint, metadata = hints[item.name], item.metadata.get("setting")
        if metadata is None:
            if isinstance(hint, type) and is_dataclass(hint):
                yield from _walk(hint, f"{prefix}{item.name}.")
            continue
        # The type decides the form of a value.
        kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        details: dict[str, Any] = dict(metadata)
        if get_origin(kinds[0]) is Literal:
            details |= {"form": "choice", "choices": get_args(kinds[0])}
        elif kinds[0] is str:
            details = {"form": "text", "low": 0, "high": _TEXT_LIMIT_CHARS} | details
        else:
            details["form"] = {bool: "switch", int: "whole number", float: "number"}[kinds[0]]
        details |= {"default": item.default, "auto": NoneType in kinds}
        yield Setting(name=prefix + item.name, **details)


SETTINGS: tuple[Setting, ...] = tuple(_walk(Settings))
BY_NAME = MappingProxyType({setting.name: setting for setting in SETTINGS})
BY_VARIABLE = MappingProxyType({setting.variable: setting for setting in SETTINGS})
REMOVED_VARIABLES = frozenset(variable_of(name) for name in REMOVED)
GROUPS = tuple(dict.fromkeys(name.split(".")[0] for name in (*BY_NAME, *REMOVED) if "." in name))


def find_setting(name: str, source: str) -> Setting:
    """Return the description of a setting, or raise an error that suggests the right name."""
    if name in BY_NAME:
        return BY_NAME[name]
    if name in REMOVED:
        raise removed_error(name, source)
    hint = suggestion(name, [*BY_NAME, *GROUPS])
    raise SettingsError(f"unknown setting {name!r} in {source}", hint=hint)


def removed_error(name: str, source: str) -> SettingsError:
    """Return the error for a setting of an older version."""
    return SettingsError(
        f"{name} in {source} is no longer a setting",
        hint="remove it: it is a constant now (docs/decisions/0033-settings-and-constants.md)",
    )


def load_settings(
    home: Path, environ: Mapping[str, str], flags: Mapping[str, object] | None = None
) -> Settings:
    """Return the settings of a data folder, each value from the strongest source that has it."""
    config = home / CONFIG_NAME
    values: dict[str, Value] = {setting.name: setting.default for setting in SETTINGS}
    origins = dict.fromkeys(values, "default")
    for key, value in _read_config(config).items():
        if key in GROUPS and not isinstance(value, dict):
            hint = f"write [{key}] above its keys"
            raise SettingsError(f"{key} in {config} is a table", hint=hint)
        if key not in GROUPS and "." in key:
            raise SettingsError(f"unknown key {key!r} in {config}", hint="write it without quotes")
        inner = {f"{key}.{name}": raw for name, raw in value.items()} if key in GROUPS else {}
        for name, raw in (inner if key in GROUPS else {key: value}).items():
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
    parts: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    hints = get_type_hints(Settings)
    for group in GROUPS:
        lead = group + "."
        inner = {name[len(lead) :]: v for name, v in values.items() if name.startswith(lead)}
        parts[group] = hints[group](**inner)
    return Settings(home=home, origins=MappingProxyType(origins), **parts)


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


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that are settings; an empty one counts as not set."""
    for variable in sorted(environ):
        is_foreign = variable in _FOREIGN or variable.startswith(_FOREIGN_PREFIXES)
        if is_foreign or not variable.startswith(ENV_PREFIX):
            continue
        if variable in REMOVED_VARIABLES:
            raise removed_error(variable, "the environment")
        if variable not in BY_VARIABLE:
            hint = suggestion(variable, [*BY_VARIABLE, HOME_VARIABLE])
            raise SettingsError(f"unknown setting {variable!r} in the environment", hint=hint)
        if environ[variable]:
            yield variable, environ[variable]
