"""Many threads on one log: one sync for all that wait, an error for all that wait, appends in the meantime."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from promising.errors import StorageError, StorageFull, StorageUnavailable
from promising.index.storage.disk import Disk, Handle, translated
from promising.index.storage.wal import Wal
from tests.index.storage.logs import KIND, opened, payload

LONG = 120.0  # seconds; nothing waits that long unless it waits for ever


class GatedDisk(Disk):
    """A sync of a segment that is in use begins, says so, and ends when it is let."""

    def __init__(self) -> None:
        self.gated = False
        self.syncs = 0
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.failing: int | None = None

    def sync(self, handle: Handle) -> None:
        if self.gated and not handle.path.name.endswith(".tmp"):
            self.syncs += 1
            self.begun.release()
            assert self.let.acquire(timeout=LONG)
            with translated(handle.path):
                if self.failing:
                    raise OSError(self.failing, os.strerror(self.failing))
        super().sync(handle)


class Threads:
    """Threads and what came of them."""

    def __init__(self) -> None:
        self.started: list[threading.Thread] = []
        self.errors: list[StorageError] = []
        self.done: list[int] = []

    def start(self, act: Callable[[int], object], number: int) -> None:
        def run() -> None:
            try:
                act(number)
                self.done.append(number)
            except StorageError as problem:
                self.errors.append(problem)

        self.started.append(threading.Thread(target=run, name=f"test {number}"))
        self.started[-1].start()

    def join(self) -> None:
        for thread in self.started:
            thread.join(LONG)
            assert not thread.is_alive()


@pytest.fixture
def disk() -> GatedDisk:
    return GatedDisk()


@pytest.fixture
def wal(tmp_path: Path, disk: GatedDisk) -> Iterator[Wal]:
    wal, _ = opened(tmp_path, disk)
    wal.append(KIND, [payload(1)])
    wal.sync()
    disk.gated = True
    yield wal
    disk.gated = False
    wal.close()


def waiting(wal: Wal, count: int) -> None:
    """Return when so many threads sleep until a sync is over."""
    for _ in range(int(LONG * 1000)):
        with wal._lock:
            if len(wal._lock._waiters) == count:  # type: ignore[attr-defined]  # no other way to see a thread asleep
                return
        threading.Event().wait(0.001)
    raise AssertionError(f"never {count} threads waiting")


def test_one_sync_serves_all_that_wait(wal: Wal, disk: GatedDisk):
    threads = Threads()
    threads.start(wal.wait, wal.append(KIND, [b"leader"]))
    assert disk.begun.acquire(timeout=LONG)
    for _ in range(30):  # they come too late for the sync that has begun, and share the next one
        threads.start(wal.wait, wal.append(KIND, [b"follower"]))
    waiting(wal, 30)
    assert wal.durable == 1 and threads.done == []
    disk.let.release()
    assert disk.begun.acquire(timeout=LONG)
    assert wal.durable == 2
    disk.let.release()
    threads.join()
    assert disk.syncs == 2 and wal.durable == 32 and sorted(threads.done) == list(range(2, 33))


def test_who_is_covered_by_a_sync_does_not_wait_for_the_next(wal: Wal, disk: GatedDisk):
    threads = Threads()
    first, second = wal.append(KIND, [b""]), wal.append(KIND, [b""])
    threads.start(wal.wait, second)
    assert disk.begun.acquire(timeout=LONG)
    threads.start(wal.wait, first)
    waiting(wal, 1)
    disk.let.release()
    threads.join()
    assert disk.syncs == 1 and wal.durable == second


def test_a_sync_does_not_hold_up_appends(wal: Wal, disk: GatedDisk):
    threads = Threads()
    threads.start(wal.wait, wal.append(KIND, [b""]))
    assert disk.begun.acquire(timeout=LONG)
    last = [wal.append(KIND, [payload(number)]) for number in range(20)][-1]
    disk.let.release()
    threads.join()
    assert wal.durable == 2 and wal.last == last == 22


@pytest.mark.parametrize("code, error", [(errno.ENOSPC, StorageFull), (errno.EIO, StorageUnavailable)])
def test_a_failed_sync_fails_all_that_wait_and_the_next_call_heals(
    tmp_path: Path, wal: Wal, disk: GatedDisk, code: int, error: type[StorageError]
):
    threads = Threads()
    threads.start(wal.wait, wal.append(KIND, [payload(2)]))
    assert disk.begun.acquire(timeout=LONG)
    for number in range(3, 10):
        threads.start(wal.wait, wal.append(KIND, [payload(number)]))
    waiting(wal, 7)
    disk.failing = code
    disk.let.release()
    threads.join()
    assert [type(problem) for problem in threads.errors] == [error] * 8 and threads.done == []
    assert len({str(problem) for problem in threads.errors}) == 1
    assert wal.durable == 1 and disk.syncs == 1
    disk.failing = None
    wal.wait(5)
    assert wal.durable == 9 and wal.segments == [1, 2]
    assert opened(tmp_path)[1] == {lsn: payload(lsn) for lsn in range(1, 10)}


def test_an_append_that_needs_a_new_segment_waits_for_the_sync(tmp_path: Path, disk: GatedDisk):
    wal, _ = opened(tmp_path, disk, segment_bytes=200)
    wal.append(KIND, [payload(100)])
    disk.gated = True
    threads = Threads()
    threads.start(wal.wait, 1)
    assert disk.begun.acquire(timeout=LONG)
    threads.start(lambda number: wal.append(KIND, [payload(number)]), 101)
    waiting(wal, 1)
    assert wal.segments == [1]
    disk.let.release()
    threads.join()
    assert wal.segments == [1, 2] and disk.syncs == 1
    disk.gated = False
    wal.close()


def test_close_waits_for_a_sync_that_runs(tmp_path: Path, disk: GatedDisk):
    wal, _ = opened(tmp_path, disk)
    wal.append(KIND, [payload(1)])
    disk.gated = True
    threads = Threads()
    threads.start(wal.wait, 1)
    assert disk.begun.acquire(timeout=LONG)
    threads.start(lambda _: wal.close(), 0)
    waiting(wal, 1)
    disk.let.release()
    threads.join()
    assert sorted(threads.done) == [0, 1] and wal.durable == 1


def test_close_leaves_a_file_open_for_a_sync_that_began_meanwhile(
    tmp_path: Path, disk: GatedDisk, monkeypatch: pytest.MonkeyPatch
):
    wal, _ = opened(tmp_path, disk)
    wal.append(KIND, [payload(1)])
    disk.gated = True
    threads = Threads()
    threads.start(wal.wait, 1)
    assert disk.begun.acquire(timeout=LONG)
    monkeypatch.setattr(wal, "sync", lambda: None)  # as if all had been durable just before
    threads.start(lambda _: wal.close(), 0)
    waiting(wal, 1)
    disk.let.release()
    threads.join()
    assert sorted(threads.done) == [0, 1] and threads.errors == []


def test_threads_that_append_wait_and_trim_lose_nothing(tmp_path: Path):
    wal, _ = opened(tmp_path, segment_bytes=2000)
    taken: dict[int, bytes] = {}

    def act(number: int) -> None:
        for turn in range(30):
            content = payload(number * 100 + turn, 20 + turn)
            lsn = wal.append(KIND, [content])
            assert taken.setdefault(lsn, content) is content
            wal.wait(lsn)
            assert wal.durable >= lsn
            if turn % 10 == 9:
                wal.trim(100)

    threads = Threads()
    for number in range(8):
        threads.start(act, number)
    threads.join()
    assert threads.errors == [] and sorted(taken) == list(range(1, 241))
    assert wal.syncs < 240 + len(wal.segments) * 2
    wal.close()
    assert opened(tmp_path, start=100)[1] == {lsn: taken[lsn] for lsn in range(100, 241)}
