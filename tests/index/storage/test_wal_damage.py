"""Files that were changed behind the log's back: every record is as it was or missed aloud, never another."""

import errno
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import NewerFormat, StorageUnavailable
from promising.index.storage.checksums import crc32c
from promising.index.storage.disk import Handle
from promising.index.storage.segments import HEADER, MAGIC, VERSION, Segment, name_of, record_header, segment_header
from promising.index.storage.synced import NAME, pack
from promising.index.storage.wal import Wal
from tests.index.storage.flaky import FlakyDisk
from tests.index.storage.logs import KIND, QuickDisk, files, filled, opened, payload, unmarked
from tests.tiers import examples


def told(wal: Wal) -> str:
    return "\n".join(f"{damage.path}: {damage.what}" for damage in wal.damages)


def positions(path: Path) -> list[int]:
    """Where the records of a whole segment start."""
    content = path.read_bytes()
    segment = Segment(str(path), int(path.stem, 16), content)
    starts, at = [], HEADER
    while at < len(content):
        starts.append(at)
        entry = segment.at(at, 0)
        assert not isinstance(entry, str)
        at = entry.end
    return starts


def change(path: Path, at: int, what: bytes = b"\xff") -> None:
    content = bytearray(path.read_bytes())
    for i, byte in enumerate(what):
        content[at + i] ^= byte
    path.write_bytes(content)


def checked(folder: Path, there: dict[int, bytes], start: int = 1) -> tuple[Wal, dict[int, bytes]]:
    """What can be read is as it was, and what is missing is told."""
    wal, records = opened(folder, start=start)
    assert records.items() <= there.items()
    newest = max(records, default=start - 1)
    gaps = set(range(start, newest)) - set(records)
    assert not gaps or wal.damages
    return wal, records


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, bytes]]:
    """A log of several segments, one of them of an older process."""
    folder = tmp_path_factory.mktemp("sound")
    filled(folder, 12, segment_bytes=220)
    return folder, filled(folder, 13, segment_bytes=220)


def copied(sound: Path, folder: Path) -> list[Path]:
    (folder / "wal").mkdir(parents=True)
    for path in files(sound):
        (folder / "wal" / path.name).write_bytes(path.read_bytes())
    return files(folder)


