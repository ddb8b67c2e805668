"""Damaged files of a store: log, checkpoint images, cold files. What is read is what was written, or it is reported.

Each is damaged as disks do it, below its checksums; and above them, with checksums that agree, as a file from elsewhere
might be: then there is no right answer, but still no other error than a reported one. `tests.index.storage.flips` opens
whole stores with such files.
"""

import base64
import json
import os
import random
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from promising.errors import DataDamaged, NewerFormat, PromisingError
from promising.index import Stream
from promising.index.image_arrays import PLACED
from promising.index.schema import Column
from promising.index.storage.checksums import crc32c
from promising.index.storage.cold import Cold
from promising.index.storage.cold_file import Footer
from promising.index.storage.cold_layout import pack
from promising.index.storage.disk import Disk
from promising.index.storage.image import TOP, restoring, unpack_image
from promising.index.storage.segments import HEADER
from promising.index.storage.wal import Record, Wal
from promising.index.storage.wal_journal import make_again
from tests.crash import feed
from tests.fuzz.byte_mutations import mutated
from tests.fuzz.cases import Broken, Subject, differs, typed
from tests.index.storage.lives import abandon, opened, populate, small_and_quiet
from tests.index.storage.logs import QuickDisk

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
SEED = 5
BATCHES = 8


class Files:
    """What a small store has on disk, by kind."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="promising-fuzz-", dir=MEMORY)
        self.root = Path(self.folder.name)
        with small_and_quiet():
            store = opened(self.root / "whole")
            populate(store, ("left",))
            for number in range(1, BATCHES + 1):
                batch = feed.batch(SEED, 0, number)
                store.streams["left"].append(batch, producer="till", sequence=number)
                if number == BATCHES // 2:
                    store.streams["left"].advance(number * feed.STEP)
                    store.checkpoint()
            abandon(store)
        self.log = self._contents("wal")
        (self.image,) = self._contents("image").values()

    def _contents(self, ending: str) -> dict[str, bytes]:
        paths = sorted((self.root / "whole").glob(f"streams/*/*/*.{ending}"))
        return {path.name: path.read_bytes() for path in paths}


# --- log ---------------------------------------------------------------------------------------------------------


class GivenLog(NamedTuple):
    """The segments of a log as they are found; or the payload of one record, whose checksum agrees."""

    segments: dict[str, bytes]
    done: str
    record: tuple[int, bytes] | None = None


class Log(Subject):
    """Records are as they were written, or missed aloud."""

    name: ClassVar[str] = "log"
    verdicts: ClassVar[dict[str, float]] = {"reported": 0.4, "cut": 0.02, "DataDamaged": 0.1}

    def __init__(self) -> None:
        self._files = Files()
        self._records = self._read(self._files.log)[1]
        assert len(self._records) > BATCHES
        self._stream: Stream | None = None

    def __exit__(self, *_: object) -> None:
        self._files.folder.cleanup()

    def input(self, rng: random.Random) -> GivenLog:
        if rng.random() < 0.3:
            lsn = rng.choice(list(self._records))
            payload, done = mutated(rng, bytes(self._records[lsn].payload))
            return GivenLog({}, f"record {lsn}: {done}", (lsn, payload))
        segments = dict(self._files.log)
        did: list[str] = []
        for name in rng.sample(list(segments), min(rng.choice((1, 1, 2)), len(segments))):
            segments[name], what = mutated(rng, segments[name])
            did.append(f"{name}: {what}")
        if rng.random() < 0.05 and len(segments) > 1:
            did.append(f"{(gone := rng.choice(list(segments)))} is gone")
            del segments[gone]
        return GivenLog(segments, "; ".join(did))

    def judge(self, given: GivenLog) -> str:
        return self._replay(*given.record) if given.record is not None else self._recover(given)

    def _recover(self, given: GivenLog) -> str:
        wal, found = self._read(given.segments)
        for lsn, record in found.items():
            known = self._records.get(lsn)
            if known is None or (record.kind, bytes(record.payload)) != (known.kind, bytes(known.payload)):
                raise Broken(f"record {lsn} is none that was written")
        if wal.damages:
            return "reported"
        if wal.cut is not None:
            if list(found) != list(self._records)[: len(found)]:
                raise Broken("records before the torn end are missing, and nobody says so")
            return "cut"
        if found.keys() != self._records.keys() and not self._ended_earlier(given.segments, len(found)):
            raise Broken(f"records {sorted(self._records.keys() - found.keys())} are missing, and nobody says so")
        return "harmless"

    def _ended_earlier(self, segments: dict[str, bytes], count: int) -> bool:
        """Whether the newest segment ends after one of its records, as if the power had gone then."""
        newest = max(self._files.log)
        was, found = self._files.log[newest], segments.get(newest, b"")
        return was.startswith(found) and len(found) >= HEADER and list(self._records)[:count][-1:] != []

    def _replay(self, lsn: int, payload: bytes) -> str:
        stream, self._stream = self._stream or self._before(), None
        before = self._seen(stream)
        try:
            make_again(stream, Record(lsn, self._records[lsn].kind, memoryview(payload)))
        except PromisingError as problem:
            differs(before, self._seen(stream), "a record that was refused")
            self._stream = stream
            return typed(problem)
        return "replayed"

    def _before(self) -> Stream:
        """The stream as it was when the last record was written."""
        made = Stream("left", feed.SCHEMA, "ts", lateness=feed.LATENESS, keep=feed.KEEP, clock=lambda: 1 << 60, seed=7)
        for record in list(self._records.values())[:-1]:
            make_again(made, record)
        return made

    def _seen(self, stream: Stream) -> list[Any]:
        settings = (stream.watermark, stream.latest, stream.keep, stream.lateness, stream.max_jump)
        return [stream.accepted, stream.kept, dict(stream.refused), sorted(stream.summaries), *settings]

    def _read(self, segments: dict[str, bytes]) -> tuple[Wal, dict[int, Record]]:
        folder = self._files.root / "log"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "wal").mkdir(parents=True)
        for name, content in segments.items():
            (folder / "wal" / name).write_bytes(content)
        wal = Wal(QuickDisk(), folder / "wal", aside=folder / "aside")
        return wal, {record.lsn: record for record in wal.recover(1)}


# --- images ------------------------------------------------------------------------------------------------------


class Memory(Disk):
    """A disk with one file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, path: Path, offset: int = 0, length: int = -1) -> bytes:
        return self._data[offset:] if length < 0 else self._data[offset : offset + length]

    def read_into(self, path: Path, offset: int, place: memoryview) -> int:
        found = self._data[offset : offset + len(place)]
        place[: len(found)] = found
        return len(found)

    def size(self, path: Path) -> int:
        return len(self._data)


