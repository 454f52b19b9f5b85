"""Every choice a user or operator may make, one frozen dataclass for each group.

A field made with `setting` is read from flags, the environment and config.toml by `settings`. A
plain field is a constant: evaluation, benchmarks and tests vary it, users do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from meritory.domain.errors import InputError

T = TypeVar("T")
EmbedderKind = Literal[
    "static", "encoder", "openai", "fastembed", "sentence-transformers", "onnx", "none"
]
LlmProvider = Literal["openai", "anthropic"]

# Below this relevance a memory is not about the prompt, however fresh and trusted it is.
RELEVANCE_FLOOR = 0.15
# A search without `min_score` returns nothing if the best score is below this: at most 5% of the
# answers are lost by it (bench.abstain).
KNOWN_SCORE = 0.05
# Largest share of the vectors in the hybrid score; the words have the rest.
VECTOR_WEIGHT = 0.35
# The same for vectors of a sentence encoder, which are right more often (ADR 0041).
ENCODER_VECTOR_WEIGHT = 0.5
CANDIDATE_POOL_SIZE = 150
RRF_K = 12
EXPLORATION_RATE = 0.05
START_TOKENS = 1_500
RECALL_LIMIT = 10


def setting(default: T, help: str, **details: Any) -> T:
    """Declare a field that users can set, with its documentation and bounds."""
    metadata = {"setting": {"help": help, **details}}
    declared: T = field(default=default, repr=not details.get("secret"), metadata=metadata)
    return declared


@dataclass(frozen=True, kw_only=True)
class GatePolicy:
    """The similarity gate that checks every write."""

    threshold: float | None = setting(
        None,
        "Cosine from which a new memory counts as similar to an old one; "
        "auto is the value calibrated for the embedder.",
        low=0.0,
        high=1.0,
    )
    enabled: bool = setting(True, "Whether similar memories are merged or superseded at all.")


@dataclass(frozen=True, kw_only=True)
class SecretsPolicy:
    """What happens to keys, tokens and passwords in a text."""

    policy: Literal["refuse", "redact"] = setting(
        "refuse", "Refuse a text that holds a secret, or store it with the secret blacked out."
    )


@dataclass(frozen=True)
class EmbedderSpec:
    """The model that turns texts into vectors."""

    kind: EmbedderKind = setting(
        "static",
        "The embedder; static and encoder need no download, none searches by words only.",
    )
    model: str = setting(
        "",
        "The model's name; for encoder a file, empty for the bundled one. "
        "static and none need no name.",
        high=256,
    )
    url: str = setting("", "Base address of an OpenAI-compatible server.", form="address")
    api_key: str = setting("", "Key for that server.", secret=True)
    query_prefix: str = setting("", "Text put before every question.", multiline=True)
    document_prefix: str = setting("", "Text put before every memory.", multiline=True)
    # None accepts any length that the model gives. A number rejects every other length.
    dimension: int | None = None
    timeout_ms: int = 10_000


@dataclass(frozen=True, kw_only=True)
class RecallPolicy:
    """How a recall finds memories. All constants."""

    relevance_floor: float = RELEVANCE_FLOOR
    known_score: float = KNOWN_SCORE
    vector_weight: float = VECTOR_WEIGHT
    # Whether words without a hit are read as the nearest words of the store.
    corrects_words: bool = True
    encoder_vector_weight: float = ENCODER_VECTOR_WEIGHT


@dataclass(frozen=True, slots=True)
class SourceWeights:
    """How far the source of a memory lowers its relevance. All constants.

    With all weights 1 and a slope of 0 the relevance stays as it is.
    """

    user_stated: float = 1.0
    episode_summary: float = 0.85
    assistant_derived: float = 0.7
    # Share of the relevance that a confidence of 0 costs.
    confidence_slope: float = 0.3

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not 0.0 <= value <= 1.0:
                raise InputError(
                    f"the source weight {item.name} is {value!r}",
                    hint="weights only demote: choose a number from 0 to 1",
                )


@dataclass(frozen=True, kw_only=True)
class StorePolicy:
    """The file that holds the memories."""

    path: str = setting(
        "",
        "The database file; empty is meritory.db in the data folder, "
        "where a relative path starts too.",
    )


@dataclass(frozen=True, kw_only=True)
class DatabasePolicy:
    """The database that a team shares instead of a file."""

    url: str = setting(
        "",
        "Address of a PostgreSQL database with pgvector, postgresql://USER:PASSWORD@HOST/NAME; "
        "empty keeps memories in a file.",
        secret=True,
    )
    # Most connections that one process opens.
    pool_size: int = 16


@dataclass(frozen=True, kw_only=True)
class SessionPolicy:
    """What a session shows."""

    start_tokens: int = setting(
        START_TOKENS,
        "Token budget of the memories that open a session.",
        low=50,
        high=100_000,
    )
    prompt_tokens: int = setting(
        500, "Token budget of the memories that go with a prompt.", low=50, high=100_000
    )
    invite: Literal["auto", "on", "off"] = setting(
        "auto",
        "Whether to ask agents at a session's start to store what they learn; auto asks where "
        "`meritory connect` has given them the tools.",
    )
    # Most memories that open a session, without the required ones.
    start_limit: int = 15
    # Most memories that go with a prompt.
    prompt_limit: int = 5


@dataclass(frozen=True, kw_only=True)
class PredictorPolicy:
    """How candidates are ranked, and what is learned from sessions."""

    enabled: bool = setting(
        True,
        "Whether to train a model for this user, which gains influence as far as it ranks better.",
    )
    scorer: Literal["features", "attention", "random"] = setting(
        "features",
        "The kind of model; attention also reads vectors and words, random tests the pipeline.",
    )
    agent_feedback: bool = setting(
        True, "Whether to ask agents to rate what they were shown; off also ignores ratings."
    )
    score_timeout_ms: int = setting(
        120,
        "How long to wait for the model's scores; later the baseline ranks alone.",
        low=1,
        high=60_000,
    )
    # How the model gains influence: by proof over judged sessions, or by the success rate alone.
    influence: Literal["replay", "seed"] = "replay"
    # The source of the baseline: use in past sessions, or only cosine, age and stored usefulness.
    composite: Literal["living", "seed"] = "living"
    # File of the weights that learning starts from; empty is the shipped one.
    base_weights: str = ""
    # Judged sessions between two trainings. A fit takes milliseconds, so the default scorer learns
    # after every session.
    train_interval_sessions: int = 1
    # Judged sessions before the model learns anything.
    min_training_sessions: int = 10
    # Sessions in a row with a success rate below 0.3 that take all influence away.
    drift_reset_window: int = 10
    # Memories considered in a session, without the required ones.
    candidate_pool_size: int = CANDIDATE_POOL_SIZE
    rrf_k: int = RRF_K
    # How often the last position goes to a memory on trial.
    exploration_rate: float = EXPLORATION_RATE


@dataclass(frozen=True, kw_only=True)
class JudgePolicy:
    """The judge of finished sessions."""

    kind: Literal["rules", "llm", "none"] = setting(
        "rules",
        "The judge; rules needs no model, llm sends the end of the transcript to the model below.",
    )


@dataclass(frozen=True, kw_only=True)
class ExtractionPolicy:
    """Which parts of a finished session become memories."""

    kind: Literal["rules", "llm", "none"] = setting(
        "rules",
        "The extractor; rules keeps what the user explicitly asked to remember, llm also asks "
        "the model below.",
    )
    summaries: bool = setting(
        False, "Whether to store a summary of the requests of each finished session as well."
    )


@dataclass(frozen=True, kw_only=True)
class LlmSpec:
    """The language model of judge and extractor, with its prices and budget."""

    provider: LlmProvider = setting(
        "openai", "The API of the server; openai is also Ollama, llama.cpp and vLLM."
    )
    model: str = setting("", "The model's name.", high=256)
    url: str = setting(
        "", "Base address of the server; empty is the provider's own.", form="address"
    )
    api_key: str = setting("", "Key for that server.", secret=True)
    timeout_ms: int = setting(60_000, "How long to wait for an answer.", low=1, high=600_000)
    max_output_tokens: int = setting(
        4_000, "Maximum length of an answer, thinking included.", low=1, high=100_000
    )
    calls_per_day: int = setting(500, "Calls in any 24 hours; more wait.", low=0, high=100_000)
    cost_per_day: float = setting(
        1.0, "Cost in any 24 hours, in the currency of the prices.", low=0.0, high=100_000
    )
    price_per_million_input: float = setting(
        0.0, "Price of a million tokens in; 0 is free or unknown.", low=0.0, high=100_000
    )
    price_per_million_output: float = setting(
        0.0, "Price of a million tokens out; 0 is free or unknown.", low=0.0, high=100_000
    )
    calls_per_hour: int = 60

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Return the price of a call with so many tokens."""
        return (
            input_tokens * self.price_per_million_input
            + output_tokens * self.price_per_million_output
        ) / 1_000_000


