"""Arrays read straight to where they belong: all or an error; and a start that takes the checkpoint before has nothing
of the one that was damaged."""

import re
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from promising.errors import DataDamaged
from promising.index.check import check_stream
from promising.index.image_arrays import PLACED, joined, pour
from promising.index.storage import image
from promising.index.storage.disk import Disk, Handle
from promising.index.storage.image import restoring, write_image
from promising.index.storage.store import Store
from tests.index.storage.damage import answers, files, filled, flip, send
from tests.index.storage.lives import LIMITS, abandon, opened, small_and_quiet

BIG = re.compile(r"big\..*")
TREE: Any = {
    "before": np.arange(5),
    "words": [b"some", b"bytes"],
    "big": {
        "ints": np.arange(100) * 7,
        "lines": np.arange(24, dtype=np.int32).reshape(6, 4),
        "marks": np.ones(3, np.uint8),
        "none": np.empty(0),
    },
    "after": {"text": "x" * 300, "small": np.arange(3.0)},
}


@pytest.fixture(autouse=True)
def small():
    with small_and_quiet():
        yield


@pytest.fixture(params=[1 << 20, 100])
def pieces(request, monkeypatch):
    """Read in one piece, or in several: the header too."""
    monkeypatch.setattr(image, "PIECE", request.param)


def places(cut: int = 2) -> dict[str, list[Any]]:
    """Room for the arrays of `big`, each in parts, filled with something else."""
    out = {}
    for name, array in TREE["big"].items():
        room = np.full_like(array, 99)
        out[name] = [room[:cut], room[cut:]]
    return out


def read(path: Path) -> tuple[Any, dict[str, list[Any]]]:
    room = places()
    with restoring(Disk(), path, BIG) as tree:
        found: Any = tree
        for name, stored in found["big"].items():
            assert len(stored) == len(TREE["big"][name])
            pour(stored, room[name])
    return found, room


def test_placed_arrays_come_to_their_places(tmp_path, pieces):
    path = tmp_path / "a.image"
    write_image(Disk(), path, TREE)
    found, room = read(path)
    for name, array in TREE["big"].items():
        assert np.concatenate(room[name]).tobytes() == array.tobytes()
    assert found["words"] == TREE["words"] and found["after"]["text"] == TREE["after"]["text"]
    assert (found["before"] == TREE["before"]).all() and (found["after"]["small"] == TREE["after"]["small"]).all()


@pytest.mark.deep("damages every byte of a store")
def test_every_byte_that_is_wrong_is_found(tmp_path, pieces):
    path = tmp_path / "a.image"
    write_image(Disk(), path, TREE)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(DataDamaged, match=r"a\.image"):
            read(path)
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DataDamaged, match=r"a\.image"):
            read(path)


def test_a_file_that_gets_shorter_meanwhile_is_damaged(tmp_path):
    path = tmp_path / "a.image"
    write_image(Disk(), path, {"big": {"ints": np.arange(1 << 18)}})
    room = np.arange(1 << 18)  # what should have come is there already
    with pytest.raises(DataDamaged, match=r"big\.ints"), restoring(Disk(), path, BIG) as tree:
        path.write_bytes(path.read_bytes()[: 1 << 20])
        found: Any = tree
        pour(found["big"]["ints"], [room])


def test_what_does_not_fit_is_no_array_of_that_place(tmp_path):
    path = tmp_path / "a.image"
    write_image(Disk(), path, TREE)
    with pytest.raises(AssertionError, match=r"big\.ints does not fit"), restoring(Disk(), path, BIG) as tree:
        found: Any = tree
        pour(found["big"]["ints"], [np.empty(99, np.int64)])


def test_arrays_are_poured_as_files_are():
    room = np.zeros(10, np.int64)
    stretches = joined([(6, 8), (8, 10), (0, 1), (2, 4)])
    assert stretches == [(6, 10), (0, 1), (2, 4)]
    pour(np.arange(1, 8), [room[first:last] for first, last in stretches])
    assert room.tolist() == [5, 0, 6, 7, 0, 0, 1, 2, 3, 4]


def test_what_is_as_long_as_the_stream_is_placed(tmp_path):
    store = filled(tmp_path)
    tree = store.streams["left"].image()
    store.close()
    assert all(PLACED.fullmatch(f"log.columns.{name}") for name in (*tree["log"]["columns"], "a.b\nc"))
    assert {"older", "entries", "tags"} < tree["summaries"][0]["postings"].keys()
    assert PLACED.fullmatch("summaries[12].postings.older") and not PLACED.fullmatch("summaries[0].fine.rows")


@pytest.mark.deep("restores a damaged store many times")
@pytest.mark.parametrize("at", [0.001, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.999])
def test_nothing_is_left_of_a_checkpoint_that_is_damaged(tmp_path, at):
    """Wherever it is damaged, and however much of it was there before that was found."""
    store = filled(tmp_path / "store")
    wanted = answers(store)
    abandon(store)
    shutil.copytree(tmp_path / "store", tmp_path / "without")
    files(tmp_path / "without", "image")[-1].unlink()
    with opened(tmp_path / "without") as store:
        assert answers(store) == wanted
        size = store.streams["left"].nbytes
    flip(files(tmp_path / "store", "image")[-1], at)
    with opened(tmp_path / "store") as store:
        assert any("it is set aside" in said for said in store.report) and not store.damages
        assert answers(store) == wanted and store.streams["left"].nbytes == size
        check_stream(store.streams["left"])


class Gated(Disk):
    """Makes no segment of a log before it may."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def create(self, path: Path) -> Handle:
        if path.name.endswith(".wal.tmp"):
            self.gate.wait()
        return super().create(path)


def test_a_start_does_not_wait_for_the_newest_segment_but_a_batch_does(tmp_path):
    store = filled(tmp_path)
    wanted = answers(store)
    abandon(store)
    disk = Gated()
    store = opened(tmp_path, disk=disk)
    wal = store._kept["left"].wal
    try:
        assert answers(store) == wanted
        assert wal.durable < wal.last
        sending = threading.Thread(target=send, args=(store, 60))  # it has that one: what is said of it must hold, too
        sending.start()
        assert wal.durable < wal.last and sending.is_alive()
    finally:
        disk.gate.set()
    sending.join()
    assert wal.durable == wal.last
    store.close()


def test_without_other_threads_the_start_writes_it(tmp_path):
    store = filled(tmp_path)
    abandon(store)
    with Store.open(tmp_path, options=type(LIMITS)(sync_ahead=False)) as store:
        assert store._kept["left"].wal.durable == store._kept["left"].wal.last
