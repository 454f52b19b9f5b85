"""Consent to telemetry: users are asked in the first week, and never again after a no."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Literal

from meritory.domain.access import Consent
from meritory.domain.errors import Busy, StorageError
from meritory.domain.harness import HARNESS_NAMES
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction
from meritory.text import render
from meritory.text.tokens import token_estimate

# For how long after the installation users are asked, and how often.
ASKED_FOR: Final = timedelta(days=7)
ASKED_EVERY: Final = timedelta(hours=24)
# Judges and extractors ignore lines with this prefix, so the question is never learned from.
QUESTION: Final = (
    "[meritory: at a natural moment, ask the user once whether Meritory may keep numbers about how"
    " well its memory works: features, labels, ranks and counts in a file on this machine, never"
    " text, prompts, replies, paths or project names. Nothing is sent anywhere.]\n"
    "[meritory: for yes run `meritory telemetry on`, for no `meritory telemetry off`; either can be"
    " changed at any time. If they decline, drop it and do not bring it up again.]"
)
Step = Literal["ask", "close", "nothing"]


def next_step(consent: Consent, now: datetime) -> Step:
    """Return whether to ask, to take the silence for a no, or to do nothing.

    A date in the future, after the clock was set back, counts as just asked.
    """
    if consent.opt_in is not None:
        return "nothing"
    if now - consent.install_date >= ASKED_FOR:
        return "close"
    last = consent.last_prompted_at
    is_early = now < consent.install_date or (last is not None and now - last < ASKED_EVERY)
    return "nothing" if is_early else "ask"


def consent_of(services: Services, user: str) -> Consent:
    """Return a user's answer; the first call stores the date of the installation."""
    stored = services.store.consent(user)
    if stored is not None:
        return stored
    now = services.world.now()

    def work(transaction: Transaction) -> Consent:
        consent = transaction.consent(user) or Consent(install_date=now)
        transaction.put_consent(user, consent)
        return consent

    return services.store.write(user, work)


def note_start(services: Services, user: str) -> None:
    """Store the date of the installation; a failure is counted, and the next start tries again."""
    try:
        consent_of(services, user)
    except (StorageError, Busy) as error:
        services.observer.failed("consent", error)


def answer(services: Services, user: str, enabled: bool) -> Consent:
    """Store a user's answer."""
    now = services.world.now()

    def work(transaction: Transaction) -> Consent:
        stored = transaction.consent(user) or Consent(install_date=now)
        consent = replace(stored, opt_in=enabled)
        transaction.put_consent(user, consent)
        return consent

    return services.store.write(user, work)


def with_question(harness: str | None, text: str, limit_tokens: int) -> str | None:
    """Return an opening text with the question; None if it may not be asked or does not fit.

    Only a client that a person uses passes the question on. A program's session is never asked.
    """
    if harness not in HARNESS_NAMES:
        return None
    whole = f"{text}\n{QUESTION}" if text else QUESTION
    is_long = token_estimate(whole) > limit_tokens or render.units(whole) > render.BLOCK_LIMIT_CHARS
    return None if is_long else whole


def ask(transaction: Transaction, user: str, started_at: datetime, now: datetime) -> bool:
    """Record that a session asks its user, if that is due; return whether it does.

    The first session of a user only stores the date of the installation, which is later than
    its start.
    """
    stored = transaction.consent(user)
    consent = stored or Consent(install_date=now)
    step = next_step(consent, started_at)
    if step == "ask":
        consent = replace(consent, last_prompted_at=started_at)
    elif step == "close":
        consent = replace(consent, opt_in=False)
    if consent != stored:
        transaction.put_consent(user, consent)
    return step == "ask"
