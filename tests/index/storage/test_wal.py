"""The log: what is appended comes back; an error leaves it as it was, and it goes on when the disk does."""

import errno
from pathlib import Path

import numpy as np
import pytest

from promising.errors import StorageFull, StorageUnavailable
from promising.index.storage.disk import Disk
from promising.index.storage.segments import first_of, name_of
from promising.index.storage.wal import Record, Wal
from tests.index.storage.flaky import Crash, FlakyDisk
from tests.index.storage.logs import KIND, files, filled, opened, payload


def test_a_new_log_is_empty(tmp_path: Path):
    wal, records = opened(tmp_path)
    assert records == {} and wal.last == wal.durable == 0 and wal.segments == []
    assert wal.cut is None and wal.damages == []
    wal.close()
    assert files(tmp_path) == []


def test_records_come_back_as_they_were_appended(tmp_path: Path):
    wal, _ = opened(tmp_path)
    assert wal.append(3, [b"ab", memoryview(b"c"), bytearray(b"d"), np.arange(2).data]) == 1
    assert wal.append(4, []) == 2
    assert (wal.last, wal.durable) == (2, 0)
    wal.wait(1)
    assert wal.durable == 2
    wal.close()
    again = Wal(Disk(), tmp_path / "wal", aside=tmp_path / "aside")
    assert list(again.recover(1)) == [
        Record(1, 3, memoryview(b"abcd" + np.arange(2).tobytes())),
        Record(2, 4, memoryview(b"")),
    ]
    assert again.cut is None and again.damages == [] and (again.last, again.durable) == (2, 0)
    again.sync()  # it was on the medium, but nobody could tell
    assert again.durable == 2
    again.close()


def test_payloads_are_aligned_for_arrays(tmp_path: Path):
    filled(tmp_path, 30)
    wal = Wal(Disk(), tmp_path / "wal", aside=tmp_path / "aside")
    for record in wal.recover(2):
        assert np.frombuffer(record.payload, np.uint8).ctypes.data % 8 == 0


def test_what_was_appended_may_be_changed_afterwards(tmp_path: Path):
    flaky = FlakyDisk()
    wal, _ = opened(tmp_path, flaky)
    array = np.arange(5)
    wal.append(KIND, [array.data])
    array[:] = 0
    flaky.fail_next(errno.EIO)
    with pytest.raises(StorageUnavailable):
        wal.sync()
    wal.close()  # heals, from what it has kept
    assert opened(tmp_path)[1] == {1: np.arange(5).tobytes()}


def test_a_log_goes_on_where_it_was(tmp_path: Path):
    for _ in range(4):
        filled(tmp_path, 3)
    wal, records = opened(tmp_path)
    assert records == {lsn: payload(lsn) for lsn in range(1, 13)} and wal.segments == [1]
    assert opened(tmp_path, start=6)[1] == {lsn: payload(lsn) for lsn in range(6, 13)}


def test_to_append_before_it_was_read_is_a_mistake(tmp_path: Path):
    wal = Wal(Disk(), tmp_path / "wal", aside=tmp_path / "aside")
    with pytest.raises(AssertionError, match="recover first"):
        wal.append(KIND, [])
    with pytest.raises(AssertionError, match="recover first"):
        wal.trim(1)


def test_segments_are_left_when_they_are_full(tmp_path: Path):
    there = filled(tmp_path, 40, segment_bytes=300)
    assert len(files(tmp_path)) > 5
    assert all(path.stat().st_size <= 300 + 32 for path in files(tmp_path))  # and the seal
    wal, records = opened(tmp_path)
    assert records == there and wal.segments == [first_of(path.name) for path in files(tmp_path)]


def test_a_record_larger_than_a_segment_has_one_of_its_own(tmp_path: Path):
    wal, _ = opened(tmp_path, segment_bytes=100)
    for number in (1, 500, 2, 600, 700):
        wal.append(KIND, [payload(number)])
    wal.close()
    assert wal.segments == [1, 2, 3, 4, 5]
    assert list(opened(tmp_path)[1].values()) == [payload(number) for number in (1, 500, 2, 600, 700)]


def test_names_of_segments():
    assert name_of(255) == "00000000000000ff.wal" and first_of("00000000000000ff.wal") == 255
    for other in ("00000000000000FF.wal", "ff.wal", "00000000000000ff.tmp", "readme", "0x000000000000ff.wal"):
        assert first_of(other) is None


