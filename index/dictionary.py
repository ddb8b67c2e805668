"""The dictionary of a column: its distinct strings, each with a code and the number of rows that have it.

Codes are private to the dictionary: `renumbered` changes them. A string that no row has any more stays until those are
more, or take more bytes, than the others.
"""

import secrets
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.kernels import dictionary as kernels
from promising.summaries.hashing import inner_seed
from promising.summaries.kernels.text_table import find

SEED = np.uint64(secrets.randbits(64))
"""Random per process, so that nobody can send colliding strings. No result depends on it."""

LEAST = 32  # strings that a new table has room for
SPARE = 4  # slots for each: with half as many, every fifth lookup goes on, and all take a fifth longer
OVERHEAD = 96  # bytes that a string counts as, besides its own
UNUSED = 1 << 10  # strings without rows that are always tolerated
UNUSED_BYTES = 1 << 20  # and how long they may be together

Codes = NDArray[np.int32]
NONE = np.empty(0, np.uint8)


class CodedStrings(NamedTuple):
    """Strings as codes, -1 for null. `strings` has each code's, and stays valid whatever happens to the dictionary."""

    codes: Codes
    strings: pa.LargeStringArray
    of: tuple["Dictionary", int]
    """The dictionary and its version: in equal ones a code is the same string."""

    @property
    def type(self) -> pa.DataType:
        return self.strings.type

    def take(self, codes: Codes) -> pa.LargeStringArray:
        """The strings of these codes, null for -1."""
        data, offsets = parts(self.strings)
        ends = np.empty(len(codes) + 1, np.int64)
        size, nulls = kernels.lay_out(offsets, codes, ends)
        text = np.empty(size, np.uint8)
        kernels.copy_text(data, offsets, codes, ends, text)
        valid = pa.py_buffer(np.packbits(codes >= 0, bitorder="little")) if nulls else None
        return pa.Array.from_buffers(
            pa.large_string(), len(codes), [valid, pa.py_buffer(ends), pa.py_buffer(text)], nulls
        )


