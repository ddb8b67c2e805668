"""What a stream remembers of its producers outlives the process, by the times of its batches."""

from pathlib import Path

import pytest

from promising.errors import BadOptions, SequenceTooOld, TokenReused
from promising.index import ledger
from promising.index.ledger import DAY, Ledger
from promising.index.loads import find_load, load_name
from promising.index.regions import Appended
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.testing import ManualClock
from tests.index.storage.lives import abandon

OPTIONS = StoreOptions(producer_days=2)


def add(store: Store, producer: str, number: int) -> bool:
    """Whether it is a duplicate."""
    return store.streams["s"].append({"ts": [number]}, producer=producer, sequence=number).duplicate


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_recovery_reads_no_clock_to_forget(tmp_path: Path, checkpoint: bool):
    clock = ManualClock(1000 * DAY)
    store = Store.open(tmp_path, clock=clock, options=OPTIONS)
    store.create_stream("s", {"ts": "timestamp"}, "ts")
    add(store, "till", 1)
    if checkpoint:
        store.checkpoint()
    abandon(store)
    with Store.open(tmp_path, clock=ManualClock(1100 * DAY), options=OPTIONS) as again:
        assert add(again, "till", 1)  # nothing was added since
        add(again, "other", 1)
        with pytest.raises(SequenceTooOld, match="up to 2 days"):
            add(again, "till", 1)
        assert not add(again, "till", 2)
    with Store.open(tmp_path, clock=ManualClock(0), options=OPTIONS) as last:
        with pytest.raises(SequenceTooOld):
            add(last, "till", 1)
        assert add(last, "till", 2)
        assert last.streams["s"].count == 3


def test_a_load_that_is_forgotten_is_not_attached_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ledger, "RESULTS", ledger.EACH)
    book = Ledger()
    book.note(load_name("may"), 77, Appended(5), at=0)
    book.note("till", 1, Appended(5), at=1)
    for digest in (76, 77, 78):
        with pytest.raises(TokenReused, match="'may'"):
            find_load(book, "s", "may", digest)
    assert find_load(book, "s", "june", 77) is None


@pytest.mark.parametrize("days", [0, -1, float("nan"), 1e9])
def test_a_memory_that_is_none_is_refused(days: float):
    with pytest.raises(BadOptions, match="producer_days"):
        StoreOptions(producer_days=days)