def test_what_else_lies_in_the_folder_is_left_alone_but_for_what_a_crash_left(tmp_path: Path):
    filled(tmp_path, 3)
    (tmp_path / "wal" / "notes").write_text("mine")
    (tmp_path / "wal" / (name_of(4) + ".tmp")).write_bytes(b"half a segm")
    assert len(opened(tmp_path)[1]) == 3
    assert [path.name for path in files(tmp_path)] == [name_of(1), "notes"]


def test_trim_removes_what_is_not_needed_and_never_the_newest(tmp_path: Path):
    there = filled(tmp_path, 40, segment_bytes=300)
    wal, _ = opened(tmp_path, segment_bytes=300)
    before = wal.segments
    wal.trim(before[3])
    assert wal.segments == before[3:] == [first_of(path.name) for path in files(tmp_path)]
    wal.trim(before[4] - 1)
    assert wal.segments == before[3:]
    wal.trim(1000)
    assert wal.segments == before[-1:]
    assert wal.append(KIND, [payload(41)]) == 41
    wal.close()
    wal, records = opened(tmp_path, start=before[-1])
    assert records == {lsn: there.get(lsn, payload(lsn)) for lsn in range(before[-1], 42)} and wal.damages == []


def test_trim_that_fails_goes_on_the_next_time(tmp_path: Path):
    filled(tmp_path, 40, segment_bytes=300)
    flaky = FlakyDisk()
    wal, _ = opened(tmp_path, flaky)
    before = wal.segments
    flaky.fail_at(len(flaky.calls) + 2, errno.EIO)
    with pytest.raises(StorageUnavailable):
        wal.trim(1000)
    assert wal.segments == before[1:] == [first_of(path.name) for path in files(tmp_path)]
    wal.trim(1000)
    assert wal.segments == before[-1:]


def test_bytes_since(tmp_path: Path):
    wal, _ = opened(tmp_path, segment_bytes=6400)
    for _ in range(100):
        wal.append(KIND, [payload(0, 480)])
    size = 512
    for lsn in (0, 1, 40, 99, 100):
        assert wal.bytes_since(lsn) == size * (100 - lsn)
    wal.trim(50)
    assert wal.bytes_since(60) == size * 40
    assert size * 51 >= wal.bytes_since(10) >= size * 50  # no more is known
    assert wal.bytes_written == size * 100
    wal.close()
    wal, _ = opened(tmp_path, start=91, segment_bytes=6400)
    assert wal.bytes_since(90) == size * 10 and wal.bytes_since(95) == size * 5 and wal.bytes_written == 0


def test_a_relaxed_log_does_not_wait_until_it_is_told_to_sync(tmp_path: Path):
    wal, _ = opened(tmp_path, relaxed=True)
    wal.wait(wal.append(KIND, [b"a"]))
    syncs = wal.syncs
    assert wal.durable == 0
    wal.sync()
    assert wal.durable == 1 and wal.syncs == syncs + 1 and wal.sync_seconds > 0
    wal.close()


def test_to_wait_for_what_is_durable_costs_nothing(tmp_path: Path):
    flaky = FlakyDisk()
    wal, _ = opened(tmp_path, flaky)
    for _ in range(5):
        wal.append(KIND, [b"a"])
    wal.wait(3)
    calls = len(flaky.calls)
    for lsn in (0, 3, 5, 99):
        wal.wait(lsn)
    wal.sync()
    assert len(flaky.calls) == calls
    wal.close()
    wal.close()
    assert len(flaky.calls) == calls


def test_a_checkpoint_newer_than_an_empty_log_or_as_new(tmp_path: Path):
    wal, _ = opened(tmp_path, start=100)
    assert wal.damages == [] and wal.last == wal.durable == 99
    assert wal.append(KIND, [b"a"]) == 100
    wal.close()
    wal, records = opened(tmp_path, start=101)
    assert records == {} and wal.damages == [] and wal.last == 100 and wal.append(KIND, [b"b"]) == 101
    wal.close()
    assert opened(tmp_path, start=100)[1] == {100: b"a", 101: b"b"}


# --- errors ---


def lasting(flaky: FlakyDisk, code: int) -> None:
    flaky.fail_next(code, lasting=True, short=True)


@pytest.mark.parametrize("code, error", [(errno.ENOSPC, StorageFull), (errno.EIO, StorageUnavailable)])
@pytest.mark.parametrize("before", [0, 3])
def test_a_disk_that_fails_for_a_while(tmp_path: Path, code: int, error: type[Exception], before: int):
    """Nothing is acknowledged meanwhile, nothing is lost, and nothing that failed is there."""
    flaky = FlakyDisk(seed=before)
    wal, _ = opened(tmp_path, flaky)
    there = {wal.append(KIND, [payload(number)]): payload(number) for number in range(before)}
    lasting(flaky, code)
    for _ in range(3):
        with pytest.raises(error):
            wal.append(KIND, [b"refused" * 9])
        if before:
            with pytest.raises(error):
                wal.wait(before)
    assert (wal.last, wal.durable) == (before, 0)
    flaky.mend()
    there[wal.append(KIND, [b"taken"])] = b"taken"
    wal.wait(before + 1)
    flaky.lose()
    wal, records = opened(tmp_path)
    assert records == there and list(records) == list(range(1, before + 2)) and wal.damages == []


