"""A file with one tree of arrays: written by a checkpoint, read at a start.

    magic "ptimage\\n" | version u32 | header bytes u64 | file bytes u64 | CRC32C u32     32 bytes, little endian
    header: JSON, padded with spaces to a multiple of 64 bytes from the file's start
    parts:  each an array in C order, padded with zeros to a multiple of 64 bytes

The CRC at the top covers everything before it and the header; the header has the CRC of every part with its padding. So
checksums cover every bit of the file. Part 0 is all `bytes` values, concatenated; the header refers to them by
position, and to arrays by number: `{"$bytes": [first, length]}`, `{"$array": 3}`. Floats without a JSON form are
`{"$float": "<hex of the eight bytes>"}`. A key that starts with `$` gets another one.
"""

import json
import math
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

from promising.errors import DataDamaged, NewerFormat
from promising.index.storage.checksums import crc32c
from promising.index.storage.disk import Disk

Value: TypeAlias = Union["Tree", list["Value"], int, float, str, bytes, bool, NDArray[Any], None]
Tree: TypeAlias = dict[str, Value]

MAGIC = b"ptimage\n"
VERSION = 4
"""In images of format 3 strings have no codes, in those of format 2 zones have no measures either, in those of format 1
producers have no time and no epoch."""
TOP = struct.Struct("<8sIQQI")
ALIGNMENT = 64
PIECE = 1 << 20  # bytes read at a time
READERS = 2  # threads that read one file
KINDS = "biuf"  # of arrays: bool, integers, floats
DTYPE = re.compile(rf"[<>|][{KINDS}]\d{{1,2}}")  # as the header has it


def write_image(disk: Disk, path: Path, tree: Tree) -> int:
    """Write the tree atomically; returns the file's size. Equal trees of equal key order give equal bytes."""
    return disk.write_whole(path, pack_image(tree))


def pack_image(tree: Tree) -> list[Any]:
    writing = _Writing()
    root = writing.encode(tree, "")
    blob = b"".join(writing.blobs)
    parts: list[bytes | memoryview] = []
    sums = []
    total = 0
    for part in (memoryview(blob), *(array.reshape(-1).view(np.uint8).data for array in writing.arrays)):
        filling = bytes(-len(part) % ALIGNMENT)
        sums.append(crc32c(part, filling))
        parts += (part, filling)
        total += len(part) + len(filling)
    header = json.dumps(
        {
            "tree": root,
            "bytes": [len(blob), sums[0]],
            "arrays": [
                [array.dtype.str, list(array.shape), crc] for array, crc in zip(writing.arrays, sums[1:], strict=True)
            ],
        },
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    ).encode()
    header += b" " * (-(TOP.size + len(header)) % ALIGNMENT)
    total += TOP.size + len(header)
    top = TOP.pack(MAGIC, VERSION, len(header), total, 0)[:-4]
    top += crc32c(top, header).to_bytes(4, "little")
    return [top, header, *(part for part in parts if len(part))]


def read_image(disk: Disk, path: Path) -> Tree:
    """The tree, fully checked, of read-only views. Raises DataDamaged, or NewerFormat for a newer release."""
    return unpack_image(path, disk.read(path))


def unpack_image(path: Path | str, given: bytes) -> Tree:
    data = memoryview(given)
    return _Whole(path, data, *_header(path, data, len(data))).tree()


@contextmanager
def restoring(disk: Disk, path: Path, placed: re.Pattern[str]) -> Iterator[Tree]:
    """As `read_image`, but arrays whose position in the tree is `placed` are `Stored`.

    Threads read those directly into place. When the block ends they are complete and checked; or it raises what
    `read_image` does, and their content is undefined. Arrays that are not requested are not read.
    """
    data = memoryview(disk.read(path, 0, PIECE))
    size = disk.size(path)
    if len(data) >= TOP.size and TOP.size + TOP.unpack_from(data)[2] > len(data):
        data = memoryview(disk.read(path, 0, min(TOP.size + TOP.unpack_from(data)[2], size)))
    reading = _Restoring(disk, path, data, *_header(path, data, size), placed)
    try:
        yield reading.tree()
        reading.settle()
    finally:
        reading.close()


