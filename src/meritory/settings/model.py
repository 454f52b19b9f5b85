"""Settings of what happens after sessions: extraction, the janitor, how long things are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from meritory.domain.errors import SettingsError
from meritory.domain.memory import DEFAULT_USER, NAME_LIMIT_CHARS
from meritory.settings.field import setting
from meritory.settings.field import setting as _setting
from meritory.settings.home import STORE_NAME
from meritory.settings.value import Setting, Value, show, suggestion


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionSettings:
    """What becomes a memory of a finished session."""

    kind: Literal["rules", "llm", "none"] = setting(
        "rules",
        "The extractor; rules keeps what the user asked outright to be remembered, llm also asks "
        "the model below.",
    )
    summaries: bool = setting(
        False, "Whether a finished session is also kept as a memory of what was asked for in it."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JanitorSettings:
    """The weekly sweep over memories that were never of use."""

    enabled: bool = setting(True, "Whether the daemon sweeps once a week.")
    user_stated_months: int = setting(
        12, "Months without being shown after which what the user said is demoted.", low=1, high=600
    )
    episode_summary_months: int = setting(6, "The same for summaries of sessions.", low=1, high=600)
    assistant_derived_months: int = setting(
        3, "The same for what the assistant concluded.", low=1, high=600
    )
    cull: bool = setting(
        False, "Whether a memory that cannot be demoted further is forgotten; undo brings it back."
    )
    flush_interval_ms: int = setting(
        2_000,
        "How often counts of retrievals are written; a crash loses at most so much of them.",
        low=10,
        high=600_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """How long what was recorded beside memories is kept; 0 is for ever."""

    transcript_days: int = setting(
        90, "Days that transcripts of sessions are kept.", low=0, high=36_500
    )
    event_days: int = setting(90, "Days that entries of the timeline are kept.", low=0, high=36_500)
    action_days: int = setting(90, "Days that recorded actions are kept.", low=0, high=36_500)
    refusal_days: int = setting(
        365, "Days that what extraction refused is kept.", low=0, high=36_500
    )
    feedback_days: int = setting(
        0, "Days that the words of reports are kept; their lessons stay.", low=0, high=36_500
    )


_TEXT_LIMIT_CHARS = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """The similarity gate in front of every write."""

    threshold: float | None = _setting(
        None,
        "Cosine from which a new memory counts as similar to an old one; "
        "auto is the value calibrated for the embedder.",
        low=0.0,
        high=1.0,
    )
    enabled: bool = _setting(True, "Whether similar memories are merged or superseded at all.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsSettings:
    """What happens to keys, tokens and passwords in a text."""

    policy: Literal["refuse", "redact"] = _setting(
        "refuse", "Refuse a text that holds a secret, or store it with the secret blacked out."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderSettings:
    """What turns texts into vectors."""

    kind: Literal["static", "openai", "fastembed", "sentence-transformers", "onnx", "none"] = (
        _setting("static", "The embedder; static needs no download, none searches by words only.")
    )
    model: str = _setting(
        "", "The model's name; all embedders but static and none need one.", high=256
    )
    url: str = _setting("", "Base address of an OpenAI-compatible server.", form="address")
    api_key: str = _setting("", "Key for that server.", secret=True)
    dimension: int | None = _setting(
        None, "Length of the vectors; auto is what the model gives.", low=1, high=65_536
    )
    timeout_ms: int = _setting(
        10_000, "How long to wait for an embedder outside the process.", low=1, high=600_000
    )
    query_prefix: str = _setting("", "Put before every question.", multiline=True)
    document_prefix: str = _setting("", "Put before every memory.", multiline=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSettings:
    """How memories are found."""

    limit: int = _setting(10, "How many memories a recall returns.", low=1, high=200)
    relevance_floor: float = _setting(
        0.15, "Relevance below which a memory is not about the query.", low=0.0, high=1.0
    )
    vector_weight: float = _setting(
        0.35,
        "Largest share of the vectors in the hybrid score; the words have the rest.",
        low=0.0,
        high=1.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingSettings:
    """How far the source of a memory lowers its relevance."""

    weight_user_stated: float = _setting(
        1.0, "Weight of what the user said outright.", low=0.0, high=1.0
    )
    weight_episode_summary: float = _setting(
        0.85, "Weight of a summary of a session.", low=0.0, high=1.0
    )
    weight_assistant_derived: float = _setting(
        0.7, "Weight of what the assistant concluded.", low=0.0, high=1.0
    )
    confidence_slope: float = _setting(
        0.3, "Share of the relevance that a confidence of 0 costs.", low=0.0, high=1.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where memories are kept."""

    path: str = _setting(
        "",
        f"The database file; empty is {STORE_NAME} in the data folder, "
        "where a relative path starts too.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    """The database that a team shares, in the place of a file."""

    url: str = _setting(
        "",
        "Address of a PostgreSQL database with pgvector, postgresql://USER:PASSWORD@HOST/NAME; "
        "empty keeps memories in a file.",
        secret=True,
    )
    pool_size: int = _setting(16, "Connections to it at most.", low=2, high=1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """The server behind hooks, agents and the dashboard."""

    host: str = _setting(
        "127.0.0.1",
        "Address the daemon listens on; one that other machines reach needs `--allow-host`.",
        low=1,
        high=253,
    )
    port: int = _setting(
        7737,
        "Its TCP port; 0 is any free one, which is also taken when the default is in use.",
        low=0,
        high=65_535,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "What goes into daemon.log; debug has every request."
    )
    in_flight_limit: int = _setting(
        64, "Requests under way at once; more are told to come back later.", low=1, high=10_000
    )
    rate_limit_per_s: int = _setting(
        500, "Requests in a second, over all callers; 0 is no limit.", low=0, high=1_000_000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What a session is shown."""

    start_tokens: int = _setting(
        1_500, "Token budget of what opens a session.", low=50, high=100_000
    )
    prompt_tokens: int = _setting(
        500, "Token budget of what goes with a prompt.", low=50, high=100_000
    )
    start_limit: int = _setting(
        15, "Memories that open a session, required ones apart.", low=0, high=200
    )
    prompt_limit: int = _setting(5, "Memories that go with a prompt.", low=0, high=100)
    invite: bool = _setting(
        False, "Whether agents are told to store what they learn; they need the tool for it."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorSettings:
    """How candidates are ranked, and what is learned from sessions."""

    enabled: bool = _setting(
        True, "Whether a model of this user is trained and, as far as it wins, heard."
    )
    scorer: Literal["features", "attention", "random"] = _setting(
        "features",
        "The kind of model; attention also reads vectors and words, random tests the pipe.",
    )
    influence: Literal["replay", "seed"] = _setting(
        "replay",
        "How influence is earned: by proof over judged sessions, or by the success rate alone.",
    )
    base_weights: str = _setting(
        "", "File of the weights that learning starts from; empty is the shipped one.", high=4_096
    )
    train_interval_sessions: int = _setting(
        1, "Judged sessions between two trainings.", low=1, high=10_000
    )
    score_timeout_ms: int = _setting(
        120,
        "How long to wait for the model's scores; later the baseline ranks alone.",
        low=1,
        high=60_000,
    )
    crash_disable_threshold: int = _setting(
        3,
        "Crashes of the scorer's process within an hour that switch it off for the rest of it.",
        low=1,
        high=1_000,
    )
    drift_reset_window: int = _setting(
        10,
        "Sessions in a row with a success rate below 0.3 that take all influence away.",
        low=1,
        high=1_000,
    )
    composite: Literal["living", "seed"] = _setting(
        "living",
        "What feeds the baseline: use in past sessions, or only cosine, age and stored usefulness.",
    )
    candidate_pool_size: int = _setting(
        150, "Memories considered in a session, required ones apart.", low=10, high=1_000
    )
    min_training_sessions: int = _setting(
        10, "Judged sessions before anything is learned from them.", low=1, high=10_000
    )
    rrf_k: int = _setting(12, "Constant of the rank fusion.", low=0, high=1_000)
    exploration_rate: float = _setting(
        0.05, "How often the last place goes to a memory on trial.", low=0.0, high=0.5
    )
    agent_feedback: bool = _setting(
        True, "Whether agents are asked to rate what they were shown; off also ignores ratings."
    )
    feedback_weight: float = _setting(0.7, "Weight of ratings in a label.", low=0.0, high=1.0)
    fts_weight: float = _setting(0.2, "Weight of full-text hits in a label.", low=0.0, high=1.0)
    continuity_weight: float = _setting(
        0.1, "Weight of the judge's overall score in a label.", low=0.0, high=1.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """Who judges a finished session."""

    kind: Literal["rules", "llm", "none"] = _setting(
        "rules",
        "The judge; rules needs no model, llm sends the end of the transcript to the model below.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmSettings:
    """The language model of judge and extractor, and what may be spent on it."""

    provider: Literal["openai", "anthropic"] = _setting(
        "openai", "Whose way of speaking; openai is also Ollama, llama.cpp and vLLM."
    )
    model: str = _setting("", "The model's name.", high=256)
    url: str = _setting(
        "", "Base address of the server; empty is the provider's own.", form="address"
    )
    api_key: str = _setting("", "Key for that server.", secret=True)
    timeout_ms: int = _setting(60_000, "How long to wait for an answer.", low=1, high=600_000)
    max_output_tokens: int = _setting(
        4_000, "Length of an answer at most; thinking counts.", low=1, high=100_000
    )
    calls_per_hour: int = _setting(60, "Calls in any hour; more wait.", low=0, high=100_000)
    calls_per_day: int = _setting(500, "Calls in any 24 hours; more wait.", low=0, high=100_000)
    cost_per_day: float = _setting(
        1.0, "Cost in any 24 hours, in the currency of the prices.", low=0.0, high=100_000
    )
    price_per_million_input: float = _setting(
        0.0, "Price of a million tokens in; 0 is free or unknown.", low=0.0, high=100_000
    )
    price_per_million_output: float = _setting(
        0.0, "Price of a million tokens out; 0 is free or unknown.", low=0.0, high=100_000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, the data folder they belong to, and the origin of each value."""

    home: Path
    origins: Mapping[str, str]
    user: str = _setting(
        DEFAULT_USER, "Whose memories they are when nobody is named.", low=1, high=NAME_LIMIT_CHARS
    )
    gate: GateSettings = GateSettings()
    secrets: SecretsSettings = SecretsSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    recall: RecallSettings = RecallSettings()
    ranking: RankingSettings = RankingSettings()
    store: StoreSettings = StoreSettings()
    database: DatabaseSettings = DatabaseSettings()
    session: SessionSettings = SessionSettings()
    predictor: PredictorSettings = PredictorSettings()
    judge: JudgeSettings = JudgeSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    llm: LlmSettings = LlmSettings()
    janitor: JanitorSettings = JanitorSettings()
    retention: RetentionSettings = RetentionSettings()
    daemon: DaemonSettings = DaemonSettings()

    @property
    def store_file(self) -> Path:
        """The database file that the settings name."""
        try:
            return self.home / Path(self.store.path or STORE_NAME).expanduser()
        except RuntimeError as error:
            raise SettingsError(
                f"store.path names a home folder that is not known: {self.store.path}",
                hint="write the whole path",
            ) from error

    def value(self, name: str) -> Value:
        """The value of a setting by its dotted name."""
        owner: Any = self
        for part in known(name, "the call").name.split("."):
            owner = getattr(owner, part)
        found: Value = owner
        return found

    def shown(self) -> dict[str, str]:
        """Every value as text for people, secrets masked."""
        return {setting.name: show(setting, self.value(setting.name)) for setting in SETTINGS}


def _described(name: str, hint: Any, default: Any, details: Mapping[str, Any]) -> Setting:
    """The description of one field of the model, its form taken from the type."""
    kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    found: dict[str, Any] = dict(details)
    if get_origin(kinds[0]) is Literal:
        found |= {"form": "choice", "choices": get_args(kinds[0])}
    elif kinds[0] is str:
        found = {"form": "text", "low": 0, "high": _TEXT_LIMIT_CHARS} | found
    else:
        found["form"] = {bool: "switch", int: "whole number", float: "number"}[kinds[0]]
    return Setting(name=name, default=default, auto=NoneType in kinds, **found)


def _walk(model: type, prefix: str = "") -> Iterator[Setting]:
    """The settings of a model and of the groups inside it, in the order they are written."""
    hints = get_type_hints(model)
    for item in fields(model):
        hint, details = hints[item.name], item.metadata.get("setting")
        if details is not None:
            yield _described(prefix + item.name, hint, item.default, details)
        elif isinstance(hint, type) and is_dataclass(hint):
            yield from _walk(hint, f"{prefix}{item.name}.")


SETTINGS: tuple[Setting, ...] = tuple(_walk(Settings))
BY_NAME = MappingProxyType({setting.name: setting for setting in SETTINGS})
BY_VARIABLE = MappingProxyType({setting.variable: setting for setting in SETTINGS})
GROUPS = tuple(dict.fromkeys(name.split(".")[0] for name in BY_NAME if "." in name))


def known(name: str, place: str) -> Setting:
    """The description of a setting, or an error that suggests the right name."""
    if name not in BY_NAME:
        hint = suggestion(name, [*BY_NAME, *GROUPS])
        raise SettingsError(f"unknown setting {name!r} in {place}", hint=hint)
    return BY_NAME[name]


def build(home: Path, values: Mapping[str, Value], origins: Mapping[str, str]) -> Settings:
    """The model filled with checked values, one for every setting."""
    hints = get_type_hints(Settings)
    parts: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    for group in GROUPS:
        lead = group + "."
        inner = {name[len(lead) :]: v for name, v in values.items() if name.startswith(lead)}
        parts[group] = hints[group](**inner)
    return Settings(home=home, origins=MappingProxyType(dict(origins)), **parts)
