"""Runs an iterator in another thread, ahead of its reader, and hands over its items in groups."""

import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")

WAITING = 2  # groups that are ready


@contextmanager
def run_ahead(groups: Generator[list[Item]]) -> Iterator[Iterator[list[Item]]]:
    """What `groups` yields. Its error is raised after all before it; at the end of the block it has ended."""
    ready: queue.Queue[list[Item] | None] = queue.Queue(WAITING)
    left = threading.Event()
    problems: list[BaseException] = []

    def run() -> None:
        try:
            for group in groups:
                ready.put(group)
                if left.is_set():
                    break
        except BaseException as problem:
            problems.append(problem)
        finally:
            groups.close()
            ready.put(None)

    def handed() -> Iterator[list[Item]]:
        while (group := ready.get()) is not None:
            yield group
        ended.append(True)
        if problems:
            raise problems[0]

    ended: list[bool] = []
    thread = threading.Thread(target=run, name="promising-recover", daemon=True)
    thread.start()
    try:
        yield handed()
    finally:
        left.set()
        while not ended and ready.get() is not None:
            pass
        thread.join()
