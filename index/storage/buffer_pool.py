"""Memory reuse: allocating large blocks costs more than filling them."""

import threading
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from promising.index.storage.checksums import Bytes

SMALL = 64 << 10  # up to here the allocator reuses memory itself
MOST = 32 << 20  # maximum bytes retained


class Blocks:
    """Memory to read one file after another into. Not thread-safe."""

    def __init__(self) -> None:
        self._blocks: list[tuple[NDArray[np.uint8], weakref.ref[NDArray[np.uint8]]]] = []

    def of(self, length: int) -> memoryview:
        """`length` bytes of a block that has no views any more, or else of a new one."""
        for block, given in self._blocks:
            if given() is None and len(block) >= length:  # every view of the block references it
                break
        else:
            block = np.empty(1 << (length - 1).bit_length(), np.uint8)  # numpy uses huge pages: faster to allocate
        view = block[:length]
        rest = [(other, ref) for other, ref in self._blocks if other is not block and ref() is not None]
        self._blocks = [*rest, (block, weakref.ref(view))]
        return view.data


class Copies:
    """Contiguous copies of parts. Thread-safe; a copy must not be used after `done`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: dict[int, list[bytearray]] = {}
        self._held = 0

    def of(self, parts: Sequence[Bytes], length: int) -> Bytes:
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
        if isinstance(copy, memoryview) and isinstance(block := copy.obj, bytearray):
            with self._lock:
                if self._held + len(block) <= MOST:
                    self._held += len(block)
                    self._spare.setdefault(len(block), []).append(block)
