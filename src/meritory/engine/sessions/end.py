"""The end of a session: its transcript is read once, and one job to learn from it is queued."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from meritory.domain.errors import InputError, NotFound
from meritory.domain.rule import ActionQuery
from meritory.domain.session import Event, SessionRecord, Turn
from meritory.engine.jobs.runner import EXTRACT_JOB, queue_job
from meritory.engine.observe.observer import publish
from meritory.engine.quality import extraction
from meritory.engine.services import Services
from meritory.engine.sessions import ratings
from meritory.store.contract.store import Store, Transaction
from meritory.text.commands.actions import is_writing_tool, recorded_tool_action
from meritory.text.judge.digest import (
    MAX_RESULT_CHARS,
    MAX_RESULTS_CHARS,
    Digest,
    Digester,
    encode_digest,
    vocabulary_of,
)
from meritory.text.ratings_trailer import Trailer
from meritory.text.transcript import (
    TRANSCRIPT_LIMIT_CHARS,
    as_text,
    iter_turns,
    read_turns,
    redacted,
    shorten,
    stripped,
)

SUMMARY_LIMIT_CHARS = 1_000
USED_LIMIT_COUNT = 10_000
# For this long, only the process that ended a session learns from it.
LEARN_GRACE = timedelta(seconds=10)
# How much of a transcript is searched for secrets: well beyond what is stored of it.
READ_LIMIT_CHARS = 8 * TRANSCRIPT_LIMIT_CHARS
# How many recorded actions one digest takes in, the latest.
ACTIONS_LIMIT_COUNT = 4_000
# How much of what the agent said and did is read. It bounds the time that one end takes.
ACTS_LIMIT_CHARS = 32_000_000
# How many replies with ratings are kept, the latest.
TRAILERS_LIMIT_COUNT = 10_000
_CALLS = ("edit", "tool")
# No term and no part of a path is as long as this. Searching such a run for paths is slow.
_UNBROKEN_RUN = re.compile(r"[\w.@~+-]{200,}")


@dataclass(frozen=True, slots=True)
class EndRequest:
    """The end of a session, as far as the caller knows how it went."""

    key: str
    user: str
    # A list of turns, one text, or an iterator over turns, which is never held in memory.
    transcript: object = None
    # By memory id how much it helped, from a program that knows.
    used: Mapping[str, float] | None = None
    feedback: object = None
    last_reply: str | None = None
    request_id: str | None = None
    # Whether the caller learns from the session itself; other processes wait for a while.
    learns_at_once: bool = False
    # How to open an unknown session that has a transcript to learn from.
    unknown: SessionRecord | None = None

    def turns(self) -> Iterable[Turn]:
        """Return the turns of the transcript."""
        if isinstance(self.transcript, Iterator):
            return iter_turns(self.transcript)
        return () if self.transcript is None else read_turns(self.transcript)


@dataclass(slots=True)
class EndRun:
    """The end of a session, and what each stage has added so far."""

    services: Services
    request: EndRequest
    session: SessionRecord
    # Whether the session was unknown before its end.
    is_unknown: bool = False
    took_ms: dict[str, float] = field(default_factory=dict, init=False)
    # Stage transcript.
    used: dict[str, float] | None = field(default=None, init=False)
    turns: tuple[Turn, ...] = field(default=(), init=False)
    ratings: ratings.RatingsTaken = field(default_factory=ratings.RatingsTaken, init=False)
    digest: bytes | None = field(default=None, init=False)
    is_extraction_due: bool = field(default=False, init=False)
    # Stage record; False if the session had ended already.
    is_queued: bool = field(default=False, init=False)

    @property
    def job(self) -> str:
        """Return the key of the job that learns from the session."""
        return f"{ratings.LEARN_JOB}/{self.session.key}"


def read_transcript(run: EndRun) -> None:
    """Read the transcript once: the text to store, its late ratings and its digest."""
    store, request, session = run.services.store, run.request, run.session
    run.used = checked_used(store, session, request.used)
    # The digest keeps the terms of the session's candidates.
    ids = [one.memory_id for one in store.session_memories(session.user, session.key)]
    memories = store.memories(session.user, ids).values()
    intake = Intake(Digester(vocabulary_of(memory.content for memory in memories)))
    intake.read(request.turns())
    run.turns = intake.kept()
    if run.is_unknown and not run.turns:
        # Nothing to learn from: say that it is unknown.
        store.session(session.user, session.key)
    run.is_extraction_due = extraction.is_due(run.services, run.turns)
    run.ratings = _late_ratings(run.services, session, request, tuple(intake.trailers))
    digest = _finish_digest(store, session, intake)
    run.digest = None if digest is None else encode_digest(digest)


def record_end(run: EndRun) -> None:
    """Store how the session went and queue what follows, in one transaction."""
    services, request, turns = run.services, run.request, run.turns
    user, key = run.session.user, run.session.key
    now = services.world.now()
    prompts = [turn.text for turn in turns if turn.role == "user"]
    event = Event(
        at=now,
        category="session",
        name="session.end",
        session_key=key,
        request_id=request.request_id,
        details={
            "turns": len(turns),
            "chars": len(as_text(turns)),
            "prompts": len(prompts) if run.is_unknown else run.session.prompt_count,
        },
    )

    def work(transaction: Transaction) -> bool:
        if run.is_unknown:
            transaction.open_session(replace(run.session, prompt_count=len(prompts)))
        current = transaction.session(user, key)
        if current.state != "open":
            return False
        # The end of what the user asked for, in their own words.
        summary = "\n".join(prompts)[-SUMMARY_LIMIT_CHARS:].strip() or current.summary
        transaction.update_session(replace(current, state="ended", ended_at=now, summary=summary))
        ratings.put(transaction, run.session, run.ratings)
        if turns:
            transaction.put_transcript(user, key, turns)
        if run.digest is not None:
            transaction.put_digest(user, key, run.digest)
        if run.used is not None:
            transaction.put_used(user, key, run.used)
        due_at = now + LEARN_GRACE if request.learns_at_once else now
        # One job per session: if it has one already, it went on and is judged again.
        queue_job(transaction, user, ratings.LEARN_JOB, key, due_at)
        if prompts:
            # The number of extracted memories is compared with this.
            transaction.count(user, "turns.user", len(prompts))
        if run.is_extraction_due:
            queue_job(transaction, user, EXTRACT_JOB, key, now)
        transaction.log_events(user, [event])
        return True

    run.is_queued = services.store.write(user, work)
    if run.is_queued:
        publish(services, [event])
    else:
        run.ratings = ratings.RatingsTaken()


def compact(services: Services, request: EndRequest) -> ratings.RatingsTaken:
    """Take late ratings before the agent's context is compacted, then mark it as empty."""
    session = services.store.session(request.user, request.key)
    trailers = tuple(filter(None, map(ratings.trailers_of, request.turns())))
    taken = _late_ratings(services, session, request, trailers)

    def work(transaction: Transaction) -> None:
        ratings.put(transaction, session, taken)
        transaction.clear_context(session.user, session.key)

    services.store.write(session.user, work)
    return taken


