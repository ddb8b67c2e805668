"""A store interrupted in the middle of a change: the change is made or not, and never in part."""

import pytest

from promising.errors import StorageUnavailable
from promising.index.check import check_stream
from promising.index.storage import stream_store
from promising.index.storage.image import write_image
from promising.index.storage.manifest import Manifest
from tests.index.storage.stores import batch, crash, files, filled, opened, told

pytestmark = pytest.mark.usefixtures("small_chunks")


def after_the_commit(monkeypatch, problem):
    """The next change of a manifest is written, and then this happens."""
    real = Manifest._commit

    def commit(self, *given):
        real(self, *given)
        monkeypatch.setattr(Manifest, "_commit", real)
        raise problem

    monkeypatch.setattr(Manifest, "_commit", commit)


def test_a_checkpoint_that_was_named_after_all_is_not_written_over(tmp_path, monkeypatch):
    written: list[str] = []

    def noted(disk, path, tree):
        written.append(path.name)
        return write_image(disk, path, tree)

    def end(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(stream_store, "write_image", noted)
    store = opened(tmp_path)
    stream = filled(store, 5)
    after_the_commit(monkeypatch, StorageUnavailable("disk I/O error"))
    with pytest.raises(StorageUnavailable):
        store.checkpoint("a")
    for number in (5, 6, 7):
        stream.append(batch(number), producer="p", sequence=number + 1)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Manifest, "_commit", end)
            with pytest.raises(KeyboardInterrupt):
                store.checkpoint("a")
    assert len(set(written)) == 3
    before = told(stream)
    crash(store)
    with opened(tmp_path) as store:
        assert (store.streams["a"].count, store.streams["a"].accepted) == (800, 800)
        assert told(store.streams["a"]) == before
        assert (store.report, store.damages) == ([], {})


@pytest.mark.parametrize("done", [False, True])
def test_an_interrupted_change_of_the_manifest_is_there_or_not_and_others_follow(tmp_path, monkeypatch, done):
    faults: list[BaseException] = []

    def fault(point):
        if point == "before" and faults:
            raise faults.pop()

    store = opened(tmp_path, fault=fault)
    if done:
        after_the_commit(monkeypatch, KeyboardInterrupt())
    else:
        faults.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        store.put_query("maybe", "SELECT 1", [])
    assert (store._manifest.get("query", "maybe") is not None) == done
    store.put_query("later", "SELECT 2", [])
    kept = store._manifest.all("query")
    store.close()
    with opened(tmp_path) as store:
        assert store._manifest.all("query") == kept
        assert ("maybe" in store.queries) == done
        assert "later" in store.queries


def test_what_was_interrupted_in_the_middle_is_refused_and_right_after_a_start(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with opened(tmp_path / "other", seed=7) as store:
        whole = told(filled(store, 6))
    store = opened(tmp_path / "store", seed=7)
    stream = filled(store, 5)
    with monkeypatch.context() as patch:
        patch.setattr(stream.summaries["a_s"].state, "insert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stream.append(batch(5), producer="p", sequence=6)
    with pytest.raises(StorageUnavailable, match="open the store again"):
        stream.append(batch(5), producer="p", sequence=6)
    with pytest.raises(StorageUnavailable, match="open the store again"):
        store.checkpoint()
    store.close()
    assert not files(tmp_path / "store", "checkpoint")
    with opened(tmp_path / "store") as store:
        stream = store.streams["a"]
        assert stream.append(batch(5), producer="p", sequence=6).duplicate
        assert told(stream) == whole
        assert check_stream(stream) == []
