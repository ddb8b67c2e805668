"""Tables outlive the process: every change that was answered for is there again, and none in part.

Faults come at every call that changes something on disk, and around every commit of the manifest, one at a time.
"""

import errno
import itertools
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import promising.index.storage.store
from promising.errors import (
    DataDamaged,
    DuplicateName,
    StorageError,
    StorageFull,
    StorageUnavailable,
    TableError,
    UnknownName,
)
from promising.index.schema import Fields
from promising.index.storage import manifest as manifest_module
from promising.index.storage import table_store
from promising.index.storage.backup import backup, restore
from promising.index.storage.repair import repair
from promising.index.storage.store import MANIFEST, Store
from promising.index.storage.store_options import StoreOptions
from promising.index.storage.table_file import pack, unpack
from promising.index.storage.verify import verify
from promising.index.table import Table
from tests.index.storage.flaky import Crash, FlakyDisk
from tests.index.storage.lives import NOW, SEED, abandon
from tests.index.tables import TYPES, Truth, batch
from tests.tiers import examples

LIMITS = StoreOptions(sync_ahead=False, checkpoint_bytes=1 << 40)
TICKS = {"ts": "timestamp", "k": "int"}


@contextmanager
def quick() -> Iterator[None]:
    """No upkeep, few files, and no waiting for the medium: what survives is the flaky disk's to say."""
    before = promising.index.storage.store.TICK, table_store.MOST_FILES, manifest_module._connect

    def connect(path: Path) -> sqlite3.Connection:
        db = before[2](path)
        db.execute("PRAGMA synchronous=OFF")
        return db

    promising.index.storage.store.TICK, table_store.MOST_FILES, manifest_module._connect = 3600.0, 2, connect
    try:
        yield
    finally:
        promising.index.storage.store.TICK, table_store.MOST_FILES, manifest_module._connect = before


@pytest.fixture(autouse=True)
def _quick():
    with quick():
        yield


def opened(folder: Path, disk: FlakyDisk | None = None, fault: Callable[[str], None] = lambda point: None) -> Store:
    return Store.open(folder, seed=SEED, clock=lambda: NOW, disk=disk or FlakyDisk(), options=LIMITS, fault=fault)


def told(table: Table) -> dict[str, Any]:
    """All that a table knows."""
    image = table.image()
    rows = table.rows()
    return {
        "definition": (table.name, table.schema.types, table.key, table.retroactive, table.max_rows),
        "rows": rows.to_pydict(),
        "changes": (image.first, table.changes, image.following),
        "positions": image.positions,
        "versions": [part.tolist() for part in (image.numbers, image.born, image.ended, image.died)],
        "values": [table.take(name, image.numbers).to_pylist() for name in table.schema.types],
    }


def filled(folder: Path) -> Store:
    store = opened(folder)
    table = store.create_table("rates", TYPES, "k", retroactive=False, max_rows=100)
    table.change({"k": [1, 2], "v": ["a", None], "x": [None, 2.5]}, None, {"s": 3})
    table.change({"k": [2, 3], "v": ["Ü", ""], "x": [1, -0.0]}, [1], {"s": 5, "t": 1})
    return store


# --- a restart -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [Store.close, abandon])
def test_all_is_there_again(tmp_path, end):
    store = filled(tmp_path)
    other = store.create_table("Other", {"when": "timestamp", "b": "bool"}, "when")
    other.change({"when": pa.array([5, 6], pa.timestamp("us")), "b": [True, None]}, None, {})
    before = {name: told(table) for name, table in store.tables.items()}
    end(store)
    store = opened(tmp_path)
    assert {name: told(table) for name, table in store.tables.items()} == before
    store.tables["rates"].change({"k": [9], "v": ["new"], "x": [0]}, None, {}, mode="insert")
    after = told(store.tables["rates"])
    abandon(store)
    store = opened(tmp_path)
    assert told(store.tables["rates"]) == after
    store.close()


