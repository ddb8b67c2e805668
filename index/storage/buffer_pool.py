"""Memory that is used again: to get new large blocks costs more than to fill them."""

import threading
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from promising.index.storage.checksums import Bytes

SMALL = 64 << 10  # what the allocator keeps at hand by itself
MOST = 32 << 20  # bytes that are held for later


class Blocks:
    """Memory to read files into, one after the other. One thread at a time."""

    def __init__(self) -> None:
        self._blocks: list[tuple[NDArray[np.uint8], weakref.ref[NDArray[np.uint8]]]] = []

    def of(self, length: int) -> memoryview:
        """So many bytes, of a block that nobody has a view of any more, or else of a new one."""
        for block, given in self._blocks:
            if given() is None and len(block) >= length:  # every view of what was given holds on to it
                break
        else:
            block = np.empty(1 << (length - 1).bit_length(), np.uint8)  # numpy asks for large pages: had sooner
        view = block[:length]
        rest = [(other, ref) for other, ref in self._blocks if other is not block and ref() is not None]
        self._blocks = [*rest, (block, weakref.ref(view))]
        return view.data


class Copies:
    """Copies of parts put together. Any thread may call; a copy that is given back must not be used any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: dict[int, list[bytearray]] = {}
        self._held = 0

    def of(self, parts: Sequence[Bytes], length: int) -> Bytes:
        """The parts, which are `length` bytes, as one."""
        if length <= SMALL:
            return b"".join(parts)
        size = 1 << (length - 1).bit_length()
        with self._lock:
            block = self._spare[size].pop() if self._spare.get(size) else None
            self._held -= size if block is not None else 0
        copy = memoryview(block or bytearray(size))[:length]
        at = 0
        for part in parts:
            if end := memoryview(part).nbytes:
                copy[at : at + end] = memoryview(part).cast("B")
                at += end
        return copy

    def done(self, copy: Bytes) -> None:
        """The copy is not needed any more."""
        if isinstance(copy, memoryview) and isinstance(block := copy.obj, bytearray):
            with self._lock:
                if self._held + len(block) <= MOST:
                    self._held += len(block)
                    self._spare.setdefault(len(block), []).append(block)
