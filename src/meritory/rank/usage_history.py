"""Usage history: when and with which other memories each memory helped in past sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from meritory.rank.hybrid import centred_cosine, store_mean

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]

# The weight of a use after one day.
USE_DECAY = 0.95
# The number of past sessions with the nearest contexts that count, among the latest ones.
NEAREST_SESSIONS = 30
CONTEXT_SESSIONS = 1_000
# How much more the nearer of them count.
NEARNESS_POWER = 4
# The same for words in common, where a few rare words say a lot.
WORD_POWER = 2
# The number of latest sessions whose words are compared; bounds the cost.
WORD_SESSIONS = 1_000
RECENT_SESSIONS = 10
# The number of latest sessions in which co-use counts.
TOGETHER_SESSIONS = 200
# The number of a memory's latest contexts that count; bounds the cost.
LATEST_CONTEXTS = 4
_NONE = -1
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class UsedSessions:
    """Finished sessions, oldest first, and which memories helped in each."""

    times_days: NDArray[np.float64]
    # Unit rows; a row of zeros where the context has no vector.
    contexts: NDArray[np.float32]
    # A small number per project, -1 for none.
    projects: NDArray[np.int64]
    # One entry per use, in the order of the sessions: the session's place above, the memory's
    # row, how much it helped (> 0).
    use_session: NDArray[np.int64]
    use_memory: NDArray[np.int64]
    use_gain: NDArray[np.float64]
    # One entry per different word of a context, in the order of the sessions.
    word_session: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    word: NDArray[np.uint16] = field(default_factory=lambda: np.empty(0, np.uint16))


@dataclass(frozen=True, slots=True)
class Moment:
    """The time, context and project of a new session."""

    now_days: float
    # A unit vector, zeros or empty without one.
    context: NDArray[np.float32]
    project: int = _NONE
    # The numbers of its different words.
    words: NDArray[np.uint16] = field(default_factory=lambda: np.empty(0, np.uint16))


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The past relative to one session; by session, oldest first."""

    past: UsedSessions
    age_days: Floats
    # The weight of each session among the nearest ones; all 0 when none is near.
    nearness: Floats
    # The word overlap of each session with this one, 0..1; rare words count more.
    overlap: Floats
    context: NDArray[np.float32]
    is_here: Flags
    # The latest sessions of this project, newest last.
    recent: Rows


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of each memory, overall and in this project; all 0 if it never helped."""

    days_since: Floats
    count: Floats
    # log(1 + its uses, each weighted by how much it helped and faded by its age).
    frecency: Floats
    days_since_here: Floats
    count_here: Floats
    # 1 when it helped in the previous session of this project.
    in_previous: Floats
    share_of_recent: Floats
    # The share of the nearest sessions in which it helped.
    association: Floats
    # The cosine of the context to those in which it helped recently.
    context_cosine: Floats
    # The share of the previous session's helpful memories that helped together with it before.
    co_use: Floats
    # The share of the sessions with the most words in common in which it helped.
    word_association: Floats
    # The largest overlap of a context in which it helped with this one.
    word_overlap: Floats


@dataclass(frozen=True, slots=True)
class _Uses:
    """The uses of some memories: whose, in which session, and how much it helped."""

    place: Rows
    session: Rows
    gain: Floats

    def only(self, chosen: Rows | slice) -> _Uses:
        """Return a selection of the uses."""
        return _Uses(self.place[chosen], self.session[chosen], self.gain[chosen])


def look_back(past: UsedSessions, moment: Moment) -> Hindsight:
    """Return the age, nearness and project of each past session, relative to one moment."""
    age = np.nan_to_num(moment.now_days - past.times_days, nan=0.0, posinf=0.0, neginf=0.0)
    everywhere = moment.project == _NONE
    is_here = np.full(len(age), True) if everywhere else past.projects == moment.project
    return Hindsight(
        past=past,
        age_days=np.maximum(age, 0.0),
        nearness=_nearness(past.contexts, moment.context),
        overlap=_overlap(past, moment.words),
        context=moment.context,
        is_here=is_here,
        recent=np.flatnonzero(is_here)[-RECENT_SESSIONS:],
    )


def usage(hindsight: Hindsight, rows: Rows) -> Usage:
    """Return the usage of each of these distinct memories."""
    uses, count = _uses_of(hindsight.past, rows), len(rows)
    here = uses.only(np.flatnonzero(hindsight.is_here[uses.session]))
    recent = hindsight.recent
    # The uses in the latest sessions of this project.
    first = np.searchsorted(here.session, recent[0]) if len(recent) else len(here.session)
    tail = here.only(slice(first, None))
    previous = tail.place[tail.session == recent[-1]] if len(recent) else tail.place
    # The sessions with the most words in common.
    overlap = hindsight.overlap
    nearest = _top(overlap, NEAREST_SESSIONS)
    word_nearness = np.zeros(len(overlap))
    word_nearness[nearest] = overlap[nearest] ** WORD_POWER
    word_overlap = np.zeros(count)
    np.maximum.at(word_overlap, uses.place, overlap[uses.session])
    return Usage(
        days_since=_days_since(hindsight, uses, count),
        count=_counts(uses.place, count),
        frecency=_frecency(hindsight, uses, count),
        days_since_here=_days_since(hindsight, here, count),
        count_here=_counts(here.place, count),
        in_previous=_counts(previous, count),
        share_of_recent=_counts(tail.place, count) / max(len(recent), 1),
        association=_association(hindsight, uses, count),
        context_cosine=_context_cosine(hindsight, uses, count),
        co_use=_co_use(hindsight, uses, count),
        word_association=_sums(uses.place, uses.gain * word_nearness[uses.session], count),
        word_overlap=word_overlap,
    )


def helped_together(hindsight: Hindsight, rows: Rows) -> Flags:
    """Return which pairs of these memories helped in the same recent session."""
    count, latest = len(rows), max(0, len(hindsight.age_days) - TOGETHER_SESSIONS)
    uses = _uses_of(hindsight.past, rows)
    recent = uses.only(slice(np.searchsorted(uses.session, latest), None))
    helped = np.zeros((count, len(hindsight.age_days) - latest), np.float32)
    helped[recent.place, recent.session - latest] = 1.0
    return np.asarray(helped @ helped.T > 0.0)


def top_rows(hindsight: Hindsight, limit: int) -> Rows:
    """Return the most promising memories, best first.

    They come in turn from those that helped often, last, and in the nearest sessions.
    """
    rows = np.flatnonzero(np.bincount(hindsight.past.use_memory))
    uses, count = _uses_of(hindsight.past, rows), len(rows)
    association = _association(hindsight, uses, count)
    orders = (
        _top(_frecency(hindsight, uses, count), limit),
        _top(-_days_since(hindsight, uses, count), limit),
        _top(association, min(limit, int(np.count_nonzero(association)))),
    )
    # In turn: the best of each, the second of each, ...
    turns = [place for each in zip_longest(*orders) for place in each if place is not None]
    return rows[np.array(list(dict.fromkeys(turns))[:limit], np.intp)]


def _nearness(contexts: NDArray[np.float32], context: NDArray[np.float32]) -> Floats:
    """Return the weights of the nearest sessions; their sum is 1 unless nothing is near."""
    weights = np.zeros(len(contexts))
    first = max(0, len(contexts) - CONTEXT_SESSIONS)
    contexts = contexts[first:]
    if not len(contexts) or contexts.shape[1] != context.size or not np.any(context):
        return weights
    total = np.ones(len(contexts), np.float32) @ contexts
    if not np.isfinite(total).all():
        # A damaged context must not affect the others.
        sound = np.flatnonzero(np.isfinite(contexts).all(axis=1))
        weights[first + sound] = _nearness(contexts[sound], context)
        return weights
    mean = store_mean(total, len(contexts))
    raw, mean_dots = (contexts @ np.stack([context, mean.astype(np.float32)], axis=1)).T
    cosine = centred_cosine(raw, mean_dots, context, mean)
    # A row of zeros is not a context.
    cosine[(raw == 0.0) & (mean_dots == 0.0)] = 0.0
    best = _top(cosine, NEAREST_SESSIONS)
    weights[first + best] = np.clip(cosine[best], 0.0, 1.0) ** NEARNESS_POWER
    return weights / max(float(weights.sum()), _TINY)


def _overlap(past: UsedSessions, words: NDArray[np.uint16]) -> Floats:
    """Return the cosine of each context's words and these, weighted by rarity."""
    count = len(past.times_days)
    earliest = int(np.searchsorted(past.word_session, count - WORD_SESSIONS))
    session, word = past.word_session[earliest:], past.word[earliest:]
    if not len(words) or not len(word):
        return np.zeros(count)
    frequency = np.bincount(word, minlength=int(words.max()) + 1)
    # How rare a word is, by how many contexts have it.
    rarity = np.log1p((count + 1.0) / (1.0 + np.arange(int(frequency.max()) + 1))) ** 2
    worth = rarity[frequency[word]]
    is_shared = np.zeros(len(frequency), np.bool_)
    is_shared[words] = True
    shared = np.bincount(session, weights=worth * is_shared[word], minlength=count)
    own = np.bincount(session, weights=worth, minlength=count)
    here = float(rarity[frequency[words]].sum())
    return np.asarray(shared / np.sqrt(np.maximum(own * here, _TINY)))


