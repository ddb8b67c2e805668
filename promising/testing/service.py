"""A service in this process, for tests, examples and measurements."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from promising.query.session import Session
from promising.server.service import Service
from promising.settings import Settings


@contextmanager
def running(settings: Settings | None = None, session: Session | None = None) -> Iterator[str]:
    """A service in a thread with its own event loop, on a free loopback port unless the settings name another.

    Yields the target to connect to. The end of the block ends open calls, the service and its threads.

    >>> import promising
    >>> with running() as target, promising.connect(target) as session:
    ...     print(session.execute("CREATE STREAM s (ts TIMESTAMP, item INT) TIMESTAMP BY ts"))
    stream s created
    """
    service = Service(Settings(listen="127.0.0.1:0") if settings is None else settings, session)
    host = service.settings.listen.rpartition(":")[0]
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="service")
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(service.start(), loop).result()
        try:
            yield f"{host}:{port}"
        finally:
            asyncio.run_coroutine_threadsafe(service.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        del service
        gc.collect()  # the thread of grpc.aio ends with the last of its objects
