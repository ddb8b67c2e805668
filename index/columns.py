"""The columns of a log, by row: in memory, or in a store on disk."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from promising.errors import UnknownName
from promising.index.chunks import Chunk, ChunkPart, ColdReader, Heap, Tiers, give_back
from promising.index.coded import FEWEST, Coded
from promising.index.dictionary import CodedStrings, Dictionary, parts
from promising.index.image_arrays import joined, pour
from promising.index.kernels.gather import consecutive, copy_strings, gather, string_lengths
from promising.index.schema import TYPES, Column, Schema
from promising.summaries.hashing import hash_keys
from promising.summaries.keys import Keys
from promising.summaries.reserved import Reserved

DTYPES = {"int": np.int64, "float": np.float64, "bool": np.uint8, "timestamp": np.int64}


class Columns:
    """Rows in chunks of `chunk`, in memory or, if cold, read by `reader`. `capacity` rows are reserved; it grows."""

    def __init__(self, schema: Schema, chunk: int) -> None:
        self.schema = schema
        self.chunk = chunk
        self.capacity = chunk
        self._heap_bytes = 0
        self.reader: ColdReader | None = None  # reads cold tuples
        self._columns: dict[str, Reserved[Any]] = {
            name: Reserved(DTYPES[kind], self.capacity) for name, kind in schema.types.items() if kind != "string"
        }
        self._coded = {n: Coded(self.capacity, chunk) for n, k in schema.types.items() if k == "string"}
        self._heaps: dict[str, dict[int, Heap]] = {name: {} for name in self._coded}  # of chunks that are not coded
        self._nulls: dict[str, Reserved[np.uint8]] = {}
        self._tiers = Tiers(1, chunk)

    @property
    def has_strings(self) -> bool:
        return bool(self._heaps)

    @property
    def string_bytes(self) -> int:
        """What the strings in memory count as."""
        return self._heap_bytes + sum(coded.nbytes for coded in self._coded.values())

    def _grow(self, chunks: int, warm: list[tuple[int, int]]) -> None:
        """Have memory for so many chunks. warm: the rows in memory."""
        for column in (*self._columns.values(), *self._nulls.values()):
            column.grow(chunks * self.chunk, warm)
        for coded in self._coded.values():
            coded.grow(chunks, warm)
        self._tiers.grow(chunks)
        self.capacity = max(chunks * self.chunk, self.capacity)

    # --- read ----------------------------------------------------------------------------------------------------

    def hash_column(self, column: Column, seed: int) -> NDArray[np.int64]:
        return hash_keys(column.values if column.values is not None else column.text, seed).view(np.int64)

    def hashes_of(self, key: str, column: Column, rows: NDArray[np.int32], seed: int) -> NDArray[np.int64]:
        """Key hashes of a column just written to these rows, in order."""
        coded = self._coded.get(key)
        if coded is not None and coded.marks(np.append(rows[:: self.chunk], rows[-1:])).all():
            return coded.dictionary.hashes(coded.codes(rows), seed)
        return self.hash_column(column, seed)

    def hashes(self, key: str, rows: NDArray[np.int32], seed: int) -> NDArray[np.int64]:
        if key in self._columns:
            return hash_keys(self.values(key, rows), seed).view(np.int64)
        coded = self._coded[key]
        if self._in_codes(key, rows):
            return coded.dictionary.hashes(coded.codes(rows), seed)
        out = np.empty(len(rows), np.int64)
        marks = coded.marks(rows)
        out[marks] = coded.dictionary.hashes(coded.codes(rows[marks]), seed)
        out[~marks] = hash_keys(self._strings(key, rows[~marks]), seed).view(np.int64)
        return out

    def _in_codes(self, name: str, rows: NDArray[Any]) -> bool:
        """Whether these are rows of a column of strings that is in memory, as codes."""
        if name not in self._coded:
            return False
        return (not self._heaps[name] and not self._tiers) or bool(self._coded[name].marks(rows).all())

    def values(self, name: str, rows: NDArray[np.int32]) -> NDArray[Any]:
        """A non-string column at these rows; nulls have arbitrary values."""
        column = self._columns[name].array
        out = np.empty(len(rows), column.dtype)
        if not self._tiers:
            gather(column, rows, out)
            return out
        warm = np.flatnonzero(~self._tiers.cold(rows))
        out[warm] = column[rows[warm]]
        for part in self._tiers.parts(rows):
            out[part.where] = self._read(part.run, name, part.offsets).values
        return out

    def view(self, name: str, rows: NDArray[np.int32]) -> NDArray[Any]:
        """`values`, not copied where the rows are consecutive and in memory; valid until the next change."""
        if not len(rows) or self._tiers or not consecutive(rows):
            return self.values(name, rows)
        return self._columns[name].array[int(rows[0]) : int(rows[-1]) + 1]

    def _read(self, run: int, name: str, offsets: NDArray[np.int32]) -> Column:
        assert self.reader is not None, "cold tuples and nowhere to read them"
        return self.reader.column(run, name, offsets)

    def cold_parts(self, rows: NDArray[np.int32]) -> Iterator[ChunkPart]:
        """Which of these rows are on disk, and where."""
        return self._tiers.parts(rows) if self._tiers else iter(())

    def plain(self, name: str) -> bool:
        """Whether `values` is the complete column: no strings, no nulls."""
        return name in self._columns and name not in self._nulls

    def to_arrow(self, name: str, values: NDArray[Any], nulls: NDArray[np.bool_] | None) -> pa.Array:
        """The result of `values` as an array of the column's type."""
        kind = self.schema.types[name]
        if kind == "bool":
            return pa.array(values.view(np.bool_), mask=nulls)
        valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        return pa.Array.from_buffers(TYPES[kind], len(values), [valid, pa.py_buffer(values)])

    def names(self, columns: list[str] | None) -> list[str]:
        names = list(self.schema.types) if columns is None else columns
        for name in names:
            if name not in self.schema.types:
                raise UnknownName(f"no column {name!r}; columns are {', '.join(self.schema.types)}")
        return names

    def coded(self, name: str, rows: NDArray[np.int32]) -> CodedStrings | None:
        """These rows of a column of strings; None if not all of them are in codes."""
        if not self._in_codes(name, rows):
            return None
        return self._coded[name].dictionary.coded(self._coded[name].codes(rows))

    def dictionary(self, name: str, rows: NDArray[Any]) -> Dictionary | None:
        """The dictionary of a column of strings, if all tuples in the chunks of these rows are in codes."""
        return self._coded[name].dictionary if self._in_codes(name, rows) else None

    def same(
        self, key: str, rows: NDArray[np.int32], asked: Keys, probe: NDArray[np.int32]
    ) -> NDArray[np.bool_] | None:
        """Which rows really have the requested key; None if all do, as integer hashes have no collisions."""
        if isinstance(asked, np.ndarray) or not len(rows):
            return None
        if self._in_codes(key, rows):
            codes = self._coded[key].codes(rows)
            same: NDArray[np.bool_] = codes == self._coded[key].dictionary.find(asked.cast(pa.large_string()))[probe]
            return same & (codes >= 0)
        wanted = asked.cast(pa.large_string()).take(pa.array(probe))
        return np.asarray(pc.equal(self._strings(key, rows), wanted).to_numpy(zero_copy_only=False))

    def take(self, rows: NDArray[np.int32], columns: list[str] | None = None) -> pa.Table:
        return pa.table({name: self.array(name, rows) for name in self.names(columns)})

    def nulls(self, name: str, rows: NDArray[np.int32]) -> NDArray[np.bool_] | None:
        """Which of these rows are null in a column; None if none is."""
        if name not in self._nulls:
            return None
        marks = self._nulls[name].array[rows].view(np.bool_)
        for part in self._tiers.parts(rows) if self._tiers else ():
            found = self._read(part.run, name, part.offsets).nulls
            marks[part.where] = False if found is None else found
        return marks if marks.any() else None

    def array(self, name: str, rows: NDArray[np.int32]) -> pa.Array:
        if self._in_codes(name, rows):
            return self._coded[name].dictionary.take(self._coded[name].codes(rows))
        mask = self.nulls(name, rows)
        if name in self._columns:
            return self.to_arrow(name, self.values(name, rows), mask)
        text = self._strings(name, rows)
        return text if mask is None else pc.if_else(pa.array(mask), pa.scalar(None, pa.large_string()), text)

    def _strings(self, name: str, rows: NDArray[np.int32]) -> pa.LargeStringArray:
        if self._tiers and (cold := list(self._tiers.parts(rows))):
            return self._mixed_strings(name, rows, cold)
        return self._warm_strings(name, rows)

    def _mixed_strings(self, name: str, rows: NDArray[np.int32], cold: list[ChunkPart]) -> pa.LargeStringArray:
        """Some in memory and some not: read by part, then reordered."""
        warm = np.flatnonzero(~self._tiers.cold(rows))
        found = [self._read(p.run, name, p.offsets).text.fill_null("") for p in cold]  # `nulls` distinguishes them
        parts = [self._warm_strings(name, rows[warm]), *found]
        order = np.empty(len(rows), np.int64)
        order[np.concatenate([warm, *(p.where for p in cold)])] = np.arange(len(rows))
        return pa.concat_arrays(parts).take(pa.array(order))

    def _warm_strings(self, name: str, rows: NDArray[np.int32]) -> pa.LargeStringArray:
        """Strings in memory, empty for nulls."""
        coded = self._coded[name]
        if not self._heaps[name]:
            return _without_nulls(coded.dictionary.take(coded.codes(rows)))
        marks = coded.marks(rows)
        if not marks.any():
            return self._heap_strings(name, rows)
        both = coded.dictionary.take(coded.codes(rows[marks])), self._heap_strings(name, rows[~marks])
        order = np.empty(len(rows), np.int64)
        order[np.concatenate([np.flatnonzero(marks), np.flatnonzero(~marks)])] = np.arange(len(rows))
        return _without_nulls(pa.concat_arrays(both).take(pa.array(order)))

    def _heap_strings(self, name: str, rows: NDArray[np.int32]) -> pa.LargeStringArray:
        """Lengths by chunk, then bytes: each string is copied once."""
        chunks = (rows // self.chunk).astype(np.uint16 if self.capacity // self.chunk <= 1 << 16 else np.int32)
        order = np.argsort(chunks, kind="stable")
        edges = np.flatnonzero(np.diff(chunks[order])) + 1
        parts = [part for part in np.split(order, edges) if len(part)]
        ends = np.zeros(len(rows) + 1, np.int64)
        heaps = [self._heaps[name][int(rows[part[0]]) // self.chunk * self.chunk] for part in parts]
        for part, heap in zip(parts, heaps, strict=True):
            string_lengths(heap.offsets, self.chunk, rows, part, ends)
        np.cumsum(ends, out=ends)
        text = np.empty(int(ends[-1]), np.uint8)
        for part, heap in zip(parts, heaps, strict=True):
            copy_strings(heap.offsets, heap.bytes, self.chunk, rows, part, ends, text)
        return pa.Array.from_buffers(pa.large_string(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(text)])

    # --- write ---------------------------------------------------------------------------------------------------

    def _write(self, name: str, column: Column, chunk: Chunk, at: int, done: int, take: int) -> None:
        if column.values is not None:
            self._columns[name].array[at : at + take] = column.values[done : done + take]
        else:
            assert column.text is not None
            coded, heap = self._coded[name], self._heaps[name].get(chunk.start)
            if heap is None and (coded.has(chunk.start) or (chunk.used == 0 and coded.worth())):
                nulls = None if column.nulls is None else column.nulls[done : done + take]
                coded.write(at, column.text.slice(done, take), nulls)
            else:
                if heap is None:
                    heap = self._heaps[name][chunk.start] = Heap(self.chunk)
                    self._heap_bytes += heap.nbytes
                before = heap.nbytes
                heap.write(chunk.used, column.text.slice(done, take))
                self._heap_bytes += heap.nbytes - before
        if column.nulls is not None:
            self._may_be_null(name)
        if name in self._nulls:
            marks = self._nulls[name].array[at : at + take]
            marks[:] = 0 if column.nulls is None else column.nulls[done : done + take]

    def string_bytes_with(self, columns: dict[str, Column], gone: Iterable[Chunk], last: Chunk | None) -> int:
        """A bound of `string_bytes` without the `gone` chunks, after writing these columns: into `last`, then new ones.

        It is exact where all chunks are coded.
        """
        leaving = [chunk.start for chunk in gone]
        used = 0 if last is None else last.used
        total = self._heap_bytes
        for name, heaps in self._heaps.items():
            coded, text = self._coded[name], columns[name].text
            total -= sum(heaps[start].nbytes for start in leaving if start in heaps)
            size, live = coded.dictionary.nbytes_with(text, columns[name].nulls, coded.codes_of(leaving))
            total += size + coded.chunk_bytes * len(coded.starts.difference(leaving))
            ends = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]
            for start in range(-used, len(text), self.chunk):  # index of the chunk's first row in the batch
                first, stop = max(start, 0), min(start + self.chunk, len(text))
                if start >= 0:
                    heap = Heap(self.chunk)
                    plain = heap.nbytes + heap.growth(0, int(ends[stop] - ends[first]))
                    total += coded.chunk_bytes if live <= FEWEST else max(coded.chunk_bytes, plain)
                elif last is not None and first < stop and last.start in heaps:
                    total += heaps[last.start].growth(first - start, int(ends[stop] - ends[first]))
        return total

    def _may_be_null(self, name: str) -> None:
        if name not in self._nulls:
            self._nulls[name] = Reserved(np.uint8, self.capacity)

    def _let_go(self, start: int) -> None:
        self._tiers.leave(start // self.chunk)
        for heaps in self._heaps.values():
            heap = heaps.pop(start, None)
            if heap is not None:
                self._heap_bytes -= heap.nbytes
        for coded in self._coded.values():
            coded.release([start])

    def _cool(self, run: int, chunks: list[Chunk]) -> None:
        """Release the memory of chunks that are now stored as that run."""
        self._tiers.cool(run, [c.start // self.chunk for c in chunks], [c.used for c in chunks])
        for coded in self._coded.values():
            coded.release([c.start for c in chunks])
        for first, last in joined((start, start + self.chunk) for start in sorted(c.start for c in chunks)):
            for column in (*self._columns.values(), *self._nulls.values()):
                give_back(column.array, first, last)
            for coded in self._coded.values():
                give_back(coded.array, first, last)
        for heaps in self._heaps.values():
            for chunk in chunks:
                heap = heaps.pop(chunk.start, None)
                self._heap_bytes -= 0 if heap is None else heap.nbytes

    # --- to disk and back ----------------------------------------------------------------------------------------

    def _columns_image(self, warm: list[Chunk]) -> dict[str, Any]:
        def together(column: NDArray[Any]) -> NDArray[Any]:
            parts = [column[c.start : c.start + c.used] for c in warm]
            return np.concatenate(parts) if parts else np.empty(0, column.dtype)

        return {
            "columns": {name: together(column.array) for name, column in self._columns.items()},
            "nulls": {name: together(marks.array) for name, marks in self._nulls.items()},
            "strings": {name: self._packed(name, warm) for name in self._heaps},
            "coded": True,
        }

    def _restore_columns(self, image: dict[str, Any], warm: list[Chunk]) -> None:
        self._nulls = {name: Reserved(np.uint8, self.capacity) for name in image["nulls"]}
        stretches = joined((c.start, c.start + c.used) for c in warm)
        for kept, saved in ((self._columns, image["columns"]), (self._nulls, image["nulls"])):
            for name, column in kept.items():
                pour(saved[name], [column.array[first:last] for first, last in stretches])
        for name, strings in image["strings"].items():
            self._unpack(name, strings, warm, decided=image.get("coded", False))

    def _packed(self, name: str, warm: list[Chunk]) -> dict[str, Any]:
        """The strings of several chunks: of those with a heap, its capacity, lengths and bytes; of those in codes, with
        capacity 0, codes and their strings.
        """
        heaps = self._heaps[name]
        lengths, text, rooms = [np.empty(0, np.int64)], [np.empty(0, np.uint8)], []
        for chunk in warm:
            heap = heaps.get(chunk.start)
            rooms.append(0 if heap is None else heap.bytes.size)
            if heap is not None:
                offsets = heap.offsets[: chunk.used + 1]
                lengths.append(np.diff(offsets))
                text.append(heap.bytes[: offsets[-1]])
        known, codes = self._coded[name].packed(chunk.start for chunk in warm)
        data, offsets = parts(known)
        return {
            "lengths": np.concatenate(lengths),
            "bytes": np.concatenate(text),
            "rooms": np.array(rooms, np.int64),
            "codes": codes,
            "known_lengths": np.diff(offsets),
            "known_bytes": data[: offsets[-1]].copy(),
        }

    def _unpack(self, name: str, strings: dict[str, Any], warm: list[Chunk], *, decided: bool) -> None:
        """decided: whether the image says which chunks are coded. In older ones each has a heap, and before format 4
        there are no codes.
        """
        rooms, in_codes = strings["rooms"].tolist(), "codes" in strings
        if in_codes:
            known = _text(strings["known_lengths"], strings["known_bytes"])
            coded = [(chunk.start, chunk.used) for chunk, room in zip(warm, rooms, strict=True) if not room]
            self._coded[name].unpack(coded, known, np.ascontiguousarray(strings["codes"]))
        done = at = 0
        for chunk, room in zip(warm, rooms, strict=True):
            if not room and in_codes:
                continue
            lengths = strings["lengths"][done : done + chunk.used]
            size = int(lengths.sum())
            text = _text(lengths, strings["bytes"][at : at + size])
            if room and (decided or not self._coded[name].worth()):
                heap = self._heaps[name][chunk.start] = Heap(self.chunk, room)
                heap.write(0, text)
                self._heap_bytes += heap.nbytes
            else:
                marks = self._nulls[name].array[chunk.start : chunk.start + chunk.used] if name in self._nulls else None
                self._coded[name].write(chunk.start, text, None if marks is None else marks.view(np.bool_))
            done, at = done + chunk.used, at + size


def _text(lengths: NDArray[np.int64], data: NDArray[np.uint8]) -> pa.LargeStringArray:
    """The strings of these lengths, one after the other in the bytes."""
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_string(), len(lengths), buffers)


def _without_nulls(text: pa.LargeStringArray) -> pa.LargeStringArray:
    return text.fill_null("") if text.null_count else text
