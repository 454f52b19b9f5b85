"""Candidates that extraction refused: list, show and restore them, or extract again."""

from __future__ import annotations

from meritory.domain.errors import Conflict, InputError, NotFound
from meritory.domain.memory import Draft, MemoryRecord, Source
from meritory.domain.quality import Refusal
from meritory.engine.memories.validate import only_proposed
from meritory.engine.memories.write import decide_batch, prepare_batch
from meritory.engine.quality import extraction
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction

REFUSALS_LIMIT, REFUSALS_LIMIT_MAX = 50, 10_000


def listing(
    services: Services, user: str, limit: int = REFUSALS_LIMIT, offset: int = 0
) -> list[Refusal]:
    """Return the refusals that were not restored, latest first."""
    if not 1 <= limit <= REFUSALS_LIMIT_MAX:
        raise InputError(f"limit must be a whole number from 1 to {REFUSALS_LIMIT_MAX}")
    if offset < 0:
        raise InputError("offset must be 0 or more")
    return services.store.refusals(user, limit, offset)


def show(services: Services, user: str, name: str) -> Refusal:
    """Return one refusal by its id or a prefix of it."""
    return services.store.refusal(user, name)


def restore(services: Services, user: str, name: str) -> MemoryRecord:
    """Store a refused candidate as a memory, with its origin and confidence."""
    refusal = services.store.refusal(user, name)
    quote_hash = extraction.hashed(refusal.quote)
    draft = Draft(
        content=refusal.content,
        user=refusal.scope.user,
        agent=refusal.scope.agent,
        project=refusal.scope.project,
        kind=refusal.kind,
        provenance=refusal.provenance,
        origin=refusal.origin,
        confidence=refusal.confidence,
        source=Source(None, refusal.session_key, refusal.turn, quote_hash, refusal.extractor),
    )
    prepared = prepare_batch(services, [only_proposed(draft)])

    def work(transaction: Transaction) -> MemoryRecord:
        current = transaction.refusal(user, refusal.id)
        if current.memory_id is not None:
            raise Conflict(
                f"{refusal.id} is already restored, as {current.memory_id}",
                hint=f"show it with `meritory show {current.memory_id}`",
            )
        (result,) = decide_batch(services, transaction, prepared)
        if result.memory is None:
            raise result.error or InputError(result.reason)
        transaction.mark_restored(user, refusal.id, result.memory.id)
        return result.memory

    return services.store.write(user, work)


def again(services: Services, user: str, session_key: str) -> None:
    """Queue the extraction of a finished session again."""
    session = services.store.session(user, session_key)
    if session.state == "open":
        raise InputError(
            f"session {session_key} is still open", hint="it is extracted when it ends"
        )
    if not services.store.transcript(user, session_key):
        raise NotFound(f"session {session_key} has no transcript")
    now = services.world.now()
    services.store.write(user, lambda transaction: extraction.queue(transaction, session, now))