def _late_ratings(
    services: Services,
    session: SessionRecord,
    request: EndRequest,
    replies: Sequence[tuple[Trailer, ...]],
) -> ratings.RatingsTaken:
    ballot = ratings.Ballot(services, session)
    return (
        ballot.from_reply(request.last_reply, "trailer")
        + ballot.from_mapping(request.feedback, "field")
        + ballot.from_replies(replies)
    )


def checked_used(
    store: Store, session: SessionRecord, used: Mapping[str, float] | None
) -> dict[str, float] | None:
    """Return a program's scores by memory id; raise InputError if one is unknown or no score."""
    if used is None:
        return None
    if not isinstance(used, Mapping) or len(used) > USED_LIMIT_COUNT:
        raise InputError(f"used must be a mapping of at most {USED_LIMIT_COUNT} ids to scores")
    id_of = {row.handle: row.memory_id for row in store.shown(session.user, session.key)}
    checked: dict[str, float] = {}
    for name, score in used.items():
        if isinstance(score, bool) or not isinstance(score, int | float) or not -1 <= score <= 1:
            raise InputError(f"used[{str(name)[:40]!r}] must be a number from -1 to 1")
        if not isinstance(name, str):
            raise InputError(f"an id must be text, not {type(name).__name__}")
        try:
            memory_id = id_of.get(name) or store.get(session.user, name).id
        except NotFound as error:
            raise InputError(
                f"unknown memory id in used: {name[:40]!r}", hint="`meritory list` shows the ids"
            ) from error
        checked[memory_id] = float(score)
    return checked


# -- the transcript ---------------------------------------------------------------------------


