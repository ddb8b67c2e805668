"""Threads for what takes CPU. The event loop only passes messages on; kernels run without the GIL."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

WAITING = 32  # jobs that may wait for the disk at one time; the more wait, the more one sync serves

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Work:
    """Six kinds of work, each with its own threads, so that none waits behind another. Waiting for the disk is a
    seventh: it takes a thread, but no core.

    Queries come a frame at a time, some milliseconds each, first come first served: with many of them open, each has
    its turn before any has a second one.
    """

    def __init__(self, workers: int) -> None:
        count = workers or len(os.sched_getaffinity(0))
        self.queries = ThreadPoolExecutor(count, "promising-query")
        self.batches = ThreadPoolExecutor(count, "promising-ingest")
        self.calls = ThreadPoolExecutor(count, "promising-call")
        self.packages = ThreadPoolExecutor(1, "promising-package")
        self.ticks = ThreadPoolExecutor(1, "promising-tick")
        self.feeds = ThreadPoolExecutor(count, "promising-feed")
        self.waits = ThreadPoolExecutor(WAITING, "promising-disk")
        self.busy = 0
        """Jobs that somebody waits for."""

    async def query(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A step of a query."""
        return await self._finished(self.queries.submit(do, *given, **named))

    async def batch(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A batch to take in."""
        return await self._finished(self.batches.submit(do, *given, **named))

    async def call(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A short question or statement."""
        return await self._finished(self.calls.submit(do, *given, **named))

    async def package(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A package to take in, one at a time: it may take minutes, in which batches come in, too."""
        return await self._finished(self.packages.submit(do, *given, **named))

    async def tick(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A turn of the continuous queries, one at a time. Nobody is waited for by it when the service ends."""
        waiting: asyncio.Future[Any] = asyncio.wrap_future(self.ticks.submit(do, *given, **named))
        found: Result = await waiting
        return found

    async def feed(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """A part of what a subscriber is told."""
        return await self._finished(self.feeds.submit(do, *given, **named))

    def later(self, do: Callable[[], None]) -> None:
        """Something short that nobody waits for."""
        try:
            self.feeds.submit(do)
        except RuntimeError:  # there are no threads any more
            do()

    async def wait(self, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """Something that only waits for the disk."""
        return await self._finished(self.waits.submit(do, *given, **named))

    def close(self) -> None:
        """Wait for what is under way; what has not begun is dropped."""
        for pool in (self.queries, self.batches, self.calls, self.packages, self.ticks, self.waits):
            pool.shutdown(wait=True, cancel_futures=True)
        self.feeds.shutdown(wait=True)  # with what was left for later

    async def _finished(self, job: "Future[Result]") -> Result:
        """The result of a job. Whoever is cancelled is told at once; work that has begun goes on to its end."""
        self.busy += 1
        try:
            waiting: asyncio.Future[Any] = asyncio.wrap_future(job)
            found: Result = await waiting
            return found
        finally:
            self.busy -= 1
