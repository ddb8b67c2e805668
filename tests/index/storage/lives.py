"""Stores that are small in every way, so that few batches fill segments, checkpoints and runs; and their ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import promising.index.log
import promising.index.storage.store
from promising.index.storage.disk import Disk
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from tests.crash import feed

SEED = 77
NOW = 1 << 60
LIMITS = StoreOptions(
    segment_bytes=8 << 10,
    checkpoint_bytes=1 << 40,  # only when told to
    hot_tuples=2 * feed.CHUNK,
    run_tuples=feed.CHUNK,
    cache_bytes=1 << 20,
)


@contextmanager
def small_and_quiet() -> Iterator[None]:
    """Chunks of few rows, and no upkeep but what a test asks for."""
    chunk, tick = promising.index.log.CHUNK, promising.index.storage.store.TICK
    promising.index.log.CHUNK, promising.index.storage.store.TICK = feed.CHUNK, 3600.0
    try:
        yield
    finally:
        promising.index.log.CHUNK, promising.index.storage.store.TICK = chunk, tick


def opened(folder: Path, disk: Disk | None = None, options: StoreOptions = LIMITS, **more: Any) -> Store:
    return Store.open(folder, seed=SEED, clock=lambda: NOW, disk=disk, options=options, **more)


def abandon(store: Store) -> None:
    """The end of the process as the disk sees it: no last checkpoint, no sync, nothing finished."""
    store._ended.set()
    for thread in store._threads:
        thread.join()
    if store._syncers is not None:
        store._syncers.shutdown()
    for kept in store._kept.values():
        kept.wal._give_up()
    store._let_go()


def populate(store: Store, names: tuple[str, ...] = feed.STREAMS) -> None:
    """The streams and summaries that `feed` sends to."""
    for name in names:
        if name not in store.streams:
            feed.make_durable(store, name)
        for summary in feed.SUMMARIES:
            if summary not in store.streams[name].summaries:
                feed.summarise(store.streams[name], summary)
