"""What tests of sessions have in common: notes, talks, a settable clock, a look at the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from meritory.api.memory import Memory
from meritory.api.session import Session
from meritory.domain.memory import MemoryRecord
from meritory.domain.session import SessionMemory, SessionRecord, SessionScore
from meritory.engine.predictor.state import known_state
from meritory.rank.composite import FULL_TRUST
from meritory.rank.influence import HistoryProof
from meritory.store.contract.store import Store, Transaction

T = TypeVar("T")
HERON = "The staging database is called heron"
TABS = "Use tabs and never spaces in Go files"
SHIP = "Deploys go through `make ship` and take ten minutes"
LOGIN = "The login page lives in src/login/page.tsx"
STRIPE = "Payments use Stripe webhooks with a signature header"
TERSE = "Anna prefers short answers"
NOTES = (HERON, TABS, SHIP, LOGIN, STRIPE, TERSE)
RULE = "Never push to main without a review"

# Nothing in common with the notes above.
_THINGS = ("ledger", "gauge", "kiln", "sextant", "lathe", "anvil", "churn", "loom", "quern", "sled")
_PLACES = ("harbour", "attic", "orchard", "cellar", "meadow", "quarry", "chapel", "barn")


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def go(self, **span: float) -> None:
        """Lets time pass."""
        self.now += timedelta(**span)


@dataclass
class Desk:
    """A memory, its clock, and what the store knows about sessions."""

    memory: Memory
    clock: Clock

    @property
    def store(self) -> Store:
        return self.memory.services.store

    def note(self, *texts: str, **fields: Any) -> list[str]:
        """Stores texts as they are and returns their ids."""
        items = [{"content": text, "on_similar": "keep", **fields} for text in texts]
        results = self.memory.remember_many(items)
        return [kept(result.memory).id for result in results]

    def tune(self, **fields: Any) -> None:
        """Change fields of the session's and the predictor's policy."""
        policy = self.memory.services.policy
        session = {name: value for name, value in fields.items() if hasattr(policy.session, name)}
        predictor = {name: value for name, value in fields.items() if name not in session}
        self.equip(
            policy=replace(
                policy,
                session=replace(policy.session, **session),
                predictor=replace(policy.predictor, **predictor),
            )
        )

    def grant(self, alpha: float) -> None:
        """Gives the predictor so much influence as if it had earned it long ago."""
        user = self.memory.scope.user
        state = known_state(self.memory.services, user)
        earned = replace(state.standing, judged=99, active_since=0, earned_alpha=alpha)
        kept = replace(state, standing=earned).encoded()
        self.store.write(user, lambda t: t.set_predictor_state(user, kept))

    def trust_history(self) -> None:
        """Let history count in full, as if the record had proved it, until the next comparison."""
        user = self.memory.scope.user
        proof = HistoryProof(FULL_TRUST, session_count=20, validity=5.0, margin=0.2)
        kept = replace(known_state(self.memory.services, user), history=proof).encoded()
        self.store.write(user, lambda t: t.set_predictor_state(user, kept))

    def equip(self, **services: Any) -> None:
        """Exchanges parts of the engine."""
        self.memory.backend.services = replace(self.memory.services, **services)

    def record(self, key: str = "run") -> SessionRecord:
        return self.store.session(self.memory.scope.user, key)

    def rows(self, key: str = "run") -> dict[str, SessionMemory]:
        """By memory id what a session knows of its candidates, in the order of rank."""
        found = self.store.session_memories(self.memory.scope.user, key)
        return {one.memory_id: one for one in found}

    def state(self, key: str = "run") -> tuple[object, ...]:
        """All that is on record about a session, to be compared."""
        record = self.record(key)
        vector = None if record.context_vector is None else record.context_vector.tolist()
        injections = self.store.injections(record.user, key)
        bare = replace(record, context_vector=None)
        return bare, vector, self.rows(key), injections, self.store.ratings(record.user, key)

    def score(self, key: str = "run") -> SessionScore | None:
        return self.store.session_score(self.memory.scope.user, key)

    def counters(self) -> dict[str, int]:
        return self.store.counters(self.memory.scope.user)

    def stages(self) -> set[str]:
        """Every stage that ran so far, as flow.stage."""
        latencies = self.memory.services.observer.latencies()
        return {one.operation for one in latencies if one.count and "." in one.operation}

    def failures(self) -> list[tuple[str, str]]:
        """What went wrong and was survived, newest first."""
        return [(one.stage, one.code) for one in self.memory.services.observer.failures()]

    def finish(self, session: Session, transcript: object = None, **end: Any) -> None:
        """Ends a session and learns from it."""
        session.end(transcript, **end)
        self.memory.drain()


class Between:
    """A store that lets something else happen right before one of its writes."""

    def __init__(self, store: Store, happen: Callable[[], object], at: int = 1) -> None:
        self._store = store
        self._happen = happen
        self._left = at
        self.was_called = False

    def write(self, user: str | None, work: Callable[[Transaction], T]) -> T:
        self._left -= 1
        if self._left == 0:
            self.was_called = True
            self._happen()
        return self._store.write(user, work)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def kept(memory: MemoryRecord | None) -> MemoryRecord:
    """The memory, which must be there."""
    assert memory is not None
    return memory


def filler(count: int) -> list[str]:
    """Different claims about nothing that matters here."""
    return [
        f"Item {n}: the {_THINGS[n % 10]} of the {_PLACES[n % 8]} weighs {n * 7 + 3} stone"
        for n in range(count)
    ]


def talk(asked: str, answered: str, times: int = 6) -> list[dict[str, str]]:
    """A conversation long enough to be judged."""
    return [
        {"role": role, "text": text}
        for _ in range(times)
        for role, text in (("user", f"{asked} Please be thorough."), ("assistant", answered))
    ]


def contents(shown: Iterable[Any]) -> list[str]:
    return [one.content for one in shown]


def handles(shown: Iterable[Any]) -> list[str]:
    return [one.handle for one in shown]


def trailer(code: str | None, *ratings: tuple[str, float]) -> str:
    """A reply with ratings at its end."""
    named = " ".join(f"{handle}={score}" for handle, score in ratings)
    return f"Done, it works now.\n<!--mf {code} {named}-->"


def ids_of(shown: Sequence[Any]) -> dict[str, str]:
    """By text the ids of shown memories."""
    return {one.content: one.id for one in shown}
