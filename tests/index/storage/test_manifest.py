"""The manifest has what was last changed, on disk as in memory; or says that it is damaged."""

import errno
import random
import sqlite3
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from promising.errors import DataDamaged, NewerFormat, NotAStore, StorageError, StorageFull, StorageUnavailable
from promising.index.storage import manifest as manifest_module
from promising.index.storage.manifest import VERSION, Manifest
from tests.tiers import examples

KINDS = ("stream", "cold")


def contents(manifest: Manifest) -> dict[str, dict[str, Any]]:
    return {kind: manifest.all(kind) for kind in KINDS}


def stored(path: Path) -> dict[str, dict[str, Any]]:
    manifest = Manifest.open(path, create=False)
    try:
        return contents(manifest)
    finally:
        manifest.close()


def filled(path: Path, entries: int = 12) -> dict[str, dict[str, Any]]:
    manifest = Manifest.open(path, create=True)
    for number in range(entries):
        with manifest.change() as change:
            change.put(KINDS[number % 2], f"{number:016x}", {"rows": number, "crcs": "AbC/" * (number * 20)})
    with manifest.change() as change:
        change.delete("cold", f"{1:016x}")
    found = contents(manifest)
    manifest.close()
    return found


@pytest.fixture
def path(tmp_path):
    return tmp_path / "manifest.sqlite"


def test_what_is_put_is_there_now_and_after(path):
    manifest = Manifest.open(path, create=True)
    with manifest.change() as change:
        change.put("stream", "b", {"Ünï": [1, None, 2.5], "x": "\0"})
        change.put("stream", "a", {})
        change.put("cold", "a", {"n": 1 << 70})
    with manifest.change() as change:
        change.put("stream", "a", {"second": True})
        change.delete("cold", "a")
        change.delete("cold", "never was")
    assert list(manifest.all("stream")) == ["a", "b"]
    assert manifest.get("stream", "a") == {"second": True}
    assert manifest.get("cold", "a") is None
    before = contents(manifest)
    manifest.close()
    assert stored(path) == before
    assert [found.name for found in path.parent.iterdir()] == ["manifest.sqlite"]


def test_what_was_given_out_is_the_callers(path):
    manifest = Manifest.open(path, create=True)
    given = {"list": [1]}
    with manifest.change() as change:
        change.put("stream", "a", given)
        given["list"].append(2)
    found = manifest.get("stream", "a")
    assert found == {"list": [1]}
    found["list"].append(3)
    assert manifest.get("stream", "a") == {"list": [1]}
    manifest.close()


def test_the_log_is_empty_after_each_change(path):
    """A log that is damaged is taken for one never finished: nothing may rest in it."""
    manifest = Manifest.open(path, create=True)
    for number in range(3):
        with manifest.change() as change:
            change.put("stream", str(number), {})
        log = path.with_name(path.name + "-wal")
        assert not log.exists() or log.stat().st_size == 0
    manifest.close()


def test_a_process_that_dies_after_the_commit_has_committed(path):
    """All that SQLite has left behind, as a crash leaves it: the log is not emptied yet."""
    before = filled(path)
    holds = sqlite3.connect(path)  # a reader keeps the log from being emptied
    holds.execute("BEGIN")
    holds.execute("SELECT count(*) FROM entries").fetchone()
    manifest = Manifest.open(path, create=False)
    with manifest.change() as change:
        change.put("stream", "late", {"x": 1})
    crashed = path.parent / "crashed"
    crashed.mkdir()
    log = path.with_name(path.name + "-wal")
    assert log.stat().st_size > 0
    for file in (path, log):
        (crashed / file.name).write_bytes(file.read_bytes())
    manifest.close()
    holds.close()
    before["stream"]["late"] = {"x": 1}
    assert stored(crashed / path.name) == before


def test_a_block_that_raises_changes_nothing(path):
    before = filled(path)
    manifest = Manifest.open(path, create=False)
    with pytest.raises(KeyError), manifest.change() as change:
        change.put("stream", "a", {})
        raise KeyError
    with pytest.raises(ValueError, match="not JSON compliant"), manifest.change() as change:
        change.put("stream", "a", {"nan": float("nan")})
    assert contents(manifest) == before
    manifest.close()
    assert stored(path) == before