def _uses_of(past: UsedSessions, rows: Rows) -> _Uses:
    """Return the uses of these memories, each with the index of its memory in the rows."""
    largest = max(past.use_memory.max(initial=0), rows.max(initial=0))
    # One table of places is much faster than a search for each use.
    places = np.full(largest + 1, _NONE, np.int64)
    places[rows] = np.arange(len(rows))
    place = places[past.use_memory]
    known = np.flatnonzero(place >= 0)
    # What is not a number becomes 0.
    gain = np.minimum(np.fmax(past.use_gain[known], 0.0), 1.0)
    return _Uses(place[known], past.use_session[known], gain)


def _days_since(hindsight: Hindsight, uses: _Uses, count: int) -> Floats:
    """Return the days since the latest of these uses of each memory, 0 without one."""
    days = np.zeros(count)
    # Uses come oldest first, and the last one written stays.
    days[uses.place] = hindsight.age_days[uses.session]
    return days


def _frecency(hindsight: Hindsight, uses: _Uses, count: int) -> Floats:
    """Return log(1 + the uses of each memory, decayed by age)."""
    faded = USE_DECAY**hindsight.age_days
    return np.log1p(_sums(uses.place, uses.gain * faded[uses.session], count))


def _association(hindsight: Hindsight, uses: _Uses, count: int) -> Floats:
    return _sums(uses.place, uses.gain * hindsight.nearness[uses.session], count)


