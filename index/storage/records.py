"""The payloads of a stream's log records, by kind.

    append   length of the head 8 | head, JSON | padding to 8 | array | padding to 8 | array...
    others   JSON

The head of an append names the columns in order, and their arrays follow: the values (int64, float64 or uint8), or for
text n + 1 offsets (int64, from 0 on) and the bytes; then, if there are nulls, n bytes of 0 and 1.
"""

import json
import struct
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import DataDamaged
from promising.index.progress import Progress
from promising.index.regions import Appended
from promising.index.schema import Column
from promising.index.storage.checksums import Bytes

APPEND = 1
ADVANCE = 2
CREATE_SUMMARY = 3
DROP_SUMMARY = 4
BEGIN = 5  # the first of a stream, so that a missing log is detected
ALTER = 6  # settings that change
OPEN = 7  # a producer, with a higher epoch
KINDS = (APPEND, ADVANCE, CREATE_SUMMARY, DROP_SUMMARY, BEGIN, ALTER, OPEN)

DTYPES: dict[str, np.dtype[Any]] = {"int64": np.dtype("<i8"), "float64": np.dtype("<f8"), "uint8": np.dtype("u1")}
TEXT = "text"
_LENGTH = struct.Struct("<Q")


class Batch(NamedTuple):
    """A batch as it was added to a stream. Arrays may be read-only views of the record.

    progress: of the stream after it; at: the time of the clock. Both are None in records that do not have them.
    """

    columns: dict[str, Column]
    tuples: int
    added: Appended
    producer: str | None
    sequence: int | None
    progress: Progress | None = None
    epoch: int = 0
    at: int | None = None


def pack_json(content: dict[str, Any]) -> list[Bytes]:
    """Canonical bytes of the content.

    >>> pack_json({"b": 1, "a": None})
    [b'{"a":null,"b":1}']
    """
    return [json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()]


def unpack_json(payload: Bytes) -> dict[str, Any]:
    """The content, or DataDamaged."""
    try:
        content = _JSON.decode(bytes(payload).decode())
    except (ValueError, RecursionError) as problem:
        raise DataDamaged(f"a record of the log is no JSON: {problem}") from None
    if not isinstance(content, dict):
        raise DataDamaged("a record of the log is JSON, but no object")
    return content


def pack_append(
    columns: dict[str, Column],
    tuples: int,
    added: Appended,
    producer: str | None,
    sequence: int | None,
    progress: Progress | None = None,
    epoch: int = 0,
    at: int | None = None,
) -> list[Bytes]:
    """A batch as parts of one record; contiguous arrays are not copied."""
    arrays: list[Bytes] = []
    heads = []
    for name, column in columns.items():
        nulls = column.nulls
        if column.values is not None:
            values = np.ascontiguousarray(column.values)
            heads.append([name, values.dtype.name, 0, nulls is not None])
            _add(arrays, values)
        else:
            offsets, content = _text(column.text)
            if nulls is None and column.text.null_count:
                nulls = column.text.is_null().to_numpy(zero_copy_only=False)
            heads.append([name, TEXT, len(content), nulls is not None])
            _add(arrays, offsets)
            _add(arrays, content)
        if nulls is not None:
            _add(arrays, np.ascontiguousarray(nulls))
    [head] = pack_json(
        {
            "accepted": added.accepted,
            **({} if at is None else {"at": at}),
            "columns": heads,
            "duplicate": added.duplicate,
            **({"epoch": epoch} if epoch else {}),
            "producer": producer,
            **({} if progress is None else {"progress": list(progress)}),
            "refused": added.refused,
            "sequence": sequence,
            "tuples": tuples,
        }
    )
    return [_LENGTH.pack(len(head)), head, bytes(-len(head) % 8), *arrays]