def test_many_files_become_one(tmp_path):
    store = filled(tmp_path)
    table = store.tables["rates"]
    for number in range(20):
        table.change({"k": [number % 4], "v": [str(number)], "x": [0]}, None, {"s": 10 + number})
        assert len(list(tmp_path.glob("tables/*/*"))) <= table_store.MOST_FILES + 1
    before = told(table)
    abandon(store)
    store = opened(tmp_path)
    assert told(store.tables["rates"]) == before
    store.close()
    assert verify(tmp_path) == []


def test_a_large_table_is_not_written_for_few_small_changes(tmp_path):
    with opened(tmp_path) as store:
        table = store.create_table("t", TYPES, "k")
        table.change({"k": list(range(500)), "v": ["y" * 1000] * 500, "x": [0] * 500}, None, {})
        store._tables["t"].fold()
        most = table_store.MOST_FILES * table_store.PATIENCE
        files = []
        for number in range(most + 8):
            table.change({"k": [1], "v": [str(number)], "x": [0]}, None, {})
            files.append(len(list(tmp_path.glob("tables/*/*"))))
        assert files == [*range(2, most + 2), 1, *range(2, 9)]


def test_large_changes_are_folded_too(tmp_path, monkeypatch):
    monkeypatch.setattr(table_store, "MOST_FILES", 1000)
    monkeypatch.setattr(table_store, "MOST_BYTES", 20_000)
    with opened(tmp_path) as store:
        table = store.create_table("t", TYPES, "k")
        for number in range(12):
            table.change({"k": [1], "v": ["y" * 5000 + str(number)], "x": [0]}, None, {})
            table.trim({})
        assert 1 <= len(list(tmp_path.glob("tables/*/*"))) <= 6


def test_what_was_trimmed_when_a_table_was_folded_is_gone(tmp_path):
    with opened(tmp_path) as store:
        table = store.create_table("t", TYPES, "k")
        for number in range(3):
            table.change({"k": [1], "v": [str(number)], "x": [0]}, None, {"s": number})
        table.trim({})
        table.change({"k": [2], "v": [""], "x": [0]}, None, {"s": 9})
        store._tables["t"].fold()
        before = told(table)
    with opened(tmp_path) as store:
        table = store.tables["t"]
        assert told(table) == before
        assert (table.base, table.changes, table.find([1, 2]).tolist()) == (3, 4, [2, 3])
        assert table.change_at("s", np.array([0, 8, 9])).tolist() == [3, 3, 4]


def test_names(tmp_path):
    store = filled(tmp_path)
    with pytest.raises(DuplicateName, match="a table 'rates' already"):
        store.create_table("rates", {"k": "int"}, "k")
    with pytest.raises(UnknownName, match="no table 'rate'"):
        store.drop(None, table="rate")
    store.close()
    with pytest.raises(StorageUnavailable, match="is closed"):
        store.create_table("more", {"k": "int"}, "k")


def test_a_dropped_table_is_gone_with_its_files(tmp_path):
    store = filled(tmp_path)
    store.put_query("q", "SELECT 1", ["rates"])
    table = store.tables["rates"]
    store.drop(None, ["q"], table="rates")
    assert (store.tables, store.queries) == ({}, {})
    assert list(tmp_path.glob("tables/*/*")) == []
    with pytest.raises(UnknownName, match="'rates' was dropped"):
        table.change(None, [2], {})
    store.create_table("rates", {"n": "int"}, "n")  # another one
    store.close()
    with opened(tmp_path) as store:
        assert (store.tables["rates"].changes, store.tables["rates"].key, store.queries) == (0, "n", {})
    assert verify(tmp_path) == []


# --- positions -------------------------------------------------------------------------------------------------------


def append(store: Store, times: int) -> None:
    for _ in range(times):
        store.streams["s"].append({"ts": [1], "k": [1]})


def put(table: Table, store: Store, value: int) -> None:
    table.change({"k": [value], "v": ["x"], "x": [value]}, None, {n: s.arrived for n, s in store.streams.items()})


