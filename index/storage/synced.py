"""The mark of a log: the newest record known to be synced, so that a log that was cut behind its back is detected.

    magic 8 | version 4 | zero 4 | lsn 8 | crc of these 4

Little-endian, overwritten in place after each sync of the log. It is synced itself when a segment is full and when the
log is closed: after a power failure it may be older than the log, but it never says more than what was synced.
"""

import struct
from contextlib import suppress
from pathlib import Path

from promising.errors import StorageError
from promising.index.storage.checksums import crc32c
from promising.index.storage.disk import Disk, Handle

NAME = "synced"
MAGIC = b"PROMSYN\n"
VERSION = 1
_MARK = struct.Struct("<8sIIQ")
_CRC = struct.Struct("<I")


class SyncedMark:
    """Writes the mark of a log. Failures are harmless: an older mark detects less."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._path = folder / NAME
        self._handle: Handle | None = None
        self._lsn = 0

    def read(self) -> int:
        """The newest record known to be synced; 0 if there is no readable mark."""
        with suppress(StorageError):
            if self._disk.exists(self._path):
                self._lsn = unpack(self._disk.read(self._path))
        return self._lsn

    def write(self, lsn: int, *, sync: bool = False) -> None:
        if lsn > self._lsn or sync:
            with suppress(StorageError):
                if self._handle is None:
                    self._handle = self._disk.overwritable(self._path)
                self._lsn = max(lsn, self._lsn)
                self._disk.overwrite(self._handle, pack(self._lsn), sync=sync)

    def close(self) -> None:
        if self._handle is not None:
            self._disk.close(self._handle)
            self._handle = None


def pack(lsn: int) -> bytes:
    mark = _MARK.pack(MAGIC, VERSION, 0, lsn)
    return mark + _CRC.pack(crc32c(mark))


def unpack(content: bytes) -> int:
    """The record; 0 for anything but a mark of this format."""
    mark, crc = content[: _MARK.size], content[_MARK.size :]
    if len(crc) != _CRC.size or _CRC.unpack(crc)[0] != crc32c(mark):
        return 0
    magic, version, _, lsn = _MARK.unpack(mark)
    return int(lsn) if (magic, version) == (MAGIC, VERSION) else 0
