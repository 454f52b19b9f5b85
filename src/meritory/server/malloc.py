"""What the C library keeps of memory that was given back, for a process that runs for weeks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

# By number as the C library knows them, with what they are set to. Each thread would otherwise get
# a heap of its own, with its own holes, though Python runs one of them at a time anyway; and large
# arrays that live for a moment would leave holes between what stays. They get pages of their own.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
OPTIONS = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, 256 * 1024), (_TRIM_THRESHOLD, 4 * 1024 * 1024))


class MallocTrimmer:
    """The C library's heap; where the system's is another one, nothing is done."""

    def __init__(self) -> None:
        library = _c_library()
        self._option: Callable[[int, int], int] | None = getattr(library, "mallopt", None)
        self._trim: Callable[[int], int] | None = getattr(library, "malloc_trim", None)

    def keep_together(self) -> bool:
        """Keeps small things in one heap and large ones out of it; says whether that was done."""
        option = self._option
        # Only who knows `malloc_trim` knows the options by these numbers, too.
        if option is None or self._trim is None:
            return False
        return all([option(number, value) == 1 for number, value in OPTIONS])

    def give_back(self) -> bool:
        """Returns free pages to the system; says whether there were any."""
        return self._trim is not None and self._trim(0) == 1


def _c_library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):
        return None
