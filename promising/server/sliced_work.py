"""Work in steps, so that it takes turns with other work and can be cancelled between them."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from promising.errors import LimitReached
from promising.server.worker_threads import Work
from promising.summaries.kernels.clock import work_ns

Step = TypeVar("Step")
Result = TypeVar("Result")


class Turns:
    """The turns of one request. `spent`: CPU seconds so far, which decide when its next one is."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.spent = 0.0

    async def take(self, do: Callable[..., Result], *given: Any) -> Result:
        """The result of a step."""
        return await self._work.query(self.spent, self._metered, do, *given)

    def _metered(self, do: Callable[..., Result], *given: Any) -> Result:
        began = work_ns()
        try:
            return do(*given)
        finally:
            self.spent += (work_ns() - began) / 1e9


class Steps(Generic[Step]):
    """The steps of a request, one at a time, up to a limit of CPU seconds.

    The end of the `with` block releases the work, after the current step: an exception that outlives the block does not
    retain it.
    """

    def __init__(self, turns: Turns, steps: Iterator[Step], most: float) -> None:
        self._turns = turns
        self._steps = steps
        self._most = most

    def __enter__(self) -> "Steps[Step]":
        return self

    def __exit__(self, *_: object) -> None:
        self._steps = iter(())

    def __aiter__(self) -> "Steps[Step]":
        return self

    async def __anext__(self) -> Step:
        done = await self._turns.take(self._next)
        if done is None:
            raise StopAsyncIteration
        if self._turns.spent > self._most:
            raise LimitReached(f"more than {self._most:g} seconds of CPU time; ask for less at once")
        return done[0]

    def _next(self) -> tuple[Step] | None:
        """The next step; None at the end."""
        for step in self._steps:
            return (step,)
        return None
