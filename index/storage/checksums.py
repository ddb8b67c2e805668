"""CRC32C, the checksum of everything on disk."""

from collections.abc import Iterable
from typing import TypeAlias

from crc32c import crc32c as _crc32c

Bytes: TypeAlias = bytes | bytearray | memoryview  # contiguous; of an array, `array.data`


def crc32c(*parts: Bytes, since: int = 0) -> int:
    """The checksum of the concatenated parts, continuing from `since`. Large parts are read without the GIL.

    >>> hex(crc32c(b"1234", b"56789"))
    '0xe3069283'
    """
    value = since
    for part in parts:
        value = _crc32c(part, value)
    return value


def total(parts: Iterable[Bytes]) -> int:
    return sum(memoryview(part).nbytes for part in parts)
