"""Ratings of what was shown: who may rate what, and what follows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meritory.domain.session import CHANNELS, Channel, Event, Rating, SessionRecord, Turn
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction
from meritory.text.ratings_trailer import Ratings, Trailer, parse_ratings, read_trailer

# At or below this a memory did harm: it is not shown again in the session.
HARMFUL_SCORE = -0.5
_SHORT_ID_CHARS_MIN = 4
LEARN_JOB = "finish-session"


@dataclass(frozen=True, slots=True)
class RatingsTaken:
    """What was taken of some ratings, and what was refused, each with its reason."""

    taken: tuple[Rating, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: RatingsTaken) -> RatingsTaken:
        return RatingsTaken((*self.taken, *other.taken), (*self.refused, *other.refused))


class Ballot:
    """What can be rated in one session: its injections' codes, its handles, its memories."""

    def __init__(self, services: Services, session: SessionRecord) -> None:
        self._services = services
        self._session = session
        self._is_on = services.policy.predictor.agent_feedback
        store = services.store
        self._injections = {one.code: one for one in store.injections(session.user, session.key)}
        shown = store.shown(session.user, session.key)
        self._by_handle = {one.handle: one.memory_id for one in shown}
        self._ids = [one.memory_id for one in shown]

    def from_reply(self, text: str | None, channel: Channel) -> RatingsTaken:
        """Return the ratings in an agent's reply; none if it has no trailer."""
        trailer = read_trailer(text) if text else None
        if trailer is None:
            return RatingsTaken()
        if trailer.code is not None:
            return self.from_trailer(trailer, channel)
        # By id only: a stored text may have dictated a trailer without a code. Agents do not see
        # ids, so a trailer that names them comes from the harness.
        by_handle = [pair for pair in trailer.ratings.scores if pair[0] in self._by_handle]
        by_id = tuple(pair for pair in trailer.ratings.scores if pair not in by_handle)
        refused = tuple((name, "a handle counts only beside its code") for name, _ in by_handle)
        ratings = replace(trailer.ratings, scores=by_id)
        return self.from_trailer(Trailer(None, ratings), channel) + RatingsTaken(refused=refused)

    def from_trailer(self, trailer: Trailer, channel: Channel) -> RatingsTaken:
        """Return the ratings of a trailer, for the turn whose code it names."""
        if trailer.code is None:
            return self._taken(trailer.ratings, channel, self._session.prompt_count)
        injection = self._injections.get(trailer.code.lower())
        if injection is None:
            # Neither an old trailer nor a copied one may speak for this session.
            return RatingsTaken(refused=((trailer.code, "no such code in this session"),))
        return self._taken(trailer.ratings, channel, injection.turn)

    def from_mapping(
        self, mapping: object, channel: Channel, code: str | None = None
    ) -> RatingsTaken:
        """Return the ratings of a JSON object by handle or memory id."""
        if mapping is None:
            return RatingsTaken()
        given = dict(mapping) if isinstance(mapping, Mapping) else mapping
        return self.from_trailer(Trailer(code, parse_ratings(given)), channel)

    def from_transcript(self, turns: Sequence[Turn]) -> RatingsTaken:
        """Return the ratings in an agent's turns; a trailer without a code does not count."""
        return self.from_trailers([one for turn in turns if (one := coded_trailer(turn))])

    def from_trailers(self, trailers: Sequence[Trailer]) -> RatingsTaken:
        """Return the ratings of a transcript's trailers that no stronger channel has delivered."""
        result = RatingsTaken()
        for trailer in trailers:
            result += self.from_trailer(trailer, "transcript")
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

    def _taken(self, ratings: Ratings, channel: Channel, turn: int) -> RatingsTaken:
        if not self._is_on and channel != "program":
            return RatingsTaken()
        now = self._services.world.now()
        taken, refused = [], list(ratings.refused)
        for name, score in ratings.scores:
            # A handle, an id or the beginning of an id.
            ids = [memory_id for memory_id in self._ids if memory_id.startswith(name.lower())]
            if name.lower() in self._by_handle:
                ids = [self._by_handle[name.lower()]]
            elif len(name) < _SHORT_ID_CHARS_MIN:
                ids = []
            if len(ids) == 1:
                taken.append(Rating(ids[0], turn, channel, score, now))
            else:
                refused.append((name, "not shown in this session"))
        return RatingsTaken(tuple(taken), tuple(refused))


def coded_trailer(turn: Turn) -> Trailer | None:
    """Return the trailer of an agent's reply if it names the code of an injection."""
    trailer = read_trailer(turn.text) if turn.role == "assistant" else None
    return trailer if trailer is not None and trailer.code is not None else None


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