def _header(path: Path | str, data: memoryview, size: int) -> tuple[int, dict[str, Any]]:
    """The start of the parts in a file of that size, and its checked header; `data` is the start of the file."""
    if len(data) < TOP.size:
        raise DataDamaged(f"{path} is cut off: {len(data)} bytes are less than the start of an image")
    magic, version, length, total, crc = TOP.unpack_from(data)
    if magic != MAGIC:
        raise DataDamaged(f"{path} is no image: it starts with {bytes(magic)!r}")
    header = data[TOP.size : TOP.size + length]
    if len(header) != length:
        raise DataDamaged(f"{path} is cut off or damaged in its first {TOP.size} bytes: the header is not all there")
    if crc32c(data[: TOP.size - 4], header) != crc:
        raise DataDamaged(f"{path}: the header fails its checksum; nothing of the image can be read")
    if version > VERSION:
        raise NewerFormat(f"{path} is an image of format {version}; this release reads up to {VERSION}")
    if size != total:
        raise DataDamaged(f"{path} has {size} bytes instead of {total}: it is cut off, or something was added")
    with _understood(path):
        return TOP.size + length, json.loads(bytes(header))


@contextmanager
def _understood(path: Path | str) -> Iterator[None]:
    """Reports a header that nobody can have written, although its checksum agrees."""
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as problem:
        raise DataDamaged(f"{path}: the header is not that of an image ({type(problem).__name__}: {problem})") from None


