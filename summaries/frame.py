"""The serialised form of a summary: a frame around a payload, and its reader.

    offset  size  field
    0       4     magic "PTSM"
    4       2     format version, little endian, 1
    6       1     n, the length of the kind
    7       n     kind, ASCII
    7+n     8     m, the length of the payload, little endian
    15+n    m     payload
    15+n+m  8     BLAKE2b-64 of everything before

Any damaged byte, and missing or extra bytes at the end, are rejected. Nothing is pickled. A checksum is no signature:
sizes and counts are checked when read, but the payloads of the three kinds based on DataSketches (quantile, distinct,
frequent) go to its reader, which malicious bytes can crash: accept those from your own store only.
"""

import hashlib
import struct

import numpy as np
import numpy.typing as npt

from promising.errors import CorruptSummary

MAGIC = b"PTSM"
VERSION = 1
CHECKSUM = 8
HEAD = struct.Struct("<4sHB")
LENGTH = struct.Struct("<Q")


def checksum(data: bytes) -> bytes:
    """BLAKE2b-64: an accidental change goes undetected with probability 2**-64."""
    return hashlib.blake2b(data, digest_size=CHECKSUM).digest()


def pack(kind: str, payload: bytes) -> bytes:
    name = kind.encode("ascii")
    body = HEAD.pack(MAGIC, VERSION, len(name)) + name + LENGTH.pack(len(payload)) + payload
    return body + checksum(body)


def unpack(data: bytes) -> tuple[str, bytes]:
    """The kind and payload of a frame; `CorruptSummary` with the reason if it is damaged.

    >>> unpack(pack("exact", b"abc"))
    ('exact', b'abc')
    >>> unpack(pack("exact", b"abc")[:-1])
    Traceback (most recent call last):
    promising.errors.CorruptSummary: the frame says 31 bytes, there are 30
    """
    data = bytes(data)
    if len(data) < HEAD.size or data[:4] != MAGIC:
        raise CorruptSummary(f"no summary: {len(data)} bytes that start with {data[:4]!r} instead of {MAGIC!r}")
    _, version, letters = HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSummary(f"format version {version}; this release reads version {VERSION}")
    start = HEAD.size + letters + LENGTH.size
    if len(data) < start:
        raise CorruptSummary(f"the frame ends inside its head: {len(data)} of {start} bytes")
    (size,) = LENGTH.unpack_from(data, start - LENGTH.size)
    if len(data) != start + size + CHECKSUM:
        raise CorruptSummary(f"the frame says {start + size + CHECKSUM} bytes, there are {len(data)}")
    if checksum(data[:-CHECKSUM]) != data[-CHECKSUM:]:
        raise CorruptSummary("checksum mismatch: the bytes were changed after they were written")
    name = data[HEAD.size : HEAD.size + letters]
    if not name.isascii():
        raise CorruptSummary(f"a kind that is not ASCII: {name!r}")
    return name.decode("ascii"), data[start:-CHECKSUM]


class Reader:
    """Reads a payload from the front. Reading too much, or leaving a rest, is `CorruptSummary`."""

    def __init__(self, payload: bytes) -> None:
        self._left = memoryview(payload)

    def raw(self, size: int) -> bytes:
        if not 0 <= size <= len(self._left):
            raise CorruptSummary(f"the payload ends early: {size} bytes wanted, {len(self._left)} left")
        taken, self._left = bytes(self._left[:size]), self._left[size:]
        return taken

    def integer(self) -> int:
        return int.from_bytes(self.raw(8), "little", signed=True)

    def number(self) -> float:
        return float(struct.unpack("<d", self.raw(8))[0])

    def block(self) -> bytes:
        """The next length-prefixed bytes."""
        return self.raw(self.integer())

    def integers(self, size: int) -> npt.NDArray[np.int64]:
        """The next `size` int64 values, as an independent array."""
        return np.frombuffer(self.raw(8 * size), "<i8").astype(np.int64)

    def finish(self) -> None:
        """`CorruptSummary` if bytes are left."""
        if len(self._left):
            raise CorruptSummary(f"{len(self._left)} bytes left over in the payload")


def integers(*values: int) -> bytes:
    """int64 values as `Reader.integer` reads them."""
    return struct.pack(f"<{len(values)}q", *values)


def numbers(*values: float) -> bytes:
    """float64 values as `Reader.number` reads them."""
    return struct.pack(f"<{len(values)}d", *values)


def block(data: bytes) -> bytes:
    """Bytes as `Reader.block` reads them."""
    return integers(len(data)) + data
