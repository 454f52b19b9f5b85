"""How an import is done and what it did, for whoever takes lines in."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meritory.domain.errors import Conflict, InputError, MeritoryError
from meritory.domain.memory import Draft, OnSimilar, Scope
from meritory.engine.memories.validate import make_draft, screened_draft
from meritory.engine.memories.write import prepare_batch, store_batch
from meritory.engine.services import Services
from meritory.engine.transfer.entries import (
    HARNESS_START,
    Form,
    FoundFiles,
    ImportLine,
    LineBatch,
    Skipped,
    batches,
    digest_of,
    entry_lines,
    is_header,
    json_lines,
    open_regular,
)
from meritory.engine.transfer.export import READABLE_VERSIONS, json_line
from meritory.engine.transfer.formats import READERS
from meritory.engine.transfer.report import How, ImportReport, Note, Store, Taken, checked
from meritory.engine.transfer.restore import Restore
from meritory.store.contract.store import Transaction
from meritory.text.normalize import content_hash

Progress = Callable[[int, int], None]


def import_file(
    services: Services,
    scope: Scope,
    path: Path,
    *,
    on_similar: OnSimilar = "gate",
    progress: Progress = lambda done, total: None,
) -> ImportReport:
    """Takes in a file of JSON lines: an export of ours, or any other."""
    found = FoundFiles("jsonl", path, (path,), "")
    return import_found(services, scope, found, How(on_similar), progress)


def import_found(
    services: Services, scope: Scope, found: FoundFiles, how: How, progress: Progress
) -> ImportReport:
    """Takes in what was recognised, in batches; after an interruption it goes on where it stopped.

    Once something was taken in to its end this is forgotten: the next run goes through all of it
    and finds what is stored already. Lines kept as they are would double, so they come in once.
    """
    if found.only_user is not None and found.form != "mem0":
        raise InputError(
            f"{found.path.name} does not tell whose a memory is", hint="leave out --only-user"
        )
    report = ImportReport()
    named = [scope.user, scope.agent, scope.project, how.on_similar, found.only_user]
    digest = digest_of(found.files, json_line([found.form, *named]).encode())
    if not how.is_dry:
        report.resumed_at = services.store.import_progress(scope.user, digest)
    with _opened(services, scope, found, how) as (take, lines, size_bytes):
        wanted = (line for line in lines if line.number > report.resumed_at)
        # While one batch is being written, the next one is read, screened and embedded.
        with ThreadPoolExecutor(1, "meritory-import") as writer:
            writing: Future[Taken] | None = None
            end_bytes = 0
            for batch in batches(wanted):
                reached = 0 if batch.is_last and take.is_repeatable else batch.last_number
                store = take.prepare(batch, _progress_note(services, scope, digest, reached))
                if writing is not None:
                    report.add(writing.result())
                    progress(end_bytes, size_bytes)
                writing, end_bytes = writer.submit(store), batch.lines[-1].end_bytes
            if writing is not None:
                report.add(writing.result())
    progress(size_bytes, size_bytes)
    return report


@contextmanager
def _opened(
    services: Services, scope: Scope, found: FoundFiles, how: How
) -> Iterator[tuple[_Write | Restore, Iterator[ImportLine], int]]:
    """What takes the lines in, the lines, and how many bytes there are."""
    size_bytes = sum(path.stat().st_size for path in found.files)
    if found.form in READERS:
        write = _Write(services, scope, how, _known_texts(services, scope.user, found.form))
        yield write, entry_lines(READERS[found.form](found), size_bytes), size_bytes
        return
    with open_regular(found.path) as file:
        lines = json_lines(file)
        first = next(lines, None)
        if first is None:
            raise InputError(f"{found.path} holds no lines", hint="expected one JSON object a line")
        if is_header(first.value):
            _check_version(first.value)
            yield Restore(services, scope, how), lines, size_bytes
        else:
            write = _Write(services, scope, how, frozenset())
            yield write, itertools.chain([first], lines), size_bytes


def _known_texts(services: Services, user: str, form: Form) -> frozenset[tuple[Scope, str]]:
    """What earlier imports of this format brought, whatever became of it since."""
    return frozenset(
        (record.scope, source.quote_hash)
        for record in services.store.walk(user)
        for source in record.sources
        if source.harness == f"{HARNESS_START}{form}" and source.quote_hash is not None
    )


def _check_version(header: dict[str, Any]) -> None:
    version = header["meritory_export"]
    if version not in READABLE_VERSIONS or isinstance(version, bool):
        raise Conflict(
            f"this export has format {str(version)[:40]}, this Meritory reads {READABLE_VERSIONS}",
            hint="upgrade Meritory",
        )


class _Write:
    """Foreign lines go through the write path like any other memory."""

    def __init__(
        self, services: Services, scope: Scope, how: How, known: frozenset[tuple[Scope, str]]
    ) -> None:
        self._services = services
        self._scope = scope
        self._how = how
        self._known = known
        self.is_repeatable = how.on_similar == "gate"

    def prepare(self, batch: LineBatch, note: Note) -> Store:
        """Screens and embeds a batch; returns what writes it and notes how far it got."""
        outcomes: Counter[str] = Counter()
        problems: list[tuple[int, str]] = []
        kept: list[tuple[ImportLine, Draft | MeritoryError]] = []
        for line in batch.lines:
            draft = checked(self._draft, line.value)
            if isinstance(draft, Skipped):
                outcomes["skipped"] += 1
                problems.append(line.problem(str(draft)))
            elif isinstance(draft, Draft) and self._is_known(draft):
                outcomes["duplicate"] += 1
            else:
                kept.append((line, draft))
        taken = Taken(batch.last_number, outcomes, problems)
        return self._looking(taken, kept) if self._how.is_dry else self._writing(taken, kept, note)

    def _is_known(self, draft: Draft) -> bool:
        told = draft.source.quote_hash if draft.source else None
        return told is not None and (draft.scope, told) in self._known

    def _writing(
        self, taken: Taken, kept: list[tuple[ImportLine, Draft | MeritoryError]], note: Note
    ) -> Store:
        prepared = prepare_batch(self._services, [draft for _, draft in kept])

        def store() -> Taken:
            results = store_batch(self._services, self._scope.user, prepared, note)
            taken.outcomes.update(result.outcome for result in results)
            for (line, _), result in zip(kept, results, strict=True):
                if result.error is not None:
                    taken.problems.append(line.problem(str(result.error)))
            return taken

        return store

    def _looking(self, taken: Taken, kept: list[tuple[ImportLine, Draft | MeritoryError]]) -> Store:
        """What a write would meet, without the gate: that needs vectors, which take time."""
        sound: list[Draft] = []
        for line, draft in kept:
            screened = checked(self._screened, draft)
            if isinstance(screened, Draft):
                sound.append(screened)
            else:
                taken.outcomes["refused"] += 1
                taken.problems.append(line.problem(str(screened)))

        def look(transaction: Transaction) -> list[Draft]:
            return [
                draft
                for draft in sound
                if not transaction.live_by_hash(draft.scope, [content_hash(draft.content)])
            ]

        def store() -> Taken:
            new = self._services.store.write(self._scope.user, look)
            known_count = len(sound) - len(new)
            taken.outcomes.update(["new"] * len(new) + ["duplicate"] * known_count)
            taken.seen.extend(new)
            return taken

        return store

    def _screened(self, draft: Draft) -> Draft:
        return screened_draft(draft, self._services.policy.secrets.policy)

    def _draft(self, value: Any) -> Draft:
        if isinstance(value, str):
            value = {"content": value}
        if not isinstance(value, dict):
            raise InputError("expected an object with a content field")
        # A file cannot reach into another user's memories or retire one by its id.
        for name in ("user", "supersedes"):
            if name in value:
                raise InputError(f"{name} cannot be set by an import")
        fields = {"origin": "import", **value}
        if fields["origin"] == "user":
            # No file is a person: what it pins or forbids stays a proposal.
            fields["origin"] = "import"
        told = fields.get("source")
        if isinstance(told, dict) and "extractor" in told:
            # Only an extractor says that it was one.
            fields["source"] = {**told, "extractor": None}
        content = fields.pop("content", None)
        return make_draft(content, self._scope, {**fields, "on_similar": self._how.on_similar})


def _progress_note(services: Services, scope: Scope, digest: str, line_count: int) -> Note:
    """Notes with a batch how many lines were taken in; 0 lets the next run begin anew."""
    now = services.world.now()
    return lambda transaction: transaction.set_import_progress(scope.user, digest, line_count, now)
