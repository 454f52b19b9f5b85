"""Settings of what happens after sessions: extraction, the janitor, how long things are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from meritory.settings.field import setting


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
