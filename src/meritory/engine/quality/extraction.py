"""Extract memories from a finished session, as a job in stages, and keep the refused candidates.

The rules always run; a configured model adds to their candidates. The extractors have settled the
origin and trust of each candidate; here it goes through the same write path as every memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from meritory.domain.errors import Conflict, InputError, NotFound
from meritory.domain.job import Job
from meritory.domain.memory import UNTRUSTED_ORIGINS, Draft, MemoryRecord, Scope, Source
from meritory.domain.quality import Refusal
from meritory.domain.session import Event, SessionRecord, Turn
from meritory.engine.jobs.runner import EXTRACT_JOB, After, Effect, no_effect, queue_job
from meritory.engine.memories.gate import may_supersede
from meritory.engine.memories.recall import recall
from meritory.engine.memories.write import decide_batch, prepare_batch
from meritory.engine.observe.observer import publish
from meritory.engine.services import Services
from meritory.ports.extractor import KNOWN_LIMIT, Extractor, RulesExtractor
from meritory.store.contract.memories import Search
from meritory.store.contract.store import Transaction
from meritory.text.extract import revisions, rules
from meritory.text.extract.attribution import OwnTurn, sentences, users_words
from meritory.text.extract.rules import Declined, Extraction, FoundClaim
from meritory.text.normalize import canonical, content_hash
from meritory.text.secrets import redact
from meritory.text.terms import query_terms

EXTRACTED = "session.extracted"
SUMMARY_EXTRACTOR = "summary/1"
# A model is not asked about a shorter transcript.
MODEL_MIN_CHARS = 200
# Length of the earlier turns that are stored with the end of a transcript.
EARLIER_LIMIT_CHARS = 2_000
ECHO_MIN_CHARS = 16
# Memories with the value that a correction names; more of them are no subject.
OLD_VALUES_LIMIT = 50
OLD_VALUE_REASON = "a correction of the user names its value as the old one"
# Words that a claim must share with the memory that a model wants it to replace.
SAME_SUBJECT_WORDS = 2
_QUERY_LIMIT_CHARS = 2_000
# Whether something happened before a turn only decides what it corrects.
_ACT = Turn("assistant", "")
_REFUSAL_ID_CHARS = 24
REFUSALS_LIMIT, REFUSALS_LIMIT_MAX = 50, 10_000


def is_due(services: Services, turns: Sequence[Turn]) -> bool:
    """Return whether a transcript has anything to extract, so that an idle job is not queued."""
    if not any(turn.role == "user" for turn in turns):
        return False
    if services.policy.extraction.summaries or _model(services) is not None:
        return True
    return services.extractor is not None and _has_candidates(turns)


def earlier_words(turns: Sequence[Turn], kept: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return user turns with candidates that shortening dropped from a transcript."""
    kept_texts = {turn.text for turn in kept}
    earlier: list[Turn] = []
    left = EARLIER_LIMIT_CHARS
    for turn in reversed(turns):
        if turn.role == "user" and turn.text not in kept_texts and _has_candidates([turn]):
            left -= len(turn.text)
            if left < 0:
                break
            earlier.append(turn)
    return tuple(reversed(earlier))


def _has_candidates(turns: Sequence[Turn]) -> bool:
    for turn in turns:
        if turn.role == "user":
            # Both readers take its sentences, which are split once.
            read = OwnTurn(turn.role, turn.text, turn.paths, sentences(turn.text))
            if revisions.may_correct(read) or next(rules.statements([_ACT, read]), None):
                return True
    return False


def _model(services: Services) -> Extractor | None:
    """Return the extractor that asks a model, if one is configured."""
    extractor = services.extractor
    return None if extractor is None or extractor.name.startswith("rules/") else extractor


def extract_by_rules(services: Services, job: Job) -> Effect:
    """Store what the rules find in a session."""
    turns = services.store.transcript(job.user, job.key)
    if services.extractor is None or not turns:
        return no_effect
    extractor = RulesExtractor()
    own = users_words(turns, services.store.typed(job.user, job.key))
    scope = services.store.session(job.user, job.key).scope
    extraction = naming_old_values(services, scope, extractor.extract(own))
    extraction = with_revisions(services, scope, extraction, own)
    return _store_candidates(services, job, extractor.name, extraction)