class Dictionary:
    def __init__(self) -> None:
        self.version = 0
        """Counts renumberings: codes of another version mean nothing."""
        self._clear()

    def _clear(self) -> None:
        self._slots = np.zeros(SPARE * LEAST, np.uint64)
        self._hashes = np.empty(LEAST, np.uint64)
        self._refs = np.zeros(LEAST, np.int64)
        self._ends = np.zeros(LEAST + 1, np.int64)
        self._arena = np.empty(1024, np.uint8)
        self._tally = np.zeros(3, np.int64)  # strings, those that rows have, and their bytes
        self._keys = np.empty(0, np.uint64)
        self._seed: int | None = None  # of the key hashes
        self._hashed = self._seated = 0
        self._alone = True  # no two of its strings share a key hash
        self._by_key = np.zeros(SPARE * LEAST, np.uint64)
        self._proved: WeakKeyDictionary[Dictionary, tuple[int, int, int]] = WeakKeyDictionary()

    def __len__(self) -> int:
        """The number of codes."""
        return int(self._tally[0])

    @property
    def live(self) -> int:
        """Strings that rows have."""
        return int(self._tally[1])

    @property
    def nbytes(self) -> int:
        """What the strings that rows have count as: a function of them alone."""
        return int(self._tally[2]) + OVERHEAD * self.live

    @property
    def strings(self) -> pa.LargeStringArray:
        """By code. A view, which stays as it is."""
        ends = self._ends[: len(self) + 1]
        return pa.Array.from_buffers(
            pa.large_string(), len(self), [None, pa.py_buffer(ends), pa.py_buffer(self._arena)]
        )

    def take(self, codes: Codes) -> pa.LargeStringArray:
        """The strings of these codes, null for -1."""
        return self.coded(codes).take(codes)

    def coded(self, codes: Codes) -> CodedStrings:
        return CodedStrings(codes, self.strings, (self, self.version))

    # --- write ---------------------------------------------------------------------------------------------------

    def enter(self, text: pa.LargeStringArray, nulls: NDArray[np.bool_] | None, codes: Codes | None = None) -> Codes:
        """The code of each string, -1 if null: one row more has it. codes: where to write them."""
        if codes is None:
            codes = np.empty(len(text), np.int32)
        data, offsets = parts(text)
        mask = NONE if nulls is None else nulls.view(np.uint8)
        at = 0
        while True:
            at = kernels.enter(
                data,
                offsets,
                mask,
                SEED,
                self._slots,
                self._arena,
                self._ends,
                self._hashes,
                self._refs,
                self._tally,
                at,
                codes,
            )
            if at == len(codes):
                return codes
            self._widen(int(offsets[at + 1] - offsets[at]))

    def _widen(self, size: int) -> None:
        count = len(self)
        if count == len(self._hashes):
            self._slots = np.zeros(2 * len(self._slots), np.uint64)
            kernels.seat(self._hashes, 0, count, self._slots)
            self._hashes, self._refs = _wider(self._hashes, 2 * count), _wider(self._refs, 2 * count)
            self._ends = _wider(self._ends, 2 * count + 1)
        if self._ends[count] + size > len(self._arena):
            self._arena = _wider(self._arena, max(2 * len(self._arena), int(self._ends[count]) + size))

    def find(self, text: pa.LargeStringArray, nulls: NDArray[np.bool_] | None = None) -> Codes:
        """The code of each string, -1 if null or unknown."""
        codes = np.empty(len(text), np.int32)
        data, offsets = parts(text)
        mask = NONE if nulls is None else nulls.view(np.uint8)
        find(data, offsets, mask, -1, SEED, self._slots, self._arena, self._ends, codes)
        return codes

    def leave(self, codes: Codes) -> None:
        """One row less for each of these codes."""
        kernels.leave(codes, self._ends, self._refs, self._tally)

    @property
    def worn(self) -> bool:
        """Whether so many strings have no row that `renumbered` is worth its cost."""
        unused, size = len(self) - self.live, int(self._ends[len(self)] - self._tally[2])
        return unused > max(self.live, UNUSED) or size > max(self.nbytes, UNUSED_BYTES)

    def renumbered(self) -> Codes:
        """Forget the strings that no row has; returns the new code of each former one, -1 if it has none."""
        kept = np.flatnonzero(self._refs[: len(self)] > 0)
        changed = np.full(len(self), -1, np.int32)
        changed[kept] = np.arange(len(kept))
        text, refs = self.strings.take(pa.array(kept)), self._refs[kept]
        self._clear()
        self.version += 1
        self.enter(text, None)
        self._refs[: len(kept)] = refs
        return changed

    def packed(self, codes: Codes) -> tuple[pa.LargeStringArray, Codes]:
        """The strings of these codes in order of first appearance, and the codes in that order: they depend on nothing
        but the strings of the rows.
        """
        codes, changed = codes.copy(), np.full(len(self), -1, np.int32)
        former = np.empty(len(self), np.int32)
        count = kernels.number_anew(codes, changed, former)
        return self.take(former[:count]), codes

    def unpack(self, text: pa.LargeStringArray, codes: Codes) -> None:
        """Restore an empty dictionary from `packed`: rows with these codes have entered."""
        self.enter(text, None)
        self._refs[: len(text)] = np.bincount(codes[codes >= 0], minlength=len(text))

    # --- what a batch would take ---------------------------------------------------------------------------------

    def nbytes_with(self, text: pa.LargeStringArray, nulls: NDArray[np.bool_] | None, gone: Codes) -> tuple[int, int]:
        """`nbytes` and `live` after the rows with the codes `gone` have left, and rows with this text have entered."""
        refs = self._refs[: len(self)] - np.bincount(gone[gone >= 0], minlength=len(self))
        codes = self.find(text, nulls)
        refs[codes[codes >= 0]] += 1
        live = refs > 0
        unknown = codes < 0 if nulls is None else (codes < 0) & ~nulls
        new = text.filter(pa.array(unknown)).unique()
        size = int(np.diff(self._ends[: len(self) + 1])[live].sum()) + int(np.diff(parts(new)[1]).sum())
        count = int(live.sum()) + len(new)
        return size + OVERHEAD * count, count

    def counts(self, codes: Codes) -> bool:
        """Whether these are the codes of all rows, as counted."""
        refs = np.bincount(codes[codes >= 0], minlength=len(self))
        sizes = np.diff(self._ends[: len(self) + 1])[refs > 0]
        known = len(sizes) == self.live and int(sizes.sum()) == int(self._tally[2])
        return known and bool((refs == self._refs[: len(self)]).all())

    # --- key hashes ----------------------------------------------------------------------------------------------

    def keys(self, seed: int, most: int | None = None) -> NDArray[np.uint64]:
        """The key hash of each code; of those in the table by key hash and of `most` others, if given."""
        if seed != self._seed:
            self._seed, self._hashed, self._seated, self._alone = seed, 0, 0, True
            self._by_key[:] = 0
            self._proved.clear()
        count = len(self) if most is None else min(len(self), self._seated + most)
        if self._hashed < count:
            if len(self._keys) < count:
                self._keys = _wider(self._keys, len(self._hashes))
            kernels.hash_keys(self._arena, self._ends, inner_seed(seed), self._hashed, count, self._keys)
            self._hashed = count
        return self._keys

    def hashes(self, codes: Codes, seed: int) -> NDArray[np.int64]:
        """The key hash of each of these codes; arbitrary for -1."""
        out = np.empty(len(codes), np.int64)
        kernels.gather_keys(self.keys(seed), codes, out)
        return out

    def told_apart_by(self, seed: int, other: "Dictionary", most: int) -> bool | None:
        """Whether equal key hashes mean equal strings, among all strings of both; None if it is not known yet.

        A call looks at up to `most` strings, and at each string of either only once.
        """
        for each in (self, other):
            most -= each._seat(seed, most)
        if not (self._alone and other._alone):
            return False
        if self._seated < len(self) or other._seated < len(other):
            return None
        if other is self:
            return True
        version, *done = self._proved.get(other, (other.version, 0, 0))
        done = done if version == other.version else [0, 0]
        for turn, (a, b) in enumerate(((self, other), (other, self))):
            stop = min(len(a), done[turn] + most)
            if not kernels.no_clash(
                a._keys, a._arena, a._ends, done[turn], stop, b._by_key, b._keys, b._arena, b._ends
            ):
                return False
            most -= stop - done[turn]
            done[turn] = stop
        self._proved[other] = other.version, done[0], done[1]
        return True if done == [len(self), len(other)] else None

    def _seat(self, seed: int, most: int) -> int:
        """Enter up to so many strings into the table by key hash; returns how many."""
        keys = self.keys(seed, most)
        if len(self._by_key) < 2 * len(self):
            self._by_key = np.zeros(len(self._slots), np.uint64)
            kernels.seat_keys(keys, 0, self._seated, self._by_key)
        first, stop = self._seated, min(len(self), self._seated + most)
        self._alone = bool(kernels.seat_keys(keys, first, stop, self._by_key)) and self._alone
        self._seated = stop
        return stop - first


def parts(text: pa.LargeStringArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of a string column, and the offsets of its strings."""
    _, offsets, data = text.buffers()
    if not len(text):
        return NONE, np.zeros(1, np.int64)
    places = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    return NONE if data is None else np.frombuffer(data, np.uint8), places


def _wider(array: NDArray[Any], length: int) -> NDArray[Any]:
    """A copy with room for so many."""
    out = np.zeros(length, array.dtype)
    out[: len(array)] = array
    return out
