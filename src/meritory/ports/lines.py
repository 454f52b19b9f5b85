"""Lines out of a stream of bytes, none longer than agreed: how the predictor's process is heard."""

from __future__ import annotations


class Lines:
    """Cuts a stream into lines and forgets what is too long, so that it never fills the memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that this piece completes; None stands for one that was too long."""
        *ended, rest = data.split(b"\n")
        found = []
        for piece in ended:
            self._hold(piece)
            found.append(self._taken())
        self._hold(rest)
        return found

    @property
    def is_too_long(self) -> bool:
        """Whether the line that is not complete yet is longer than agreed already."""
        return self._held_bytes > self._limit_bytes

    def _hold(self, piece: bytes) -> None:
        self._held_bytes += len(piece)
        if self.is_too_long:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _taken(self) -> bytes | None:
        line = None if self.is_too_long else b"".join(self._pieces)
        self._pieces.clear()
        self._held_bytes = 0
        return line
