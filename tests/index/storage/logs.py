"""Logs for tests, and what is in them."""

from pathlib import Path

from promising.index.storage.disk import Disk, Handle
from promising.index.storage.synced import NAME
from promising.index.storage.wal import Wal

KIND = 7


class QuickDisk(Disk):
    """For tests in which the power stays on: nothing is waited for."""

    def sync(self, handle: Handle) -> None:
        pass

    def sync_dir(self, path: Path) -> None:
        pass


def payload(number: int, size: int | None = None) -> bytes:
    """Some bytes, others for each number; as many as the number unless told."""
    return bytes((number * 31 + i) % 251 for i in range(number if size is None else size))


def opened(
    folder: Path, disk: Disk | None = None, *, start: int = 1, segment_bytes: int = 1 << 20, relaxed: bool = False
) -> tuple[Wal, dict[int, bytes]]:
    """A log in the folder, and the records that were in it."""
    aside = folder / "aside"
    wal = Wal(disk or QuickDisk(), folder / "wal", aside=aside, segment_bytes=segment_bytes, relaxed=relaxed)
    records = list(wal.recover(start))
    assert [record.lsn for record in records] == sorted({record.lsn for record in records})
    assert all(record.kind == KIND for record in records)
    return wal, {record.lsn: bytes(record.payload) for record in records}


def filled(folder: Path, count: int, *, segment_bytes: int = 1 << 20) -> dict[int, bytes]:
    """A log of so many records in the folder, closed; and what is in it."""
    wal, there = opened(folder, segment_bytes=segment_bytes)
    for number in range(wal.last + 1, wal.last + count + 1):
        there[wal.append(KIND, [payload(number)])] = payload(number)
    wal.close()
    return there


def files(folder: Path) -> list[Path]:
    """All but the mark of what was synced."""
    return sorted(path for path in (folder / "wal").iterdir() if path.name != NAME)


def unmarked(folder: Path) -> None:
    """As if nothing of the log were known to be synced: killed at its first sync, or of an older release."""
    (folder / "wal" / NAME).unlink()
