"""The disk: what it writes is there, what it cannot do has a name; and the flaky one fails as real ones do."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promising.errors import DataDamaged, StorageError, StorageFull, StorageUnavailable
from promising.index.storage import disk as module
from promising.index.storage.checksums import crc32c, total
from promising.index.storage.disk import Disk, translated
from tests.index.storage.flaky import Crash, FlakyDisk

DISK = Disk()


def written(disk: Disk, path: Path, *parts: bytes, sync: bool = True) -> None:
    handle = disk.create(path)
    disk.write(handle, parts)
    if sync:
        disk.sync(handle)
    disk.close(handle)


# --- checksums ---


@given(st.lists(st.binary()))
def test_a_checksum_of_parts_is_that_of_the_whole(parts: list[bytes]):
    assert crc32c(*parts) == crc32c(b"".join(parts))
    assert total(parts) == len(b"".join(parts))


def test_a_checksum_is_the_known_one():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(np.zeros(4, np.int64).data) == crc32c(bytes(32)) == 0x8A9136AA


# --- the real disk ---


def test_what_is_written_is_read(tmp_path: Path):
    path = tmp_path / "a"
    written(DISK, path, b"one", b"", b"two", np.arange(2).tobytes())
    assert DISK.read(path) == b"onetwo" + bytes(8) + b"\1" + bytes(7)
    assert DISK.size(path) == 22
    assert DISK.read(path, 3, 3) == b"two"
    assert DISK.read(path, 20) == bytes(2)
    assert DISK.read(path, 20, 99) == bytes(2)
    assert DISK.read(path, 99, 1) == b""


def test_arrays_are_written_as_they_are_in_memory(tmp_path: Path):
    handle = DISK.create(tmp_path / "a")
    DISK.write(handle, [np.arange(5).data, np.zeros(0).data])
    DISK.close(handle)
    assert DISK.read(tmp_path / "a") == np.arange(5).tobytes()


def test_writing_goes_on_at_the_end(tmp_path: Path):
    path = tmp_path / "a"
    written(DISK, path, b"abcdef")
    handle = DISK.append(path)
    DISK.write(handle, [b"gh"])
    DISK.truncate(handle, 3)
    DISK.write(handle, [b"xy"])
    DISK.close(handle)
    DISK.close(handle)  # twice is no matter
    assert DISK.read(path) == b"abcxy"


@given(st.lists(st.binary(max_size=9), max_size=12), st.integers(1, 7), st.integers(1, 4))
def test_short_writes_are_gone_on_with(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], most: int, at_once: int
):
    path = tmp_path_factory.mktemp("short") / "a"
    real = os.writev
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "writev", lambda fd, parts: real(fd, [b"".join(parts)[:most]]))
        patch.setattr(module, "MOST_PARTS", at_once)
        written(DISK, path, *parts)
    assert path.read_bytes() == b"".join(parts)


def test_more_parts_than_the_system_takes_at_once(tmp_path: Path):
    parts = [bytes([i % 256]) for i in range(3000)]
    written(DISK, tmp_path / "a", *parts)
    assert DISK.read(tmp_path / "a") == b"".join(parts)


def test_reads_in_several_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Reluctant:
        def __init__(self) -> None:
            self.left = [b"ab", b"c", b""]

        def __enter__(self):
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def seek(self, offset: int) -> None:
            assert offset == 7

        def read(self, length: int) -> bytes:
            return self.left.pop(0)

    monkeypatch.setattr(Path, "open", lambda *_, **__: Reluctant())
    assert DISK.read(tmp_path / "a", 7, 9) == b"abc"


def test_reads_into_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a"
    path.write_bytes(bytes(range(100)))
    place = memoryview(bytearray(10))
    assert DISK.read_into(path, 95, place) == 5 and bytes(place) == bytes([95, 96, 97, 98, 99, 0, 0, 0, 0, 0])
    assert DISK.read_into(path, 200, place) == 0
    read = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, places, at: read(fd, [places[0][:3]], at))
    assert DISK.read_into(path, 20, place) == 10 and bytes(place) == bytes(range(20, 30))
    with pytest.raises(DataDamaged, match="missing"):
        DISK.read_into(tmp_path / "gone", 0, place)


def test_what_is_expected_need_not_be_there(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"abc")
    DISK.expect(tmp_path / "a")
    DISK.expect(tmp_path / "gone")
    assert DISK.read(tmp_path / "a") == b"abc"


def test_names_and_folders(tmp_path: Path):
    folder = tmp_path / "x" / "y"
    DISK.mkdir(folder)
    DISK.mkdir(folder)
    for name in "ba":
        written(DISK, folder / name, name.encode())
    assert DISK.names(folder) == ["a", "b"]
    DISK.rename(folder / "a", folder / "b")
    assert DISK.names(folder) == ["b"] and DISK.read(folder / "b") == b"a"
    assert DISK.exists(folder / "b") and not DISK.exists(folder / "a") and not DISK.exists(folder / "b" / "c")
    DISK.unlink(folder / "b")
    DISK.unlink(folder / "b")
    DISK.sync_dir(folder)
    assert DISK.names(folder) == []


def test_a_folder_whose_name_was_not_synced_is_made_again(tmp_path: Path):
    flaky = FlakyDisk()
    flaky.fail_at(3, errno.EIO)  # mkdir x, mkdir of what is above it, sync_dir
    with pytest.raises(StorageUnavailable):
        flaky.mkdir(tmp_path / "x")
    assert flaky.calls == ["mkdir", "mkdir", "sync_dir"] and not (tmp_path / "x").exists()
    flaky.mkdir(tmp_path / "x")
    assert flaky.calls[3:] == ["mkdir", "mkdir", "sync_dir"] and (tmp_path / "x").is_dir()


@pytest.mark.parametrize(
    "code, error, said",
    [
        (errno.ENOSPC, StorageFull, "No space left on device; free some space"),
        (errno.EDQUOT, StorageFull, "raise the quota"),
        (errno.EFBIG, StorageFull, "limit on the size"),
        (errno.EIO, StorageUnavailable, "Input/output error; look at the system's log"),
        (errno.EROFS, StorageUnavailable, "mount it for writing"),
        (errno.EACCES, StorageUnavailable, "Permission denied; let the service's user"),
        (errno.ENOENT, StorageUnavailable, "No such file"),
        (errno.EBUSY, StorageUnavailable, "busy"),
    ],
)
def test_what_the_system_says_has_a_name(code: int, error: type[StorageError], said: str):
    with pytest.raises(error, match=said) as caught, translated(Path("some/file")):
        raise OSError(code, os.strerror(code))
    assert "some/file" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


def test_an_error_without_a_number_and_one_of_another_kind():
    with pytest.raises(StorageUnavailable, match="odd"), translated(Path("a")):
        raise OSError("odd")
    with pytest.raises(KeyError), translated(Path("a")):
        raise KeyError
    with translated(Path("a")):
        pass


@pytest.mark.parametrize("read", [DISK.read, DISK.size, DISK.names])
def test_what_should_be_there_and_is_not_is_damage(tmp_path: Path, read: Callable[[Path], object]):
    with pytest.raises(DataDamaged, match="nothing is missing"):
        read(tmp_path / "nothing")


def test_what_is_there_or_not_where_it_matters(tmp_path: Path):
    written(DISK, tmp_path / "a", b"")
    for change in (
        lambda: DISK.create(tmp_path / "a"),
        lambda: DISK.append(tmp_path / "b"),
        lambda: DISK.rename(tmp_path / "b", tmp_path / "c"),
        lambda: DISK.mkdir(tmp_path / "a"),
        lambda: DISK.sync_dir(tmp_path / "a"),
        lambda: DISK.exists(tmp_path / ("x" * 300)),
    ):
        with pytest.raises(StorageUnavailable):
            change()


def test_write_whole_replaces(tmp_path: Path):
    path = tmp_path / "a"
    assert DISK.write_whole(path, [b"12", b"3"]) == 3
    (tmp_path / "a.tmp").write_bytes(b"left by a crash")
    assert DISK.write_whole(path, [b"4"]) == 1
    assert DISK.names(tmp_path) == ["a"] and DISK.read(path) == b"4"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("number", range(1, 6))
def test_write_whole_is_whole_or_not_at_all(tmp_path: Path, number: int, seed: int):
    """A fault at each of its calls, of each kind."""
    path = tmp_path / "a"
    for kind in ("fail", "short", "crash", "power"):
        DISK.write_whole(path, [b"old"])
        flaky = FlakyDisk(seed)
        if kind in ("fail", "short"):
            flaky.fail_at(number, errno.ENOSPC, short=kind == "short")
            with pytest.raises(StorageFull):
                flaky.write_whole(path, [b"new", b"er"])
            assert DISK.names(tmp_path) == ["a"]
        else:
            flaky.crash_at(number)
            with pytest.raises(Crash):
                flaky.write_whole(path, [b"new", b"er"])
            flaky.kill() if kind == "crash" else flaky.lose()
        assert DISK.read(path) in (b"old", b"newer")


def test_write_whole_survives_a_loss_of_power(tmp_path: Path):
    for seed in range(20):
        flaky = FlakyDisk(seed)
        flaky.write_whole(tmp_path / "a", [b"%d" % seed])
        flaky.lose()
        assert DISK.read(tmp_path / "a") == b"%d" % seed


# --- the flaky disk ---


def seen(folder: Path, act: Callable[[FlakyDisk, Path], None], before: bytes | None = None) -> set[bytes | None]:
    """What a file may be after a loss of power, over many of them; None: not there."""
    outcomes: set[bytes | None] = set()
    for seed in range(60):
        path = folder / "a"
        path.unlink(missing_ok=True)
        (folder / "b").unlink(missing_ok=True)
        if before is not None:
            path.write_bytes(before)
        flaky = FlakyDisk(seed)
        act(flaky, path)
        flaky.lose()
        outcomes.add(path.read_bytes() if path.exists() else None)
    return outcomes


def test_what_was_not_synced_may_be_lost_from_any_byte_on(tmp_path: Path):
    def act(flaky: FlakyDisk, path: Path) -> None:
        handle = flaky.append(path)
        flaky.write(handle, [b"cd"])
        flaky.sync(handle)
        flaky.write(handle, [b"ef"])

    assert seen(tmp_path, act, b"ab") == {b"abcd", b"abcde", b"abcdef"}


def test_a_new_name_may_be_lost_until_its_folder_is_synced(tmp_path: Path):
    assert seen(tmp_path, lambda flaky, path: written(flaky, path, b"x")) == {None, b"x"}

    def act(flaky: FlakyDisk, path: Path) -> None:
        written(flaky, path, b"x")
        flaky.sync_dir(path.parent)

    assert seen(tmp_path, act) == {b"x"}


def test_a_rename_is_there_or_not(tmp_path: Path):
    def act(flaky: FlakyDisk, path: Path) -> None:
        written(flaky, path.with_name("b"), b"new")
        flaky.sync_dir(path.parent)
        flaky.rename(path.with_name("b"), path)

    assert seen(tmp_path, act, b"old") == {b"old", b"new"}


def test_an_unlink_may_come_undone(tmp_path: Path):
    assert seen(tmp_path, lambda flaky, path: flaky.unlink(path), b"x") == {None, b"x"}

    def act(flaky: FlakyDisk, path: Path) -> None:
        flaky.unlink(path)
        flaky.sync_dir(path.parent)

    assert seen(tmp_path, act, b"x") == {None}


def test_a_cut_may_come_undone(tmp_path: Path):
    def act(flaky: FlakyDisk, path: Path) -> None:
        handle = flaky.append(path)
        flaky.truncate(handle, 1)
        flaky.write(handle, [b"xy"])

    assert seen(tmp_path, act, b"abc") == {b"abc", b"a", b"ax", b"axy"}
    assert seen(tmp_path, lambda flaky, path: flaky.truncate(flaky.append(path), 1), b"abc") == {b"abc", b"a"}


def test_after_a_failed_sync_another_one_saves_nothing(tmp_path: Path):
    def act(flaky: FlakyDisk, path: Path) -> None:
        handle = flaky.append(path)
        flaky.write(handle, [b"cd"])
        flaky.fail_next(errno.EIO)
        with pytest.raises(StorageUnavailable):
            flaky.sync(handle)
        flaky.sync(handle)

    assert seen(tmp_path, act, b"ab") == {b"ab", b"abc", b"abcd"}


def test_a_sync_of_a_file_without_a_name(tmp_path: Path):
    def act(flaky: FlakyDisk, path: Path) -> None:
        handle = flaky.append(path)
        flaky.unlink(path)
        flaky.sync(handle)

    assert seen(tmp_path, act, b"ab") == {b"ab", None}


def test_faults_last_as_long_as_told(tmp_path: Path):
    flaky = FlakyDisk()
    flaky.fail_next(errno.ENOSPC, lasting=True)
    for _ in range(3):
        with pytest.raises(StorageFull):
            flaky.create(tmp_path / "a")
    flaky.unlink(tmp_path / "a")  # a full disk can be emptied
    flaky.mend()
    handle = flaky.create(tmp_path / "a")
    flaky.fail_next(errno.ENOSPC, lasting=True)
    with pytest.raises(StorageFull):
        flaky.sync(handle)
    flaky.truncate(handle, 0)
    flaky.fail_next(errno.EIO, lasting=True)
    with pytest.raises(StorageUnavailable):
        flaky.truncate(handle, 0)
    flaky.fail_next(errno.EIO)
    with pytest.raises(StorageUnavailable):
        flaky.truncate(handle, 0)
    flaky.truncate(handle, 0)
    flaky.kill()


def test_a_short_write_leaves_a_part(tmp_path: Path):
    left = set()
    for seed in range(30):
        flaky = FlakyDisk(seed)
        path = tmp_path / str(seed)
        handle = flaky.create(path)
        flaky.fail_next(short=True)
        with pytest.raises(StorageFull):
            flaky.write(handle, [b"ab", b"c"])
        flaky.kill()
        left.add(path.read_bytes())
    assert left == {b"", b"a", b"ab"}


def test_after_a_crash_nothing_can_be_done(tmp_path: Path):
    outcomes = set()
    for seed in range(40):
        path = tmp_path / str(seed)
        flaky = FlakyDisk(seed)
        handle = flaky.create(path)
        flaky.crash_at(2)
        with pytest.raises(Crash):
            flaky.write(handle, [b"abc"])
        calls: list[tuple[Callable[..., object], object]] = [
            (flaky.read, path),
            (flaky.size, path),
            (flaky.names, tmp_path),
            (flaky.exists, path),
            (flaky.sync, handle),
            (flaky.mkdir, tmp_path / "x"),
        ]
        for call, what in calls:
            with pytest.raises(Crash):
                call(what)
        flaky.kill()
        outcomes.add(flaky.read(path))
        assert flaky.exists(path) and flaky.size(path) == len(flaky.read(path)) and path.name in flaky.names(tmp_path)
    assert outcomes == {b"", b"a", b"ab", b"abc"}


def test_it_repeats_itself(tmp_path: Path):
    def run(seed: int) -> bytes:
        path = tmp_path / "a"
        path.unlink(missing_ok=True)
        path.write_bytes(b"")
        flaky = FlakyDisk(seed)
        flaky.write(flaky.append(path), [bytes(range(200))])
        flaky.lose()
        return path.read_bytes()

    assert [run(seed) for seed in range(9)] == [run(seed) for seed in range(9)]
    assert len({run(seed) for seed in range(9)}) > 5
