"""The evidence that the library receives at the end of a session: three regimes, four controls.

Regimes, by what an integration really delivers:

- `complete`: a program knows what every session used (`end(used=...)`).
- `ratings`: an agent rates the memories it was shown, in half of the sessions and with errors. The
  transcript comes with them where the stream has one.
- `transcripts`: the transcript alone (`end(transcript=...)`).

In a control the evidence says nothing about the truth:

- `shuffled`: labels by lot, or the transcript of another session.
- `words`: replies made from the words of 20 fixed memories.
- `position`: ratings that fall from the first memory shown to the last.
- `echo`: the agent restates every memory it was shown, and does nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from bench.streams_types import Message, Stream
from meritory.api.session import Session

Regime = Literal["complete", "ratings", "transcripts"]
Control = Literal["shuffled", "words", "position", "echo"]
REGIMES: tuple[Regime, ...] = get_args(Regime)
CONTROLS: Mapping[Regime, tuple[Control, ...]] = {
    "complete": ("shuffled",),
    "ratings": ("shuffled", "position"),
    "transcripts": ("shuffled", "words", "echo"),
}
# A file that was edited has the gain 2 and the label 1; one that was only read, half of both.
FULL_GAIN = 2.0
RATED_SHARE = 0.5
WRONG_RATING_SHARE = 0.15
# The share of good ratings by lot before there is an earlier session to take it from.
FIRST_RATE = 0.5
WORDS_MEMORIES = 20
WORDS_SENTENCES = 12
WORDS_PER_SENTENCE = 14


class WrongRegime(ValueError):
    """A stream cannot run in a regime, or a control does not belong to one."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the library receives about one session."""

    used: Mapping[str, float] | None = None
    ratings: Mapping[str, float] = field(default_factory=dict)
    transcript: list[Message] | None = None

    def deliver(self, session: Session) -> None:
        """Hand the evidence to the library through its public calls, and end the session."""
        if self.ratings:
            refused = session.rate(self.ratings).refused
            if refused:
                raise RuntimeError(f"the library refused ratings: {refused}")
        session.end(transcript=self.transcript, used=self.used)


@dataclass(frozen=True, slots=True)
class Shown:
    """One memory that the agent was shown."""

    id: str
    content: str


@dataclass(frozen=True, slots=True)
class Occasion:
    """One session after it was served."""

    number: int
    context: str
    # In the order in which they were shown.
    shown: Sequence[Shown]
    # The true gain of each memory that was used.
    gains: Mapping[str, float]
    # Ids of all memories in the store, in a fixed order.
    stored: Sequence[str]


def check_regime(stream: Stream, regime: Regime, control: Control | None) -> None:
    """Raise WrongRegime when the stream cannot run like this."""
    if control is not None and control not in CONTROLS[regime]:
        raise WrongRegime(
            f"the regime {regime!r} has no control {control!r}: use {', '.join(CONTROLS[regime])}"
        )
    if regime == "transcripts" and not stream.has_transcripts:
        raise WrongRegime(f"{stream.name} has no transcripts: choose another regime")


class Reporter:
    """Makes the evidence of each session of one run."""

    def __init__(
        self, stream: Stream, regime: Regime, control: Control | None, rng: np.random.Generator
    ) -> None:
        check_regime(stream, regime, control)
        self._sessions = stream.sessions
        self._regime = regime
        self._control = control
        self._rng = rng
        self._words = _fixed_words(stream, rng) if control == "words" else []
        # Honest ratings of earlier sessions: ratings by lot are drawn from them.
        self._earlier: list[float] = []

    def evidence(self, one: Occasion) -> Evidence:
        """Return the evidence of one session."""
        if self._regime == "complete":
            gains = one.gains if self._control is None else self._by_lot(one)
            return Evidence(used={each: gain / FULL_GAIN for each, gain in gains.items()})
        if self._regime == "ratings":
            return Evidence(ratings=self._ratings(one), transcript=self._transcript(one))
        return Evidence(transcript=self._transcript(one))

    def _by_lot(self, one: Occasion) -> dict[str, float]:
        """Return the same gains for memories drawn by lot from the whole store."""
        drawn = self._rng.choice(len(one.stored), len(one.gains), replace=False).tolist()
        return dict(zip((one.stored[at] for at in drawn), one.gains.values(), strict=True))

    # -- ratings --------------------------------------------------------------------------

    def _ratings(self, one: Occasion) -> dict[str, float]:
        if self._rng.random() >= RATED_SHARE:
            return {}
        ids = [each.id for each in one.shown]
        if self._control == "position":
            return dict(zip(ids, np.linspace(1.0, 0.0, len(ids)).tolist(), strict=True))
        honest = [self._rating(one.gains.get(each, 0.0)) for each in ids]
        if self._control is None:
            return dict(zip(ids, honest, strict=True))
        found = {each: self._rating_by_lot() for each in ids}
        # Added afterwards: a rating by lot knows nothing about its own session.
        self._earlier += honest
        return found

    def _rating(self, gain: float) -> float:
        """Return an agent's rating of a memory: the truth, or by mistake its opposite."""
        is_wrong = self._rng.random() < WRONG_RATING_SHARE
        if is_wrong:
            return 0.0 if gain > 0.0 else 1.0
        return gain / FULL_GAIN

    def _rating_by_lot(self) -> float:
        if not self._earlier:
            return float(self._rng.random() < FIRST_RATE)
        return self._earlier[int(self._rng.integers(len(self._earlier)))]

    # -- transcripts ----------------------------------------------------------------------

    def _transcript(self, one: Occasion) -> list[Message] | None:
        if self._control == "shuffled":
            return self._read(self._another(one.number))
        if self._control == "words":
            return self._from_words(one.context)
        if self._control == "echo":
            return [_user(one.context), *(_assistant(each.content) for each in one.shown)]
        if self._control == "position":
            # The true transcript would bring the truth in.
            return None
        return self._read(one.number)

    def _read(self, number: int) -> list[Message] | None:
        read = self._sessions[number].transcript
        return None if read is None else read()

    def _another(self, number: int) -> int:
        """Draw the number of another session of the stream."""
        drawn = int(self._rng.integers(len(self._sessions) - 1))
        return drawn + 1 if drawn >= number else drawn

    def _from_words(self, context: str) -> list[Message]:
        """Return replies whose sentences are pieces of the fixed memories."""
        replies = []
        for _ in range(WORDS_SENTENCES):
            words = self._words[int(self._rng.integers(len(self._words)))]
            first = int(self._rng.integers(max(1, len(words) - WORDS_PER_SENTENCE + 1)))
            replies.append(_assistant(f"{' '.join(words[first:][:WORDS_PER_SENTENCE])}."))
        return [_user(context), *replies]


def _fixed_words(stream: Stream, rng: np.random.Generator) -> list[list[str]]:
    """Draw the memories that a run's chance replies are made from, and return their words."""
    count = min(WORDS_MEMORIES, len(stream.memories))
    drawn = rng.choice(len(stream.memories), count, replace=False).tolist()
    return [stream.memories[at].versions[0].text.split() for at in drawn]


def _user(text: str) -> Message:
    return {"role": "user", "text": text}


def _assistant(text: str) -> Message:
    return {"role": "assistant", "text": text}