@settings(max_examples=examples(150))
@given(st.data())
def test_any_bits_of_any_segment(sound, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    folder = tmp_path_factory.mktemp("flip")
    for path in data.draw(st.lists(st.sampled_from(copied(sound[0], folder)), min_size=1, max_size=2)):
        change(path, data.draw(st.integers(0, path.stat().st_size - 1)), bytes([1 << data.draw(st.integers(0, 7))]))
    start = data.draw(st.integers(1, 26))
    wal, _ = checked(folder, sound[1], start)
    damages = wal.damages
    assert wal.append(KIND, [b"more"]) == wal.last
    wal.close()
    again, records = opened(folder, start=start)  # the same is missed again, and the log has gone on
    assert records[wal.last] == b"more" and again.cut is None
    assert len(again.damages) >= len(damages) or start == wal.last  # then what is before it is not looked at


@pytest.mark.deep("damages every bit")
def test_every_bit_of_two_segments(tmp_path: Path):
    """One at a time: none goes unnoticed."""
    filled(tmp_path, 2)
    there = filled(tmp_path, 2)
    for number, path in enumerate(files(tmp_path)):
        content = path.read_bytes()
        for bit in range(8 * len(content)):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            wal, records = checked(tmp_path, there)
            seal = number == 0 and bit // 8 >= len(content) - HEADER  # says nothing new while the next one is there
            assert wal.damages or wal.cut or (seal and records == there)
            path.write_bytes(content)
    assert checked(tmp_path, there)[1] == there


def test_every_length_of_every_segment(tmp_path: Path, sound):
    for number in (0, 3, len(files(sound[0])) - 1):
        paths = copied(sound[0], tmp_path / str(number))
        content = paths[number].read_bytes()
        starts = positions(paths[number])
        for length in range(len(content)):
            paths[number].write_bytes(content[:length])
            wal, _ = checked(tmp_path / str(number), sound[1])
            if number < len(paths) - 1:
                assert wal.damages or length >= starts[-1]  # the seal says nothing new while the next one is there
            else:
                assert wal.damages or wal.cut or length in starts  # as if the last records had never come


@pytest.mark.parametrize("gone", range(6))
def test_a_segment_that_is_gone_is_missed(tmp_path: Path, sound, gone: int):
    paths = copied(sound[0], tmp_path)
    assert len(paths) > 6
    paths[gone - 1].unlink()  # -1: the newest
    wal, records = opened(tmp_path)
    first = int(paths[gone - 1].stem, 16)
    after = int(paths[gone].stem, 16) if gone else 26
    assert records == {lsn: content for lsn, content in sound[1].items() if not first <= lsn < after}
    assert f"{first}" in told(wal) and paths[gone - 1].name in told(wal)
    wal.append(KIND, [b""])
    wal.close()
    assert f"{first}" in told(opened(tmp_path)[0])  # also the next time


def test_segments_before_the_start_do_not_matter(tmp_path: Path, sound):
    paths = copied(sound[0], tmp_path)
    paths[0].write_bytes(b"")
    paths[1].unlink()
    change(paths[2], 5)
    start = int(paths[3].stem, 16)
    wal, records = opened(tmp_path, start=start)
    assert wal.damages == [] and list(records) == list(range(start, 26))


def test_a_damaged_record_before_the_start_does_not_matter(tmp_path: Path):
    there = filled(tmp_path, 10)
    change(files(tmp_path)[0], positions(files(tmp_path)[0])[3] + HEADER)
    assert opened(tmp_path, start=5)[0].damages == []
    wal, records = opened(tmp_path, start=4)
    assert "record 4 is missing" in told(wal) and records == {lsn: there[lsn] for lsn in range(5, 11)}


def test_an_end_that_was_synced_is_missed_whatever_was_cut_off(tmp_path: Path):
    """By one byte or by whole records: of a log that was closed nothing may be missing."""
    there = filled(tmp_path / "closed", 10)
    paths = copied(tmp_path / "closed", tmp_path / "cut")
    content, mark = paths[0].read_bytes(), (tmp_path / "closed" / "wal" / NAME).read_bytes()
    for length in (*range(0, len(content), 7), len(content) - 1, *positions(paths[0])):
        for path in files(tmp_path / "cut"):
            path.unlink()
        paths[0].write_bytes(content[:length])
        (tmp_path / "cut" / "wal" / NAME).write_bytes(mark)
        wal, records = checked(tmp_path / "cut", there)
        first = max(records, default=0) + 1
        assert f"{f'record {first} is' if first == 10 else f'records {first} to 10 are'} missing" in told(wal)
        assert wal.cut is None and wal.last == 10 and paths[0].stat().st_size == length
        assert wal.append(KIND, [b"more"]) == 11
        wal.close()
        again, found = opened(tmp_path / "cut")
        assert (found, again.damages) == ({**records, 11: b"more"}, wal.damages)  # the same, in the same words


def test_a_log_that_is_gone_is_missed(tmp_path: Path):
    filled(tmp_path, 10)
    files(tmp_path)[0].unlink()
    wal, records = opened(tmp_path)
    assert records == {} and "records 1 to 10 are missing: there is no file" in told(wal)
    assert wal.append(KIND, [b"more"]) == 11


def test_what_was_synced_is_known_after_a_kill_and_only_that(tmp_path: Path):
    wal, _ = opened(tmp_path)
    for number in (1, 2, 3, 4):
        wal.append(KIND, [payload(number)])
        if number == 2:
            wal.sync()
    [path] = files(tmp_path)
    starts, content = positions(path), path.read_bytes()
    for length in range(starts[2], len(content)):  # within what no one was promised
        path.write_bytes(content[:length])
        killed, records = opened(tmp_path)
        assert killed.damages == [] and list(records) == ([1, 2, 3] if length >= starts[3] else [1, 2])
    path.write_bytes(content[: starts[2] - 1])
    assert "record 2 is missing" in told(opened(tmp_path)[0])


@pytest.mark.parametrize(
    "spoil", [lambda c: b"", lambda c: c[:-1], lambda c: c[:16] + b"\xff" + c[17:], lambda c: c * 2]
)
def test_a_mark_that_cannot_be_read_says_nothing(tmp_path: Path, spoil: Callable[[bytes], bytes]):
    there = filled(tmp_path, 3)
    mark = tmp_path / "wal" / NAME
    mark.write_bytes(spoil(mark.read_bytes()))
    wal, records = opened(tmp_path)
    assert records == there and wal.damages == []
    files(tmp_path)[0].write_bytes(files(tmp_path)[0].read_bytes()[:-1])
    assert opened(tmp_path)[0].damages == []


def test_a_mark_that_cannot_be_written_stops_nothing(tmp_path: Path):
    class Stubborn(QuickDisk):
        def overwritable(self, path: Path) -> Handle:
            raise StorageUnavailable(f"{path} cannot be written")

    wal, _ = opened(tmp_path, Stubborn())
    wal.wait(wal.append(KIND, [b"a"]))
    wal.close()
    assert not (tmp_path / "wal" / NAME).exists() and opened(tmp_path)[1] == {1: b"a"}


def test_the_bytes_of_the_mark_do_not_change():
    assert pack(5).hex() == "50524f4d53594e0a01000000000000000500000000000000" + "dcea7802"


def test_a_torn_end_is_cut_and_told(tmp_path: Path):
    filled(tmp_path, 10)
    unmarked(tmp_path)
    path = files(tmp_path)[0]
    last = positions(path)[-1]
    path.write_bytes(path.read_bytes()[: last + 20])
    wal, records = opened(tmp_path)
    assert list(records) == list(range(1, 10)) and wal.damages == []
    assert wal.cut is not None and wal.cut.path == str(path)
    assert "the last 20 bytes" in wal.cut.what and "ends with record 9" in wal.cut.what
    assert path.stat().st_size == last and not (tmp_path / "aside").exists()
    assert opened(tmp_path)[0].cut is None


def test_an_end_of_zeros_is_cut(tmp_path: Path):
    filled(tmp_path, 3)
    path = files(tmp_path)[0]
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + bytes(4096))
    wal, records = opened(tmp_path)
    assert len(records) == 3 and wal.cut is not None and wal.damages == [] and path.stat().st_size == size