def test_a_stream_made_anew_begins_after_all_changes(tmp_path):
    store = opened(tmp_path)
    table = store.create_table("t", TYPES, "k")
    store.create_stream("s", TICKS, "ts")
    append(store, 4)
    put(table, store, 1)
    store.drop_stream("s")
    store.create_stream("s", TICKS, "ts")
    append(store, 2)
    put(table, store, 2)
    for _ in range(3):
        table = store.tables["t"]
        assert table.change_at("s", np.arange(4)).tolist() == [1, 1, 2, 2]
        abandon(store)
        store = opened(tmp_path)
    store._tables["t"].fold()
    assert store._manifest.all("table").popitem()[1]["caps"] == []
    abandon(store)
    with opened(tmp_path) as store:
        assert store.tables["t"].change_at("s", np.arange(4)).tolist() == [1, 1, 2, 2]


def test_arrivals_that_were_lost_are_others_when_they_come_again(tmp_path):
    """The log of a stream that is synced now and then may lose its end; a table never does."""
    store = opened(tmp_path)
    store.create_stream("s", TICKS, "ts")
    table = store.create_table("t", TYPES, "k")
    append(store, 2)
    table.change({"k": [1], "v": ["x"], "x": [0]}, None, {"s": 5})  # three of which nobody will ever hear again
    abandon(store)
    store = opened(tmp_path)
    assert store.tables["t"].change_at("s", np.arange(4)).tolist() == [0, 0, 1, 1]
    append(store, 8)
    abandon(store)
    with opened(tmp_path) as store:
        assert store.tables["t"].change_at("s", np.arange(4)).tolist() == [0, 0, 1, 1]


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "error"), [(errno.ENOSPC, StorageFull), (errno.EIO, StorageUnavailable)])
def test_a_change_that_cannot_be_written_is_not_made(tmp_path, code, error):
    disk = FlakyDisk()
    store = opened(tmp_path, disk)
    table = store.create_table("t", TYPES, "k")
    put(table, store, 1)
    before = told(table)
    start = len(disk.calls)
    put(table, store, 2)
    table.change(None, [2], {})
    calls = (len(disk.calls) - start) // 2
    before = told(table)
    for number in range(1, calls + 1):
        disk.fail_at(len(disk.calls) + number, code, short=True)
        try:
            put(table, store, 3)
        except error:
            disk.mend()
            assert told(table) == before
        else:  # what failed came after the change was made, or would have
            disk.mend()
            table.change(None, [3], {})
            before = told(table)
    abandon(store)
    with opened(tmp_path) as store:
        assert told(store.tables["t"]) == before