def naming_old_values(services: Services, scope: Scope, extraction: Extraction) -> Extraction:
    """Return claims with the memory that holds the value which each of them calls wrong.

    A value stands for a memory only if exactly one has it and is about the same subject.
    """
    claims: list[FoundClaim] = []
    named: set[str] = set()
    for claim in extraction.candidates:
        old = _with_old_value(services, scope, claim) if claim.old_value else None
        if old is not None and old.id not in named:
            named.add(old.id)
            claim = replace(claim, supersedes=old.id)
        claims.append(claim)
    return Extraction(tuple(claims), extraction.refused, names_old_values=True)


def with_revisions(
    services: Services, scope: Scope, extraction: Extraction, turns: Sequence[Turn]
) -> Extraction:
    """Return claims with those by which a turn corrects one stored memory.

    They take the place of other claims from the same sentences.
    """
    claims = list(extraction.candidates)
    replaced = {claim.supersedes for claim in claims} - {None}
    has_corrected = {claim.turn for claim in claims if claim.supersedes}
    for index, turn in enumerate(turns):
        if turn.role != "user" or index in has_corrected or not revisions.may_correct(turn):
            continue
        reply = turns[index - 1].text if index and turns[index - 1].role != "user" else ""
        found = [
            (record, revision)
            for record in _about(services, scope, f"{turn.text}\n{reply}")
            if (revision := revisions.revise(record.content, turn, reply)) is not None
        ]
        # What the agent just said is what the user answers.
        found = [one for one in found if one[1].is_answer] or found
        if len(found) != 1 or found[0][0].id in replaced:
            continue
        [(old, revision)] = found
        replaced.add(old.id)
        claims = [
            claim
            for claim in claims
            if claim.turn != index or claim.quote not in revision.sentences
        ]
        claims.append(
            FoundClaim(
                revision.content,
                old.kind,
                "user_stated",
                "user",
                rules.CORRECTED,
                index,
                revision.quote,
                supersedes=old.id,
                old_value=old.content,
            )
        )
    return Extraction(tuple(claims), extraction.refused, names_old_values=True)


def _about(services: Services, scope: Scope, text: str) -> list[MemoryRecord]:
    """Return the memories of a scope that share most words with a text and may be replaced."""
    pool = services.store.search(Search(scope, query_terms(text)))
    best = pool.rows[np.argsort(-pool.text, kind="stable")][:OLD_VALUES_LIMIT]
    records = services.store.fetch(scope, best, services.world.now()).values()
    return [one for one in records if one.scope == scope and not one.is_binding]


def _with_old_value(services: Services, scope: Scope, claim: FoundClaim) -> MemoryRecord | None:
    """Return the only memory with the old value and the subject of a claim."""
    value = query_terms(claim.old_value)
    if not value:
        return None
    pool = services.store.search(Search(scope, value))
    best = pool.rows[np.argsort(-pool.text, kind="stable")][:OLD_VALUES_LIMIT]
    records = services.store.fetch(scope, best, services.world.now()).values()
    fitting = [
        record
        for record in records
        if record.scope == scope and rules.is_corrected(record.content, claim)
    ]
    return fitting[0] if len(fitting) == 1 else None


def extract_by_model(services: Services, job: Job) -> Effect:
    """Store what a language model finds in a session, if one is configured."""
    turns = services.store.transcript(job.user, job.key)
    model = _model(services)
    if model is None or sum(len(turn.text) for turn in turns) < MODEL_MIN_CHARS:
        return no_effect
    session = services.store.session(job.user, job.key)
    # Memories that the session may repeat or replace.
    known: list[MemoryRecord] = []
    query = "\n".join(turn.text for turn in turns if turn.role == "user")[-_QUERY_LIMIT_CHARS:]
    if query.strip():
        known = [hit.memory for hit in recall(services, session.scope, query, KNOWN_LIMIT)]
    extraction = model.extract(turns, known)
    typed = services.store.typed(job.user, job.key)
    if typed is not None:
        extraction = attributed(extraction, users_words(turns, typed))
    return _store_candidates(services, job, model.name, extraction)


def attributed(extraction: Extraction, own: Sequence[Turn]) -> Extraction:
    """Return claims of a model; only those that quote words the user typed are the user's."""
    said = [" ".join(turn.text.split()) for turn in own]

    def checked(claim: FoundClaim) -> FoundClaim:
        if claim.provenance != "user_stated" or " ".join(claim.quote.split()) in said[claim.turn]:
            return claim
        confidence = min(claim.confidence, rules.CONFIRMED)
        return replace(claim, provenance="assistant_derived", origin="tool", confidence=confidence)

    refused = tuple(replace(item, found=checked(item.found)) for item in extraction.refused)
    return Extraction(tuple(map(checked, extraction.candidates)), refused)


