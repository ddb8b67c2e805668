"""The store of a service: opened before the first call, closed after the last."""

import asyncio
import logging
import time

from promising.errors import BadOptions, BadSettings, PromisingError
from promising.index.memory import half_of_machine
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.loaders.spark_sql import spark_sql
from promising.query.session import Session
from promising.server import logs
from promising.server.query_limits import query_limits
from promising.settings import Settings

TELL = 5.0  # seconds between progress messages of a slow start


async def opened(settings: Settings) -> Session:
    """A session over the configured data directory. Recovery is logged.

    Raises StorageError if the directory is in use, written by a newer release, or not writable.
    """
    logs.event("opening", data=str(settings.data), sync=settings.storage.sync)
    if settings.storage.sync == "relaxed":
        logs.event("sync_relaxed", level=logging.WARNING, what="a crash of the machine may lose what was acknowledged")
    began = time.monotonic()
    job = asyncio.ensure_future(asyncio.to_thread(_open, settings))
    while not (await asyncio.wait([job], timeout=TELL))[0]:
        logs.event("opening", data=str(settings.data), seconds=time.monotonic() - began)
    store = job.result()
    try:
        _tell(settings, store, began)
    except BaseException:
        store.close()
        raise
    return Session(
        store=store,
        written=spark_sql,
        query_limits=query_limits(settings),
        max_sql_tokens=settings.limits.max_sql_tokens,
    )


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


def _open(settings: Settings) -> Store:
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
    try:
        return Store.open(settings.data, seed=seed, options=options)
    except BadOptions as problem:  # another seed, another location of cold tuples
        raise BadSettings(str(problem)) from None
