"""Section questions of bench.everyday: whether the newest value comes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from bench.authority import Report
from bench.everyday_cases import LANGUAGES, QUESTION_KINDS, Pair, Question
from bench.everyday_pairs import DAYS_BETWEEN, empty_store
from meritory import Memory
from meritory.domain.memory import WriteResult
from meritory.domain.quality import MemoryLink

SECTION = "questions"
WAYS = ("recall", "injection")
MIN_NEWEST_FIRST, MAX_OLD_ALONE, MIN_OLD_FOUND = 0.95, 0.01, 0.9
# Questions for which the newest text is no better answer must not suffer from that order.
TIMELESS, MIN_TIMELESS_RIGHT = ("event", "list"), 0.8
DAYS_UNTIL_ASKED = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """The places of the older and of the newer text among the results; None if it is absent."""

    question: Question
    way: str
    old: int | None
    new: int | None

    @property
    def is_found(self) -> bool:
        """Return whether one of the two texts is among the results."""
        return self.old is not None or self.new is not None

    @property
    def is_newest_first(self) -> bool:
        """Return whether the newer text is there, and the older one is not before it."""
        return self.new is not None and (self.old is None or self.new < self.old)

    @property
    def is_old_alone(self) -> bool:
        """Return whether only the older text is there."""
        return self.old is not None and self.new is None

    @property
    def is_right(self) -> bool:
        """Return whether the texts that the question asks for are there, in the right order."""
        kind = self.question.kind
        if kind == "current":
            return self.is_newest_first
        if kind == "event":
            return self.old is not None and (self.new is None or self.old < self.new)
        return self.old is not None and (kind == "past" or self.new is not None)


# -- answers ----------------------------------------------------------------------------------


def answers(
    questions: Sequence[Question], background: Sequence[Pair], *, is_linked: bool = False
) -> list[Answer]:
    """Return the answers to all questions, from one store for each language.

    Linked, the two texts of every question are a chain, whatever the gate makes of them. Texts
    that are no values of one claim are left out then.
    """
    if is_linked:
        questions = [one for one in questions if one.kind not in TIMELESS]
    found: list[Answer] = []
    for language in LANGUAGES:
        asked = [one for one in questions if one.language == language]
        others = [one for one in background if one.language == language]
        if asked:
            found += _answers_of_store(asked, others, is_linked=is_linked)
    return found


def _answers_of_store(
    asked: Sequence[Question], others: Sequence[Pair], *, is_linked: bool
) -> list[Answer]:
    with empty_store() as (memory, calendar):
        # The questions' own texts are linked without the gate, so that only serving is measured.
        how = {"on_similar": "keep"} if is_linked else {}
        own = {text for one in asked for text in (one.old, one.new)} if is_linked else set()
        others = [one for one in others if own.isdisjoint((one.first, one.second))]
        memory.remember_many(one.first for one in others)
        olds = memory.remember_many({"content": one.old, **how} for one in asked)
        calendar.now += timedelta(days=DAYS_BETWEEN)
        memory.remember_many(one.second for one in others)
        news = memory.remember_many({"content": one.new, **how} for one in asked)
        if is_linked:
            _link(memory, olds, news)
        calendar.now += timedelta(days=DAYS_UNTIL_ASKED)
        # Sessions first: a recall counts its results, and a start ranks by such counts too.
        shown = [
            _answer(one, "injection", _shown(memory, f"q{number}", one))
            for number, one in enumerate(asked)
        ]
        recalled = [
            _answer(one, "recall", [hit.content for hit in memory.recall(one.text)])
            for one in asked
        ]
        return recalled + shown


def _link(memory: Memory, olds: Sequence[WriteResult], news: Sequence[WriteResult]) -> None:
    """Store a link between the two memories of each question."""
    links = [
        MemoryLink(
            older_id=old.memory.id,
            newer_id=new.memory.id,
            kind="newer",
            cosine=1.0,
            reason="planted",
            at=new.memory.created_at,
        )
        for old, new in zip(olds, news, strict=True)
        if old.memory is not None and new.memory is not None
    ]
    memory.services.store.write(memory.scope.user, lambda t: t.put_links(memory.scope.user, links))


def _shown(memory: Memory, key: str, question: Question) -> list[str]:
    """Return the texts that a session shows at its start and for the question, in order."""
    session = memory.session(key)
    session.prompt(question.text)
    return [shown.content for shown in session.memories]


def _answer(question: Question, way: str, texts: Sequence[str]) -> Answer:
    old, new = (
        texts.index(text) if text in texts else None for text in (question.old, question.new)
    )
    return Answer(question, way, old, new)


# -- figures ----------------------------------------------------------------------------------


def report_of(made: Sequence[Answer], name: str) -> Report:
    """Return the shares of right answers beside their bars."""
    report = Report(name)
    for way in WAYS:
        current = [one for one in made if one.way == way and one.question.kind == "current"]
        # A prompt shows few memories: an answer that shows neither text has no order.
        judged = current if way == "recall" else [one for one in current if one.is_found]
        share, note = _share([one.is_newest_first for one in judged])
        report.at_least(f"{way}: newest first", share, MIN_NEWEST_FIRST, note)
        share, note = _share([one.is_old_alone for one in current])
        report.at_most(f"{way}: old value alone", share, MAX_OLD_ALONE, note)
    past = [one for one in made if one.way == "recall" and one.question.kind == "past"]
    share, note = _share([one.old is not None for one in past])
    report.at_least("recall: old value found when asked for", share, MIN_OLD_FOUND, note)
    timeless = [one for one in made if one.way == "recall" and one.question.kind in TIMELESS]
    if timeless:
        share, note = _share([one.is_right for one in timeless])
        report.at_least("recall: events and lists", share, MIN_TIMELESS_RIGHT, note)
    return report


def _share(hits: Sequence[bool]) -> tuple[float, str]:
    share = sum(hits) / len(hits) if hits else 0.0
    return round(share, 3), f"{sum(hits)} of {len(hits)}"


def table(made: Sequence[Answer]) -> list[str]:
    """Return by way, class and language how many answers hold the newer and the older text."""
    columns = ("questions", "found", "newest first", "old first", "old alone", "old found")
    rows = [f"{'':10}{'':9}{'':9}" + "".join(f"{name:>14}" for name in columns)]
    for way in WAYS:
        for kind in QUESTION_KINDS:
            within = [one for one in made if one.way == way and one.question.kind == kind]
            names = sorted({one.question.source for one in within})
            for name in ("all", *names, *LANGUAGES):
                group = [
                    one
                    for one in within
                    if name in ("all", one.question.source, one.question.language)
                ]
                if group:
                    rows.append(f"{way:10}{kind:9}{name:9}" + _cells(group))
    return rows


def _cells(group: Sequence[Answer]) -> str:
    counts = (
        len(group),
        sum(one.is_found for one in group),
        sum(one.is_newest_first for one in group),
        sum(one.is_found and not one.is_newest_first and not one.is_old_alone for one in group),
        sum(one.is_old_alone for one in group),
        sum(one.old is not None for one in group),
    )
    return "".join(f"{count:>14}" for count in counts)


def misses(made: Sequence[Answer]) -> Iterator[str]:
    """Yield a line for each answer that is not the asked one."""
    for one in made:
        question = one.question
        if not one.is_right and (one.is_found or one.way == "recall"):
            places = f"old {one.old}, new {one.new}"
            head = f"{one.way} {question.language} {question.kind} {places}"
            yield f"{head} | {question.text} | {question.old} | {question.new}"


# -- control ----------------------------------------------------------------------------------


def control(made: Sequence[Answer], name: str) -> Report:
    """Return how many bars are missed by answers that put the newer text first, and turned round.

    Each planted answer holds both texts; turned round, the older one is first or alone.
    """
    best = [
        replace(one, old=0, new=1) if one.question.kind == "event" else replace(one, old=1, new=0)
        for one in made
    ]
    worst = [
        replace(one, old=0 if one.question.kind == "current" else None, new=None) for one in best
    ]
    report = Report(name)
    kept, missed = report_of(best, name), report_of(worst, name)
    report.at_most("control: bars missed by right answers", _missed(kept), 0)
    report.at_least("control: bars missed by wrong answers", _missed(missed), len(missed.checks))
    return report


def _missed(report: Report) -> int:
    return sum(not check.is_met for check in report.checks)