def summarise(services: Services, job: Job) -> Effect:
    """Store the session as one memory; the summary of a resumed session replaces the old one."""
    session = services.store.session(job.user, job.key)
    summary = " ".join(session.summary.split())
    if not services.policy.extraction.summaries or not summary:
        return no_effect
    earlier = _logged(services, session, "summary")
    if earlier:
        record = services.store.memories(session.user, [earlier[-1]]).get(earlier[-1])
        if record is None or not record.is_live:
            # The user has deleted it, so no new one is wanted.
            return no_effect
    at = session.ended_at or session.started_at
    draft = Draft(
        content=f"Asked for on {at:%Y-%m-%d}: {summary}",
        **asdict(session.scope),
        kind="episode",
        provenance="episode_summary",
        origin="agent",
        source=Source(session.harness, session.key, None, hashed(summary), SUMMARY_EXTRACTOR),
        supersedes=earlier[-1] if earlier else None,
    )
    acting = _acting(services, job.user, SUMMARY_EXTRACTOR)
    prepared = prepare_batch(acting, [draft])

    def effect(transaction: Transaction) -> None:
        (result,) = decide_batch(acting, transaction, prepared)
        if result.memory is not None:
            # Not under the memory's id: the event must survive a purge, or the next run would
            # store the text again.
            details = {"extractor": SUMMARY_EXTRACTOR, "summary": [result.memory.id]}
            transaction.log_events(job.user, [_event(session, prepared.now, details)])

    return effect


def _store_candidates(services: Services, job: Job, name: str, extraction: Extraction) -> Effect:
    """Store new candidates as memories and list the declined ones as refusals."""
    session = services.store.session(job.user, job.key)
    seen = frozenset(_logged(services, session, "seen"))
    shown_ids = [row.memory_id for row in services.store.shown(session.user, session.key)]
    memories = services.store.memories(session.user, shown_ids).values()
    shown = [canonical(memory.content) for memory in memories]

    new = [c for c in extraction.candidates if content_hash(c.content) not in seen]
    # An echo is not listed as refused either: its text would outlive the memory it repeats.
    claims = [claim for claim in new if not _is_echo(claim, shown)]
    declined = [
        item
        for item in extraction.refused
        if content_hash(item.found.content) not in seen and not _is_echo(item.found, shown)
    ]
    echo_count = len(new) - len(claims)
    hashes = {content_hash(claim.content) for claim in extraction.candidates}
    hashes |= {content_hash(item.found.content) for item in extraction.refused}
    acting = _acting(services, job.user, name)
    prepared = prepare_batch(acting, [_draft(services, session, name, claim) for claim in claims])
    if extraction.names_old_values:
        prepared = replace(prepared, naming_reason=OLD_VALUE_REASON)

    def effect(transaction: Transaction) -> After:
        results = decide_batch(acting, transaction, prepared)
        failed = [
            Declined(claim, result.reason, "refused")
            for claim, result in zip(claims, results, strict=True)
            if result.outcome == "refused"
        ]
        listed = _put_refusals(services, transaction, session, name, [*declined, *failed])
        # The write path has counted its own refusals.
        for outcome in ("floored", "refused"):
            amount = sum(item.outcome == outcome for item in listed if item in declined)
            if amount:
                transaction.count(job.user, f"write.{outcome}", amount)
        if echo_count:
            transaction.count(job.user, "extract.echoed", echo_count)
        details = {
            "extractor": name,
            "outcomes": [result.outcome for result in results],
            "refused": len(listed),
            "echoed": echo_count,
        }
        event = _event(session, services.world.now(), details)
        # Hashes only, so that a purge leaves no text here.
        logged = replace(event, details={**details, "seen": sorted(seen | hashes)})
        transaction.log_events(job.user, [logged])
        return partial(publish, services, [event])

    return effect


def _is_echo(claim: FoundClaim, shown: Iterable[str]) -> bool:
    """Return whether a claim, or its quote, only repeats a memory that was shown."""
    content, quote = canonical(claim.content), canonical(claim.quote)
    return any(content == t or (len(quote) >= ECHO_MIN_CHARS and quote in t) for t in shown)


def _logged(services: Services, session: SessionRecord, name: str) -> list[str]:
    """Return the values that earlier runs on this session logged under a name, oldest first.

    Under "seen" are the hashes of all their candidates. Without these, a memory that a person
    deleted, or that was superseded later in the session, would return whenever the session is
    resumed and ends again.
    """
    values: list[str] = []
    for event in services.store.events(session.user, session_key=session.key):
        logged = event.details.get(name) if event.name == EXTRACTED else None
        if isinstance(logged, list):
            values += [value for value in logged if isinstance(value, str)]
    return values


