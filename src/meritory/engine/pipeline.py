"""The pipeline of a session: every stage in order, with its function, its budget and its fallback.

The stages of START, PROMPT and END are functions over the record of one run and are executed here.
Those of LEARN, EXTRACT and TRAIN are stages of jobs: each takes a job and returns its effect, which
the job runner commits exactly once. `meritory pipeline` prints these tables with live timings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from meritory.domain.errors import BadReply, Busy, MeritoryError, PortTimeout, StorageError
from meritory.domain.job import Job
from meritory.domain.session import SessionRecord
from meritory.engine.jobs.runner import EXTRACT_JOB, RULE_JOB, Effect, Handler
from meritory.engine.learning.compare import compare
from meritory.engine.learning.judge import judge
from meritory.engine.learning.label import label_memories
from meritory.engine.learning.searches import compare_searches
from meritory.engine.predictor.state import TRAIN_JOB
from meritory.engine.predictor.train_job import train
from meritory.engine.predictor.train_surface import train_surfaces
from meritory.engine.quality.extraction import extract_by_model, extract_by_rules, summarise
from meritory.engine.quality.janitor import JANITOR_JOB, run_sweep
from meritory.engine.quality.maintenance import RETENTION_JOB, erase_expired
from meritory.engine.quality.missed_pairs import PAIRS_JOB, run_search
from meritory.engine.rules.learn import remember_rule
from meritory.engine.services import Services
from meritory.engine.sessions import end as ending
from meritory.engine.sessions import prompt as prompting
from meritory.engine.sessions.context import (
    StartRequest,
    find_known_session,
    known_session,
    understand,
)
from meritory.engine.sessions.packing import Served
from meritory.engine.sessions.ranking import (
    Ranking,
    diversify,
    fuse,
    gather_candidates,
    score_baseline,
    score_predictor,
)
from meritory.engine.sessions.ratings import LEARN_JOB
from meritory.engine.sessions.start import SessionRun, pack_opening, record_start, resume

# Of several prompts of one session at the same moment one is recorded; the others try again.
PROMPT_TRIES = 12


class Run(Protocol):
    """The record of one run: stages read it and add to it."""

    services: Services
    took_ms: dict[str, float]


R = TypeVar("R", bound=Run)
F = TypeVar("F", bound=Callable[..., Any], covariant=True)
JobStage = Callable[[Services, Job], Effect]


@dataclass(frozen=True, slots=True)
class Stage(Generic[F]):
    """One step of a flow, and how long it may usually take."""

    name: str
    run: F
    budget_ms: float
    about: str
    # Errors after which the flow goes on, each with the name that the observer counts it by.
    fallbacks: Mapping[type[MeritoryError], str] = field(default_factory=dict)

    @property
    def location(self) -> str:
        """Return where the stage is written, as `module:line`."""
        return f"{self.run.__module__}:{self.run.__code__.co_firstlineno}"


def run_stages(flow: str, stages: Sequence[Stage[Callable[[R], None]]], run: R) -> None:
    """Run stages in order, and record how long each took and which ones fell back."""
    observer, world = run.services.observer, run.services.world
    for stage in stages:
        start_ms = world.monotonic_ms()
        try:
            stage.run(run)
        except MeritoryError as error:
            names = (name for kind, name in stage.fallbacks.items() if isinstance(error, kind))
            fallback = next(names, None)
            if fallback is None:
                raise
            observer.failed(fallback, error)
        finally:
            run.took_ms[stage.name] = world.monotonic_ms() - start_ms
    observer.stages(flow, run.took_ms)


def job_handler(services: Services, stages: Sequence[Stage[JobStage]]) -> Handler:
    """Return the stages of a job for the job runner, which times them and commits their effects."""
    return tuple((stage.name, partial(stage.run, services)) for stage in stages)


# -- a session starts -----------------------------------------------------------------------

RANK: tuple[Stage[Callable[[Ranking], None]], ...] = (
    Stage("context", understand, 2.0, "what the session is about, embedded once"),
    Stage("candidates", gather_candidates, 8.0, "the best of the store from six sources, max. 150"),
    Stage(
        "baseline",
        score_baseline,
        2.0,
        "composite of relevance, recency, usefulness, confidence, frequency",
    ),
    Stage(
        "predictor",
        score_predictor,
        120.0,
        "scores of the learned model; without them the baseline ranks alone",
        {
            PortTimeout: "predictor_timeout",
            BadReply: "predictor_parse_error",
            MeritoryError: "predictor_crash",
        },
    ),
    Stage("fusion", fuse, 0.5, "both rankings fused by reciprocal rank, weight alpha"),
    Stage("diversity", diversify, 1.0, "lower scores for memories that repeat a better one"),
)
START: tuple[Stage[Callable[[SessionRun], None]], ...] = (
    *RANK,
    Stage("packing", pack_opening, 3.0, "required first, then the best that fits; exploration"),
    Stage(
        "record",
        record_start,
        10.0,
        "every candidate with every number as served, one transaction",
        {StorageError: "session_record", Busy: "session_record"},
    ),
)


def start(services: Services, request: StartRequest) -> Served:
    """Serve the start of a session; one that exists already gets the same block again."""
    known = find_known_session(services.store, request.scope, request.key)
    return open_session(services, request, known)


def open_session(services: Services, request: StartRequest, known: SessionRecord | None) -> Served:
    """Begin a session, or resume the known one."""
    with services.observer.timed("session_start"):
        if known is None:
            served = begin(services, request)
            if served is not None:
                return served
            known = known_session(services.store, request.scope, request.key)
        return resume(services, known, request.awaits_receipt)


def begin(services: Services, request: StartRequest, prompt_count: int = 0) -> Served | None:
    """Serve a new session; return None if another process began it in the meantime."""
    run = SessionRun(services, request, prompt_count)
    run_stages("start", START, run)
    return replace(run.served, is_recorded=run.is_recorded) if run.is_new else None


# -- a prompt comes -------------------------------------------------------------------------


def select_for_prompt(run: prompting.PromptRun) -> None:
    """Select memories for a prompt; the first one of a session may rank its candidates again."""
    ranking = prompting.new_ranking(run)
    if ranking is None:
        prompting.select_recalled(run)
    else:
        run_stages("start", RANK, ranking)
        prompting.select_ranked(run, ranking)
    prompting.select_undelivered(run)


PROMPT = (
    Stage("recall", select_for_prompt, 6.0, "words and meaning of the prompt, rare-word hits"),
    Stage(
        "packing",
        prompting.pack_prompt,
        1.0,
        "up to five memories not shown yet, and the request for ratings",
    ),
    Stage(
        "record",
        prompting.record_prompt,
        8.0,
        "hits, ratings and the injection, one transaction",
        {StorageError: "prompt_record", Busy: "prompt_record"},
    ),
)


def prompt(services: Services, request: prompting.PromptRequest) -> Served:
    """Serve a prompt; an unknown session begins with it."""
    with services.observer.timed("user_prompt_submit"):
        for _ in range(PROMPT_TRIES - 1):
            with contextlib.suppress(prompting.PromptOvertaken):
                return _prompt(services, request)
        return _prompt(services, request)


def _prompt(services: Services, request: prompting.PromptRequest) -> Served:
    run = prompting.open_prompt(services, request)
    if run is not None:
        run_stages("prompt", PROMPT, run)
        return replace(run.served, is_recorded=run.is_recorded)
    # The daemon may have been down when the session began.
    served = begin(services, request.as_start(), prompt_count=1)
    if served is None:
        raise prompting.PromptOvertaken(
            f"session {request.key[:80]!r} was started by another process", hint="try again"
        )
    return served


# -- it ends, and is learned from -----------------------------------------------------------

END = (
    Stage(
        "transcript",
        ending.read_transcript,
        5.0,
        "read, shortened, secrets redacted, late ratings taken",
    ),
    Stage("record", ending.record_end, 8.0, "stored with one durable job"),
)


def end(services: Services, request: ending.EndRequest) -> ending.EndRun:
    """End a session and queue the job that learns from it; a second end changes nothing.

    An unknown session is opened first, if the request says how.
    """
    known = services.store.find_session(request.user, request.key)
    session = known or request.unknown or services.store.session(request.user, request.key)
    run = ending.EndRun(services, request, session, is_unknown=known is None)
    if session.state == "open":
        run_stages("end", END, run)
    return run


LEARN = (
    Stage("judge", judge, 60_000.0, "which memories helped; blind and with decoys"),
    Stage(
        "label",
        label_memories,
        50.0,
        "ratings, hits and verdict as one label; belief",
    ),
    Stage("compare", compare, 50.0, "both rankings against the labels; the predictor's influence"),
    Stage("searches", compare_searches, 50.0, "the same for each search of the session"),
    Stage("fit", train_surfaces, 300.0, "challengers for recall and prompts, and their gates"),
)
EXTRACT = (
    Stage("rules", extract_by_rules, 50.0, "explicit statements of the user, by the write path"),
    Stage("model", extract_by_model, 60_000.0, "what a model adds, each quote checked"),
    Stage("summary", summarise, 50.0, "the session as one memory, if summaries are on"),
)
TRAIN = (Stage("train", train, 30_000.0, "a challenger in its own process, its gates, its replay"),)
FLOWS: Mapping[str, Sequence[Stage[Any]]] = {
    "start": START,
    "prompt": PROMPT,
    "end": END,
    "learn": LEARN,
    "extract": EXTRACT,
    "train": TRAIN,
}


def job_handlers(services: Services) -> dict[str, Handler]:
    """Return the stages of every kind of job."""
    return {
        LEARN_JOB: job_handler(services, LEARN),
        EXTRACT_JOB: job_handler(services, EXTRACT),
        TRAIN_JOB: job_handler(services, TRAIN),
        RULE_JOB: (("remember", partial(remember_rule, services)),),
        JANITOR_JOB: (("sweep", partial(run_sweep, services)),),
        PAIRS_JOB: (("search", partial(run_search, services)),),
        RETENTION_JOB: (("erase", partial(erase_expired, services)),),
    }
