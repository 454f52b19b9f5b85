"""The question whether anything of a session is worth keeping, where the user has asked for it.

After a compaction the agent gets it with the notes. At a reply it makes the agent go on for one
more turn, so it comes once in a session at most, and never in a short one.
"""

from __future__ import annotations

from meritory.domain import harness
from meritory.domain.errors import Busy, StorageError
from meritory.domain.session import Event, SessionRecord
from meritory.engine.services import Services
from meritory.store.contract.store import Transaction
from meritory.text.render import KEEP_QUESTION

# Shorter sessions seldom have anything that extraction does not find.
ASK_AFTER_PROMPTS = 5
ASKED = "session.asked_to_keep"


def question_at_reply(services: Services, session: SessionRecord | None) -> str:
    """Return the question for an agent that has just replied; empty if it is not to be asked."""
    if session is None or session.state != "open" or session.prompt_count < ASK_AFTER_PROMPTS:
        return ""
    traits = harness.BY_NAME.get(session.harness or "", harness.UNLISTED)
    return _asked(services, session, is_first=True) if traits.asks_at_reply else ""


def question_after_compaction(services: Services, session: SessionRecord | None) -> str:
    """Return the question for an agent whose context was compacted; empty in a new session."""
    if session is None or not session.prompt_count:
        return ""
    return _asked(services, session, is_first=False)


def _asked(services: Services, session: SessionRecord, *, is_first: bool) -> str:
    """Note that the question is asked, and return it; empty without tools to answer by."""
    user, key = session.user, session.key
    if not services.has_tools(session.harness or ""):
        return ""
    event = Event(at=services.world.now(), category="session", name=ASKED, session_key=key)

    def work(transaction: Transaction) -> bool:
        if is_first and transaction.has_event(user, key, ASKED):
            return False
        transaction.log_events(user, [event])
        return True

    try:
        # Before the answer: a question that is not noted could come with every reply.
        if is_first and services.store.has_event(user, key, ASKED):
            return ""
        return KEEP_QUESTION if services.store.write(user, work) else ""
    except (Busy, StorageError) as error:
        services.observer.failed("session_record", error)
        return ""