def test_a_damaged_record_is_told_and_what_follows_is_read(tmp_path: Path):
    there = filled(tmp_path, 60)
    path = files(tmp_path)[0]
    starts = positions(path)
    found = path.read_bytes()
    change(path, starts[29] + HEADER + 3)  # its payload
    change(path, starts[39])  # its header
    change(path, starts[40] + 9)
    damaged = path.read_bytes()
    wal, records = opened(tmp_path)
    assert records == {lsn: there[lsn] for lsn in there if lsn not in (30, 40, 41)}
    assert wal.cut is None and len(wal.damages) == 2
    one, two = (damage.what for damage in wal.damages)
    assert f"record 30 is missing: a record fails its checksum, between bytes {starts[29]} and {starts[30]}" in one
    assert f"records 40 to 41 are missing: a record's header fails its checksum, between bytes {starts[39]}" in two
    [copy] = (tmp_path / "aside").iterdir()
    assert copy.read_bytes() == damaged and str(copy) in one and str(copy) in two and path.read_bytes() == damaged
    opened(tmp_path)
    assert len(list((tmp_path / "aside").iterdir())) == 1
    path.write_bytes(found)
    assert opened(tmp_path)[0].damages == []


def test_a_copy_that_cannot_be_made_does_not_stop_the_reading(tmp_path: Path):
    filled(tmp_path, 5)
    change(files(tmp_path)[0], positions(files(tmp_path)[0])[1] + 1)
    (tmp_path / "aside").write_text("in the way")
    wal, records = opened(tmp_path)
    assert list(records) == [1, 3, 4, 5] and "could be set aside" in told(wal)


def test_a_header_that_is_lost_costs_no_records(tmp_path: Path):
    there = filled(tmp_path, 20)
    change(files(tmp_path)[0], 0, b"\xff" * HEADER)
    wal, records = opened(tmp_path)
    assert records == there and "header fails" in told(wal)
    assert wal.append(KIND, [payload(21)]) == 21
    wal.close()
    assert opened(tmp_path)[1] == {**there, 21: payload(21)}


