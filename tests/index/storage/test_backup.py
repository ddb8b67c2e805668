"""A backup has all that was acknowledged before it began, whatever the store does meanwhile; and comes back."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

import promising.index.storage.backup
from promising.errors import DataDamaged, NotAStore, StorageFull, StorageUnavailable
from promising.index.storage.backup import backup, restore
from promising.index.storage.manifest import Manifest
from promising.index.storage.store import Store
from promising.index.storage.verify import verify
from tests.crash import feed
from tests.index.storage.damage import BATCHES, answers, contents, files, filled, flip, send
from tests.index.storage.lives import LIMITS, abandon, opened, small_and_quiet


@pytest.fixture(autouse=True)
def small():
    with small_and_quiet():
        yield


def errors(path: Path) -> list[str]:
    return [finding.what for finding in verify(path) if finding.severity == "error"]


def reopened(path: Path) -> dict[str, str]:
    store = opened(path)
    try:
        assert store.report == []
        return answers(store)
    finally:
        abandon(store)


def test_of_a_store_in_use(folder, tmp_path):
    store = opened(folder)
    before = answers(store)
    seen: list[tuple[int, int, str]] = []
    report = backup(tmp_path / "store", tmp_path / "copy", lambda *told: seen.append(told))
    assert (report.streams, report.attempts, report.damages) == (1, 1, [])
    assert report.files == len(contents(tmp_path / "copy"))
    assert report.bytes == sum(f.stat().st_size for f in (tmp_path / "copy").rglob("*") if f.is_file())
    done = [d for d, _, _ in seen]
    assert done == sorted(done)
    assert seen[-1][0] == seen[-1][1] > 0
    send(store, BATCHES + 1)  # not in the backup, and does it no harm
    store.close()
    assert errors(tmp_path / "copy") == []
    assert reopened(tmp_path / "copy") == before


def test_of_a_store_that_is_closed_changes_nothing_of_it(folder, tmp_path):
    opened(folder).close()
    before = contents(tmp_path / "store")
    backup(tmp_path / "store", tmp_path / "copy")
    assert contents(tmp_path / "store") == before
    restore(tmp_path / "copy", tmp_path / "deep" / "back")
    assert contents(tmp_path / "copy").keys() == contents(tmp_path / "deep" / "back").keys()
    assert not list(tmp_path.rglob("*.part"))
    assert reopened(tmp_path / "deep" / "back") == reopened(tmp_path / "store")


def test_of_a_store_that_was_killed(folder, tmp_path):
    before = reopened(folder)
    last = files(tmp_path / "store", "wal")[-1]
    last.write_bytes(last.read_bytes() + b"half a record")
    assert backup(tmp_path / "store", tmp_path / "copy").damages == []
    store = opened(tmp_path / "copy")
    assert "cut off" in store.report[0]
    assert answers(store) == before
    abandon(store)


def test_of_an_empty_store(tmp_path):
    opened(tmp_path / "store").close()
    assert backup(tmp_path / "store", tmp_path / "copy").streams == 0
    assert verify(tmp_path / "copy") == []
    store = opened(tmp_path / "copy")
    assert store.streams == {}
    store.close()


@pytest.mark.deep("copies a store many times")
def test_files_that_go_meanwhile(folder, tmp_path):
    """Three checkpoints go by, and cold tuples age out, after the manifest was copied."""
    store = opened(folder)
    numbers = iter(range(BATCHES + 1, 1000))
    turns = iter(range(2))

    def work(done: int, total: int, what: str) -> None:
        if next(turns, None) is None:
            return
        for _ in range(3):
            for number in [next(numbers) for _ in range(50)]:
                send(store, number)
            store.checkpoint()

    early = files(tmp_path / "store", "parquet")
    report = backup(tmp_path / "store", tmp_path / "copy", work)
    assert not any(path.exists() for path in early)
    assert report.attempts > 1
    assert report.damages == []
    store.close()
    assert verify(tmp_path / "copy") == []  # nothing of the attempts before is left either
    copy = opened(tmp_path / "copy")
    assert max(copy.streams["left"]._ledger.named.producers["till"].batches) >= BATCHES
    abandon(copy)


def test_a_segment_that_is_sealed_as_it_is_opened(folder, tmp_path, monkeypatch):
    """It says that another one follows by then: so that one belongs to the copy as well."""
    store = opened(folder)
    last = files(folder, "wal")[-1]
    held, numbers = promising.index.storage.backup._Copy._held, iter(range(BATCHES + 1, BATCHES + 40))

    def late(copy, path, stack):
        file = held(copy, path, stack)
        if path == last:
            for number in numbers:
                send(store, number)
        return file

    monkeypatch.setattr(promising.index.storage.backup._Copy, "_held", late)
    report = backup(folder, tmp_path / "copy")
    assert (report.attempts, report.damages) == (1, [])
    assert files(folder, "wal")[-1] != last
    store.close()
    assert reopened(tmp_path / "copy") == reopened(folder)


def test_files_that_go_again_and_again(folder, tmp_path, monkeypatch):
    store = opened(folder)
    run = promising.index.storage.backup._Copy.run
    tries = iter(range(100))
    monkeypatch.setattr(promising.index.storage.backup._Copy, "run", lambda copy: run(copy) | {f"file {next(tries)}"})
    with pytest.raises(StorageUnavailable, match="faster than they can be copied"):
        backup(tmp_path / "store", tmp_path / "copy")
    assert next(tries) == promising.index.storage.backup.ATTEMPTS
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / "copy.part").exists()
    store.close()


@pytest.mark.deep("waits for many checkpoints")
def test_while_threads_send_and_checkpoints_go_by(tmp_path):
    store = filled(tmp_path / "store", options=replace(LIMITS, segment_bytes=4 << 10))
    acknowledged, end = [BATCHES], threading.Event()

    def sending() -> None:
        while not end.is_set():
            send(store, acknowledged[0] + 1)
            acknowledged[0] += 1
            if acknowledged[0] % 10 == 0:
                store.checkpoint()

    thread = threading.Thread(target=sending)
    thread.start()
    try:
        for number in range(3):
            before = acknowledged[0]
            assert backup(tmp_path / "store", tmp_path / f"copy {number}").damages == []
            copy = opened(tmp_path / f"copy {number}")
            assert copy.damages == {}
            stream = copy.streams["left"]
            last = max(stream._ledger.named.producers["till"].batches)
            assert last >= before
            assert stream.accepted == sum(a.accepted for a in _added(last))
            abandon(copy)
            assert errors(tmp_path / f"copy {number}") == []
    finally:
        end.set()
        thread.join()
        store.close()


def _added(last: int):
    """What became of the batches, in a stream of their own."""
    stream = feed.make("left", 77)
    return [stream.append(feed.batch(5, 0, number)) for number in range(1, last + 1)]


SENDER = """
import sys
from pathlib import Path
from tests.index.storage.damage import filled, send
from tests.index.storage.lives import small_and_quiet
with small_and_quiet():
    store = filled(Path(sys.argv[1]))
    for number in range(61, 100_000):
        send(store, number)
        if number % 20 == 0:
            store.checkpoint()
        print(number, flush=True)
