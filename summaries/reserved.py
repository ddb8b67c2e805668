"""Arrays that grow in place: memory that is reserved, and touched only when used."""

import mmap
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

HUGE = 4 << 20  # bytes from which on huge pages are asked for, as numpy does

Item = TypeVar("Item", bound=np.generic)


class Reserved(Generic[Item]):
    """An array of zeros whose first axis grows. `array` is replaced by `grow`; earlier views keep what they show.

    Where nobody holds such a view the pages are moved, not copied: O(1), and no second copy in memory. Only memory that
    was written is resident. Raises `MemoryError` if the machine refuses it.
    """

    array: NDArray[Item]

    def __init__(self, dtype: type[Item], length: int, width: tuple[int, ...] = ()) -> None:
        self._dtype = np.dtype(dtype)
        self._width = width
        self._memory = self._mapped(length)
        self._show(length)

    def _bytes(self, length: int) -> int:
        return max(length * int(np.prod(self._width, dtype=np.int64)) * self._dtype.itemsize, 1)

    def _mapped(self, length: int) -> mmap.mmap:
        try:
            memory = mmap.mmap(-1, self._bytes(length), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as problem:
            raise MemoryError(f"the machine refuses {self._bytes(length):,} bytes") from problem
        _advise(memory)
        return memory

    def _show(self, length: int) -> None:
        count = length * int(np.prod(self._width, dtype=np.int64))
        self.array = np.frombuffer(self._memory, self._dtype, count).reshape(length, *self._width)

    def grow(self, length: int, used: Iterable[tuple[int, int]]) -> None:
        """Lengthen it. used: the ranges that have content, in case it must be copied; the rest may become zeros."""
        before = self.array
        if length <= len(before):
            return
        shown = len(before)
        del self.array, before
        try:
            self._memory.resize(self._bytes(length))
            _advise(self._memory)
        except (BufferError, OSError, SystemError):  # somebody holds a view, or it cannot be moved
            self._show(shown)
            before = self.array
            self._memory = self._mapped(length)
            self._show(length)
            for first, last in used:
                self.array[first:last] = before[first:last]
            return
        self._show(length)


def _advise(memory: mmap.mmap) -> None:
    if len(memory) >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)


def longer(array: NDArray[Any], length: int, fill: int = 0) -> NDArray[Any]:
    """A copy of a small array with `fill` at its end, up to a length; the array itself if it is as long already."""
    if length <= len(array):
        return array
    out = np.full((length, *array.shape[1:]), fill, array.dtype)
    out[: len(array)] = array
    return out