class TurnTail:
    """The last turns of a transcript: at least as many as `shorten` keeps within a limit."""

    def __init__(self, limit_chars: int) -> None:
        self._limit_chars = limit_chars
        self._turns: deque[Turn] = deque()
        self._char_count = 0

    def add(self, turn: Turn) -> None:
        """Add the next turn, and drop the first ones if there is enough without them."""
        if len(turn.text) > 2 * self._limit_chars:
            turn = Turn(turn.role, turn.text[-2 * self._limit_chars :], turn.paths)
        self._turns.append(turn)
        self._char_count += _min_size(turn)
        while self._char_count - _min_size(self._turns[0]) > self._limit_chars:
            self._char_count -= _min_size(self._turns.popleft())

    def clean(self) -> tuple[Turn, ...]:
        """Return the last turns within the limit, without injected text, ratings and secrets."""
        return redacted(stripped(shorten(self._turns, self._limit_chars)))


def _min_size(turn: Turn) -> int:
    """Return the least number of characters that a turn takes when it is written out."""
    return len(turn.role) + len(turn.text)


@dataclass
class Intake:
    """What is kept of a transcript while it is read once, in bounded memory."""

    digester: Digester
    turn_count: int = 0
    has_calls: bool = False
    trailers: deque[tuple[Trailer, ...]] = field(
        default_factory=lambda: deque(maxlen=TRAILERS_LIMIT_COUNT)
    )
    _end: TurnTail = field(default_factory=lambda: TurnTail(READ_LIMIT_CHARS), init=False)
    _prompts: TurnTail = field(default_factory=lambda: TurnTail(READ_LIMIT_CHARS), init=False)
    _act_chars: int = field(default=0, init=False)
    _result_chars: int = field(default=0, init=False)

    def read(self, turns: Iterable[Turn]) -> None:
        """Read turns as they were recorded, with ratings, injected text and secrets."""
        for turn in turns:
            self.turn_count += 1
            self.has_calls = self.has_calls or turn.role in _CALLS
            self._end.add(turn)
            if turn.role == "user":
                self._prompts.add(turn)
            trailers = ratings.trailers_of(turn)
            if trailers:
                self.trailers.append(trailers)
            self.feed_digest(turn)

    def feed_digest(self, turn: Turn) -> None:
        """Pass a turn to the digest alone, without injected text and secrets."""
        if turn.role == "result" and self._result_chars >= MAX_RESULTS_CHARS:
            # From here on, the digest only counts what it leaves out.
            self.digester.feed(turn)
        elif turn.role == "result":
            # Results are not redacted, which would take most of the time: a digest keeps only terms
            # that occur in a stored memory, and no memory holds a secret.
            for clean in stripped([Turn("result", turn.text[: MAX_RESULT_CHARS + 1])]):
                self._result_chars += min(len(clean.text), MAX_RESULT_CHARS)
                self.digester.feed(clean)
        elif turn.role != "system" and self._act_chars < ACTS_LIMIT_CHARS:
            self._act_chars += len(turn.text)
            for clean in redacted(stripped([turn])):
                self.digester.feed(replace(clean, text=_UNBROKEN_RUN.sub(" ", clean.text)))

    def digest(self) -> Digest:
        """Return the digest of what was read."""
        digest = self.digester.digest()
        return digest if self._act_chars < ACTS_LIMIT_CHARS else replace(digest, is_complete=False)

    def kept(self) -> tuple[Turn, ...]:
        """Return the text to store: the end, and earlier turns with statements of the user."""
        end = shorten(self._end.clean())
        if len(end) >= self.turn_count:
            return end
        earlier = extraction.earlier_words(self._prompts.clean(), end)
        if not earlier:
            return end
        return (*earlier, *shorten(end, TRANSCRIPT_LIMIT_CHARS - len(as_text(earlier)) - 1))


def _finish_digest(store: Store, session: SessionRecord, intake: Intake) -> Digest | None:
    """Return the digest to store for a session; None if there is nothing new to digest.

    A transcript without any call is completed by the actions that hooks recorded.
    """
    if not intake.turn_count and store.transcript(session.user, session.key):
        # The session went on and ended without a transcript: the stored one says more.
        return None
    turns: list[Turn] = []
    if not intake.has_calls:
        query = ActionQuery(session_key=session.key, limit=ACTIONS_LIMIT_COUNT)
        for action in reversed(store.actions(session.user, query)):
            if action.decision == "deny":
                continue
            is_edit = action.tool == "edit" and is_writing_tool(action.tool_name)
            has_paths = action.tool in ("edit", "read")
            paths = recorded_tool_action(action).values if has_paths else ()
            values = tuple(filter(None, paths))
            turns.append(Turn("edit" if is_edit else "tool", action.argument, values))
    if not intake.turn_count and not turns:
        return None
    for turn in turns:
        intake.feed_digest(turn)
    return intake.digest()