def test_a_failed_append_leaves_no_trace(tmp_path: Path):
    flaky = FlakyDisk(seed=3)
    wal, _ = opened(tmp_path, flaky)
    wal.append(KIND, [b"one"])
    size = files(tmp_path)[0].stat().st_size
    flaky.fail_next(short=True)
    with pytest.raises(StorageFull):
        wal.append(KIND, [b"two" * 50])
    assert flaky.calls[-2:] == ["write", "truncate"] and files(tmp_path)[0].stat().st_size == size
    assert wal.append(KIND, [b"three"]) == 2
    flaky.kill()
    wal, records = opened(tmp_path)
    assert records == {1: b"one", 2: b"three"} and wal.cut is None


def test_a_failed_append_that_cannot_be_undone_is_overridden(tmp_path: Path):
    flaky = FlakyDisk(seed=3)
    wal, _ = opened(tmp_path, flaky)
    wal.append(KIND, [b"one"])
    lasting(flaky, errno.EIO)
    with pytest.raises(StorageUnavailable):
        wal.append(KIND, [b"two" * 50])
    flaky.mend()
    assert wal.append(KIND, [b"three"]) == 2
    wal.wait(1)
    flaky.kill()
    wal, records = opened(tmp_path)
    assert records == {1: b"one", 2: b"three"} and wal.cut is None and wal.damages == []


def test_after_a_failed_sync_the_records_are_written_again(tmp_path: Path):
    for seed in range(10):
        folder = tmp_path / str(seed)
        flaky = FlakyDisk(seed)
        wal, _ = opened(folder, flaky)
        wal.append(KIND, [b"one"])
        wal.sync()
        wal.append(KIND, [b"two"])
        wal.append(KIND, [b"three"])
        flaky.fail_next(errno.EIO)
        with pytest.raises(StorageUnavailable, match="Input/output error"):
            wal.wait(2)
        assert wal.durable == 1
        if seed % 2:
            wal.append(KIND, [b"four"])
        wal.wait(3)
        assert wal.segments == [1, 2]
        flaky.lose()
        wal, records = opened(folder)
        assert list(records.values())[:3] == [b"one", b"two", b"three"] and wal.damages == []


def test_a_segment_of_which_nothing_is_durable_is_replaced(tmp_path: Path):
    flaky = FlakyDisk()
    wal, _ = opened(tmp_path, flaky)
    wal.append(KIND, [b"one"])
    flaky.fail_next(errno.EIO)
    with pytest.raises(StorageUnavailable):
        wal.sync()
    wal.sync()
    assert wal.segments == [1] and len(files(tmp_path)) == 1
    flaky.lose()
    assert opened(tmp_path)[1] == {1: b"one"}


def test_a_full_segment_whose_sync_fails(tmp_path: Path):
    flaky = FlakyDisk()
    wal, _ = opened(tmp_path, flaky, segment_bytes=150)
    wal.append(KIND, [b"a" * 50])
    flaky.fail_next(errno.EIO)
    with pytest.raises(StorageUnavailable):
        wal.append(KIND, [b"b" * 50])
    assert wal.append(KIND, [b"c" * 50]) == 2
    wal.sync()
    flaky.lose()
    assert opened(tmp_path)[1] == {1: b"a" * 50, 2: b"c" * 50}


def test_a_new_segment_that_is_there_but_not_safely_is_not_forgotten(tmp_path: Path):
    """Its name is in the folder; a record that went to the old segment after all would be overridden by it."""
    flaky = FlakyDisk()
    wal, _ = opened(tmp_path, flaky, segment_bytes=150)
    wal.append(KIND, [b"a" * 50])
    flaky.fail_at(len(flaky.calls) + 6, errno.EIO)  # sync, create, write, sync, rename, sync_dir
    with pytest.raises(StorageUnavailable):
        wal.append(KIND, [b"b" * 50])
    assert flaky.calls[-3:] == ["rename", "sync_dir", "unlink"] and name_of(2) in {p.name for p in files(tmp_path)}
    assert wal.append(KIND, [b""]) == 2  # would have had room in the old one
    wal.sync()
    flaky.kill()
    assert opened(tmp_path)[1] == {1: b"a" * 50, 2: b""}


