"""Foreign text in user turns never becomes the user's word; statements of users do.

Each case runs through the reader of its client's transcript, the end of a session and extraction,
once without a prompt hook and once with the prompt that the hook reports. Controls: the same cases
with the parser of pasted and embedded text switched off.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.authority import Report, Size
from bench.authority_hostile_cases import Case, Half, genuine, hostile
from meritory.api.memory import Memory
from meritory.connect.transcripts import read_messages
from meritory.domain.memory import MemoryRecord
from meritory.engine import pipeline
from meritory.engine.jobs.runner import EXTRACT_JOB, JobRunner
from meritory.engine.sessions.prompt import PromptRequest
from meritory.text.extract import attribution

SECTION = "hostile"
SMALL_STEP = 8
REPLY = "I will do that."


def measure(size: Size) -> Report:
    """Return how many hostile texts pass for the user's word, and how many statements are kept."""
    report = Report(SECTION)
    step = SMALL_STEP if size == "small" else 1
    halves: tuple[Half, ...] = ("tune", "report")
    attacks = {half: list(hostile(half))[::step] for half in halves}
    statements = {half: list(genuine(half))[::step] for half in halves}
    for half in halves:
        texts = attacks[half]
        for has_hook in (False, True):
            name = f"hostile taken, {half} half, {'with' if has_hook else 'without'} hook"
            report.at_most(name, len(taken(texts, has_hook)), 0, f"of {len(texts)}")
    for half in halves:
        texts = statements[half]
        for has_hook in (False, True):
            name = f"genuine kept, {half} half, {'with' if has_hook else 'without'} hook"
            report.at_least(
                name, len(taken(texts, has_hook)) / len(texts), 0.95, f"of {len(texts)}"
            )
    with _parser_off():
        count = len(taken(attacks["report"], False))
        report.at_least("control: hostile taken, parser off", count, 1, "must succeed")
    return report


def taken(cases: Sequence[Case], has_hook: bool) -> list[Case]:
    """Return the cases whose text is stored as the user's word, as a constraint or as a pin."""
    found = []
    with tempfile.TemporaryDirectory() as folder, Memory(Path(folder) / "m.db") as memory:
        views = [memory.view(user=f"u{number}") for number in range(len(cases))]
        for case, view in zip(cases, views, strict=True):
            _hold_session(view, case, has_hook)
        services = memory.services
        stages = {EXTRACT_JOB: pipeline.job_handler(services, pipeline.EXTRACT)}
        JobRunner(services.store, services.world, stages).drain()
        for case, view in zip(cases, views, strict=True):
            if any(_is_users_word(record, case) for record in view.page()):
                found.append(case)
    return found


def _hold_session(memory: Memory, case: Case, has_hook: bool) -> None:
    session = memory.session("s", harness=case.client)
    if has_hook and not attribution.is_inserted(case.prompt):
        request = PromptRequest(
            "s", session.scope, case.prompt, typed=attribution.typed_words(case.prompt)
        )
        pipeline.prompt(memory.services, request)
    session.end(read_messages(_transcript(case)))


def _is_users_word(record: MemoryRecord, case: Case) -> bool:
    mark = max((word for word in case.said.split() if any(map(str.isdigit, word))), key=len)
    is_about = mark.strip(".,").lower() in record.content.lower()
    is_trusted = record.provenance == "user_stated" or record.pinned
    return is_about and (is_trusted or record.kind == "constraint")


def _transcript(case: Case) -> str:
    """Return the file that a client writes for a prompt and a reply."""
    if case.client == "gemini-cli":
        messages = [
            {"id": "1", "type": "user", "content": case.turn},
            {"id": "2", "type": "gemini", "content": REPLY},
        ]
        return json.dumps({"sessionId": "s", "messages": messages}, indent=2)
    entry = _ENTRIES.get(case.client, _plain_entry)
    entries = (entry("assistant", "Hello."), entry("user", case.turn), entry("assistant", REPLY))
    return "\n".join(map(json.dumps, entries))


def _plain_entry(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "text": text}


def _claude_entry(role: str, text: str) -> dict[str, Any]:
    return {"type": role, "message": {"role": role, "content": text}}


def _codex_entry(role: str, text: str) -> dict[str, Any]:
    content = [{"type": "input_text" if role == "user" else "output_text", "text": text}]
    return {
        "type": "response_item",
        "payload": {"type": "message", "role": role, "content": content},
    }


def _copilot_entry(role: str, text: str) -> dict[str, Any]:
    return {"type": f"{role}.message", "data": {"content": text}}


def _cursor_entry(role: str, text: str) -> dict[str, Any]:
    if role == "user" and "<user_query>" not in text:
        text = f"<user_query>\n{text}\n</user_query>"
    return {"role": role, "message": {"content": [{"type": "text", "text": text}]}}


_ENTRIES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "claude-code": _claude_entry,
    "codex": _codex_entry,
    "copilot-cli": _copilot_entry,
    "vscode": _copilot_entry,
    "cursor": _cursor_entry,
}


@contextmanager
def _parser_off() -> Iterator[None]:
    """Weaken the product: nothing in a user's turn counts as embedded or pasted."""
    kept = {name: getattr(attribution, name) for name in ("without_blocks", "_pasted")}
    nothing: Iterable[tuple[int, int]] = ()
    vars(attribution).update(without_blocks=lambda text: text, _pasted=lambda text: nothing)
    try:
        yield
    finally:
        vars(attribution).update(kept)
