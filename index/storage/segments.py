"""The format of a log segment: a header, then records, each with its number and checksums.

    segment  magic 8 | version 4 | salt 4 | first lsn 8 | zero 4 | crc of these 4 | record...
    record   lsn 8 | length 8 | kind 4 | salt 4 | crc of payload and padding 4 | crc of these 4 | payload | padding to 8

Numbers are little-endian. Records of a segment are numbered without gaps from its first lsn on. The salt is random per
segment: where a damaged record hides the start of the next one, payload bytes cannot be mistaken for it.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from promising.errors import NewerFormat
from promising.index.storage.checksums import Bytes, crc32c

MAGIC = b"PROMWAL\n"
VERSION = 2  # records of format 1 have no time and no epoch
SEAL = (1 << 32) - 1  # kind of an empty record that seals a segment: another one follows, from this lsn on

_SEGMENT = struct.Struct("<8sIIQI")
_RECORD = struct.Struct("<QQIII")
_CRC = struct.Struct("<I")
HEADER = 32  # bytes, of both


class Entry(NamedTuple):
    """An intact record from `start` to `end`."""

    lsn: int
    kind: int
    payload: memoryview
    start: int
    end: int


def name_of(first: int) -> str:
    return f"{first:016x}.wal"


def first_of(name: str) -> int | None:
    """The first record of a segment by its file name; None for other names."""
    try:
        first = int(name[:16], 16)
    except ValueError:
        return None
    return first if name == name_of(first) else None


def segment_header(first: int, salt: int) -> bytes:
    return _with_crc(_SEGMENT.pack(MAGIC, VERSION, salt, first, 0))


def record_header(lsn: int, kind: int, length: int, salt: int, crc: int) -> bytes:
    return _with_crc(_RECORD.pack(lsn, length, kind, salt, crc))


def padded(length: int) -> int:
    return (length + 7) & ~7


def _with_crc(header: bytes) -> bytes:
    return header + _CRC.pack(crc32c(header))


class Segment:
    """The content of one segment file. `problem` describes a damaged header."""

    def __init__(self, path: str, first: int, content: Bytes) -> None:
        self.content = memoryview(content)
        self.problem: str | None = None
        self._salt: int | None = None
        header = self.content[:HEADER]
        if len(header) < HEADER or _CRC.unpack(header[-4:])[0] != crc32c(header[:-4]):
            self.problem = "the header fails its checksum"
        else:
            magic, version, self._salt, lsn, _ = _SEGMENT.unpack(header[:-4])
            if magic != MAGIC:
                self.problem = "it is no segment of a log"
            elif version > VERSION:
                raise NewerFormat(f"{path} is of format {version}, and this release reads up to {VERSION}; upgrade")
            elif lsn != first:
                self.problem = f"it starts with record {lsn}, not as its name says"

    @property
    def salt(self) -> int:
        return self._salt or 0

    def at(self, position: int, least: int) -> Entry | str:
        """The intact record at a position with an lsn of at least `least`; or why there is none."""
        header = self.content[position : position + HEADER]
        if len(header) < HEADER:
            return "the file ends within a record's header"
        lsn, length, kind, salt, crc = _RECORD.unpack(header[:-4])
        if _CRC.unpack(header[-4:])[0] != crc32c(header[:-4]):
            return "a record's header fails its checksum"
        if lsn < least or (self._salt is not None and salt != self._salt):
            return "a record is out of place"
        start = position + HEADER
        end = start + padded(length)
        if end > len(self.content):
            return "the file ends within a record"
        if crc32c(self.content[start:end]) != crc:
            return "a record fails its checksum"
        if self._salt is None:  # the segment's header is lost: use this one
            self._salt = salt
        return Entry(lsn, kind, self.content[start : start + length], position, end)

    def after(self, position: int, least: int) -> Entry | None:
        """The first intact record after a position with an lsn of at least `least`."""
        for candidate in self._candidates(position + 8, least):
            entry = self.at(candidate, least)
            if not isinstance(entry, str):
                return entry
        return None

    def _candidates(self, position: int, least: int) -> Iterator[int]:
        """Where a record may start: positions with a possible lsn, length and salt."""
        words = np.frombuffer(self.content, np.dtype("<u8"), len(self.content) // 8)[position // 8 :]
        if len(words) < HEADER // 8:
            return
        lsn, length, kind = words[:-3], words[1:-2], words[2:-1]
        most = least + len(self.content) // HEADER  # the segment cannot have more records
        fits = (lsn >= least) & (lsn <= most) & (length <= len(self.content))
        if self._salt is not None:
            fits &= (kind >> np.uint64(32)) == self._salt
        for at in np.flatnonzero(fits):
            yield position + 8 * int(at)