def test_a_start_that_is_lost_costs_what_was_there(tmp_path: Path):
    there = filled(tmp_path, 20)
    path = files(tmp_path)[0]
    change(path, 0, b"\xff" * (positions(path)[4] + 8))
    wal, records = opened(tmp_path)
    assert records == {lsn: there[lsn] for lsn in range(6, 21)} and "records 1 to 5 are missing" in told(wal)


def test_a_newest_segment_of_which_nothing_can_be_read(tmp_path: Path):
    there = filled(tmp_path, 4)
    wal, _ = opened(tmp_path, start=5)
    wal.append(KIND, [b"gone"])
    wal.close()
    path = files(tmp_path)[1]
    path.write_bytes(b"\xaa" * 500)
    wal, records = opened(tmp_path)
    assert records == there and path.name in told(wal) and wal.cut is None
    assert wal.append(KIND, [b"new"]) == 6
    wal.close()
    wal, records = opened(tmp_path)
    assert records == {**there, 6: b"new"} and "record 5 is missing" in told(wal)
    [copy] = (tmp_path / "aside").iterdir()
    assert copy.read_bytes() == b"\xaa" * 500


def test_an_empty_newest_segment_file(tmp_path: Path):
    there = filled(tmp_path, 4)
    (tmp_path / "wal" / name_of(5)).write_bytes(b"")
    wal, records = opened(tmp_path)
    assert records == there and wal.damages and wal.append(KIND, [b""]) == 6
    wal.close()


def test_a_log_that_ends_before_the_checkpoint(tmp_path: Path):
    filled(tmp_path, 4)
    wal, records = opened(tmp_path, start=10)
    assert records == {} and "records 5 to 9 are missing: the file ends before that" in told(wal)
    assert wal.append(KIND, [b"ten"]) == 10
    wal.close()
    wal, records = opened(tmp_path, start=10)
    assert records == {10: b"ten"} and wal.damages == []


def test_a_log_that_starts_after_the_checkpoint(tmp_path: Path):
    there = filled(tmp_path, 40, segment_bytes=300)
    wal, _ = opened(tmp_path)
    wal.trim(20)
    first = wal.segments[0]
    wal, records = opened(tmp_path, start=2)
    assert f"records 2 to {first - 1} are missing: the log starts after that" in told(wal)
    assert records == {lsn: there[lsn] for lsn in range(first, 41)}


def test_a_segment_under_a_wrong_name(tmp_path: Path):
    filled(tmp_path, 4)
    files(tmp_path)[0].rename(tmp_path / "wal" / name_of(3))
    wal, records = opened(tmp_path)
    assert records == {3: payload(3), 4: payload(4)}
    assert "records 1 to 2 are missing" in told(wal) and "starts with record 1" in told(wal)


def test_a_file_of_something_else(tmp_path: Path):
    (tmp_path / "wal").mkdir()
    header = struct.pack("<8sIIQI", b"SOMETHIN", VERSION, 0, 1, 0)
    (tmp_path / "wal" / name_of(1)).write_bytes(header + struct.pack("<I", crc32c(header)))
    assert "no segment of a log" in told(opened(tmp_path)[0])


def test_a_newer_format_is_refused(tmp_path: Path):
    (tmp_path / "wal").mkdir()
    header = struct.pack("<8sIIQI", MAGIC, VERSION + 1, 0, 1, 0)
    (tmp_path / "wal" / name_of(1)).write_bytes(header + struct.pack("<I", crc32c(header)))
    with pytest.raises(NewerFormat, match=f"format {VERSION + 1}.*upgrade"):
        opened(tmp_path)


def test_the_bytes_do_not_change():
    """They are on disks: another layout needs another version."""
    assert segment_header(5, 6).hex() == "50524f4d57414c0a0200000006000000050000000000000000000000" + "ae83c40c"
    assert (
        record_header(1, 2, 3, 4, 5).hex()
        == "010000000000000003000000000000000200000004000000" + "05000000" + "dce581e9"
    )


