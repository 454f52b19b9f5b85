"""Ratings of what was shown: who may rate what, and what follows at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import chain

from meritory.domain.session import CHANNELS, Channel, Event, Rating, SessionRecord, Turn
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction
from meritory.text.ratings_trailer import Ratings, Trailer, parse_ratings, read_trailers
from meritory.text.render import cleaned

# At or below this a memory did harm: it is not shown again in the session.
HARMFUL_SCORE = -0.5
# Codes of a session stay live for this long after its end.
LATE_LIMIT = timedelta(days=1)
_CODE_FIELD = "injection"
LEARN_JOB = "finish-session"


@dataclass(frozen=True, slots=True)
class RatingsTaken:
    """What was taken of some ratings, and what was refused, each with its reason."""

    taken: tuple[Rating, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: RatingsTaken) -> RatingsTaken:
        return RatingsTaken((*self.taken, *other.taken), (*self.refused, *other.refused))


class Ballot:
    """What can be rated in one session: by the code of an injection, or by full memory ids."""

    def __init__(self, services: Services, session: SessionRecord) -> None:
        self._services = services
        self._session = session
        self._is_on = services.policy.predictor.agent_feedback
        store = services.store
        self._injections = {one.code: one for one in store.injections(session.user, session.key)}
        shown = store.shown(session.user, session.key)
        self._by_handle = {one.handle: one.memory_id for one in shown}
        # What the agent searched for itself has no handle.
        fetched = store.fetched(session.user, session.key)
        self._ids = {one: one for one in (*fetched, *(row.memory_id for row in shown))}

    def from_reply(self, text: str | None, channel: Channel) -> RatingsTaken:
        """Return the ratings in an agent's reply; none if it has no trailer."""
        return self._from_trailers(read_trailers(text) if text else (), channel)

    def _from_trailers(self, trailers: Sequence[Trailer], channel: Channel) -> RatingsTaken:
        """Return the ratings of one reply, its last trailer first: the first live one counts."""
        # A reply may quote a trailer of a stored text behind its own.
        live = (one for one in trailers if self._refusal(one.code) is None)
        trailer = next(chain(live, trailers), None)
        if trailer is None:
            return RatingsTaken()
        return self._from_code(trailer.code, trailer.ratings, channel)

    def _from_code(self, code: str, ratings: Ratings, channel: Channel) -> RatingsTaken:
        """Return the ratings by handle or id, for the turn of the injection with this code."""
        refusal = self._refusal(code)
        if refusal is not None:
            return RatingsTaken(refused=((code, refusal),))
        names = {**self._ids, **self._by_handle}
        return self._taken(ratings, names, channel, self._injections[code.lower()].turn)

    def _refusal(self, code: str) -> str | None:
        """Return why a code does not count; None for a live one."""
        ended_at, now = self._session.ended_at, self._services.world.now()
        if code.lower() not in self._injections:
            # Neither an old trailer nor a copied one may speak for this session.
            return "no such code in this session"
        if self._session.state != "open" and ended_at is not None and now > ended_at + LATE_LIMIT:
            return "the session ended too long ago"
        if code.lower() in self._shown_text:
            return "the code stands in a memory's text"
        return None

    @cached_property
    def _shown_text(self) -> str:
        """The texts of all shown memories: a trailer in one of them is a quotation."""
        memories = self._services.store.memories(self._session.user, list(self._ids))
        return "\n".join(cleaned(memory.content).lower() for memory in memories.values())

    def from_mapping(
        self, mapping: object, channel: Channel, code: str | None = None
    ) -> RatingsTaken:
        """Return the ratings of a JSON object; it may name its code as `injection`.

        Without a code a harness or a tool must name full ids. A program may use handles.
        """
        if mapping is None:
            return RatingsTaken()
        given: object = mapping
        if isinstance(mapping, Mapping):
            given = dict(mapping)
            if code is None and isinstance(mapping.get(_CODE_FIELD), str):
                code = given.pop(_CODE_FIELD)
        ratings = parse_ratings(given)
        if code is not None:
            return self._from_code(code, ratings, channel)
        names = self._ids if channel != "program" else {**self._ids, **self._by_handle}
        return self._taken(ratings, names, channel, self._session.prompt_count)

    def from_transcript(self, turns: Iterable[Turn]) -> RatingsTaken:
        """Return the ratings in an agent's turns that no stronger channel has delivered."""
        return self.from_replies(trailers_of(turn) for turn in turns)

    def from_replies(self, replies: Iterable[Sequence[Trailer]]) -> RatingsTaken:
        """Return the ratings of a transcript's replies that no stronger channel has delivered."""
        result = RatingsTaken()
        for trailers in replies:
            result += self._from_trailers(trailers, "transcript")
        if not result.taken:
            return result
        # A transcript repeats everything: only new ratings are taken.
        session = self._session
        heard: dict[tuple[str, int], float | None] = {}
        for rating in self._services.store.ratings(session.user, session.key):
            target = (rating.memory_id, rating.turn)
            is_weaker = CHANNELS.index(rating.channel) > CHANNELS.index("transcript")
            if rating.channel == "transcript" and heard.get(target, 0.0) is not None:
                heard[target] = rating.score
            elif not is_weaker:
                # A rating of a stronger channel counts, whatever the transcript says.
                heard[target] = None
        latest = {(rating.memory_id, rating.turn): rating for rating in result.taken}
        fresh = (
            rating
            for target, rating in latest.items()
            if target not in heard or heard[target] not in (None, rating.score)
        )
        return RatingsTaken(tuple(fresh), result.refused)

    def _taken(
        self, ratings: Ratings, names: Mapping[str, str], channel: Channel, turn: int
    ) -> RatingsTaken:
        """Return the ratings of memories by these names, which map to ids."""
        if not self._is_on and channel != "program":
            return RatingsTaken()
        now = self._services.world.now()
        taken, refused = [], list(ratings.refused)
        for name, score in ratings.scores:
            memory_id = names.get(name.lower())
            if memory_id is not None:
                taken.append(Rating(memory_id, turn, channel, score, now))
            elif name.lower() in self._by_handle:
                refused.append((name, "a handle counts only with the code of its injection"))
            else:
                refused.append((name, "not shown in this session"))
        return RatingsTaken(tuple(taken), tuple(refused))


