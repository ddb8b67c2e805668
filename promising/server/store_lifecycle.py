"""The store of a service: opened before the first call, closed after the last."""

import asyncio
import logging
import threading
import time
from pathlib import Path

from promising.errors import BadOptions, BadSettings, PromisingError
from promising.index.memory import half_of_machine
from promising.index.storage.disk import Disk, Handle
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.loaders.spark_sql import spark_sql
from promising.query.session import Session
from promising.server import logs
from promising.server.query_limits import query_limits
from promising.server.starting import Ended
from promising.settings import Settings

TELL = 5.0  # seconds between progress messages of a slow start


class OpeningDisk(Disk):
    """While a store is `opening`, the start can end before each file that is read or created."""

    def __init__(self, ending: threading.Event) -> None:
        self._ending = ending
        self.opening = True

    def _go_on(self) -> None:
        if self.opening and self._ending.is_set():
            raise Ended

    def create(self, path: Path) -> Handle:
        self._go_on()
        return super().create(path)

    def read(self, path: Path, offset: int = 0, length: int = -1) -> bytes:
        self._go_on()
        return super().read(path, offset, length)

    def read_into(self, path: Path, offset: int, place: memoryview) -> int:
        self._go_on()
        return super().read_into(path, offset, place)

    def size(self, path: Path) -> int:
        self._go_on()
        return super().size(path)

    def exists(self, path: Path) -> bool:
        self._go_on()
        return super().exists(path)


async def opened(settings: Settings, ending: threading.Event) -> Session:
    """A session over the configured data directory. Recovery is logged.

    Raises StorageError if the directory is in use, written by a newer release, or not writable; Ended soon after
    `ending` is set, with the directory released.
    """
    logs.event("opening", data=str(settings.data), sync=settings.storage.sync)
    if settings.storage.sync == "relaxed":
        logs.event("sync_relaxed", level=logging.WARNING, what="a crash of the machine may lose what was acknowledged")
    began = time.monotonic()
    job = asyncio.ensure_future(asyncio.to_thread(_open, settings, ending))
    while not (await asyncio.wait([job], timeout=TELL))[0]:
        logs.event("opening", data=str(settings.data), seconds=time.monotonic() - began)
    store = job.result()
    try:
        _tell(settings, store, began)
        return await asyncio.to_thread(
            Session,
            store=store,
            written=spark_sql,
            query_limits=query_limits(settings),
            max_sql_tokens=settings.limits.max_sql_tokens,
        )
    except BaseException:
        store.close()
        raise


def memory_bytes(settings: Settings) -> int:
    return settings.limits.memory_bytes or half_of_machine()


def _tell(settings: Settings, store: Store, began: float) -> None:
    """Log the recovery."""
    for what in store.report:
        for name in (*store.streams, *store.tables):
            what = what.replace(repr(name), "...")  # noqa: PLW2901  # no name of a stream or table is ever logged
        logs.event("recovery", level=logging.WARNING, what=what)
    streams = list(store.streams.values())
    logs.event(
        "opened",
        data=str(settings.data),
        seconds=time.monotonic() - began,
        streams=len(streams),
        tuples=sum(stream.kept for stream in streams),
        found=len(store.report),
        damaged_streams=len(store.damages),
        damaged_tables=len(store.set_aside),
    )


async def closed(session: Session) -> None:
    """Close the store of a session. Without the last checkpoint the next start is slower, but loses nothing."""
    began = time.monotonic()
    try:
        await asyncio.to_thread(session.close)
    except PromisingError as problem:
        logs.event("not_closed", level=logging.ERROR, error=type(problem).__name__, seconds=time.monotonic() - began)
    else:
        logs.event("closed", seconds=time.monotonic() - began)


def _open(settings: Settings, ending: threading.Event) -> Store:
    assert settings.data is not None
    kept = settings.storage
    seed = None if settings.seed is None else settings.seed.get_secret_value()
    options = StoreOptions(
        sync=kept.sync,
        segment_bytes=kept.segment_bytes,
        checkpoint_bytes=kept.checkpoint_bytes,
        hot_tuples=kept.hot_tuples,
        memory_bytes=memory_bytes(settings),
        cache_bytes=kept.cache_bytes,
        spill_bytes=kept.spill_bytes,
        producer_days=kept.producer_days,
        cold=kept.cold,
    )
    disk = OpeningDisk(ending)
    try:
        store = Store.open(settings.data, seed=seed, options=options, disk=disk)
    except BadOptions as problem:  # another seed, another location of cold tuples
        raise BadSettings(str(problem)) from None
    disk.opening = False
    return store
