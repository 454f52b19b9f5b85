"""Whether numbers may be kept for others: asked a few times in the first week, never after a no."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Literal

from meritory.domain.access import Consent
from meritory.domain.errors import Busy, StorageError
from meritory.domain.harness import HARNESS_NAMES
from meritory.domain.session import SessionRecord
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction
from meritory.text import render
from meritory.text.tokens import token_estimate

# For how long after the install it is asked, and how often.
ASKED_FOR: Final = timedelta(days=7)
ASKED_EVERY: Final = timedelta(hours=24)
# Each line is a remark of ours, which no judge and no extractor takes for the session's own.
QUESTION: Final = (
    "[meritory: at a natural moment, ask the user once whether Meritory may keep numbers about how"
    " well its memory works: features, labels, ranks and counts in a file on this machine, never"
    " text, prompts, replies, paths or project names. Nothing is sent anywhere.]\n"
    "[meritory: for yes run `meritory telemetry on`, for no `meritory telemetry off`; either can be"
    " changed at any time. If they decline, drop it and do not bring it up again.]"
)
Step = Literal["ask", "close", "nothing"]


def next_step(consent: Consent, now: datetime) -> Step:
    """What is due: to ask, to take the silence for a no, or nothing.

    A clock that was set back asks nobody: what lies ahead of it counts as just asked.
    """
    if consent.opt_in is not None:
        return "nothing"
    if now - consent.install_date >= ASKED_FOR:
        return "close"
    last = consent.last_prompted_at
    is_early = now < consent.install_date or (last is not None and now - last < ASKED_EVERY)
    return "nothing" if is_early else "ask"


def consent_of(services: Services, user: str) -> Consent:
    """What a user said; the first look notes the day of the install."""
    known = services.store.consent(user)
    if known is not None:
        return known
    now = services.world.now()

    def work(transaction: Transaction) -> Consent:
        consent = transaction.consent(user) or Consent(install_date=now)
        transaction.put_consent(user, consent)
        return consent

    return services.store.write(work)


def note_start(services: Services, user: str) -> None:
    """Notes the first start; where that fails, a later one is the first."""
    try:
        consent_of(services, user)
    except (StorageError, Busy) as error:
        services.observer.failed("consent", error)


def answer(services: Services, user: str, enabled: bool) -> Consent:
    """Keeps what a user said."""
    now = services.world.now()

    def work(transaction: Transaction) -> Consent:
        known = transaction.consent(user) or Consent(install_date=now)
        consent = replace(known, opt_in=enabled)
        transaction.put_consent(user, consent)
        return consent

    return services.store.write(work)


def with_question(services: Services, session: SessionRecord, text: str) -> str:
    """The text that opens a session, with the question where it is due and there is room for it.

    Only a person's own client passes it on to who may answer: a program's session is never asked.
    """
    if session.harness not in HARNESS_NAMES:
        return text
    whole = f"{text}\n{QUESTION}" if text else QUESTION
    is_short = token_estimate(whole) <= services.policy.session.start_tokens
    if not is_short or render.units(whole) > render.BLOCK_LIMIT_CHARS:
        return text
    try:
        return whole if _is_asked(services, session.user, session.started_at) else text
    except (StorageError, Busy) as error:
        services.observer.failed("consent", error)
        return text


def _is_asked(services: Services, user: str, now: datetime) -> bool:
    if next_step(consent_of(services, user), now) == "nothing":
        return False

    def work(transaction: Transaction) -> bool:
        # Another process may have asked in between.
        consent = transaction.consent(user) or Consent(install_date=now)
        step = next_step(consent, now)
        if step == "ask":
            transaction.put_consent(user, replace(consent, last_prompted_at=now))
        elif step == "close":
            transaction.put_consent(user, replace(consent, opt_in=False))
        return step == "ask"

    return services.store.write(work)