class _Writing:
    """Collects the values stored beside the header, in order."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self.blobs: list[bytes] = []
        self._blob_bytes = 0

    def encode(self, value: Any, where: str) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if isinstance(value, dict):
            return self._tree(value, where)
        if isinstance(value, list):
            return [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, float):
            value = float(value)
            return value if math.isfinite(value) else {"$float": struct.pack("<d", value).hex()}
        if isinstance(value, bytes):
            first = self._blob_bytes
            self.blobs.append(value)
            self._blob_bytes += len(value)
            return {"$bytes": [first, len(value)]}
        if isinstance(value, np.ndarray) and value.dtype.kind in KINDS:
            self.arrays.append(np.asarray(value, order="C"))
            return {"$array": len(self.arrays) - 1}
        kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(f"an image cannot hold {kind} ({where or 'the root'})")

    def _tree(self, tree: dict[Any, Any], where: str) -> dict[str, Any]:
        encoded = {}
        for key, value in tree.items():
            if type(key) is not str:
                raise TypeError(f"a key of an image is a string, not {type(key).__name__} ({where or 'the root'})")
            encoded["$" + key if key.startswith("$") else key] = self.encode(value, _under(where, key))
        return encoded


class _Part(NamedTuple):
    """A range of the file with its checksum, without padding."""

    start: int
    length: int
    crc: int
    what: str

    def check(self, path: Path | str, crc: int) -> None:
        if crc != self.crc:
            raise DataDamaged(f"{path}: {self.what} ({self.length} bytes from byte {self.start}) fails its checksum")


class _Reading(ABC):
    """The tree of a checked header; parts are checked as they are reached."""

    def __init__(self, path: Path | str, start: int, header: dict[str, Any]) -> None:
        self._path = path
        self._arrays = []
        with _understood(path):
            self._root = header["tree"]
            length, crc = header["bytes"]
            self._blob = self._read(_Part(start, length, crc, "its byte strings"))
            start += _filled(length)
            for kind, shape, crc in header["arrays"]:
                if not DTYPE.fullmatch(kind) or min(shape, default=0) < 0:
                    raise ValueError(f"an array of {kind} and shape {shape}")
                dtype = np.dtype(kind)
                self._arrays.append((dtype, shape, start, crc))
                start += _filled(dtype.itemsize * math.prod(shape))

    def tree(self) -> Tree:
        with _understood(self._path):
            tree = self._decode(self._root, "")
            if not isinstance(tree, dict):
                raise ValueError("no tree")
            return tree

    @abstractmethod
    def _fetch(self, start: int, length: int) -> memoryview:
        """`length` bytes of the file, or fewer at its end."""

    def _read(self, part: _Part) -> memoryview:
        data = self._fetch(part.start, _filled(part.length))
        part.check(self._path, crc32c(data))
        return data[: part.length]

    def _array(self, dtype: np.dtype[Any], shape: list[int], part: _Part) -> Any:
        return np.frombuffer(self._read(part), dtype).reshape(shape)

    def _decode(self, value: Any, where: str) -> Value:
        if isinstance(value, list):
            return [self._decode(item, f"{where}[{i}]") for i, item in enumerate(value)]
        if not isinstance(value, dict):
            known: Value = value
            return known
        if "$array" in value:
            dtype, shape, start, crc = self._arrays[value["$array"]]
            array: Value = self._array(dtype, shape, _Part(start, dtype.itemsize * math.prod(shape), crc, where))
            return array
        if "$bytes" in value:
            first, length = value["$bytes"]
            return bytes(self._blob[first : first + length])
        if "$float" in value:
            (number,) = struct.unpack("<d", bytes.fromhex(value["$float"]))
            return float(number)
        return {key.removeprefix("$"): self._decode(item, _under(where, key)) for key, item in value.items()}


class _Whole(_Reading):
    """Of a file in memory."""

    def __init__(self, path: Path | str, data: memoryview, start: int, header: dict[str, Any]) -> None:
        self._data = data
        super().__init__(path, start, header)

    def _fetch(self, start: int, length: int) -> memoryview:
        return self._data[start : start + length]


class _Restoring(_Reading):
    """Of a file on disk; `close` it."""

    def __init__(
        self, disk: Disk, path: Path, data: memoryview, start: int, header: dict[str, Any], placed: re.Pattern[str]
    ) -> None:
        self._disk, self._file = disk, path
        self._data, self._first = data, 0  # the last read, and its offset: parts are read in order
        self._placed = placed
        self._readers = ThreadPoolExecutor(READERS, "promising-read")
        self._coming: list[Future[None]] = []
        super().__init__(path, start, header)

    def settle(self) -> None:
        """Wait for all pending reads; raises the first error."""
        for each in self._coming:
            each.result()

    def close(self) -> None:
        self._readers.shutdown(cancel_futures=True)

    def read_to(self, part: _Part, places: Sequence[NDArray[Any]]) -> None:
        """Start filling these places with a part."""
        self._coming.append(self._readers.submit(self._fill, part, places))

    def _fill(self, part: _Part, places: Sequence[NDArray[Any]]) -> None:
        at, crc = part.start, 0
        for place in places:
            flat = place.reshape(-1).view(np.uint8).data
            for first in range(0, len(flat), PIECE):
                piece = flat[first : first + PIECE]
                got = self._disk.read_into(self._file, at, piece)
                crc = crc32c(piece[:got], since=crc)  # while it is in the processor's cache
                at += got
        filling = self._disk.read(self._file, at, _filled(part.length) - part.length)
        part.check(self._path, crc32c(filling, since=crc))

    def _fetch(self, start: int, length: int) -> memoryview:
        if start < self._first or start + length > self._first + len(self._data):
            self._first, self._data = start, memoryview(self._disk.read(self._file, start, max(length, PIECE)))
        return self._data[start - self._first : start - self._first + length]

    def _array(self, dtype: np.dtype[Any], shape: list[int], part: _Part) -> Any:
        if self._placed.fullmatch(part.what):
            return _Stored(self, part, shape)
        return super()._array(dtype, shape, part)


class _Stored:
    """An array that is still in the file."""

    def __init__(self, file: _Restoring, part: _Part, shape: list[int]) -> None:
        self._file = file
        self._part = part
        self._shape = shape

    def __len__(self) -> int:
        return self._shape[0]

    def into(self, places: Sequence[NDArray[Any]]) -> None:
        assert sum(place.nbytes for place in places) == self._part.length, f"{self._part.what} does not fit"
        self._file.read_to(self._part, places)


def _under(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _filled(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
