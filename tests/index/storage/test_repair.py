"""`repair` gives up what cannot be read and nothing else; the store is whole afterwards, and says so."""

import shutil
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest

import promising.index.storage.image
from promising.errors import DataDamaged, StorageFull, StoreInUse
from promising.index.storage import stream_store
from promising.index.storage.repair import repair
from promising.index.storage.verify import verify
from promising.index.stream import Stream
from tests.crash import feed
from tests.index.storage.damage import BATCHES, answers, contents, files, filled, flip, send, spoil
from tests.index.storage.lives import LIMITS, abandon, opened, small_and_quiet
from tests.index.storage.told import live


@pytest.fixture(autouse=True)
def small():
    with small_and_quiet():
        yield


def ids(path: Path) -> list[int]:
    """Of the tuples that are left, in order of arrival; the store must be whole, and go on."""
    assert [finding for finding in verify(path) if finding.severity == "error"] == []
    store = opened(path)
    try:
        assert store.report == []
        assert store.damages == {}
        left: list[int] = live(store.streams["left"])["id"]
        for summary in store.streams["left"].summaries.values():
            assert summary.count == len(left)
        for number in range(BATCHES + 1, BATCHES + 30):
            send(store, number)
        store.checkpoint()
    finally:
        store.close()
    assert [finding for finding in verify(path) if finding.severity == "error"] == []
    return left


def whole(batches: int = BATCHES) -> list[int]:
    """What a stream has that has lost nothing."""
    stream: Stream = feed.make("left", 77)
    for number in range(1, batches + 1):
        stream.append(feed.batch(5, 0, number))
    found: list[int] = live(stream)["id"]
    return found


def test_a_store_that_is_well_is_left_alone(folder):
    opened(folder).close()
    before = contents(folder)
    assert repair(folder) == []
    assert contents(folder) == before


def test_a_store_in_use(tmp_path):
    store = filled(tmp_path / "store")
    with pytest.raises(StoreInUse):
        repair(tmp_path / "store")
    store.close()


@pytest.mark.parametrize("how", ["flipped", "gone"])
def test_cold_tuples(folder, how):
    victim = files(folder, "parquet")[2]
    if how == "flipped":
        flip(victim, 0.5)
    else:
        victim.unlink()
    said = repair(folder)
    assert f"given up: {feed.CHUNK} tuples from 1969-12-31" in said[0]
    assert victim.name in said[0]
    kept = list((folder / "aside").iterdir()) if how == "flipped" else []
    assert all(str(path) in said[0] for path in kept)
    assert repair(folder) == []
    left, all_of_them = ids(folder), whole()
    lost = [name for name in all_of_them if name not in set(left)]
    assert left == [name for name in all_of_them if name not in set(lost)]  # in the same order
    assert 0 < len(lost) <= feed.CHUNK


def test_several_files_at_once(folder):
    for victim in files(folder, "parquet")[:3]:
        flip(victim, 0.4)
    flip(files(folder, "image")[-1], 0.4)
    said = repair(folder)
    assert sum("given up" in what for what in said) == 3
    assert 0 < len(whole()) - len(ids(folder)) <= 3 * feed.CHUNK


def test_a_record_of_the_log(folder):
    """In the middle of the newest segment, of which no checkpoint has anything."""
    victim = files(folder, "wal")[-2]
    flip(victim, 0.5)
    said = repair(folder)
    assert "missing" in said[0]
    assert victim.name in said[0]
    assert repair(folder) == []
    left = ids(folder)
    senders = {number for _, number in feed.sender(np.array(left))}
    gone = {number for _, number in feed.sender(np.array(whole()))} - senders
    assert 0 < len(gone) <= 2
    assert list((folder / "aside").iterdir())


def test_a_segment_that_is_gone(folder):
    files(folder, "wal")[-2].unlink()
    said = repair(folder)
    assert "missing" in said[0]
    assert 0 < len(ids(folder)) < len(whole())


def test_a_log_that_is_gone(folder):
    shutil.rmtree(files(folder, "wal")[0].parent)
    said = repair(folder)
    assert "there is no log" in said[0]
    assert repair(folder) == []
    assert 0 < len(ids(folder)) < len(whole())