"""


@pytest.mark.deep("starts a process at work")
def test_of_a_store_in_another_process(tmp_path):
    sender = subprocess.Popen([sys.executable, "-c", SENDER, tmp_path / "store"], stdout=subprocess.PIPE, text=True)
    assert sender.stdout is not None
    try:
        for number in range(3):
            for _ in range(30):
                acknowledged = int(sender.stdout.readline())
            assert backup(tmp_path / "store", tmp_path / f"copy {number}").damages == []
            copy = opened(tmp_path / f"copy {number}")
            assert max(copy.streams["left"]._ledger.named.producers["till"].batches) >= acknowledged
            abandon(copy)
            assert errors(tmp_path / f"copy {number}") == []
    finally:
        sender.kill()
        sender.communicate()


def test_cold_tuples_come_along_from_an_object_store(tmp_path):
    url = "memory://cold"
    store = filled(tmp_path / "store", options=replace(LIMITS, cold=url))
    before = answers(store)
    assert fsspec.filesystem("memory").find("/cold")
    assert files(tmp_path / "store", "parquet") == []
    backup(tmp_path / "store", tmp_path / "copy")
    store.close()
    fsspec.filesystem("memory").rm("/cold", recursive=True)
    assert len(files(tmp_path / "copy", "parquet")) > 1
    assert verify(tmp_path / "copy") == []
    assert reopened(tmp_path / "copy") == before


# --- what cannot be ------------------------------------------------------------------------------------------------


def test_only_to_an_empty_place(folder, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "file").touch()
    (tmp_path / "left.part").mkdir()
    for target in ("full", "file", "store", "store/streams/copy", "left"):
        with pytest.raises(NotAStore):
            backup(tmp_path / "store", tmp_path / target)
    (tmp_path / "empty").mkdir()
    backup(tmp_path / "store", tmp_path / "empty")
    assert errors(tmp_path / "empty") == []


@pytest.mark.parametrize("what", ["nothing", "file", "folder"])
def test_only_of_a_store(tmp_path, what):
    if what == "file":
        (tmp_path / "store").touch()
    if what == "folder":
        (tmp_path / "store").mkdir()
    with pytest.raises(NotAStore, match="is no directory of a store"):
        backup(tmp_path / "store", tmp_path / "copy")
    assert not (tmp_path / "copy.part").exists()


def test_a_full_disk_leaves_nothing_behind(folder, tmp_path, monkeypatch):
    store = opened(folder)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", full)
        with pytest.raises(StorageFull):
            backup(tmp_path / "store", tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    store.close()
    assert errors(tmp_path / "store") == []


def test_a_disk_that_keeps_something_else(folder, tmp_path, monkeypatch):

    def rot(handle: int, *_: int) -> None:
        os.pwrite(handle, b"?", 100)

    monkeypatch.setattr(os, "posix_fadvise", rot)
    with pytest.raises(StorageUnavailable, match="is not what was written to it"):
        backup(tmp_path / "store", tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


@pytest.mark.parametrize("kind", ["image", "wal", "parquet"])
@pytest.mark.parametrize("how", ["flipped", "gone"])
def test_damages_of_the_source_are_told_and_never_restored(folder, tmp_path, kind, how):
    victim = files(tmp_path / "store", kind)[0 if kind == "parquet" else -1 if kind == "image" else 1]
    if how == "flipped":
        flip(victim, 0.6)
    else:
        victim.unlink()
    report = backup(tmp_path / "store", tmp_path / "copy")
    assert any(victim.name in damage for damage in report.damages), report.damages
    assert not any(str(tmp_path / "copy") in damage for damage in report.damages)
    with pytest.raises(DataDamaged, match="Nothing was restored"):
        restore(tmp_path / "copy", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert not (tmp_path / "back.part").exists()


@pytest.mark.parametrize("how", ["flipped", "gone", "text"])
def test_without_a_manifest_there_is_nothing_to_copy(folder, tmp_path, how):
    manifest = tmp_path / "store" / "manifest.sqlite"
    if how == "flipped":
        flip(manifest, 0.9)
    elif how == "text":
        manifest.write_text("no database at all, but long enough to be one" * 100)
    else:
        manifest.unlink()
    with pytest.raises(DataDamaged, match=r"manifest\.sqlite"):
        backup(tmp_path / "store", tmp_path / "copy")
    assert not (tmp_path / "copy.part").exists()


def test_a_manifest_that_names_no_store(folder, tmp_path):
    manifest = Manifest.open(folder / "manifest.sqlite", create=False)
    with manifest.change() as change:
        change.delete("store", "store")
    manifest.close()
    with pytest.raises(DataDamaged, match="does not say whose store it is"):
        backup(folder, tmp_path / "copy")


def test_a_manifest_that_cannot_be_read_now(folder, tmp_path):
    (folder / "manifest.sqlite").rename(folder / "away")
    (folder / "manifest.sqlite").mkdir()
    with pytest.raises(StorageUnavailable, match="try again"):
        backup(folder, tmp_path / "copy")
    assert not (tmp_path / "copy.part").exists()


def test_a_log_that_is_gone_with_its_folder(folder, tmp_path):
    shutil.rmtree(files(folder, "wal")[0].parent)
    assert "wal is missing" in backup(folder, tmp_path / "copy").damages[0]
    assert "there is no log" in errors(tmp_path / "copy")[0]


def test_the_number_of_a_run_is_given_out_again(folder, tmp_path, monkeypatch):
    """Between two attempts: the file of that name is another one by then."""
    opened(folder).close()
    first, second = files(folder, "parquet")[:2]
    run = promising.index.storage.backup._Copy.run

    def swapped(copy):
        gone = run(copy)
        if copy.report.attempts == 1 and not (folder / "swapped").exists():
            (folder / "swapped").touch()
            manifest = Manifest.open(folder / "manifest.sqlite", create=False)
            one, two = (f"{path.parent.parent.name}/{path.stem}" for path in (first, second))
            entries = manifest.all("cold")
            with manifest.change() as change:
                change.put("cold", one, entries[two])
                change.put("cold", two, entries[one])
            manifest.close()
            first.rename(folder / "other")
            second.rename(first)
            (folder / "other").rename(second)
            return {"a file that is gone"}
        return gone

    monkeypatch.setattr(promising.index.storage.backup._Copy, "run", swapped)
    report = backup(folder, tmp_path / "copy")
    assert (report.attempts, report.damages) == (2, [])
    copied = [path.read_bytes() for path in files(tmp_path / "copy", "parquet")[:2]]
    assert copied == [first.read_bytes(), second.read_bytes()]


def test_a_backup_is_a_store(folder, tmp_path):
    backup(tmp_path / "store", tmp_path / "copy")
    with Store.open(tmp_path / "copy", clock=lambda: 1 << 60) as store:
        send(store, BATCHES + 1)
    assert errors(tmp_path / "copy") == []