def test_the_seal_may_fail(tmp_path: Path):
    filled(tmp_path, 2)
    for start, at in ((3, 6), (4, 7)):
        flaky = FlakyDisk()
        wal, _ = opened(tmp_path, flaky, start=start)
        flaky.fail_at(len(flaky.calls) + at, short=True)
        wal.append(KIND, [payload(wal.last + 1)])
        assert flaky.calls[-1] == "write" and "append" in flaky.calls[-3:]
        wal.close()
    wal, records = opened(tmp_path)
    assert records == {lsn: payload(lsn) for lsn in range(1, 5)} and wal.damages == [] and wal.cut is None


def test_close_closes_even_if_it_cannot_sync(tmp_path: Path):
    flaky = FlakyDisk()
    wal, _ = opened(tmp_path, flaky)
    wal.append(KIND, [b"a"])
    lasting(flaky, errno.EIO)
    with pytest.raises(StorageUnavailable):
        wal.close()
    assert not flaky._open


def test_a_temporary_file_that_could_not_be_removed_is_no_hindrance(tmp_path: Path):
    flaky = FlakyDisk()
    wal, _ = opened(tmp_path, flaky)
    flaky.fail_at(len(flaky.calls) + 2, errno.EIO, lasting=True)
    with pytest.raises(StorageUnavailable):
        wal.append(KIND, [b"a"])
    assert files(tmp_path)[0].name == name_of(1) + ".tmp"
    flaky.mend()
    assert wal.append(KIND, [b"b"]) == 1
    wal.close()
    assert opened(tmp_path)[1] == {1: b"b"}


def test_an_interrupt_is_no_storage_error_and_leaves_the_log_in_order(tmp_path: Path):
    class Interrupted(Disk):
        what = ""

        def sync(self, handle):
            if self.what == "sync":
                raise KeyboardInterrupt
            super().sync(handle)

        def write(self, handle, parts):
            super().write(handle, parts)
            if self.what == "write":
                raise KeyboardInterrupt

    disk = Interrupted()
    wal, _ = opened(tmp_path, disk)
    wal.append(KIND, [b"one"])
    for disk.what in ("sync", "write"):
        with pytest.raises(KeyboardInterrupt):
            wal.sync() if disk.what == "sync" else wal.append(KIND, [b"two"])
    disk.what = ""
    assert wal.append(KIND, [b"three"]) == 2
    wal.close()
    assert opened(tmp_path)[1] == {1: b"one", 2: b"three"}


def test_what_a_killed_process_wrote_is_made_durable_by_the_next(tmp_path: Path):
    """It may be told to a client as added before; so it must not go when the power does."""
    for seed in range(10):
        folder = tmp_path / str(seed)
        flaky = FlakyDisk(seed)
        wal, _ = opened(folder, flaky)
        wal.append(KIND, [b"one"])
        flaky.crash_at(len(flaky.calls) + 1)
        with pytest.raises(Crash):
            wal.sync()
        flaky.kill()
        _, records = opened(folder, flaky)
        assert records == {1: b"one"}
        flaky.lose()
        assert opened(folder)[1] == records


def test_a_segment_that_a_killed_process_made_stays(tmp_path: Path):
    """Its name was in the folder when the next process read it; so it must not go when the power does."""
    for seed in range(20):
        folder = tmp_path / str(seed)
        flaky = FlakyDisk(seed)
        wal, _ = opened(folder, flaky)
        wal.append(KIND, [b"one"])
        flaky.fail_next(errno.EIO)
        with pytest.raises(StorageUnavailable):
            wal.sync()
        flaky.crash_at(len(flaky.calls) + 5)  # create, write, sync, rename, sync_dir
        with pytest.raises(Crash):
            wal.sync()
        flaky.kill()
        _, records = opened(folder, flaky)
        assert records == {1: b"one"}
        flaky.lose()
        assert opened(folder)[1] == records


def test_large_records_keep_their_bytes_through_a_failed_sync(tmp_path: Path):
    """The memory they are kept in is used again, but not before they are durable."""
    flaky = FlakyDisk()
    wal, _ = opened(tmp_path, flaky)
    there: dict[int, bytes] = {}
    for number in range(1, 13):
        content = payload(number, 70_000 + number)
        there[wal.append(KIND, [content])] = content
        if number % 4 == 0:
            wal.sync()
        if number == 10:
            flaky.fail_next(errno.EIO)
            with pytest.raises(StorageUnavailable):
                wal.sync()
    flaky.lose()
    assert opened(tmp_path)[1] == there
