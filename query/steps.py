"""Work in steps of a few milliseconds, between which a query can be stopped."""

from collections.abc import Generator
from typing import TypeVar

COLUMN = 1 << 11  # rows that take as long as a column takes however few they are
MANY = 1 << 17  # rows times columns of a step that makes values, or takes them from their places

Result = TypeVar("Result")

Steps = Generator[None, None, Result]
"""Yields after each step, and returns the result."""


def drained(steps: Steps[Result]) -> Result:
    """The result of all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # StopIteration is not generic


class Load:
    """Counts the columns of a step."""

    def __init__(self, most: int = MANY) -> None:
        self._most = most
        self._done = 0

    def full(self, rows: int) -> bool:
        """Whether one column more is enough for a step; the next step begins with none."""
        self._done += COLUMN + rows
        if self._done < self._most:
            return False
        self._done = 0
        return True
