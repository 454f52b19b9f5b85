"""What a finished session leaves behind as memories: the job behind it, in stages.

The rules always speak; a model, where one is configured, adds to what they found. Who said a thing
and how far it is trusted was settled by code before it comes here, and here it goes through the
same write path as everything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from meritory.domain.errors import NotFound
from meritory.domain.job import Job
from meritory.domain.memory import UNTRUSTED_ORIGINS, Draft, MemoryRecord, Source, WriteResult
from meritory.domain.quality import Refusal
from meritory.domain.session import Event, SessionRecord, Turn
from meritory.engine.jobs.runner import After, Effect, Handler, no_effect
from meritory.engine.memories.gate import may_supersede
from meritory.engine.memories.recall import recall
from meritory.engine.memories.validate import only_proposed
from meritory.engine.memories.write import decide_batch, prepare_batch
from meritory.engine.observe.observer import publish
from meritory.engine.services import Services
from meritory.ports.extractor import KNOWN_LIMIT, Extractor, RulesExtractor
from meritory.store.contract.store import Transaction
from meritory.text.extract import rules
from meritory.text.extract.cues import Declined, Extraction, FoundClaim
from meritory.text.normalize import canonical, content_hash
from meritory.text.secrets import redact
from meritory.text.terms import query_terms

EXTRACT_JOB = "extract"
EXTRACTED = "session.extracted"
SUMMARY_EXTRACTOR = "summary/1"
# For a model, less than this says nothing.
MODEL_MIN_CHARS = 200
# Earlier turns that are kept beside the end of a transcript, because something was said in them.
EARLIER_LIMIT_CHARS = 2_000
ECHO_MIN_CHARS = 16
# What a claim must have in common with the memory that a model wants it to replace.
SAME_SUBJECT_WORDS = 2
_QUERY_LIMIT_CHARS = 2_000
_REFUSAL_ID_CHARS = 24


def handler(services: Services) -> Handler:
    """The stages of extraction, in order."""
    return (
        ("rules", lambda job: _by_rules(services, job)),
        ("model", lambda job: _by_model(services, job)),
        ("summary", lambda job: _summary(services, job)),
    )


def is_due(services: Services, told: Sequence[Turn]) -> bool:
    """Whether there is anything in a transcript to extract, so that no job is queued in vain."""
    if not any(turn.role == "user" for turn in told):
        return False
    if services.policy.extraction.summaries or _model(services) is not None:
        return True
    return services.extractor is not None and _says_something(told)


def queue(transaction: Transaction, session: SessionRecord, due_at: datetime) -> None:
    """Queues extraction; a session that went on is read again, and nothing of it twice."""
    if not transaction.put_job(session.user, EXTRACT_JOB, session.key, due_at):
        transaction.requeue_job(session.user, EXTRACT_JOB, session.key, due_at)


def earlier_words(turns: Sequence[Turn], kept: Sequence[Turn]) -> tuple[Turn, ...]:
    """Turns in which the user said something to be kept, and which shortening left out."""
    there = {turn.text for turn in kept}
    found: list[Turn] = []
    left = EARLIER_LIMIT_CHARS
    for turn in reversed(turns):
        if turn.role == "user" and turn.text not in there and _says_something([turn]):
            left -= len(turn.text)
            if left < 0:
                break
            found.append(turn)
    return tuple(reversed(found))


def _says_something(told: Sequence[Turn]) -> bool:
    found = rules.read(told)
    return bool(found.candidates or found.refused)


def _model(services: Services) -> Extractor | None:
    """The extractor that asks a model, where there is one."""
    chosen = services.extractor
    return None if chosen is None or chosen.name.startswith("rules/") else chosen


def _by_rules(services: Services, job: Job) -> Effect:
    told = services.store.transcript(job.user, job.key)
    if services.extractor is None or not told:
        return no_effect
    own = RulesExtractor()
    return _effect(services, job, own.name, own.extract(told))


def _by_model(services: Services, job: Job) -> Effect:
    told = services.store.transcript(job.user, job.key)
    model = _model(services)
    if model is None or sum(len(turn.text) for turn in told) < MODEL_MIN_CHARS:
        return no_effect
    session = services.store.session(job.user, job.key)
    made = model.extract(told, _known(services, session, told))
    return _effect(services, job, model.name, made)


def _known(services: Services, session: SessionRecord, told: Sequence[Turn]) -> list[MemoryRecord]:
    """Memories that the session may repeat or renew, found by what the user said in it."""
    asked = "\n".join(turn.text for turn in told if turn.role == "user")[-_QUERY_LIMIT_CHARS:]
    if not asked.strip():
        return []
    return [one.memory for one in recall(services, session.scope, asked, KNOWN_LIMIT)]


def _summary(services: Services, job: Job) -> Effect:
    """The session as one memory; when it went on, the new one takes the place of the old."""
    session = services.store.session(job.user, job.key)
    said = " ".join(session.summary.split())
    if not services.policy.extraction.summaries or not said:
        return no_effect
    earlier = _told(services, session, "summary")
    if earlier and not _is_live(services, session, earlier[-1]):
        # Somebody has deleted it: then it is not wanted.
        return no_effect
    at = session.ended_at or session.started_at
    draft = Draft(
        content=f"Asked for on {at:%Y-%m-%d}: {said}",
        user=session.user,
        agent=session.agent,
        project=session.project,
        kind="episode",
        provenance="episode_summary",
        origin="agent",
        source=Source(session.harness, session.key, None, hashed(said), SUMMARY_EXTRACTOR),
        supersedes=earlier[-1] if earlier else None,
    )
    acting = _as(services, job.user, SUMMARY_EXTRACTOR)
    prepared = prepare_batch(acting, [draft])

    def effect(transaction: Transaction) -> None:
        (result,) = decide_batch(acting, transaction, prepared)
        if result.memory is not None:
            # Not under the memory's id: it has to outlive a purge, or the words would come back.
            event = Event(
                at=prepared.now,
                category="extraction",
                name=EXTRACTED,
                session_key=session.key,
                details={"extractor": SUMMARY_EXTRACTOR, "summary": [result.memory.id]},
            )
            transaction.log_events(job.user, [event])

    return effect


def _is_live(services: Services, session: SessionRecord, memory_id: str) -> bool:
    found = services.store.memories(session.user, [memory_id]).get(memory_id)
    return found is not None and found.is_live


# -- what is made of candidates -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ExtractedBatch:
    """Candidates on their way into the store, and what is refused beside them."""

    session: SessionRecord
    extractor: str
    found: tuple[FoundClaim, ...]
    refused: tuple[Declined, ...]
    # Hashes of everything this session has brought up by now.
    seen: frozenset[str]
    # How many only repeated what Meritory had shown.
    echo_count: int


def _effect(services: Services, job: Job, name: str, made: Extraction) -> Effect:
    session = services.store.session(job.user, job.key)
    batch = _screened(services, session, name, made)
    acting = _as(services, job.user, name)
    drafts = [_draft(session, name, _permitted(services, session, one)) for one in batch.found]
    prepared = prepare_batch(acting, drafts)

    def effect(transaction: Transaction) -> After:
        results = decide_batch(acting, transaction, prepared)
        refused = [*batch.refused, *_failed(batch.found, results)]
        fresh = _put_refusals(services, transaction, batch, refused)
        # What the write path refused is counted there already.
        for outcome in ("floored", "refused"):
            amount = sum(one.outcome == outcome for one in fresh if one in batch.refused)
            if amount:
                transaction.count(job.user, f"write.{outcome}", amount)
        if batch.echo_count:
            transaction.count(job.user, "extract.echoed", batch.echo_count)
        event = _event(services, batch, results, len(fresh))
        # Hashes only: a purge leaves no words behind here.
        listed = replace(event, details={**event.details, "seen": sorted(batch.seen)})
        transaction.log_events(job.user, [listed])
        return partial(publish, services, [event])

    return effect


def _screened(
    services: Services, session: SessionRecord, name: str, made: Extraction
) -> _ExtractedBatch:
    """Without what this session brought up before, and without what Meritory itself had shown."""
    before = frozenset(_told(services, session, "seen"))
    shown = _shown_texts(services, session)
    fresh = [one for one in made.candidates if content_hash(one.content) not in before]
    # Not listed as refused either: the words would outlive the memory that they are from.
    found = tuple(one for one in fresh if not _is_echo(one, shown))
    refused = tuple(
        one
        for one in made.refused
        if content_hash(one.found.content) not in before and not _is_echo(one.found, shown)
    )
    hashes = {content_hash(one.content) for one in made.candidates}
    hashes |= {content_hash(one.found.content) for one in made.refused}
    return _ExtractedBatch(session, name, found, refused, before | hashes, len(fresh) - len(found))


def _shown_texts(services: Services, session: SessionRecord) -> list[str]:
    ids = [one.memory_id for one in services.store.shown(session.user, session.key)]
    known = services.store.memories(session.user, ids)
    return [canonical(memory.content) for memory in known.values()]


def _is_echo(found: FoundClaim, shown: Iterable[str]) -> bool:
    """Whether a claim, or the words it rests on, only repeat a memory that was shown."""
    said, quote = canonical(found.content), canonical(found.quote)
    return any(said == text or (len(quote) >= ECHO_MIN_CHARS and quote in text) for text in shown)


def _told(services: Services, session: SessionRecord, name: str) -> list[str]:
    """What earlier runs on this session wrote down under a name, oldest first.

    Under "seen" are the hashes of all they brought up: stored, replaced or refused. Without these,
    what a person has deleted since, or what was superseded later in the session, would come back
    whenever the session is resumed and ends again.
    """
    found: list[str] = []
    for event in services.store.events(session.user, session_key=session.key):
        listed = event.details.get(name) if event.name == EXTRACTED else None
        if isinstance(listed, list):
            found += [one for one in listed if isinstance(one, str)]
    return found


def _permitted(services: Services, session: SessionRecord, found: FoundClaim) -> FoundClaim:
    """The candidate, which replaces what a model named only if the gate might do so as well.

    Else it is simply stored beside it: that loses nothing.
    """
    old = services.store.memories(session.user, [found.supersedes or ""]).get(
        found.supersedes or ""
    )
    if old is None:
        return replace(found, supersedes=None)
    new = replace(
        old,
        provenance=found.provenance,
        origin=found.origin,
        trust="untrusted" if found.origin in UNTRUSTED_ORIGINS else "trusted",
        created_at=services.world.now(),
        valid_from=None,
    )
    shared = set(query_terms(old.content)) & set(query_terms(found.content))
    may = (
        old.is_live
        and old.scope == session.scope
        # It was a model that named it, whoever is quoted: a person's pin is a person's to move.
        and not (old.pinned or old.kind == "constraint")
        and len(shared) >= SAME_SUBJECT_WORDS
        and may_supersede(old, new)
    )
    return found if may else replace(found, supersedes=None)


def _draft(session: SessionRecord, name: str, found: FoundClaim) -> Draft:
    source = Source(session.harness, session.key, str(found.turn), hashed(found.quote), name)
    return only_proposed(
        Draft(
            content=found.content,
            user=session.user,
            agent=session.agent,
            project=session.project,
            kind=found.kind,
            provenance=found.provenance,
            origin=found.origin,
            confidence=found.confidence,
            source=source,
            supersedes=found.supersedes,
        )
    )


def _failed(found: Sequence[FoundClaim], results: Sequence[WriteResult]) -> list[Declined]:
    return [
        Declined(one, result.reason, "refused")
        for one, result in zip(found, results, strict=True)
        if result.outcome == "refused"
    ]


def _put_refusals(
    services: Services,
    transaction: Transaction,
    batch: _ExtractedBatch,
    refused: Sequence[Declined],
) -> list[Declined]:
    """Keeps what is not on the list yet; what was restored stays so. Returns what was new."""
    made = {_refusal_id(batch.session, one.found): one for one in refused}
    fresh = {key: one for key, one in made.items() if not _is_listed(transaction, batch, key)}
    at = services.world.now()
    transaction.put_refusals([_refusal(batch, key, one, at) for key, one in fresh.items()])
    return list(fresh.values())


def _is_listed(transaction: Transaction, batch: _ExtractedBatch, refusal_id: str) -> bool:
    try:
        transaction.refusal(batch.session.user, refusal_id)
    except NotFound:
        return False
    return True


def _refusal_id(session: SessionRecord, found: FoundClaim) -> str:
    """The same for the same words in the same scope, whenever and wherever they are refused."""
    parts = (session.user, session.agent or "", session.project or "", canonical(found.content))
    told = "\0".join(f"{len(part)}:{part}" for part in parts)
    return hashed(told)[:_REFUSAL_ID_CHARS]


def _refusal(batch: _ExtractedBatch, refusal_id: str, declined: Declined, at: datetime) -> Refusal:
    found = declined.found
    return Refusal(
        id=refusal_id,
        at=at,
        scope=batch.session.scope,
        session_key=batch.session.key,
        content=redact(found.content),
        kind=found.kind,
        provenance=found.provenance,
        origin=found.origin,
        confidence=found.confidence,
        turn=str(found.turn),
        quote=redact(found.quote),
        reason=redact(declined.reason),
        extractor=batch.extractor,
    )


def _event(
    services: Services, batch: _ExtractedBatch, results: Sequence[WriteResult], refused_count: int
) -> Event:
    return Event(
        at=services.world.now(),
        category="extraction",
        name=EXTRACTED,
        session_key=batch.session.key,
        details={
            "extractor": batch.extractor,
            "outcomes": [result.outcome for result in results],
            "refused": refused_count,
            "echoed": batch.echo_count,
        },
    )


def _as(services: Services, user: str, name: str) -> Services:
    """The engine as the extractor of a user: so that is who stands in the history."""
    return replace(services, user=user, actor=f"extractor {name}")


def hashed(text: str) -> str:
    """What is stored of a quote: its hash, in letters and digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