class Run:
    """A script under way."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.disk = FlakyDisk(seed=seed)
        self.commits = 0
        self.crash_at = 0
        """Number of the commit to crash before, or after."""
        self.store: Store | None = None

    def commit(self, point: str) -> None:
        self.commits += 1
        if self.commits == self.crash_at:
            self.disk.crashed = True
            raise Crash

    def open(self) -> None:
        self.store = opened(self.folder, self.disk, self.commit)

    def end(self) -> None:
        if self.store is not None:
            abandon(self.store)
            self.store = None

    def world(self) -> dict[str, Any]:
        assert self.store is not None
        found = {name: told(table) for name, table in self.store.tables.items()}
        return {**found, "streams": sorted(self.store.streams)}


def change(table: str, number: int, puts: dict[int, str], deletes: list[int] | None = None) -> Callable[[Store], None]:
    def step(store: Store) -> None:
        if store.tables[table].changes < number:
            rows = {"k": list(puts), "v": list(puts.values()), "x": [0.5] * len(puts)} if puts else None
            store.tables[table].change(rows, deletes, {n: s.arrived for n, s in store.streams.items()})

    return step


def make(table: str) -> Callable[[Store], object]:
    return lambda store: table in store.tables or store.create_table(table, TYPES, "k")


def drop(table: str) -> Callable[[Store], None]:
    return lambda store: store.drop(None, table=table) if table in store.tables else None


def stream(there: bool) -> Callable[[Store], None]:
    def step(store: Store) -> None:
        if there and "s" not in store.streams:
            store.create_stream("s", TICKS, "ts")
        elif not there and "s" in store.streams:
            store.drop_stream("s")

    return step


def arrive(number: int) -> Callable[[Store], object]:
    return lambda store: store.streams["s"].append({"ts": [1], "k": [1]}, producer="p", sequence=number)


SCRIPT: list[Callable[[Store], object]] = [
    make("t"),
    stream(True),
    arrive(1),
    change("t", 1, {1: "a", 2: "b", 3: "c"}),
    arrive(2),
    change("t", 2, {2: "bb", 4: "d"}, [1]),
    change("t", 3, {}, [2, 3]),  # folds
    stream(False),
    make("u"),
    change("u", 1, {7: "x"}),
    change("t", 4, {1: "again"}),
    drop("u"),
    make("u"),
    change("t", 5, {5: "e" * 100}),
    change("t", 6, {5: "f"}),
]


def play(run: Run, worlds: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The script, going on after a crash; `worlds` is what there must be before each step, and after the last."""
    seen: list[dict[str, Any]] = []
    steps: list[Callable[[Store], object]] = [lambda store: None, *SCRIPT]
    for done, step in enumerate(steps):
        while True:
            try:
                if run.store is None:
                    run.open()
                assert run.store is not None
                step(run.store)
                break
            except Crash:
                run.end()
                run.crash_at = 0
                run.disk.lose()
                run.open()
                if worlds is not None:
                    assert run.world() in worlds[max(done - 1, 0) : done + 1]
        seen.append(run.world())
        if worlds is not None:
            assert seen[-1] == worlds[done]
    run.end()
    run.disk.lose()
    run.open()
    assert run.world() == seen[-1]
    run.end()
    return seen


def room() -> tempfile.TemporaryDirectory[str]:
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if memory.is_dir() and os.access(memory, os.W_OK) else None)


@pytest.mark.deep("a crash at every call of the disk")
@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_any_moment_loses_no_change_that_was_answered_for(part):
    with room() as place:
        folders = (Path(place) / str(number) for number in itertools.count())
        first = Run(next(folders), 0)
        worlds = play(first, None)
        assert worlds[-1]["t"]["rows"]["v"] == ["d", "again", "f"]
        calls, commits = len(first.disk.calls), first.commits
        assert calls > 60
        assert commits > 20
        for number in range(1 + part, calls + 1, 4):
            run = Run(next(folders), number)
            run.disk.crash_at(number)
            play(run, worlds)
            shutil.rmtree(run.folder)
        for number in range(1 + part, commits + 1, 4):
            run = Run(next(folders), number)
            run.crash_at = number
            play(run, worlds)
            shutil.rmtree(run.folder)


def test_a_change_of_which_nobody_knows_whether_it_was_made(tmp_path):
    """The commit fails, and the manifest cannot be read either: the file stays, as it may be named."""
    faults: list[OSError] = []

    def fault(point: str) -> None:
        if point == "before" and faults:
            raise faults.pop()

    store = opened(tmp_path, fault=fault)
    table = store.create_table("t", TYPES, "k")
    put(table, store, 1)
    really, store._manifest._again = store._manifest._again, _unreadable  # type: ignore[method-assign]
    faults.append(OSError(errno.EIO, "broken"))
    with pytest.raises(StorageUnavailable):
        put(table, store, 2)
    assert store._manifest.stale
    assert (table.changes, len(list(tmp_path.glob("tables/*/*")))) == (1, 2)
    store._manifest._again = really  # type: ignore[method-assign]
    put(table, store, 3)
    before = told(table)
    abandon(store)
    with opened(tmp_path) as store:
        assert told(store.tables["t"]) == before
        assert len(list(tmp_path.glob("tables/*/*"))) == 2


