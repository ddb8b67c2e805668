"""Work in steps, so that it takes turns with other work and can be cancelled between them."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from promising.errors import LimitReached
from promising.server.worker_threads import Work
from promising.summaries.kernels.clock import work_ns

Step = TypeVar("Step")


class Steps(Generic[Step]):
    """The steps of a request, one at a time, up to a limit of CPU seconds.

    The end of the `with` block releases the work, after the current step: an exception that outlives the block does not
    retain it.
    """

    def __init__(self, work: Work, steps: Iterator[Step], most: float) -> None:
        self._work = work
        self._steps = steps
        self._most = most
        self._spent = 0.0

    def __enter__(self) -> "Steps[Step]":
        return self

    def __exit__(self, *_: object) -> None:
        self._steps = iter(())

    def __aiter__(self) -> "Steps[Step]":
        return self

    async def __anext__(self) -> Step:
        done = await self._work.query(self._next)
        if done is None:
            raise StopAsyncIteration
        step, took = done
        self._spent += took
        if self._spent > self._most:
            raise LimitReached(f"more than {self._most:g} seconds of CPU time; ask for less at once")
        return step

    def _next(self) -> tuple[Step, float] | None:
        """The next step and its CPU seconds; None at the end."""
        began = work_ns()
        for step in self._steps:
            return step, (work_ns() - began) / 1e9
        return None
