"""The settings of a data folder: the groups of `domain.policy`, with the origin of each value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from meritory.domain import policy
from meritory.domain.errors import SettingsError
from meritory.domain.memory import DEFAULT_USER, NAME_LIMIT_CHARS
from meritory.settings.home import STORE_NAME
from meritory.settings.value import Setting, Value, show, suggestion, variable_of

_TEXT_LIMIT_CHARS = 1_024
# Settings of version 0.1 that are constants now (ADR 0033).
REMOVED = frozenset(
    [
        "embedder.dimension",
        "embedder.timeout_ms",
        "recall.limit",
        "recall.relevance_floor",
        "recall.vector_weight",
        "ranking.weight_user_stated",
        "ranking.weight_episode_summary",
        "ranking.weight_assistant_derived",
        "ranking.confidence_slope",
        "database.pool_size",
        "session.start_limit",
        "session.prompt_limit",
        "predictor.influence",
        "predictor.base_weights",
        "predictor.train_interval_sessions",
        "predictor.crash_disable_threshold",
        "predictor.drift_reset_window",
        "predictor.composite",
        "predictor.candidate_pool_size",
        "predictor.min_training_sessions",
        "predictor.rrf_k",
        "predictor.exploration_rate",
        "predictor.feedback_weight",
        "predictor.fts_weight",
        "predictor.continuity_weight",
        "llm.calls_per_hour",
        "janitor.user_stated_months",
        "janitor.episode_summary_months",
        "janitor.assistant_derived_months",
        "janitor.flush_interval_ms",
        "retention.event_days",
        "retention.action_days",
        "retention.refusal_days",
        "daemon.in_flight_limit",
    ]
)


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


def build(home: Path, values: Mapping[str, Value], origins: Mapping[str, str]) -> Settings:
    """Return the settings filled with checked values, one for every setting."""
    hints = get_type_hints(Settings)
    parts: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    for group in GROUPS:
        lead = group + "."
        inner = {name[len(lead) :]: v for name, v in values.items() if name.startswith(lead)}
        parts[group] = hints[group](**inner)
    return Settings(home=home, origins=MappingProxyType(dict(origins)), **parts)
