"""Threads for CPU work. The event loop only passes messages; kernels run without the GIL."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

WAITING = 32  # jobs that may wait for the disk at a time; the more wait, the more one sync serves

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Work:
    """Seven kinds of work, each with its own threads: none waits for another. Waiting for the disk is an eighth,
    which takes a thread but no core.

    Queries run a frame at a time, some milliseconds each, first come first served: of many open queries each gets its
    turn before any gets a second one. Their first steps have threads of their own: a short query does not wait for long
    ones, however many there are.
    """

    def __init__(self, workers: int) -> None:
        count = workers or len(os.sched_getaffinity(0))
        self.begins = ThreadPoolExecutor(count, "promising-begin")
        self.queries = ThreadPoolExecutor(count, "promising-query")
        self.batches = ThreadPoolExecutor(count, "promising-ingest")
        self.calls = ThreadPoolExecutor(count, "promising-call")
        self.packages = ThreadPoolExecutor(1, "promising-package")
        self.ticks = ThreadPoolExecutor(1, "promising-tick")
        self.feeds = ThreadPoolExecutor(count, "promising-feed")
        self.waits = ThreadPoolExecutor(WAITING, "promising-disk")
        self.busy = 0
        """Jobs that are awaited."""

    async def begin(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A first step of a query: its plan, and its first frame."""
        return await self._finished(self.begins.submit(do, *given, **named))

    async def query(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A step of a query."""
        return await self._finished(self.queries.submit(do, *given, **named))

    async def batch(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """Add a batch."""
        return await self._finished(self.batches.submit(do, *given, **named))

    async def call(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A short request or statement."""
        return await self._finished(self.calls.submit(do, *given, **named))

    async def package(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """Add a package or measures, one at a time: it may take minutes, while batches are added, too."""
        return await self._finished(self.packages.submit(do, *given, **named))

    async def tick(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A tick of the continuous queries, one at a time. Not awaited at shutdown."""
        waiting: asyncio.Future[Any] = asyncio.wrap_future(self.ticks.submit(do, *given, **named))
        found: Result = await waiting
        return found

    async def feed(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A part of a subscriber's frame."""
        return await self._finished(self.feeds.submit(do, *given, **named))

    def later(self, do: Callable[[], None]) -> None:
        """A short job that nobody awaits."""
        try:
            self.feeds.submit(do)
        except RuntimeError:  # the threads have ended
            do()

    async def wait(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A wait for the disk."""
        return await self._finished(self.waits.submit(do, *given, **named))

    def close(self) -> None:
        """Wait for running jobs; those not begun are dropped."""
        for pool in (self.begins, self.queries, self.batches, self.calls, self.packages, self.ticks, self.waits):
            pool.shutdown(wait=True, cancel_futures=True)
        self.feeds.shutdown(wait=True)  # with deferred jobs

    async def _finished(self, job: "Future[Result]") -> Result:
        """The result of a job. A cancelled caller returns at once; work that has begun runs to its end."""
        self.busy += 1
        try:
            waiting: asyncio.Future[Any] = asyncio.wrap_future(job)
            found: Result = await waiting
            return found
        finally:
            self.busy -= 1
