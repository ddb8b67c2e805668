"""Maps key columns to group numbers: keys are encoded as rows of 64-bit words, equal for equal keys."""

import secrets
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.dictionary import CodedStrings, Dictionary
from promising.query.aggregate.arrow_memory import Ids, present, raw, text, words
from promising.query.kernels.intern_table import enter, find, intern, lacking, seat, seat_rows
from promising.query.scalar.types import ARROW, Kind
from promising.summaries.hashing import hash_keys
from promising.summaries.kernels.hashing import P1, P2
from promising.summaries.kernels.text_table import find as find_text

Words: TypeAlias = NDArray[np.int64]  # one array row per word, one array column per row

SEED = np.uint64(secrets.randbits(64))
"""Random per process, so that nobody can send colliding keys. No result depends on it."""

Key: TypeAlias = pa.Array | CodedStrings
"""A column of keys; of strings, it may be in codes."""

UNKNOWN, AWAITED = -2, -3  # a code that is not known or not translated yet, and one that is about to be
LEAST = 64  # slots of a new table
FLAGS = 62  # columns whose nulls one word flags
NULL_FLOAT = np.array([0x7FF8000000000001], np.int64).view(np.float64)[0]
"""A NaN that `words` never returns: as a word it encodes NULL."""

EVERY = np.empty(0, np.uint8)  # a mask of a column without nulls