def unpack_append(payload: Bytes) -> Batch:
    """The batch, or DataDamaged."""
    view = memoryview(payload).cast("B")
    if len(view) < _LENGTH.size:
        raise DataDamaged("a batch in the log is too short to be one")
    [length] = _LENGTH.unpack_from(view)
    start = _LENGTH.size
    if length > len(view) - start:
        raise DataDamaged("a batch in the log is shorter than it says")
    head = unpack_json(view[start : start + length])
    tuples = _count(head, "tuples")
    refused = head.get("refused")
    if not isinstance(refused, dict) or not all(_is_count(number) for number in refused.values()):
        raise DataDamaged("a batch in the log does not say what was refused")
    producer, sequence, duplicate = head.get("producer"), head.get("sequence"), head.get("duplicate")
    if not isinstance(producer, str | None) or not isinstance(duplicate, bool):
        raise DataDamaged("a batch in the log does not say who sent it")
    if sequence is not None and (not isinstance(sequence, int) or isinstance(sequence, bool)):
        raise DataDamaged("a batch in the log has no number where it should")
    epoch, at = head.get("epoch", 0), head.get("at")
    if not _is_count(epoch) or isinstance(at, bool) or not isinstance(at, int | None):
        raise DataDamaged("a batch in the log has no epoch or time where it should")
    columns = _Arrays(view, start + length + -length % 8, tuples).columns(head.get("columns"))
    known = head.get("progress")
    progress = None if known is None else Progress.of(known)
    added = Appended(_count(head, "accepted"), refused, duplicate)
    return Batch(columns, tuples, added, producer, sequence, progress, epoch, at)


def _add(arrays: list[Bytes], array: NDArray[Any]) -> None:
    view = array.view(np.uint8)
    arrays.append(view.data)
    if len(view) % 8:
        arrays.append(bytes(-len(view) % 8))


def _text(text: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Offsets from 0 on, and their bytes; of a slice only its own."""
    if not len(text):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets, content = text.buffers()
    at: NDArray[np.int64] = np.frombuffer(offsets, np.dtype("<i8"), len(text) + 1, 8 * text.offset)
    first, last = int(at[0]), int(at[-1])
    if last == first:
        return at - first, np.zeros(0, np.uint8)
    return at - first if first else at, np.frombuffer(content, np.uint8, last - first, first)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_JSON = json.JSONDecoder(parse_constant=_no_constant)


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _count(head: dict[str, Any], name: str) -> int:
    number = head.get(name)
    if not _is_count(number):
        raise DataDamaged(f"a batch in the log does not say how many tuples it has ({name})")
    return int(head[name])


class _Arrays:
    """The arrays of a record in order. Sizes are checked before anything is allocated."""

    def __init__(self, view: memoryview, position: int, tuples: int) -> None:
        self.view = view
        self.position = position
        self.tuples = tuples

    def columns(self, heads: Any) -> dict[str, Column]:
        if not isinstance(heads, list):
            raise DataDamaged("a batch in the log does not say which columns it has")
        columns = {}
        for head in heads:
            match head:
                case [str(name), str(kind), int(size), bool(has_nulls)] if name not in columns:
                    columns[name] = self._column(name, kind, size, has_nulls)
                case _:
                    raise DataDamaged("a batch in the log has an invalid column")
        if self.position != len(self.view):
            raise DataDamaged("a batch in the log is longer than it says")
        return columns

    def _column(self, name: str, kind: str, size: int, has_nulls: bool) -> Column:
        if kind in DTYPES:
            return Column(self._take(DTYPES[kind], self.tuples), None, self._nulls(name) if has_nulls else None)
        if kind != TEXT:
            raise DataDamaged(f"a batch in the log has a column {name!r} of unknown kind {kind!r}")
        offsets = self._take(np.dtype("<i8"), self.tuples + 1)
        content = self._take(np.dtype("u1"), size)
        nulls = self._nulls(name) if has_nulls else None
        if offsets[0] != 0 or offsets[-1] != size:
            raise DataDamaged(f"a batch in the log has a column {name!r} whose text does not end where it should")
        valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        missing = 0 if nulls is None else int(nulls.sum())
        buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(content)]
        text = pa.LargeStringArray.from_buffers(self.tuples, buffers[1], buffers[2], buffers[0], missing)
        try:
            text.validate(full=True)
        except pa.ArrowInvalid as problem:
            raise DataDamaged(f"a batch in the log has a column {name!r} that is no text: {problem}") from None
        return Column(None, text, nulls)

    def _nulls(self, name: str) -> NDArray[np.bool_]:
        nulls = self._take(np.dtype("u1"), self.tuples)
        if len(nulls) and nulls.max() > 1:
            raise DataDamaged(f"a batch in the log has a column {name!r} whose nulls are neither 0 nor 1")
        return nulls.view(np.bool_)

    def _take(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        size = dtype.itemsize * count
        end = self.position + size + -size % 8
        if size < 0 or end > len(self.view):
            raise DataDamaged("a batch in the log is shorter than it says")
        array: NDArray[Any] = np.frombuffer(self.view, dtype, count, self.position)
        self.position = end
        return array
