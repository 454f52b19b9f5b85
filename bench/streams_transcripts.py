"""Transcripts that a stream keeps in one compressed archive."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from functools import cached_property
from io import BytesIO
from pathlib import Path

from bench.datasets import WrongData, _checked
from bench.streams_types import Message
from meritory.connect.transcripts import read_messages

# Outside the repository: the unpacked transcripts of one stream take 141 MB.
CACHE = Path(tempfile.gettempdir()) / "meritory-bench"


class TranscriptArchive:
    """Reads single transcripts; unpacks the archive once, on the first read."""

    def __init__(self, path: Path, cache: Path | None = None) -> None:
        self._path = path
        self._cache = cache or CACHE

    def messages(self, member: str) -> list[Message]:
        """Return the messages of one transcript, as the daemon reads them from the same file."""
        path = self._folder / member
        if not path.is_file():
            raise WrongData(f"{self._path} holds no {member}")
        return read_messages(path.read_text(encoding="utf-8"))

    @cached_property
    def _folder(self) -> Path:
        """The unpacked archive. The folder is named by the hash, so a new archive unpacks again."""
        body = _checked(self._path)
        target = self._cache / hashlib.sha256(body).hexdigest()[:16]
        if not target.is_dir():
            self._unpack(body, target)
        return target

    def _unpack(self, body: bytes, target: Path) -> None:
        self._cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=self._cache))
        with tarfile.open(fileobj=BytesIO(body)) as archive:
            archive.extractall(fresh, filter="data")
        try:
            # A rename is atomic: no process sees a half unpacked folder.
            fresh.rename(target)
        except OSError:
            # Another process was faster.
            shutil.rmtree(fresh)