class GroupTable:
    """Distinct rows of `width` words, numbered in order of first appearance; O(1) per row."""

    def __init__(self, width: int) -> None:
        self._slots = np.zeros(LEAST, np.uint64)
        self._stored = np.empty((LEAST // 2, width), np.int64)
        self._used = np.zeros(1, np.int64)

    @property
    def size(self) -> int:
        return int(self._used[0])

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes + self._stored.nbytes

    @property
    def stored(self) -> NDArray[np.int64]:
        return self._stored[: self.size]

    def enter(self, words: Words) -> Ids:
        """The number of each row; new rows are inserted."""
        ids = np.empty(words.shape[1], np.int32)
        at = enter(words, SEED, self._slots, self._stored, self._used, 0, ids)
        while at < len(ids):
            self._slots = np.zeros(len(self._slots) * 4, np.uint64)
            seat_rows(self._stored, self.size, SEED, self._slots)
            wider = np.empty((len(self._slots) // 2, self._stored.shape[1]), np.int64)
            wider[: self.size] = self.stored
            self._stored = wider
            at = enter(words, SEED, self._slots, self._stored, self._used, at, ids)
        return ids

    def find(self, words: Words) -> Ids:
        """The number of each row, -1 if unknown."""
        ids = np.empty(words.shape[1], np.int32)
        find(words, SEED, self._slots, self._stored, ids)
        return ids


class Strings:
    """Distinct strings, numbered in order of first appearance. Memory: their bytes, plus about 40 each."""

    def __init__(self) -> None:
        self._slots = np.zeros(LEAST, np.uint64)
        self._hashes = np.empty(LEAST // 2, np.uint64)
        self._ends = np.zeros(LEAST // 2 + 1, np.int64)
        self._arena = np.empty(1024, np.uint8)
        self._used = np.zeros(1, np.int64)
        self._translated: tuple[tuple[Dictionary, int], NDArray[np.int64]] | None = None

    @property
    def nbytes(self) -> int:
        translated = 0 if self._translated is None else self._translated[1].nbytes
        return self._slots.nbytes + self._hashes.nbytes + self._ends.nbytes + self._arena.nbytes + translated

    def find(self, array: pa.Array) -> NDArray[np.int64]:
        """The code of each string, -1 for NULL, UNKNOWN for others."""
        codes = np.empty(len(array), np.int64)
        data, offsets = text(array)
        there = present(array)
        nulls = EVERY if there is None else 1 - there
        find_text(data, offsets, nulls, UNKNOWN, SEED, self._slots, self._arena, self._ends, codes)
        return codes

    def enter(self, array: pa.Array) -> NDArray[np.int64]:
        """The code of each string, -1 for NULL; new strings are inserted."""
        codes = np.empty(len(array), np.int64)
        data, offsets = text(array)
        there = present(array)
        mask = EVERY if there is None else there
        at = 0
        while True:
            at = intern(
                data, offsets, mask, SEED, self._slots, self._arena, self._ends, self._hashes, self._used, at, codes
            )
            if at == len(codes):
                return codes
            self._widen(int(offsets[at + 1] - offsets[at]))

    def enter_coded(self, coded: CodedStrings) -> NDArray[np.int64]:
        """The same for strings that have codes of another dictionary, which are translated once each."""
        if self._translated is None or self._translated[0] != coded.of:
            self._translated = coded.of, np.full(1, -1, np.int64)
        codes = self._translated[1]
        if len(codes) <= len(coded.strings):  # the last is that of -1
            codes = np.concatenate((codes[:-1], np.full(len(coded.strings) + 1 - len(codes), UNKNOWN), [-1]))
            self._translated = coded.of, codes
        new = np.empty(len(coded.codes), np.int32)
        new = new[: lacking(coded.codes, codes, UNKNOWN, AWAITED, new)]
        if len(new):
            codes[new] = self.enter(coded.take(new))
        return codes[coded.codes]

    def _widen(self, size: int) -> None:
        count = int(self._used[0])
        if count == len(self._hashes):
            self._slots = np.zeros(len(self._slots) * 4, np.uint64)
            seat(self._hashes, count, self._slots)
            self._hashes = np.resize(self._hashes, len(self._slots) // 2)
            self._ends = np.resize(self._ends, len(self._slots) // 2 + 1)
        if self._ends[count] + size > len(self._arena):
            wider = np.empty(max(2 * len(self._arena), int(self._ends[count]) + size), np.uint8)
            wider[: self._ends[count]] = self._arena[: self._ends[count]]
            self._arena = wider

    def take(self, codes: NDArray[np.int64]) -> pa.Array:
        """The strings of these codes, NULL for -1."""
        count = int(self._used[0])
        ends, arena = self._ends[: count + 1].copy(), self._arena[: self._ends[count]].copy()
        held = pa.Array.from_buffers(ARROW["string"], count, [None, pa.py_buffer(ends), pa.py_buffer(arena)])
        return held.take(pa.array(codes, mask=codes < 0))


class GroupKeys:
    """Encodes key columns as words, and back: numbers and times as they are, strings as codes.

    Every bit pattern of a number or time is a valid value, so nulls are flagged in additional words.
    """

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.kinds = tuple(kinds)
        self._strings = [Strings() if kind == "string" else None for kind in kinds]
        flagged = [place for place, kind in enumerate(kinds) if kind in ("int", "timestamp", "interval")]
        self._flags = {place: (len(kinds) + n // FLAGS, n % FLAGS) for n, place in enumerate(flagged)}
        self.width = len(kinds) + -(-len(flagged) // FLAGS)

    @property
    def nbytes(self) -> int:
        return sum(strings.nbytes for strings in self._strings if strings is not None)

    def encode(self, arrays: Sequence[Key], rows: int) -> Words:
        """The words of each row; new strings get a code."""
        codes: list[NDArray[np.int64] | None] = []
        for strings, array in zip(self._strings, arrays, strict=True):
            if strings is None:
                codes.append(None)
            else:
                codes.append(strings.enter_coded(array) if isinstance(array, CodedStrings) else strings.enter(array))
        return self._encode(arrays, rows, codes)

    def find(self, arrays: Sequence[pa.Array], rows: int) -> Words:
        """The words of each row; those of a row with an unknown string are no known row's."""
        codes = (s if s is None else s.find(a) for s, a in zip(self._strings, arrays, strict=True))
        return self._encode(arrays, rows, list(codes))

    def _encode(self, arrays: Sequence[Key], rows: int, codes: Sequence[NDArray[np.int64] | None]) -> Words:
        out = np.empty((self.width, rows), np.int64)
        out[len(self.kinds) :] = 0
        for place, (kind, array) in enumerate(zip(self.kinds, arrays, strict=True)):
            code = codes[place]
            if code is not None:
                out[place] = code
                continue
            there = present(array)
            out[place] = words(raw(array, kind))
            if there is None:
                continue
            missing = there == 0
            if place in self._flags:
                word, bit = self._flags[place]
                out[place][missing] = 0
                out[word] |= missing.astype(np.int64) << bit
            else:
                out[place][missing] = NULL_FLOAT.view(np.int64) if kind == "float" else 2
        return out

    def decode(self, stored: NDArray[np.int64]) -> list[pa.Array]:
        return [self.column(place, stored) for place in range(len(self.kinds))]

    def column(self, place: int, stored: NDArray[np.int64]) -> pa.Array:
        """One column of keys."""
        kind, words = self.kinds[place], np.ascontiguousarray(stored[:, place])
        strings = self._strings[place]
        if strings is not None:
            return strings.take(words)
        if kind == "null":
            return pa.nulls(len(words))
        if kind == "bool":
            return values_of(kind, words, words == 2)
        if kind == "float":
            return values_of(kind, words, words == NULL_FLOAT.view(np.int64))
        word, bit = self._flags[place]
        return values_of(kind, words, (stored[:, word] >> bit & 1).astype(bool))


def values_of(kind: Kind, words: NDArray[np.int64], missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """The numbers, booleans or times that words encode; NULL where `missing`."""
    if kind == "bool":
        return pa.array(words == 1, mask=missing)
    if kind == "float":
        return pa.array(words.view(np.float64), mask=missing)
    return pa.array(words, mask=missing).view(ARROW["int" if kind == "null" else kind])


def row_hashes(kinds: Sequence[Kind], arrays: Sequence[pa.Array], rows: int) -> NDArray[np.uint64]:
    """A hash of each row, the same for equal rows of any slice."""
    numbers = [place for place, kind in enumerate(kinds) if kind != "string"]
    words = GroupKeys([kinds[place] for place in numbers]).encode([arrays[place] for place in numbers], rows)
    texts = (hash_keys(arrays[p].fill_null(""), 0) for p, kind in enumerate(kinds) if kind == "string")
    found = np.full(rows, SEED)
    for word in (*words.view(np.uint64), *texts):
        found = (found ^ word) * P1
        found ^= found >> np.uint64(32)
    found *= P2
    return found ^ found >> np.uint64(29)
