"""A session ends, or is about to forget: what happened is stored, and one job is queued."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from meritory.domain.errors import InputError, NotFound
from meritory.domain.session import Event, SessionRecord, Turn
from meritory.engine.observe.observer import publish
from meritory.engine.pipeline import Stopwatch
from meritory.engine.quality import extraction
from meritory.engine.services import Services
from meritory.engine.sessions import ratings
from meritory.engine.sessions.transcript import finished_digest, open_intake
from meritory.store.contract.store import Transaction
from meritory.text.judge.digest import encode_digest
from meritory.text.ratings_trailer import Trailer
from meritory.text.transcript import as_text, iter_turns, read_turns

SUMMARY_LIMIT_CHARS = 1_000
USED_LIMIT_COUNT = 10_000
# For so long a session is left to the one who ended it and learns from it at once.
LEARN_GRACE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class EndRequest:
    """How a session went so far, as far as anybody tells."""

    key: str
    user: str
    # A list of turns, one text, or an iterator over turns, which is never held in memory.
    transcript: object = None
    # By memory id how much it helped, from a program that knows.
    used: Mapping[str, float] | None = None
    feedback: object = None
    last_reply: str | None = None
    request_id: str | None = None
    # Whoever ends it also learns from it; others leave that alone for a while.
    learns_at_once: bool = False


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The end of a session: its job's key, and what was made of late ratings."""

    job: str
    is_queued: bool
    ratings: ratings.RatingsTaken


def end(services: Services, request: EndRequest) -> SessionEnded:
    """Ends a session and queues what is to be learned from it; ending it again changes nothing."""
    session = services.store.session(request.user, request.key)
    if session.state != "open":
        return SessionEnded(_job(session), False, ratings.RatingsTaken())
    watch = Stopwatch(services.world)
    with watch.stage("transcript"):
        used = checked_used(services, session, request.used)
        intake = open_intake(services, session)
        intake.read(_turns(request))
        told = intake.kept()
        prompt_count = sum(turn.role == "user" for turn in told)
        is_worth_reading = extraction.is_due(services, told)
        found = _late_ratings(services, session, request, tuple(intake.trailers))
        digest = finished_digest(services, session, intake)
        digest_data = None if digest is None else encode_digest(digest)
    now = services.world.now()
    event = _event(session, now, told, request.request_id)

    def work(transaction: Transaction) -> bool:
        current = transaction.session(session.user, session.key)
        if current.state != "open":
            return False
        summary = _summary(told) or current.summary
        transaction.update_session(replace(current, state="ended", ended_at=now, summary=summary))
        ratings.put(transaction, session, found)
        if told:
            transaction.put_transcript(session.user, session.key, told)
        if digest_data is not None:
            transaction.put_digest(session.user, session.key, digest_data)
        if used is not None:
            transaction.put_used(session.user, session.key, used)
        _queue(transaction, session, now + LEARN_GRACE if request.learns_at_once else now)
        if prompt_count:
            # What extraction brings is held against this.
            transaction.count(session.user, "turns.user", prompt_count)
        if is_worth_reading:
            extraction.queue(transaction, session, now)
        transaction.log_events(session.user, [event])
        return True

    with watch.stage("record"):
        is_queued = services.store.write(work)
    if is_queued:
        publish(services, [event])
    services.observer.stages("end", watch.took_ms)
    return SessionEnded(_job(session), is_queued, found if is_queued else ratings.RatingsTaken())


def _turns(request: EndRequest) -> Iterable[Turn]:
    transcript = request.transcript
    if isinstance(transcript, Iterator):
        return iter_turns(transcript)
    return () if transcript is None else read_turns(transcript)


def compact(services: Services, request: EndRequest) -> ratings.RatingsTaken:
    """The agent is about to forget what it was shown: late ratings first, then a clean slate."""
    session = services.store.session(request.user, request.key)
    trailers = tuple(filter(None, map(ratings.coded_trailer, _turns(request))))
    found = _late_ratings(services, session, request, trailers)

    def work(transaction: Transaction) -> None:
        ratings.put(transaction, session, found)
        transaction.clear_context(session.user, session.key)

    services.store.write(work)
    return found


def checked_used(
    services: Services, session: SessionRecord, used: Mapping[str, float] | None
) -> dict[str, float] | None:
    """What a program says to have helped: known memories of the user, scores from -1 to 1."""
    if used is None:
        return None
    if not isinstance(used, Mapping) or len(used) > USED_LIMIT_COUNT:
        raise InputError(f"used must be a mapping of at most {USED_LIMIT_COUNT} ids to scores")
    shown = {one.handle: one.memory_id for one in services.store.shown(session.user, session.key)}
    checked: dict[str, float] = {}
    for name, score in used.items():
        if isinstance(score, bool) or not isinstance(score, int | float) or not -1 <= score <= 1:
            raise InputError(f"used[{str(name)[:40]!r}] must be a number from -1 to 1")
        checked[shown.get(name) or _known_id(services, session, name)] = float(score)
    return checked


def _known_id(services: Services, session: SessionRecord, name: object) -> str:
    if not isinstance(name, str):
        raise InputError(f"an id is text, not {type(name).__name__}")
    try:
        return services.store.get(session.user, name).id
    except NotFound as error:
        raise InputError(f"used names {name[:40]!r}, which is no memory of yours") from error


def _late_ratings(
    services: Services, session: SessionRecord, request: EndRequest, trailers: Sequence[Trailer]
) -> ratings.RatingsTaken:
    ballot = ratings.Ballot(services, session)
    return (
        ballot.from_reply(request.last_reply, "trailer")
        + ballot.from_mapping(request.feedback, "field")
        + ballot.from_trailers(trailers)
    )


def _queue(transaction: Transaction, session: SessionRecord, due_at: datetime) -> None:
    """One job per session: where there was one before, the session went on and is judged anew."""
    if not transaction.put_job(session.user, ratings.LEARN_JOB, session.key, due_at):
        transaction.requeue_job(session.user, ratings.LEARN_JOB, session.key, due_at)


def _job(session: SessionRecord) -> str:
    return f"{ratings.LEARN_JOB}/{session.key}"


def _summary(turns: Sequence[Turn]) -> str:
    """What the session came to, in the user's own words: the end of what they asked for."""
    asked = "\n".join(turn.text for turn in turns if turn.role == "user")
    return asked[-SUMMARY_LIMIT_CHARS:].strip()


def _event(
    session: SessionRecord, now: datetime, told: Sequence[Turn], request_id: str | None
) -> Event:
    return Event(
        at=now,
        category="session",
        name="session.end",
        session_key=session.key,
        request_id=request_id,
        details={"turns": len(told), "chars": len(as_text(told)), "prompts": session.prompt_count},
    )