def trailers_of(turn: Turn) -> tuple[Trailer, ...]:
    """Return the trailers of an agent's reply, the last one first."""
    return read_trailers(turn.text) if turn.role == "assistant" else ()


def put(transaction: Transaction, session: SessionRecord, ratings: RatingsTaken) -> None:
    """Store ratings; a memory that did harm is not shown again in the session."""
    user, key = session.user, session.key
    if ratings.refused:
        transaction.count(user, "feedback.refused", len(ratings.refused))
    if not ratings.taken:
        return
    transaction.add_ratings(user, key, ratings.taken)
    transaction.count(user, "feedback.taken", len(ratings.taken))
    harmful = [one.memory_id for one in ratings.taken if one.score <= HARMFUL_SCORE]
    transaction.mark_harmful(user, key, harmful)
    events = [
        Event(
            at=rating.at,
            category="feedback",
            name="feedback.rated",
            session_key=key,
            memory_id=rating.memory_id,
            details={"score": rating.score, "turn": rating.turn, "channel": rating.channel},
        )
        for rating in ratings.taken
    ]
    transaction.log_events(user, events)
    if transaction.session(user, key).state != "open":
        # Late evidence: the session is labelled again.
        transaction.requeue_job(user, LEARN_JOB, key, ratings.taken[0].at)


def rate(
    services: Services,
    user: str,
    key: str,
    ratings: object,
    channel: Channel,
    code: str | None = None,
) -> RatingsTaken:
    """Take ratings by handle or id from a tool or a program, with their injection code if known."""
    session = services.store.session(user, key)
    result = Ballot(services, session).from_mapping(ratings, channel, code)
    services.store.write(user, lambda transaction: put(transaction, session, result))
    return result


def stop(
    services: Services,
    user: str,
    key: str,
    reply: str | None,
    ratings: object = None,
    transcript: Sequence[Turn] = (),
) -> RatingsTaken:
    """Take the ratings at the end of an agent's reply, and those that came beside it.

    The transcript is for harnesses that do not pass on the reply.
    """
    session = services.store.session(user, key)
    ballot = Ballot(services, session)
    result = (
        ballot.from_reply(reply, "trailer")
        + ballot.from_mapping(ratings, "field")
        + ballot.from_transcript(transcript)
    )
    if result.taken or result.refused:
        services.store.write(user, lambda transaction: put(transaction, session, result))
    return result
