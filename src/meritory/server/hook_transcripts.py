"""The transcripts that hooks send or name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meritory.connect import copilot_cli
from meritory.connect.transcripts import TranscriptFile, open_file, read_messages, read_tail
from meritory.domain.errors import InputError
from meritory.domain.session import Turn
from meritory.server.table import Call
from meritory.text.transcript import read_turns

# A prompt waits for this read, and only the last replies matter.
NEAR_LIMIT_BYTES = 1 << 18


@contextlib.contextmanager
def open_transcript(
    call: Call, transcript: Any, path: str | None, tail_bytes: int | None = None
) -> Iterator[Any]:
    """Yield the transcript of a hook, or the messages of the file that it names.

    Without `tail_bytes` the whole file is read, message by message and only within the block.
    """
    body = call.body
    if body.harness == copilot_cli.NAME and body.relayed:
        # Only the replies of Copilot CLI name its transcript.
        path = path or copilot_cli.usual_transcript(body.client_home, body.session_key)
    if isinstance(transcript, str) and body.relayed:
        # A hook on another machine sends the text of the file.
        yield read_messages(transcript)
        return
    if transcript is not None or path is None:
        yield transcript
        return
    try:
        if call.door != "socket":
            raise InputError(
                "transcript_path is only allowed on the Unix socket",
                hint="send the transcript itself",
            )
        opened = open_file(path, Path(os.path.expanduser("~")), body.client_home)
    except InputError:
        if not body.relayed:
            raise
        # A relayed hook cannot send another path, and its other fields still count.
        call.server.observer.count("hooks.transcript_refused")
        yield None
        return
    with opened:
        if tail_bytes is not None:
            yield read_tail(opened, tail_bytes)
            return
        file = TranscriptFile(opened)
        yield file.messages()
        if file.skipped_count:
            call.server.observer.count("hooks.transcript_lines_skipped", file.skipped_count)


def latest_turns(call: Call, transcript: Any, path: str | None) -> tuple[Turn, ...]:
    """Return the last turns of a hook's transcript."""
    with open_transcript(call, transcript, path, NEAR_LIMIT_BYTES) as messages:
        return () if messages is None else read_turns(messages)