def _draft(services: Services, session: SessionRecord, name: str, claim: FoundClaim) -> Draft:
    """Return the draft of a claim.

    It replaces the memory that a model named only if the gate could. If not, it is stored as a
    separate memory, which loses nothing.
    """
    old: MemoryRecord | None = None
    if claim.supersedes:
        old = services.store.memories(session.user, [claim.supersedes]).get(claim.supersedes)
    may_replace = False
    if old is not None:
        new = replace(
            old,
            provenance=claim.provenance,
            origin=claim.origin,
            trust="untrusted" if claim.origin in UNTRUSTED_ORIGINS else "trusted",
            created_at=services.world.now(),
            valid_from=None,
        )
        shared = set(query_terms(old.content)) & set(query_terms(claim.content))
        may_replace = (
            old.is_live
            and old.scope == session.scope
            and not old.is_binding
            and (bool(claim.old_value) or len(shared) >= SAME_SUBJECT_WORDS)
            and may_supersede(old, new)
        )
    return Draft(
        content=claim.content,
        **asdict(session.scope),
        **_settled(claim),
        source=Source(session.harness, session.key, str(claim.turn), hashed(claim.quote), name),
        supersedes=claim.supersedes if may_replace else None,
    )


def _put_refusals(
    services: Services,
    transaction: Transaction,
    session: SessionRecord,
    name: str,
    declined: Sequence[Declined],
) -> list[Declined]:
    """List declined candidates that are not listed yet, and return them."""
    now, scope = services.world.now(), session.scope
    new: dict[str, Declined] = {}
    for item in declined:
        # The id is the same for the same text in the same scope.
        parts = (scope.user, scope.agent or "", scope.project or "", canonical(item.found.content))
        refusal_id = hashed("\0".join(f"{len(p)}:{p}" for p in parts))[:_REFUSAL_ID_CHARS]
        try:
            transaction.refusal(scope.user, refusal_id)
        except NotFound:
            new[refusal_id] = item
    transaction.put_refusals(
        [
            Refusal(
                id=refusal_id,
                at=now,
                **asdict(scope),
                **_settled(item.found),
                session_key=session.key,
                content=redact(item.found.content),
                turn=str(item.found.turn),
                quote=redact(item.found.quote),
                reason=redact(item.reason),
                extractor=name,
            )
            for refusal_id, item in new.items()
        ]
    )
    return list(new.values())


def _event(session: SessionRecord, at: datetime, details: Mapping[str, object]) -> Event:
    key = session.key
    return Event(at=at, category="extraction", name=EXTRACTED, session_key=key, details=details)


def _acting(services: Services, user: str, name: str) -> Services:
    """Return services that write as the extractor of a user, who is no person."""
    return replace(services, user=user, actor=f"extractor {name}", is_person=False)


def _settled(claim: FoundClaim | Refusal) -> dict[str, Any]:
    """Return the fields of a claim that its draft and its refusal take over."""
    return {name: getattr(claim, name) for name in ("kind", "provenance", "origin", "confidence")}


def hashed(text: str) -> str:
    """Return the hash of a quote, which is stored in place of the quote."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# -- refusals ---------------------------------------------------------------------------------


def restore_refusal(services: Services, user: str, name: str) -> MemoryRecord:
    """Store a refused candidate as a memory, with its origin and confidence.

    A constraint is only proposed: the extractor chose the kind.
    """
    services = replace(services, is_person=False)
    refusal = services.store.refusal(user, name)
    quote_hash = hashed(refusal.quote)
    draft = Draft(
        content=refusal.content,
        user=refusal.user,
        agent=refusal.agent,
        project=refusal.project,
        **_settled(refusal),
        source=Source(None, refusal.session_key, refusal.turn, quote_hash, refusal.extractor),
    )
    prepared = prepare_batch(services, [draft])

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


def extract_again(services: Services, user: str, session_key: str) -> None:
    """Queue the extraction of a finished session again."""
    session = services.store.session(user, session_key)
    if session.state == "open":
        raise InputError(
            f"session {session_key} is still open", hint="it is extracted when it ends"
        )
    if not services.store.transcript(user, session_key):
        raise NotFound(f"session {session_key} has no transcript")
    now = services.world.now()
    services.store.write(user, lambda t: queue_job(t, user, EXTRACT_JOB, session_key, now))
