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
        """The ratings in an agent's reply; none when it has no trailer."""
        trailer = read_trailer(text) if text else None
        if trailer is None:
            return RatingsTaken()
        if trailer.code is None:
            return self._without_code(trailer, channel)
        return self.from_trailer(trailer, channel)

    def _without_code(self, trailer: Trailer, channel: Channel) -> RatingsTaken:
        """Take ratings by id only: a stored text may have dictated a trailer without a code.

        Agents do not see ids, so a trailer that names them comes from the harness.
        """
        scores = tuple(pair for pair in trailer.ratings.scores if pair[0] not in self._by_handle)
        told = tuple(pair for pair in trailer.ratings.scores if pair[0] in self._by_handle)
        refused = tuple((name, "a handle counts only beside its code") for name, _ in told)
        found = self._taken(
            replace(trailer.ratings, scores=scores), channel, self._session.prompt_count
        )
        return RatingsTaken(found.taken, (*found.refused, *refused))

    def from_trailer(self, trailer: Trailer, channel: Channel) -> RatingsTaken:
        """The ratings of a trailer, for the turn whose code it names."""
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
        """The ratings of a JSON object by handle or memory id."""
        if mapping is None:
            return RatingsTaken()
        told = dict(mapping) if isinstance(mapping, Mapping) else mapping
        return self.from_trailer(Trailer(code, parse_ratings(told)), channel)

    def from_transcript(self, turns: Sequence[Turn]) -> RatingsTaken:
        """What the roads before this one may have missed; a trailer without a code counts not."""
        return self.from_trailers([one for turn in turns if (one := coded_trailer(turn))])

    def from_trailers(self, trailers: Sequence[Trailer]) -> RatingsTaken:
        """Return the ratings of a transcript's trailers that no stronger channel has delivered."""
        found = RatingsTaken()
        for trailer in trailers:
            found += self.from_trailer(trailer, "transcript")
        return self._unheard(found) if found.taken else found

    def _unheard(self, found: RatingsTaken) -> RatingsTaken:
        """A transcript tells everything again: only what is new of it is taken."""
        session = self._session
        heard: dict[tuple[str, int], float | None] = {}
        for one in self._services.store.ratings(session.user, session.key):
            place = (one.memory_id, one.turn)
            is_weaker = CHANNELS.index(one.channel) > CHANNELS.index("transcript")
            if one.channel == "transcript" and heard.get(place, 0.0) is not None:
                heard[place] = one.score
            elif not is_weaker:
                # A stronger word stands, whatever the transcript says.
                heard[place] = None
        latest = {(one.memory_id, one.turn): one for one in found.taken}
        fresh = (
            one
            for place, one in latest.items()
            if place not in heard or heard[place] not in (None, one.score)
        )
        return RatingsTaken(tuple(fresh), found.refused)

    def _taken(self, ratings: Ratings, channel: Channel, turn: int) -> RatingsTaken:
        if not self._is_on and channel != "program":
            return RatingsTaken()
        now = self._services.world.now()
        taken, refused = [], list(ratings.refused)
        for name, score in ratings.scores:
            memory_id = self._memory(name)
            if memory_id is None:
                refused.append((name, "not shown in this session"))
            else:
                taken.append(Rating(memory_id, turn, channel, score, now))
        return RatingsTaken(tuple(taken), tuple(refused))

    def _memory(self, name: str) -> str | None:
        """The shown memory that a handle, an id or the beginning of an id names."""
        if name.lower() in self._by_handle:
            return self._by_handle[name.lower()]
        if len(name) < _SHORT_ID_CHARS_MIN:
            return None
        fitting = [memory_id for memory_id in self._ids if memory_id.startswith(name.lower())]
        return fitting[0] if len(fitting) == 1 else None


def coded_trailer(turn: Turn) -> Trailer | None:
    """Return the trailer of an agent's reply if it names the code of an injection."""
    trailer = read_trailer(turn.text) if turn.role == "assistant" else None
    return trailer if trailer is not None and trailer.code is not None else None


def put(transaction: Transaction, session: SessionRecord, ratings: RatingsTaken) -> None:
    """Stores ratings; what did harm is kept out of the session from now on."""
    user, key = session.user, session.key
    if ratings.refused:
        transaction.count(user, "feedback.refused", len(ratings.refused))
    if not ratings.taken:
        return
    transaction.add_ratings(user, key, ratings.taken)
    transaction.count(user, "feedback.taken", len(ratings.taken))
    harmful = [one.memory_id for one in ratings.taken if one.score <= HARMFUL_SCORE]
    transaction.mark_harmful(user, key, harmful)
    transaction.log_events(user, [_event(session, one) for one in ratings.taken])
    if transaction.session(user, key).state != "open":
        # Late evidence: the session is labelled again.
        transaction.requeue_job(user, LEARN_JOB, key, ratings.taken[0].at)


def _event(session: SessionRecord, rating: Rating) -> Event:
    return Event(
        at=rating.at,
        category="feedback",
        name="feedback.rated",
        session_key=session.key,
        memory_id=rating.memory_id,
        details={"score": rating.score, "turn": rating.turn, "channel": rating.channel},
    )


@dataclass(frozen=True, slots=True)
class RatingCall:
    """Ratings by handle or id from a tool or a program, with their injection code if known."""

    user: str
    key: str
    ratings: object
    channel: Channel
    code: str | None = None


def rate(services: Services, call: RatingCall) -> RatingsTaken:
    """Takes ratings for a session, from a tool or a program."""
    session = services.store.session(call.user, call.key)
    found = Ballot(services, session).from_mapping(call.ratings, call.channel, call.code)
    services.store.write(session.user, lambda transaction: put(transaction, session, found))
    return found


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """An agent's reply, and ratings that came beside it."""

    user: str
    key: str
    reply: str | None
    ratings: object = None
    # For harnesses that do not hand the reply over, but keep it.
    transcript: tuple[Turn, ...] = ()


def stop(services: Services, call: ReplyCall) -> RatingsTaken:
    """The agent has replied: takes the ratings at the end of its text."""
    session = services.store.session(call.user, call.key)
    ballot = Ballot(services, session)
    found = (
        ballot.from_reply(call.reply, "trailer")
        + ballot.from_mapping(call.ratings, "field")
        + ballot.from_transcript(call.transcript)
    )
    if found.taken or found.refused:
        services.store.write(session.user, lambda transaction: put(transaction, session, found))
    return found
