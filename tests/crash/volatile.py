"""A disk that forgets: writes stay volatile until a sync, and a power cut may tear them.

At a cut every write since the last sync of its file is kept, dropped, or torn at the borders of
512 bytes, each by chance. SQLite runs on it through a VFS of APSW.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import apsw

SECTOR_BYTES = 512


@dataclass(slots=True)
class File:
    """What programs see, what has reached the platter, and what happened in between."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        """Writes, for now in memory only."""
        place(self.seen, offset, data)
        self.pending.append((offset, data))

    def truncate(self, size: int) -> None:
        """Cuts the file short, for now in memory only."""
        del self.seen[size:]
        self.pending.append((size, None))

    def sync(self) -> None:
        """From here on a power cut changes nothing of what was written before."""
        self.durable = bytes(self.seen)
        self.pending.clear()

    def after_cut(self, chance: random.Random) -> bytes:
        """What is found after the power was cut now."""
        content = bytearray(self.durable)
        for offset, data in self.pending:
            fate = chance.choice(("kept", "dropped", "torn"))
            if data is None:
                if fate == "kept":
                    del content[offset:]
            elif fate == "kept":
                place(content, offset, data)
            elif fate == "torn":
                for start in range(0, len(data), SECTOR_BYTES):
                    if chance.random() < 0.5:
                        place(content, offset + start, data[start : start + SECTOR_BYTES])
        return bytes(content)


def place(content: bytearray, offset: int, data: bytes) -> None:
    """Puts bytes at an offset; a gap before them reads as zeros."""
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class Disk(apsw.VFS):
    """A VFS whose files live in memory; `on_change` is called before every write and sync."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "")
        self.name = name
        self.files: dict[str, File] = {}
        self.on_change = lambda: None

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Handle:
        """Opens or makes a file."""
        key = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        flags[1] = flags[0]
        return Handle(self, self.files.setdefault(key, File()))

    def xAccess(self, pathname: str, flags: int) -> bool:
        """Whether there is such a file."""
        return pathname in self.files

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Removes a file, for good at once."""
        self.on_change()
        self.files.pop(filename, None)

    def xFullPathname(self, name: str) -> str:
        """Names are what they are here."""
        return name


class Handle:
    """An open file; locks always succeed, for there is one connection."""

    def __init__(self, disk: Disk, file: File) -> None:
        self._disk = disk
        self._file = file

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self._file.seen[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.on_change()
        self._file.write(offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:
        self._disk.on_change()
        self._file.truncate(newsize)

    def xSync(self, flags: int) -> None:
        self._disk.on_change()
        self._file.sync()

    def xFileSize(self) -> int:
        return len(self._file.seen)

    def xLock(self, level: int) -> None:
        pass

    def xUnlock(self, level: int) -> None:
        pass

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, ptr: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return 4_096

    def xDeviceCharacteristics(self) -> int:
        # As SQLite assumes of a Linux disk: a torn write spoils nothing beside it.
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE

    def xClose(self) -> None:
        pass
