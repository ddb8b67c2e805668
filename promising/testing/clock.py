"""A manual clock."""


class ManualClock:
    """Microseconds since the epoch, as set by a test; calling it never changes it.

    `set` may go back, like a system clock; `tick` only goes forward.

    >>> clock = ManualClock(1_000)
    >>> clock.tick(500)
    >>> clock()
    1500
    >>> clock.set(0)
    >>> clock()
    0
    """

    def __init__(self, now_us: int = 0) -> None:
        self._now = now_us

    def __call__(self) -> int:
        return self._now

    def set(self, now_us: int) -> None:
        self._now = now_us

    def tick(self, by_us: int) -> None:
        if by_us < 0:
            raise ValueError(f"a clock ticks forward, not by {by_us}; set() may go back")
        self._now += by_us

    def __repr__(self) -> str:
        return f"ManualClock({self._now})"