class Crash(BaseException):
    pass


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (OSError(errno.ENOSPC, "no space"), StorageFull),
        (OSError(errno.EIO, "broken"), StorageUnavailable),
        (sqlite3.OperationalError("odd"), StorageUnavailable),
        (Crash(), Crash),
    ],
)
def test_a_fault_before_the_commit_changes_nothing(path, problem, expected):
    before = filled(path)
    faults = [problem]

    def fault(point: str) -> None:
        if point == "before" and faults:
            raise faults.pop()

    manifest = Manifest.open(path, create=False, fault=fault)
    with pytest.raises(expected), manifest.change() as change:
        change.put("stream", "a", {})
        change.delete("cold", f"{3:016x}")
    assert contents(manifest) == before
    with manifest.change() as change:  # and it goes on
        change.put("stream", "b", {})
    before["stream"]["b"] = {}
    assert contents(manifest) == before
    manifest.close()
    assert stored(path) == before


def test_a_fault_after_the_commit_finds_it_done(path):
    before = filled(path)

    def fault(point: str) -> None:
        if point == "after":
            raise Crash

    manifest = Manifest.open(path, create=False, fault=fault)
    with pytest.raises(Crash), manifest.change() as change:
        change.put("stream", "a", {"x": 1})
    before["stream"]["a"] = {"x": 1}
    assert contents(manifest) == before
    manifest.close()
    assert stored(path) == before


def test_a_full_database_is_a_full_disk(path):
    before = filled(path)
    manifest = Manifest.open(path, create=False)
    (pages,) = manifest._db.execute("PRAGMA page_count").fetchone()
    manifest._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StorageFull, match=r"manifest\.sqlite cannot be written: .* full"), manifest.change() as change:
        change.put("stream", "large", {"x": "y" * 100_000})
    assert contents(manifest) == before
    manifest._db.execute("PRAGMA max_page_count=1000000")
    with manifest.change() as change:
        change.put("stream", "large", {"x": "y" * 100_000})
    manifest.close()
    assert stored(path)["stream"]["large"] == {"x": "y" * 100_000}


def test_a_database_locked_by_another_is_unavailable(path):
    before = filled(path)
    manifest = Manifest.open(path, create=False)
    manifest._db.execute("PRAGMA busy_timeout=1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable, match="locked"), manifest.change() as change:
        change.put("stream", "a", {})
    assert contents(manifest) == before
    other.close()
    manifest.close()


def test_damage_that_shows_at_a_change_is_damage(path):
    before = filled(path, 60)
    manifest = Manifest.open(path, create=False)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))
    manifest._db.execute("PRAGMA shrink_memory")  # what SQLite has in memory hides it
    with pytest.raises(DataDamaged, match=r"manifest\.sqlite is damaged"), manifest.change() as change:
        change.put("stream", "a", {})
    assert contents(manifest) == before
    manifest.close()


def test_a_manifest_that_is_closed_takes_nothing(path):
    manifest = Manifest.open(path, create=True)
    manifest.close()
    with pytest.raises(StorageUnavailable), manifest.change() as change:
        change.put("stream", "a", {})