class Image(Subject):
    """Every bit is under a checksum."""

    name: ClassVar[str] = "image"
    verdicts: ClassVar[dict[str, float]] = {"DataDamaged": 0.6, "read": 0.03}

    def __init__(self) -> None:
        self._files = Files()
        self._whole = self._files.image

    def __exit__(self, *_: object) -> None:
        self._files.folder.cleanup()

    def input(self, rng: random.Random) -> tuple[bytes, bool]:
        """The bytes, and whether checksums agree."""
        if rng.random() < 0.7:
            data, _ = mutated(rng, self._whole)
            return data, False
        length = TOP.unpack_from(self._whole)[2]
        start = TOP.size + length
        header, parts = self._whole[TOP.size : start], self._whole[start:]
        if rng.random() < 0.5:
            header, _ = mutated(rng, header)
        else:
            header = _other_json(rng, header)
        total = TOP.size + len(header) + len(parts)
        top = TOP.pack(*TOP.unpack_from(self._whole)[:2], len(header), total, 0)[:-4]
        return top + struct.pack("<I", crc32c(top, header)) + header + parts, True

    def judge(self, given: tuple[bytes, bool]) -> str:
        data, agree = given
        path = Path("some.image")
        verdicts = []
        for how in (self._unpacked, self._restored):
            try:
                how(path, data)
            except (DataDamaged, NewerFormat) as problem:
                verdicts.append(typed(problem))
                continue
            if data != self._whole and not agree:
                raise Broken(f"damage to an image went unnoticed ({how.__name__})")
            verdicts.append("read")
        return verdicts[0]

    def _unpacked(self, path: Path, data: bytes) -> None:
        unpack_image(path, data)

    def _restored(self, path: Path, data: bytes) -> None:
        """As at a start, where large arrays are read into their places."""
        places = []
        with restoring(Memory(data), path, PLACED) as tree:
            waiting: list[Any] = [tree]
            while waiting:
                value = waiting.pop()
                if isinstance(value, dict | list):
                    waiting += value.values() if isinstance(value, dict) else value
                elif hasattr(value, "into"):
                    places.append(np.empty(value._part.length, np.uint8))
                    value.into([places[-1]])


def _other_json(rng: random.Random, data: bytes) -> bytes:
    """JSON with a value in another's place."""
    root = json.loads(data)
    found: list[tuple[Any, Any]] = []
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            found += [(value, key) for key, _ in items]
            waiting += [item for _, item in items]
    inside, key = rng.choice(found)
    other, place = rng.choice(found)
    odd = [0, -1, 1 << 31, 1 << 62, 1 << 70, 0.5, None, True, "", "<i8", "|O", [], {}, [1], {"$array": 0}, other[place]]
    inside[key] = rng.choice(odd)
    try:
        return json.dumps(root).encode()
    except ValueError:  # it contains itself
        return data


