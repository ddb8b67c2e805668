"""Sessions to compare: one in process, one on a service over loopback, which serves a session made alike, and one in
process that keeps its data on disk."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

import promising
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.loaders.spark_sql import spark_sql
from promising.query import Session
from promising.settings import Settings, Standing
from promising.testing.service import running

Opened = Callable[..., Session]
"""Makes a session as `query.Session` does."""
COLD = StoreOptions(checkpoint_bytes=1 << 16, hot_tuples=0, run_tuples=1 << 12, cache_bytes=1 << 16)
"""So little in memory that tests of some thousand tuples reach the disk."""
SETTINGS = Settings(listen="127.0.0.1:0", standing=Standing(silence_seconds=1e6))
"""Event time goes on with the tuples alone, as it does in process, however long a busy machine takes between two."""


def local(stack: ExitStack) -> Opened:
    def opened(**how: Any) -> Session:
        return stack.enter_context(Session(written=spark_sql, **how))

    return opened


def remote(stack: ExitStack) -> Opened:
    def opened(**how: Any) -> Session:
        target = stack.enter_context(running(SETTINGS, Session(written=spark_sql, **how)))
        # What is tested is that a client's session is one; mypy need not know more.
        return cast(Session, stack.enter_context(promising.connect(target, retries=0)))

    return opened


def kept(stack: ExitStack) -> Opened:
    def opened(*, seed: int | None = None, clock: Any = None, **how: Any) -> Session:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="promising-conformance-"))
        more = {} if clock is None else {"clock": clock}
        return stack.enter_context(
            Session(store=Store.open(folder, seed=seed, options=COLD, **more), **more, written=spark_sql, **how)
        )

    return opened