def _unreadable() -> None:
    raise StorageUnavailable("not now")


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path, monkeypatch):
    """A store of a table with three files, and what the table was before each."""
    monkeypatch.setattr(table_store, "MOST_FILES", 1000)
    folder = tmp_path / "store"
    store = opened(folder)
    table = store.create_table("t", TYPES, "k")
    states = [told(table)]
    for number in range(3):
        table.change(
            {"k": [1, number], "v": [str(number), "y"], "x": [0, number]}
            if number > 1
            else {"k": [number], "v": [str(number)], "x": [number]},
            None,
            {"s": number},
        )
        states.append(told(table))
    store.close()
    assert verify(folder) == []
    return folder, states


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("tables/*/*"))


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("how", ["flip", "cut", "more", "gone"])
def test_damage_is_found_and_repaired_as_far_as_can_be(three, number, how, tmp_path):
    folder, states = three
    path = files_of(folder)[number]
    content = path.read_bytes()
    spoilt = {
        "flip": content[:50] + bytes([content[50] ^ 4]) + content[51:],
        "cut": content[:-1],
        "more": content + b"x",
    }
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(spoilt[how])
    found = verify(folder)
    assert [(f.severity, f.path) for f in found] == [("error", str(path))]
    assert found[0].what.startswith("table 't': ")
    with opened(folder) as store:
        why = store.set_aside["t"]
        assert re.search(rf"table 't' is set aside: .*{path.name}.*repair the store: .* after change {number}", why)
        assert store.report == [why] and store.stats()["damages"] == 1
        with pytest.raises(DataDamaged, match="set aside"):
            put(store.tables["t"], store, 77)
    with pytest.raises(DataDamaged, match=path.name):
        restore(folder, tmp_path / "restored")
    assert path.name in backup(folder, tmp_path / "copy").damages[0]
    said = repair(folder)
    assert len(said) == 1
    assert said[0].startswith(f"table 't': given up: changes {number + 1} to 3: ")
    with opened(folder) as store:
        assert told(store.tables["t"]) == states[number]
        put(store.tables["t"], store, 77)
    assert [f for f in verify(folder) if f.severity == "error"] == []
    assert repair(folder) == []


def test_every_bit_of_a_file_counts(three):
    folder, _ = three
    path = files_of(folder)[1]
    content = path.read_bytes()
    for at in range(0, len(content), 31):
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :])
        with opened(folder) as store:
            assert "t" in store.set_aside


@pytest.mark.parametrize("spoil", [lambda b: b"", lambda b: b[:100], lambda b: b + b, lambda b: b.replace(b"k", b"q")])
def test_bytes_that_are_no_record(spoil, tmp_path):
    store = filled(tmp_path)
    content = bytes(pack(store.tables["rates"].image(), Fields(TYPES)))
    assert unpack(content, Fields(TYPES)).last == 2
    with pytest.raises(DataDamaged, match="no record of changes"):
        unpack(spoil(content), Fields(TYPES))
    with pytest.raises(DataDamaged, match="its columns are"):
        unpack(content, Fields({**TYPES, "x": "int"}))
    store.close()


def test_a_file_that_nobody_names_is_told_of_and_removed(three):
    folder, states = three
    odd = files_of(folder)[0].with_name("00000000000000ff.arrow")
    odd.write_bytes(b"left over")
    lost = folder / "tables" / "0123" / "0.arrow"
    lost.parent.mkdir()
    lost.write_bytes(b"")
    assert [(f.severity, f.path) for f in verify(folder)] == [("warning", str(odd)), ("warning", str(lost.parent))]
    with opened(folder) as store:
        assert told(store.tables["t"]) == states[-1]
    assert (odd.exists(), lost.exists()) == (False, False)


# --- copies ----------------------------------------------------------------------------------------------------------


def test_a_backup_has_the_tables(tmp_path):
    store = filled(tmp_path / "store")
    report = backup(tmp_path / "store", tmp_path / "copy")  # while it is in use
    before = told(store.tables["rates"])
    assert (report.tables, report.damages, report.attempts) == (1, [], 1)
    put(store.tables["rates"], store, 8)
    store.close()
    assert verify(tmp_path / "copy") == []
    restore(tmp_path / "copy", tmp_path / "back")
    with opened(tmp_path / "back") as store:
        assert told(store.tables["rates"]) == before