# --- cold files --------------------------------------------------------------------------------------------------


class GivenCold(NamedTuple):
    """A cold file, what the manifest says of it, and whether its checksums were made for these bytes."""

    data: bytes
    entry: dict[str, Any]
    agree: bool
    done: str


class ColdFile(Subject):
    """Whole runs and single columns are as they were written, or reported with what is lost."""

    name: ClassVar[str] = "cold"
    verdicts: ClassVar[dict[str, float]] = {"DataDamaged": 0.4, "read in part": 0.2}
    rows = 200

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="promising-fuzz-", dir=MEMORY)
        draw = np.random.default_rng(SEED)
        user, nulls = draw.integers(0, 40, self.rows), draw.random(self.rows) < 0.1
        text = [None if null else f"ü{n}" * (n % 4) for n, null in zip(user.tolist(), nulls, strict=True)]
        columns = {
            "at": Column(np.sort(draw.integers(0, 10**12, self.rows)), None, None),
            "user": Column(user, None, None),
            "name": Column(None, pa.array(text, pa.large_string()), nulls),
            "amount": Column(np.where(nulls, 0.0, draw.normal(size=self.rows)), None, nulls),
        }
        types = {"at": "timestamp", "user": "int", "name": "string", "amount": "float"}
        data, self._entry = pack(types, columns, np.arange(self.rows) // 50 * 60, user % 5, "user")
        self._whole = bytes(data)
        self._columns = columns
        self._offsets = np.arange(0, self.rows, 3, dtype=np.int32)
        self._ranges = self._chunks()

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def _chunks(self) -> list[list[tuple[int, int]]]:
        footer = Footer(self._whole[-self._entry["footer"] :])
        return [footer.ranges(group) for group in range(self._entry["groups"])]

    def input(self, rng: random.Random) -> GivenCold:
        if rng.random() < 0.8:
            data, done = mutated(rng, self._whole)
            return GivenCold(data, self._entry, False, done)
        # Places lie in the last column, and the footer is read by libraries that trust it.
        start, size = rng.choice(rng.choice(self._ranges)[:-1])
        chunk, done = mutated(rng, self._whole[start : start + size])
        chunk = chunk[:size].ljust(size, b"\0")
        data = self._whole[:start] + chunk + self._whole[start + size :]
        sums = [[crc32c(data[start : start + size]) for start, size in group] for group in self._ranges]
        entry = self._entry | {"crcs": base64.b64encode(np.array(sums, "<u4").tobytes()).decode()}
        return GivenCold(data, entry, True, done)

    def judge(self, given: GivenCold) -> str:
        folder = Path(self._folder.name)
        cold = Cold(QuickDisk(), folder, cache_bytes=1 << 20)
        cold.keep(1, given.data, given.entry)
        reads, problems = 0, []
        for read in (self._read_whole, *(self._read_column for _ in self._columns)):
            try:
                found = read(cold) if read == self._read_whole else self._read_column(cold, reads)
            except DataDamaged as problem:
                problems.append(problem)
                if "covers" not in str(problem):
                    raise Broken(f"what is lost? {problem}") from problem
                found = {}
            reads += read != self._read_whole
            for name, (column, offsets) in found.items():
                if not given.agree and _bits(column) != _bits(self._columns[name], offsets):
                    raise Broken(f"column {name!r} is not as it was written")
        if given.data != self._whole and not given.agree and not problems:
            raise Broken("damage to a cold file went unnoticed")
        return "read" if not problems else "DataDamaged" if len(problems) == 5 else "read in part"

    def _read_whole(self, cold: Cold) -> dict[str, Any]:
        every = np.arange(self.rows)
        return {name: (column, every) for name, column in cold.read_whole(1).columns.items()}

    def _read_column(self, cold: Cold, number: int = 0) -> dict[str, Any]:
        name = list(self._columns)[number]
        return {name: (cold.column(1, name, self._offsets), self._offsets)}


def _bits(column: Column, offsets: Any = slice(None)) -> list[Any]:
    if column.values is None:
        return list(np.array(column.text.to_pylist(), object)[offsets])
    nulls = np.zeros(len(column.values), np.bool_) if column.nulls is None else column.nulls
    values = column.values[offsets].tolist()
    return [None if null else value for value, null in zip(values, nulls[offsets].tolist(), strict=True)]