def _context_cosine(hindsight: Hindsight, uses: _Uses, count: int) -> Floats:
    """Return the cosine of the context to the sum of those in which each memory helped recently."""
    contexts, context = hindsight.past.contexts, hindsight.context
    if contexts.shape[1] != context.size:
        return np.zeros(count)
    sums = np.zeros((count, context.size), np.float32)
    # Small numbers are sorted in one pass.
    kind = np.uint16 if count <= np.iinfo(np.uint16).max else np.int64
    order = np.argsort(uses.place.astype(kind), kind="stable")
    times = np.bincount(uses.place, minlength=count)
    last = np.cumsum(times) - 1
    # Damaged numbers may overflow; they end as 0.
    with np.errstate(all="ignore"):
        for step in range(LATEST_CONTEXTS):
            # The latest use of each memory, then the one before, and so on.
            latest = order[last[times > step] - step]
            sums[uses.place[latest]] += contexts[uses.session[latest]]
        lengths = np.sqrt(np.einsum("ij,ij->i", sums, sums))
        cosine = (sums @ context) / np.maximum(lengths, np.float32(_TINY))
    found = np.nan_to_num(np.asarray(cosine, dtype=np.float64), posinf=0.0)
    return np.clip(found, 0.0, 1.0)


def _co_use(hindsight: Hindsight, uses: _Uses, count: int) -> Floats:
    """Return the mean share of the previous session's helpful memories in its own sessions."""
    past, previous = hindsight.past, hindsight.recent[-1:]
    if not len(previous):
        return np.zeros(count)
    start, stop = np.searchsorted(past.use_session, [previous[0], previous[0] + 1])
    last = past.use_memory[start:stop]
    again = _uses_of(past, last).session
    shares = np.bincount(again, minlength=len(hindsight.age_days)) / max(len(last), 1)
    times = np.maximum(_counts(uses.place, count), 1.0)
    return _sums(uses.place, shares[uses.session], count) / times


def _counts(place: Rows, count: int) -> Floats:
    return np.bincount(place, minlength=count).astype(np.float64)


def _sums(place: Rows, values: Floats, count: int) -> Floats:
    return np.bincount(place, weights=values, minlength=count).astype(np.float64)


def _top(values: Floats, limit: int) -> NDArray[np.intp]:
    """Return the indices of the largest values, largest first, equal ones in order."""
    best = np.arange(len(values))
    if not limit:
        return best[:0]
    if len(values) > limit:
        # All values as large as the last wanted one, so that equal values are cut in order.
        best = np.flatnonzero(values >= -np.partition(-values, limit - 1)[limit - 1])
    return best[np.argsort(-values[best], kind="stable")][:limit]
