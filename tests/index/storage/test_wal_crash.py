"""Faults, kills and losses of power at any call: a log gives back a prefix of what was appended, with all that was
waited for, and nothing else."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import StorageError
from tests.index.storage.flaky import Crash, FlakyDisk
from tests.index.storage.logs import KIND, opened, payload
from tests.tiers import examples

SEGMENT = 400


class Checked:
    """A log on a flaky disk, beside what it must hold."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.disk = FlakyDisk(seed)
        self.start = 1
        self.appended: dict[int, bytes] = {}
        self.sure = 0  # the newest record that was waited for
        self.doubtful: bytes | None = None  # an append that ended in a crash
        self.count = 0
        self.wal, _ = opened(folder, self.disk, segment_bytes=SEGMENT)

    def append(self, size: int) -> None:
        self.count += 1
        content = payload(self.count, size)
        self.doubtful = content
        try:
            lsn = self.wal.append(KIND, [content])
        except StorageError:
            self.doubtful = None
            raise
        self.doubtful = None
        assert lsn == max(self.appended, default=self.start - 1) + 1
        self.appended[lsn] = content

    def wait(self) -> None:
        target = self.wal.last
        self.wal.wait(target)
        self.sure = max(self.sure, target)
        assert self.wal.durable >= target

    def trim(self) -> None:
        """As after a checkpoint of all that is durable."""
        self.start = self.sure + 1
        self.appended = {lsn: content for lsn, content in self.appended.items() if lsn >= self.start}
        self.wal.trim(self.start)

    def close(self) -> None:
        self.wal.close()
        self.sure = max(self.sure, self.wal.last)

    def again(self, end: Callable[[], None]) -> None:
        """The process ends in this way, and the next one reads the log."""
        end()
        try:
            self.wal, records = opened(self.folder, self.disk, start=self.start, segment_bytes=SEGMENT)
        except StorageError:
            self.disk.mend()
            self.wal, records = opened(self.folder, self.disk, start=self.start, segment_bytes=SEGMENT)
        assert self.wal.damages == []
        try:
            self.wal.sync()
        except StorageError:
            self.disk.mend()
            self.wal.sync()
        wanted = dict(self.appended)
        if self.doubtful is not None:
            wanted[max(self.appended, default=self.start - 1) + 1] = self.doubtful
        assert records.items() <= wanted.items()
        assert list(records) == list(range(self.start, self.start + len(records)))  # a prefix
        assert self.wal.last == self.wal.durable == self.start + len(records) - 1 >= self.sure
        self.appended, self.doubtful = records, None
        self.sure = self.wal.last


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 150)),
    st.tuples(st.just("append"), st.integers(0, 150)),
    st.tuples(st.sampled_from(["wait", "wait", "trim", "kill", "lose", "mend", "close"]), st.just(0)),
    st.tuples(st.just("fail"), st.integers(1, 12)),
    st.tuples(st.just("break"), st.integers(1, 12)),
    st.tuples(st.just("crash"), st.integers(1, 12)),
)


@settings(max_examples=examples(300))
@given(st.lists(STEPS, max_size=40), st.integers(0, 1 << 30), st.sampled_from([errno.ENOSPC, errno.EIO]))
def test_whatever_happens(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], seed: int, code: int):
    log = Checked(tmp_path_factory.mktemp("log"), seed)
    ends = {"kill": log.disk.kill, "lose": log.disk.lose}
    for step, number in [*steps, ("mend", 0), ("append", 9), ("wait", 0), ("lose", 0)]:
        try:
            match step:
                case "append":
                    log.append(number)
                case "wait" | "trim" | "close":
                    getattr(log, step)()
                case "kill" | "lose":
                    log.again(ends[step])
                case "mend":
                    log.disk.mend()
                case "fail" | "break":
                    lasting = step == "break"
                    log.disk.fail_at(len(log.disk.calls) + number, code, lasting=lasting, short=seed % 2 == 0)
                case "crash":
                    log.disk.crash_at(len(log.disk.calls) + number)
        except StorageError:
            pass
        except Crash:
            log.again(log.disk.lose if number % 2 else log.disk.kill)
    log.disk.kill()


def scripted(log: Checked) -> None:
    """Records, new segments, a checkpoint, a stop and a start; what fails is tried again once the disk is well."""

    def tried(act: Callable[[], None]) -> None:
        try:
            act()
        except StorageError:
            log.disk.mend()
            act()

    for size in (10, 100, 200, 200, 30):
        tried(lambda: log.append(size))  # noqa: B023  # called at once
        tried(log.wait)
    tried(log.trim)
    tried(log.close)
    tried(lambda: log.again(log.disk.kill))
    for size in (60, 300, 5):
        tried(lambda: log.append(size))  # noqa: B023
    tried(log.wait)
    tried(log.close)


def calls_of(folder: Path) -> list[str]:
    log = Checked(folder, 0)
    scripted(log)
    return log.disk.calls


@pytest.mark.parametrize("way", ["ENOSPC", "EIO", "short", "full", "broken", "killed", "power"])
def test_a_fault_at_every_call(tmp_path: Path, way: str):
    calls = calls_of(tmp_path / "sound")
    assert {"create", "append", "write", "sync", "rename", "unlink", "sync_dir", "mkdir"} <= set(calls)
    log = Checked(tmp_path / "new", 0)
    opening = len(log.disk.calls)
    for number in range(opening + 1, len(calls) + 1):
        log = Checked(tmp_path / str(number), number)
        disk = log.disk
        match way:
            case "ENOSPC" | "EIO":
                disk.fail_at(number, getattr(errno, way))
            case "short":
                disk.fail_at(number, errno.ENOSPC, short=True)
            case "full" | "broken":
                disk.fail_at(number, errno.ENOSPC if way == "full" else errno.EIO, lasting=True, short=True)
            case _:
                disk.crash_at(number)
        try:
            scripted(log)
        except Crash:
            log.again(disk.kill if way == "killed" else disk.lose)
            log.append(7)
            log.wait()
        log.again(disk.lose)
        disk.kill()