def test_a_payload_that_looks_like_records_is_not_taken_for_them(tmp_path: Path):
    """Someone may send a log as a string: where the header before it is damaged, its records must not come alive."""
    filled(tmp_path / "other", 20)
    forged = files(tmp_path / "other")[0].read_bytes()
    wal, _ = opened(tmp_path)
    wal.append(KIND, [b"one"])
    wal.append(KIND, [forged])
    wal.append(KIND, [b"three"])
    wal.close()
    path = files(tmp_path)[0]
    change(path, positions(path)[1])
    wal, records = opened(tmp_path)
    assert records == {1: b"one", 3: b"three"} and "record 2 is missing" in told(wal)


def test_records_of_another_segment_are_out_of_place(tmp_path: Path):
    filled(tmp_path, 3)
    filled(tmp_path / "other", 5)
    path, other = files(tmp_path)[0], files(tmp_path / "other")[0]
    path.write_bytes(path.read_bytes() + other.read_bytes()[positions(other)[3] :])
    wal, records = opened(tmp_path)
    assert list(records) == [1, 2, 3] and wal.cut is not None and "out of place" in wal.cut.what


@pytest.mark.parametrize("length", [1 << 30, 1 << 62, (1 << 64) - 1])
def test_a_length_beyond_the_file_is_no_length(tmp_path: Path, length: int):
    filled(tmp_path, 2)
    path = files(tmp_path)[0]
    salt = int.from_bytes(path.read_bytes()[12:16], "little")
    path.write_bytes(path.read_bytes() + record_header(3, KIND, length, salt, 0) + bytes(100))
    wal, records = opened(tmp_path)
    assert list(records) == [1, 2] and wal.cut is not None and "ends within a record" in wal.cut.what


def test_a_record_that_stands_there_twice_is_read_once(tmp_path: Path):
    there = filled(tmp_path, 5)
    path = files(tmp_path)[0]
    content, starts = path.read_bytes(), positions(path)
    path.write_bytes(content[: starts[3]] + content[starts[1] : starts[2]] + content[starts[3] :])
    wal, records = opened(tmp_path)
    assert records == there and wal.damages == [] and wal.cut is None


def test_behind_damage_a_segment_is_read_only_up_to_the_next_one(tmp_path: Path):
    """What was not known to be durable in it stands once more in the next one, and counts there."""
    flaky = FlakyDisk()
    wal, _ = opened(tmp_path, flaky)
    for number in (1, 2, 3, 4):
        wal.append(KIND, [payload(number)])
        if number == 2:
            wal.sync()
    flaky.fail_next(errno.EIO)
    with pytest.raises(StorageUnavailable):
        wal.sync()
    wal.close()
    path = files(tmp_path)[0]
    change(path, positions(path)[1])
    wal, records = opened(tmp_path)
    assert list(records) == [1, 3, 4] and "record 2 is missing: a record's header fails" in told(wal)
    assert wal.segments == [1, 3] and len(wal.damages) == 1


def test_the_next_record_is_looked_for_behind_what_only_looks_like_one(tmp_path: Path):
    filled(tmp_path, 9)
    path = files(tmp_path)[0]
    starts = positions(path)
    change(path, starts[3])
    change(path, starts[4] + 25)  # all but its checksum is as it should be
    wal, records = opened(tmp_path)
    assert list(records) == [1, 2, 3, 6, 7, 8, 9] and "records 4 to 5 are missing" in told(wal)


def test_records_that_are_left_out(tmp_path: Path):
    there = filled(tmp_path, 9)
    path = files(tmp_path)[0]
    content, starts = path.read_bytes(), positions(path)
    path.write_bytes(content[: starts[3]] + content[starts[6] :])
    wal, records = opened(tmp_path)
    assert records == {lsn: there[lsn] for lsn in (1, 2, 3, 7, 8, 9)} and "records 4 to 6 are missing" in told(wal)


def test_a_log_that_cannot_be_tidied_is_not_opened(tmp_path: Path):
    filled(tmp_path, 3)
    path = files(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-3])
    flaky = FlakyDisk()
    flaky.fail_at(1, errno.EROFS, lasting=True)
    with pytest.raises(StorageUnavailable):
        opened(tmp_path, flaky)
    flaky.fail_at(4, errno.EIO, lasting=True)
    with pytest.raises(StorageUnavailable):
        opened(tmp_path, flaky)
    flaky.mend()
    assert len(opened(tmp_path, flaky)[1]) == 2