def test_a_backup_of_a_table_that_is_folded_meanwhile(tmp_path, monkeypatch):
    store = filled(tmp_path / "store")
    table = store._tables["rates"]
    told_before = told(table.table)
    snapshot, folds = promising.index.storage.backup._snapshot, [1]

    def slow(source: Path, target: Path) -> None:
        snapshot(source, target)
        if folds:
            folds.pop()
            table.fold()  # after the manifest was copied, before the files are

    monkeypatch.setattr(promising.index.storage.backup, "_snapshot", slow)
    report = backup(tmp_path / "store", tmp_path / "copy")
    assert report.attempts in (2, 3)
    assert report.damages == []
    store.close()
    assert verify(tmp_path / "copy") == []
    with opened(tmp_path / "copy") as store:
        assert told(store.tables["rates"]) == told_before


# --- anything --------------------------------------------------------------------------------------------------------

KEYS = list(range(5))
values = st.tuples(st.sampled_from(["", "a", None]), st.sampled_from([0.0, 1.5, None]))
puts = st.dictionaries(st.sampled_from(KEYS), values, min_size=1, max_size=3)


class Lives(RuleBasedStateMachine):
    """A table in a store, which is closed or killed and opened again at any time, against all it ever had."""

    def __init__(self) -> None:
        super().__init__()
        self.quick = quick()
        self.quick.__enter__()
        self.room = room()
        self.disk = FlakyDisk()
        self.store = opened(Path(self.room.name) / "store", self.disk)
        self.store.create_table("t", TYPES, "k")
        self.store.create_stream("s", TICKS, "ts")
        self.truth = Truth()

    def teardown(self) -> None:
        abandon(self.store)
        self.room.cleanup()
        self.quick.__exit__(None, None, None)

    @property
    def table(self) -> Table:
        return self.store.tables["t"]

    @rule(tuples=st.integers(1, 3))
    def arrive(self, tuples):
        append(self.store, tuples)

    @rule(puts=puts, deletes=st.sets(st.sampled_from(KEYS), max_size=2))
    def change(self, puts, deletes):
        rows = {key: (key, *row) for key, row in puts.items()}
        positions = {"s": self.store.streams["s"].arrived}
        with suppress(TableError):
            self.table.change(batch(rows), sorted(deletes) or None, positions)
            self.truth.change(rows, sorted(deletes), positions)

    @rule(puts=puts, at=st.integers(1, 4))
    def fail(self, puts, at):
        """A change while the disk fails is made or not, and the caller knows which."""
        rows = {key: (key, *row) for key, row in puts.items()}
        positions = {"s": self.store.streams["s"].arrived}
        self.disk.fail_next(errno.ENOSPC) if at == 1 else self.disk.fail_at(len(self.disk.calls) + at, errno.EIO)
        with suppress(StorageError):
            self.table.change(batch(rows), None, positions)
            self.truth.change(rows, [], positions)
        self.disk.mend()

    @rule()
    def fold(self):
        self.store._tables["t"].fold()

    @rule(back=st.integers(0, 5))
    def trim(self, back):
        oldest = {"s": max(self.store.streams["s"].arrived - back, 0)}
        self.truth.trim(oldest)
        self.table.trim(oldest)

    @rule(kill=st.booleans())
    def reopen(self, kill):
        if kill:
            abandon(self.store)
            self.disk.lose()
        else:
            self.store.close()
        self.store = opened(Path(self.room.name) / "store", self.disk)
        assert self.table.base <= self.truth.floor  # what was trimmed may be there again
        self.table.trim({}, seen=self.truth.floor)

    @invariant()
    def same(self):
        self.truth.same(self.table, [*KEYS, None], ["s"])


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=examples(20), stateful_step_count=15, deadline=None)


def test_the_manifest_names_every_file(three):
    folder, _ = three
    db = sqlite3.connect(folder / MANIFEST)
    named = [key.partition("/") for (key,) in db.execute("SELECT key FROM entries WHERE kind='change' ORDER BY key")]
    db.close()
    assert [(owner, int(last, 16)) for owner, _, last in named] == [
        (files_of(folder)[0].parent.name, n) for n in (1, 2, 3)
    ]