@dataclass(frozen=True, kw_only=True)
class JanitorPolicy:
    """The weekly sweep over memories that were never useful."""

    enabled: bool = setting(True, "Whether the daemon sweeps once a week.")
    cull: bool = setting(
        False,
        "Whether to forget a memory that cannot be demoted further; undo restores it.",
    )
    # Active months without being shown after which a memory is demoted, by its source.
    user_stated_months: int = 12
    episode_summary_months: int = 6
    assistant_derived_months: int = 3


@dataclass(frozen=True, kw_only=True)
class RetentionPolicy:
    """How many days records other than memories are kept; 0 keeps them indefinitely."""

    transcript_days: int = setting(
        90, "Days to keep transcripts of sessions; 0 keeps them.", low=0, high=36_500
    )
    feedback_days: int = setting(
        0,
        "Days to keep the words of reports; 0 keeps them. Their lessons stay.",
        low=0,
        high=36_500,
    )
    # Entries of the timeline, recorded actions, and candidates that extraction rejected.
    event_days: int = 90
    action_days: int = 90
    refusal_days: int = 365


@dataclass(frozen=True, kw_only=True)
class DaemonPolicy:
    """The server of hooks, agents and the dashboard."""

    host: str = setting(
        "127.0.0.1",
        "Address the daemon listens on; one that other machines reach needs `--allow-host`.",
        low=1,
        high=253,
    )
    port: int = setting(
        7737,
        "Its TCP port; 0 is any free one, which is also taken when the default is in use.",
        low=0,
        high=65_535,
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "The lowest level written to daemon.log; debug has every request."
    )
    rate_limit_per_s: int = setting(
        500, "Requests in a second, over all callers; 0 is no limit.", low=0, high=1_000_000
    )
    # Requests in progress at once; the daemon asks further ones to retry later.
    in_flight_limit: int = 64


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The groups that the engine goes by."""

    gate: GatePolicy = GatePolicy()
    secrets: SecretsPolicy = SecretsPolicy()
    recall: RecallPolicy = RecallPolicy()
    ranking: SourceWeights = SourceWeights()
    session: SessionPolicy = SessionPolicy()
    predictor: PredictorPolicy = PredictorPolicy()
    extraction: ExtractionPolicy = ExtractionPolicy()
    janitor: JanitorPolicy = JanitorPolicy()
    retention: RetentionPolicy = RetentionPolicy()
