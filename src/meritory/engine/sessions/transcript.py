"""Reads a session that is over, turn by turn: the text to store, its ratings, and its digest."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from meritory.domain.rule import ActionQuery, RecordedAction
from meritory.domain.session import SessionRecord, Turn
from meritory.engine.quality import extraction
from meritory.engine.services import Services
from meritory.engine.sessions import ratings
from meritory.text.commands.actions import is_writing_tool, recorded_tool_action
from meritory.text.judge.digest import (
    MAX_RESULT_CHARS,
    MAX_RESULTS_CHARS,
    Digest,
    Digester,
    vocabulary_of,
)
from meritory.text.ratings_trailer import Trailer
from meritory.text.transcript import TRANSCRIPT_LIMIT_CHARS, as_text, redacted, shorten, stripped

# Of a transcript, so much is looked through for secrets: well beyond what is kept of it.
READ_LIMIT_CHARS = 8 * TRANSCRIPT_LIMIT_CHARS
# Recorded actions that one digest takes in, the latest.
ACTIONS_LIMIT_COUNT = 4_000
# What the agent said and did is read up to this length. It bounds the time that one end takes.
ACTS_LIMIT_CHARS = 32_000_000
# Replies whose ratings are kept, the latest.
TRAILERS_LIMIT_COUNT = 10_000
_CALLS = ("edit", "tool")
# No term and no part of a path is as long as this. Looking for paths in such a run is slow.
_UNBROKEN_RUN = re.compile(r"[\w.@~+-]{200,}")


class TurnTail:
    """The last turns of a transcript: at least as many as `shorten` keeps within a limit."""

    def __init__(self, limit_chars: int) -> None:
        self._limit_chars = limit_chars
        self._turns: deque[Turn] = deque()
        self._char_count = 0

    def add(self, turn: Turn) -> None:
        """Take in the next turn, and drop the first ones if there is enough without them."""
        if len(turn.text) > 2 * self._limit_chars:
            turn = Turn(turn.role, turn.text[-2 * self._limit_chars :], turn.paths)
        self._turns.append(turn)
        self._char_count += _size(turn)
        while self._char_count - _size(self._turns[0]) > self._limit_chars:
            self._char_count -= _size(self._turns.popleft())

    def clean(self) -> tuple[Turn, ...]:
        """Return the last turns within the limit, without injected text, ratings and secrets."""
        return redacted(stripped(shorten(self._turns, self._limit_chars)))


def _size(turn: Turn) -> int:
    # Written out, a turn is never shorter than this.
    return len(turn.role) + len(turn.text)


@dataclass
class Intake:
    """What is kept of a transcript while it is read once, in bounded memory."""

    digester: Digester
    turn_count: int = 0
    has_calls: bool = False
    trailers: deque[Trailer] = field(default_factory=lambda: deque(maxlen=TRAILERS_LIMIT_COUNT))
    _end: TurnTail = field(default_factory=lambda: TurnTail(READ_LIMIT_CHARS), init=False)
    _prompts: TurnTail = field(default_factory=lambda: TurnTail(READ_LIMIT_CHARS), init=False)
    _act_chars: int = field(default=0, init=False)
    _result_chars: int = field(default=0, init=False)

    def read(self, turns: Iterable[Turn]) -> None:
        """Read turns as they were told, with ratings, injected text and secrets."""
        for turn in turns:
            self.turn_count += 1
            self.has_calls = self.has_calls or turn.role in _CALLS
            self._end.add(turn)
            if turn.role == "user":
                self._prompts.add(turn)
            trailer = ratings.coded_trailer(turn)
            if trailer is not None:
                self.trailers.append(trailer)
            self.feed_digest(turn)

    def feed_digest(self, turn: Turn) -> None:
        """Pass a turn on to the digest alone, without injected text and secrets."""
        if turn.role == "result":
            self._feed_result(turn)
        elif turn.role != "system" and self._act_chars < ACTS_LIMIT_CHARS:
            self._act_chars += len(turn.text)
            for clean in redacted(stripped([turn])):
                self.digester.feed(replace(clean, text=_UNBROKEN_RUN.sub(" ", clean.text)))

    def _feed_result(self, turn: Turn) -> None:
        if self._result_chars >= MAX_RESULTS_CHARS:
            # The digest only counts what it leaves out from here on.
            self.digester.feed(turn)
            return
        # Results are not redacted, which would take most of the time: a digest keeps nothing of
        # them but terms that a stored memory has, and no memory holds a secret.
        for clean in stripped([Turn("result", turn.text[: MAX_RESULT_CHARS + 1])]):
            self._result_chars += min(len(clean.text), MAX_RESULT_CHARS)
            self.digester.feed(clean)

    def digest(self) -> Digest:
        """Return the digest of what was read."""
        found = self.digester.digest()
        return found if self._act_chars < ACTS_LIMIT_CHARS else replace(found, is_complete=False)

    def kept(self) -> tuple[Turn, ...]:
        """Return the text to store: the end, and earlier turns in which the user said something."""
        end = shorten(self._end.clean())
        if len(end) >= self.turn_count:
            return end
        earlier = extraction.earlier_words(self._prompts.clean(), end)
        if not earlier:
            return end
        return (*earlier, *shorten(end, TRANSCRIPT_LIMIT_CHARS - len(as_text(earlier)) - 1))


def open_intake(services: Services, session: SessionRecord) -> Intake:
    """Return an intake whose digest keeps the terms of the session's candidates."""
    store = services.store
    ids = [one.memory_id for one in store.session_memories(session.user, session.key)]
    known = store.memories(session.user, ids)
    return Intake(Digester(vocabulary_of(memory.content for memory in known.values())))


def finished_digest(services: Services, session: SessionRecord, intake: Intake) -> Digest | None:
    """Return the digest to store for a session, None if nothing was learned about it.

    A transcript without any call is completed by the actions that hooks recorded.
    """
    store = services.store
    if not intake.turn_count and store.transcript(session.user, session.key):
        # The session went on and ended without a transcript: what is stored says more.
        return None
    actions: list[Turn] = []
    if not intake.has_calls:
        query = ActionQuery(session_key=session.key, limit=ACTIONS_LIMIT_COUNT)
        found = store.actions(session.user, query)
        actions = [_action_turn(one) for one in reversed(found) if one.decision != "deny"]
    if not intake.turn_count and not actions:
        return None
    for turn in actions:
        intake.feed_digest(turn)
    return intake.digest()


def _action_turn(one: RecordedAction) -> Turn:
    is_edit = one.tool == "edit" and is_writing_tool(one.tool_name)
    paths = recorded_tool_action(one).values if one.tool in ("edit", "read") else ()
    return Turn("edit" if is_edit else "tool", one.argument, tuple(filter(None, paths)))
