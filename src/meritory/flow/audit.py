"""What people say of merges: right or wrong, one by one, and what that says of the gate."""

from __future__ import annotations

from dataclasses import dataclass

from meritory.flow.services import Services
from meritory.rank.feedback.risk import interval
from meritory.store.upkeep import MergeVerdict
from meritory.types import HistoryEntry

_PAGE = 200
# So many merges are looked through for those that nobody has audited yet.
_LOOK_AT = 2_000


@dataclass(frozen=True, slots=True)
class Audited:
    """How many merges were audited and were wrong, with the interval of that share."""

    total: int
    wrong: int
    low: float
    high: float

    @property
    def rate(self) -> float | None:
        """The share of wrong ones; None without an audit."""
        return self.wrong / self.total if self.total else None


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge with what was said about it."""

    entry: HistoryEntry
    verdict: MergeVerdict | None


def audited(services: Services, user: str) -> Audited:
    """What all audits say."""
    verdicts = list(services.store.merge_audits(user).values())
    wrong = verdicts.count("wrong")
    low, high = interval(wrong, len(verdicts))
    return Audited(len(verdicts), wrong, round(low, 6), round(high, 6))


def merges(services: Services, user: str, limit: int, *, before: int | None = None) -> list[Merge]:
    """The latest merges with their verdicts, newest first, those split again among them."""
    verdicts = services.store.merge_audits(user)
    found = services.store.merges_of(user, limit, before)
    return [Merge(entry, verdicts.get(entry.entry)) for entry in found]


def unaudited(services: Services, user: str, limit: int) -> list[Merge]:
    """The latest merges that nobody has said anything about, newest first."""
    found: list[Merge] = []
    before: int | None = None
    for _ in range(_LOOK_AT // _PAGE):
        page = merges(services, user, _PAGE, before=before)
        found += [one for one in page if one.verdict is None and not one.entry.undone]
        if len(page) < _PAGE or len(found) >= limit:
            break
        before = page[-1].entry.entry
    return found[:limit]


def mark(services: Services, user: str, entry: int, verdict: MergeVerdict) -> Merge:
    """Notes what a person says about a merge; NotFound when it is none of theirs."""
    known = services.store.merge_entry(user, entry)
    now = services.world.now()
    services.store.write(lambda t: t.put_merge_audit(user, known.entry, verdict, now))
    return Merge(known, verdict)
