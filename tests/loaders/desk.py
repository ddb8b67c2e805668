"""A session that other processes can plan scans with and fetch tuples from, without a network service around it."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Listener
from typing import Any

import pyarrow as pa

from promising.errors import PromisingError
from promising.index.scan_plan import ScanPlan
from promising.query import Session

KEY = b"for tests"


@contextmanager
def desk(session: Session) -> Iterator[Any]:
    """Answers one caller at a time; gives what opens a connection, which can be pickled."""
    with Listener(authkey=KEY) as listener:
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                with listener.accept() as caller, suppress(EOFError):
                    while True:
                        method, args = caller.recv()
                        try:
                            found = getattr(session, method)(**args)
                            caller.send((None, found if method == "plan_scan" else list(found)))
                        except PromisingError as problem:
                            caller.send((problem, None))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield functools.partial(Away, listener.address)
        finally:
            ended.set()
            Client(listener.address, authkey=KEY).close()
            thread.join()


class Away:
    """The session from somewhere else."""

    def __init__(self, address: Any) -> None:
        self._line = Client(address, authkey=KEY)

    def __enter__(self) -> "Away":
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def _ask(self, method: str, **args: Any) -> Any:
        self._line.send((method, args))
        problem, answer = self._line.recv()
        if problem is not None:
            raise problem
        return answer

    def plan_scan(self, sql: str, *, share: float = 1.0) -> ScanPlan:
        plan: ScanPlan = self._ask("plan_scan", sql=sql, share=share)
        return ScanPlan.from_json(plan.to_json())

    def fetch(self, stream: str, first: int, last: int, columns: list[str]) -> Iterator[pa.Table]:
        yield from self._ask("fetch", stream=stream, first=first, last=last, columns=columns)
