"""Threads for CPU work. The event loop only passes messages; kernels run without the GIL."""

import asyncio
import contextlib
import heapq
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any, ParamSpec, TypeVar

WAITING = 32  # jobs that may wait for the disk at a time; the more wait, the more one sync serves
MEETING = 0.1  # seconds that an idle thread waits for the others of its pool
SMALL = 0.05  # seconds of CPU time up to which a query is small: not more than one turn of a large one

Given = ParamSpec("Given")
Result = TypeVar("Result")


class LeastFirst:
    """Threads that always take the waiting job with the least weight; of equal ones, the first."""

    def __init__(self, threads: int, name: str) -> None:
        self.pool = ThreadPoolExecutor(threads, name)
        self._lock = threading.Lock()
        self._numbers = count()
        self._waiting: list[tuple[float, int, Future[Any], Callable[[], Any]]] = []

    def submit(self, weight: float, do: Callable[[], Result]) -> "Future[Result]":
        made: Future[Result] = Future()
        with self._lock:
            heapq.heappush(self._waiting, (weight, next(self._numbers), made, do))
        self.pool.submit(self._take)
        return made

    def _take(self) -> None:
        with self._lock:
            _, _, made, do = heapq.heappop(self._waiting)
        if made.set_running_or_notify_cancel():
            try:
                made.set_result(do())
            except BaseException as problem:
                made.set_exception(problem)
        del made, do  # an exception would retain them, and they the exception

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.pool.shutdown(wait, cancel_futures=cancel_futures)
        for _, _, made, _ in self._waiting:
            made.cancel()


class Work:
    """Seven kinds of work, each with its own threads: none waits for another. Waiting for the disk is an eighth,
    which takes a thread but no core.

    Queries run a frame at a time, some milliseconds each. Small ones have threads of their own, where the one that has
    taken the least CPU time so far is next: a small query waits neither for large ones nor for those that will be,
    however many there are. Large ones are served first come first served: each gets its turn before any gets a second
    one.
    """

    def __init__(self, workers: int) -> None:
        count = self._count = workers or len(os.sched_getaffinity(0))
        self.small = LeastFirst(count, "promising-small")
        self.large = ThreadPoolExecutor(count, "promising-large")
        self.batches = ThreadPoolExecutor(count, "promising-ingest")
        self.calls = ThreadPoolExecutor(count, "promising-call")
        self.packages = ThreadPoolExecutor(1, "promising-package")
        self.ticks = ThreadPoolExecutor(1, "promising-tick")
        self.feeds = ThreadPoolExecutor(count, "promising-feed")
        self.waits = ThreadPoolExecutor(WAITING, "promising-disk")
        self.busy = 0
        """Jobs that are awaited."""

    async def query(
        self, spent: float, do: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
    ) -> Result:
        """A step of a query that has taken `spent` seconds of CPU time."""
        if spent < SMALL:
            return await self._finished(self.small.submit(spent, partial(do, *given, **named)))
        return await self._finished(self.large.submit(do, *given, **named))

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

    async def everywhere(self, do: Callable[[], None]) -> None:
        """A short job for each thread that works on queries or batches, when they are idle."""

        def job(met: threading.Barrier) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):  # another thread is at work
                met.wait(MEETING)
            do()

        jobs = []
        for pool in (self.small.pool, self.large, self.batches, self.calls, self.feeds):
            met = threading.Barrier(self._count)  # no thread takes two
            jobs += [asyncio.wrap_future(pool.submit(job, met)) for _ in range(self._count)]
        await asyncio.gather(*jobs)

    def close(self) -> None:
        """Wait for running jobs; those not begun are dropped."""
        for pool in (self.small, self.large, self.batches, self.calls, self.packages, self.ticks, self.waits):
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