def flips(data: bytearray, many: int) -> list[int]:
    """Bits to flip: more of those in the first page, which is the most intricate."""
    draw = random.Random(5)
    near = [draw.randrange(min(4096, len(data)) * 8) for _ in range(many // 3)]
    return list(range(100 * 8)) + near + [draw.randrange(len(data) * 8) for _ in range(many)]


@pytest.fixture
def unsynced(monkeypatch):
    """Thousands of files that need not outlast a crash."""

    def connect(path: Path) -> sqlite3.Connection:
        db = really(path)
        db.execute("PRAGMA synchronous=OFF")
        return db

    really = manifest_module._connect
    monkeypatch.setattr(manifest_module, "_connect", connect)


@pytest.mark.deep("damages a file many times")
@pytest.mark.usefixtures("unsynced")
def test_a_flipped_bit_is_found_or_does_no_harm(tmp_path):
    """What opens has all entries, and takes changes."""
    original = tmp_path / "original"
    before = filled(original)
    data = bytearray(original.read_bytes())
    damaged = tmp_path / "damaged"
    found = 0
    for bit in flips(data, 600):
        for left in tmp_path.glob("damaged-*"):
            left.unlink()
        data[bit // 8] ^= 1 << bit % 8
        damaged.write_bytes(data)
        data[bit // 8] ^= 1 << bit % 8
        try:
            manifest = Manifest.open(damaged, create=False)
        except (DataDamaged, NotAStore, NewerFormat):
            found += 1
            continue
        assert contents(manifest) == before, f"bit {bit}"
        if bit < 800 or bit % 5 == 0:
            with manifest.change() as change:
                change.put("stream", "more", {"x": "y" * 9000})
            after = contents(manifest)
            assert stored(damaged) == after, f"bit {bit}"
        manifest.close()
    assert found > 300


@pytest.mark.parametrize("byte", [18, 19])
def test_a_format_sqlite_would_only_read_is_damage(path, byte):
    filled(path)
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataDamaged, match="does not start as a database does"):
        Manifest.open(path, create=False)


@pytest.mark.usefixtures("unsynced")
def test_every_bit_of_an_entry_counts(tmp_path):
    original = tmp_path / "original"
    filled(original, 2)
    data = bytearray(original.read_bytes())
    start = data.index(b"stream0000")
    stop = data.index(b"}", start)
    damaged = tmp_path / "damaged"
    for bit in range(start * 8, stop * 8):
        data[bit // 8] ^= 1 << bit % 8
        damaged.write_bytes(data)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DataDamaged, match=r"damaged is damaged"):
            Manifest.open(damaged, create=False)


def test_a_cut_file_is_found(tmp_path):
    original = tmp_path / "original"
    filled(original)
    data = original.read_bytes()
    damaged = tmp_path / "damaged"
    for length in [*range(0, 200, 7), *range(200, len(data), 509)]:
        damaged.write_bytes(data[:length])
        with pytest.raises((DataDamaged, NotAStore)):
            Manifest.open(damaged, create=True)
        for left in tmp_path.glob("damaged-*"):
            left.unlink()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entries WHERE key='0000000000000004'",
        "UPDATE entries SET key='x' WHERE key='0000000000000004'",
        "UPDATE entries SET content='text' WHERE key='0000000000000004'",
        "UPDATE entries SET content=NULL WHERE key='0000000000000004'",
        "UPDATE entries SET key=x'ff' WHERE key='0000000000000004'",
        "UPDATE entries SET key=CAST(x'ff' AS TEXT) WHERE key='0000000000000004'",
        "UPDATE entries SET crc=crc+1 WHERE key='0000000000000004'",
        "UPDATE digest SET entries=entries+1",
        "UPDATE digest SET crcs=crcs+1",
        "UPDATE digest SET version=2",
        "DELETE FROM digest",
        "INSERT INTO digest SELECT * FROM digest",
        "ALTER TABLE entries ADD COLUMN more",
        "CREATE TABLE more (x)",
        "PRAGMA application_id=7",
        "PRAGMA user_version=0",
        "PRAGMA user_version=3",
    ],
)
def test_what_another_program_changed_is_damage(path, statement):
    filled(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute(statement)
    other.close()
    with pytest.raises(DataDamaged, match=r"manifest\.sqlite is damaged"):
        Manifest.open(path, create=False)


def test_a_newer_format_is_refused(path):
    filled(path)
    for statement in ("UPDATE digest SET version=2", "CREATE TABLE more (x)"):
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("PRAGMA user_version=2")
        other.execute(statement)
        other.close()
        with pytest.raises(NewerFormat, match=f"format 2; this release reads up to {VERSION}"):
            Manifest.open(path, create=False)


def test_a_database_of_something_else_is_no_store(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(NotAStore, match="of something else"):
        Manifest.open(path, create=True)


def test_a_missing_manifest_is_damage_unless_one_is_to_be_made(path):
    with pytest.raises(DataDamaged, match=r"manifest\.sqlite is missing"):
        Manifest.open(path, create=False)
    Manifest.open(path, create=True).close()
    assert stored(path) == {"stream": {}, "cold": {}}


def test_what_was_left_half_made_is_made_again(path):
    path.with_name(path.name + ".new").write_bytes(b"half")
    path.with_name(path.name + ".new-wal").write_bytes(b"half")
    Manifest.open(path, create=True).close()
    assert [found.name for found in path.parent.iterdir()] == ["manifest.sqlite"]


def test_a_place_that_cannot_be_written_is_unavailable(tmp_path):
    with pytest.raises(StorageUnavailable):
        Manifest.open(tmp_path / "no folder" / "manifest.sqlite", create=True)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageUnavailable):
        Manifest.open(tmp_path / "folder", create=False)


def test_a_copy_is_as_of_one_moment(path):
    """Two entries that are always changed together are alike in every copy."""
    manifest = Manifest.open(path, create=True)
    stop = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            with manifest.change() as change:
                change.put("stream", "a", {"n": number})
                change.put("stream", "b", {"n": number})
            number += 1

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for number in range(10):
            copy = path.with_name(f"copy{number}")
            manifest.copy_to(copy)
            found = stored(copy)["stream"]
            assert found.get("a") == found.get("b")
    finally:
        stop.set()
        worker.join()
    with pytest.raises(StorageUnavailable, match="is there already"):
        manifest.copy_to(path.with_name("copy0"))
    with pytest.raises(StorageUnavailable):
        manifest.copy_to(path.parent / "no folder" / "copy")
    manifest.close()


def test_a_copy_that_fails_leaves_nothing(path):
    filled(path)
    manifest = Manifest.open(path, create=False)
    manifest._db.close()
    with pytest.raises(StorageError):
        manifest.copy_to(path.with_name("copy"))
    assert not path.with_name("copy").exists()


def test_threads_lose_no_change_and_see_no_half(path):
    manifest = Manifest.open(path, create=True)
    halves: list[str] = []

    def work(name: str) -> None:
        for number in range(20):
            with manifest.change() as change:
                change.put("stream", f"{name} one", {"n": number})
                change.put("stream", f"{name} two", {"n": number})
            found = manifest.all("stream")
            halves.extend(key for key in found if found[key] != found[f"{key[0]} one"])

    workers = [threading.Thread(target=work, args=(str(n),)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expected = {f"{n} {which}": {"n": 19} for n in range(6) for which in ("one", "two")}
    assert not halves
    assert manifest.all("stream") == expected
    manifest.close()
    assert stored(path)["stream"] == expected


class Machine(RuleBasedStateMachine):
    """Any changes, with faults and restarts between them, against a dict."""

    @initialize()
    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "manifest.sqlite"
        self.failing = False
        self.model: dict[tuple[str, str], Any] = {}
        self.open()

    def open(self) -> None:
        self.manifest = Manifest.open(self.path, create=not self.path.exists(), fault=self.fault)

    def fault(self, point: str) -> None:
        if self.failing and point == "before":
            raise OSError(errno.EIO, "broken")

    @rule(
        steps=st.lists(
            st.tuples(
                st.sampled_from(KINDS),
                st.text(max_size=2),
                st.none() | st.dictionaries(st.text(max_size=3), st.integers() | st.text(), max_size=3),
            )
        ),
        failing=st.booleans(),
    )
    def change(self, steps, failing):
        self.failing = failing
        try:
            with self.manifest.change() as change:
                for kind, key, content in steps:
                    if content is None:
                        change.delete(kind, key)
                    else:
                        change.put(kind, key, content)
        except StorageUnavailable:
            assert failing
            return
        assert not failing
        for kind, key, content in steps:
            self.model.pop((kind, key), None)
            if content is not None:
                self.model[kind, key] = content

    @rule()
    def restart(self):
        self.manifest.close()
        self.open()

    @invariant()
    def alike(self):
        if hasattr(self, "manifest"):
            for kind in KINDS:
                found = self.manifest.all(kind)
                assert found == {key: content for (of, key), content in self.model.items() if of == kind}
                assert list(found) == sorted(found)

    def teardown(self):
        if hasattr(self, "manifest"):
            self.manifest.close()
            self.folder.cleanup()


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=examples(25), stateful_step_count=15)
