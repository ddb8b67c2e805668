"""How far a stream has come in event time. Pure functions: the clock is an argument."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from promising.errors import BadOptions, BadWatermark, DataDamaged, WrongType
from promising.index.instants import BEGINNING, END, FARTHEST
from promising.index.kernels.progress import pace
from promising.index.time_text import instant, readable, rounded

Times = NDArray[np.int64]

AGREEING = 3
"""Tuples of different times beyond MAX JUMP that move the watermark together."""


class Progress(NamedTuple):
    """The watermark of a stream, and what it follows from. All of it is logged, so recovery reads no clock.

    watermark: None before the first. counted: the latest event time that moves it; it may be ahead of the clock.
    time: that, but at most the clock: where windows end. doubted: ascending times of tuples further ahead than MAX
    JUMP, fewer than `AGREEING`.
    """

    watermark: int | None = None
    counted: int | None = None
    time: int | None = None
    doubted: tuple[int, ...] = ()

    @property
    def now(self) -> int | None:
        """Where windows end: no result is older than the watermark."""
        return max((t for t in (self.time, self.watermark) if t is not None), default=None)

    @classmethod
    def at(cls, watermark: int) -> "Progress":
        """Set there by hand: from now on only new tuples move it."""
        return cls(watermark, watermark, watermark)

    def advanced(self, watermark: int) -> "Progress":
        return self._replace(watermark=watermark if self.watermark is None else max(watermark, self.watermark))

    @classmethod
    def of(cls, logged: Any) -> "Progress":
        """From JSON, or `DataDamaged`."""
        match logged:
            case [
                int() | None as watermark,
                int() | None as counted,
                int() | None as time,
                list(doubted),
            ] if all(isinstance(t, int) for t in doubted):
                return cls(watermark, counted, time, tuple(doubted))
        raise DataDamaged("a record of the log does not say how far the stream has come")


class Pace(NamedTuple):
    """The rule by which tuples move the progress of a stream at one reading of the clock.

    The watermark is the latest time counted less `lateness`, at most the clock, and never decreases. A time further
    than `jump` ahead of it does not count until `AGREEING` different ones have arrived (then the least of them does) or
    the watermark is that near; None: every time counts. The split into batches does not matter.
    """

    progress: Progress
    lateness: int
    jump: int | None
    now: int = END

    def bound(self, greatest: int) -> int:
        """The watermark after tuples up to `greatest` is at most this."""
        known = self.progress
        latest = max(t for t in (greatest, known.counted, *known.doubted) if t is not None)
        reached = min(latest - self.lateness, self.now)
        return reached if known.watermark is None else max(reached, known.watermark)

    def after(self, times: Times, greatest: int = BEGINNING) -> Progress:
        """The progress after these tuples, of which `greatest` is the latest; without any, at this clock."""
        known = self.progress
        if self._doubts(greatest):
            return self._walk(times)[1]
        counted = max((t for t in (known.counted, *known.doubted, greatest) if t is not None), default=BEGINNING)
        return self._made(self.bound(greatest), counted, ())

    def before(self, times: Times, greatest: int) -> Times:
        """The watermark before each tuple, if all are accepted in this order; `BEGINNING` for a refused one."""
        known = self.progress
        if self._doubts(greatest):
            return self._walk(times)[0]
        latest = np.empty(len(times), np.int64)
        latest[:1] = max((t for t in (known.counted, *known.doubted) if t is not None), default=BEGINNING)
        latest[1:] = times[:-1]
        np.maximum.accumulate(latest, out=latest)
        start = BEGINNING if known.watermark is None else known.watermark
        return np.clip(latest - self.lateness, start, max(self.now, start), out=latest)

    def _doubts(self, greatest: int) -> bool:
        """Whether a time may be doubted."""
        if self.jump is None:
            return False
        start = self.progress.watermark
        return bool(self.progress.doubted) or (greatest > BEGINNING and (start is None or greatest - self.jump > start))

    def _walk(self, times: Times) -> tuple[Times, Progress]:
        known = self.progress
        assert self.jump is not None
        start = [known.watermark, known.counted, *known.doubted, *[None] * (2 - len(known.doubted))]
        state = np.array([BEGINNING if t is None else t for t in start], np.int64)
        before = np.empty(len(times), np.int64)
        pace(times, state, self.lateness, self.jump, min(self.now, END), before)
        watermark, counted, *doubted = state.tolist()
        return before, self._made(watermark, counted, tuple(t for t in doubted if t != BEGINNING))

    def _made(self, watermark: int, counted: int, doubted: tuple[int, ...]) -> Progress:
        """`BEGINNING` stands for none."""
        if counted == BEGINNING:
            return self.progress
        time, before = min(counted, self.now), self.progress.time
        return Progress(watermark, counted, time if before is None else max(time, before), doubted)


def check_watermark(watermark: Any) -> int:
    if not isinstance(watermark, int | np.integer) or not -FARTHEST <= watermark <= FARTHEST:
        raise WrongType(f"watermark {watermark!r} is no date; times are whole microseconds{_unit(watermark)}")
    return int(watermark)


def check_reached(watermark: int, now: int) -> None:
    """Raises `BadWatermark` unless the clock has reached it: it would age every tuple to come."""
    if watermark > now:
        raise BadWatermark(
            f"watermark {instant(watermark)} is {rounded(watermark - now)} ahead of the clock ({instant(now)}), the"
            f" latest that it can be{_unit(watermark)}"
        )


def _unit(watermark: Any) -> str:
    """A hint if the value makes a plausible date as nanoseconds: from 1990 to 2100."""
    if (
        isinstance(watermark, int | np.integer)
        and 631_152_000_000_000 <= int(watermark) // 1000 < 4_102_444_800_000_000
    ):
        return f"; it looks like nanoseconds: in microseconds it is {int(watermark) // 1000}"
    return ""


def check_max_jump(jump: Any, lateness: int) -> None:
    if jump is None:
        return
    if not isinstance(jump, int) or not 0 < jump <= FARTHEST:
        raise BadOptions(f"MAX JUMP must be positive, in whole microseconds, got {jump!r}; OFF turns it off")
    if jump <= lateness:
        raise BadOptions(
            f"MAX JUMP {readable(jump)} must be longer than LATENESS {readable(lateness)}, the distance of ordinary"
            " tuples ahead of the watermark"
        )