@pytest.mark.parametrize("where", [0, 8, 20, 30])
def test_the_head_of_a_segment(folder, where):
    """The newest one stays as long as there is none after it; but not if it is damaged."""
    victim = files(folder, "wal")[-1]
    flip(victim, where / victim.stat().st_size)
    assert victim.name in repair(folder)[0]
    assert repair(folder) == []
    assert ids(folder) == whole()  # the records in it can be read


def test_a_store_that_was_opened_since(folder):
    """A start has told of the damage before; it is told until repaired."""
    flip(files(folder, "wal")[-2], 0.5)
    store = opened(folder)
    assert "missing" in store.damages["left"][0]
    send(store, BATCHES + 1)
    store.checkpoint()
    store.close()
    store = opened(folder)
    assert "missing" in store.damages["left"][0]
    store.close()
    assert "missing" in repair(folder)[0]
    ids(folder)


def test_the_last_checkpoint_costs_nothing(folder):
    flip(files(folder, "image")[-1], 0.5)
    said = repair(folder)
    assert not any("given up" in what for what in said)
    assert ids(folder) == whole()


def test_no_checkpoint_at_all(folder):
    """The log has only the end of it; cold tuples are whole, and are kept for whoever wants to add them again."""
    for victim in files(folder, "image"):
        flip(victim, 0.5)
    runs = [path.read_bytes() for path in files(folder, "parquet")]
    said = repair(folder)
    assert "no checkpoint" in said[0]
    kept = [path.read_bytes() for path in sorted((folder / "aside").glob("*.parquet"))]
    assert kept == runs
    assert sum("to be added again" in what for what in said) == len(runs)
    left = ids(folder)
    assert left
    assert set(left) < set(whole())


def test_a_summary_that_lies(tmp_path):
    store = filled(tmp_path / "store")
    spoil(store, "adaptive")
    store.checkpoint()
    abandon(store)
    said = repair(tmp_path / "store")
    assert "not as it should be: summary 'adaptive', G_3" in said[0]
    assert ids(tmp_path / "store") == whole()


def test_summaries_with_other_zones_take_nothing_from_one_another(folder):
    with opened(folder) as store:
        stream = store.streams["left"]
        stream.create_summary("near", "k", granularity=feed.GRANULARITY // 3, collapse=(2, 2), options=feed.SMALL)
        for name in ("words", "bare"):
            stream.drop_summary(name)
        before = {name: summary.count for name, summary in stream.summaries.items()}
        spoil(store, "adaptive")
        store.checkpoint()
    assert repair(folder)
    with opened(folder) as store:
        assert {name: summary.count for name, summary in store.streams["left"].summaries.items()} == before


def test_a_damaged_manifest_cannot_be_repaired(folder):
    flip(folder / "manifest.sqlite", 0.9)
    before = contents(folder)
    with pytest.raises(DataDamaged, match=r"manifest\.sqlite"):
        repair(folder)
    assert contents(folder) == before


def test_interrupted_and_run_again(folder, monkeypatch):
    flip(files(folder, "parquet")[1], 0.5)
    flip(files(folder, "wal")[-2], 0.5)
    write = promising.index.storage.image.write_image
    for allowed in (0, 1):
        count = iter(range(100))

        def failing(*args, allowed=allowed, count=count):
            if next(count) >= allowed:
                raise StorageFull("no space left")
            return write(*args)

        with monkeypatch.context() as patched:
            patched.setattr(stream_store, "write_image", failing)
            with pytest.raises(StorageFull):
                repair(folder)
    said = repair(folder)
    assert any("given up" in what for what in said)
    assert repair(folder) == []
    ids(folder)


def test_cold_tuples_in_an_object_store(tmp_path):
    memory = fsspec.filesystem("memory")
    options = replace(LIMITS, cold="memory://repaired")
    abandon(filled(tmp_path / "store", options=options))
    victim = sorted(memory.find("/repaired"))[1]
    content = bytearray(memory.cat_file(victim))
    content[len(content) // 2] ^= 1
    memory.pipe_file(victim, bytes(content))
    assert "given up" in repair(tmp_path / "store")[0]
    assert not memory.exists(victim)
    assert [path.read_bytes() for path in (tmp_path / "store" / "aside").iterdir()] == [bytes(content)]
    assert [finding.severity for finding in verify(tmp_path / "store")] == ["warning"]
    store = opened(tmp_path / "store", options=options)
    assert len(answers(store)) > 1
    store.close()
    memory.rm("/repaired", recursive=True)
