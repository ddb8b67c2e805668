"""A brute-force oracle of a stream with one summary: stores every tuple, and answers every query by a scan.

It shares no code with the index, takes one tuple at a time, and stores no derived state but the watermark and what
moves it: the zone of a tuple, and whether it has expired, is computed from its timestamp at each query.

Time, with `T_1` the granularity and `n` the rate of the collapse: `T_i = T_1 * n**(i-1)`, `S_i = T_1 + ... + T_i`, and
`horizon_i = floor((watermark - S_i) / T_i) * T_i`. A timestamp is in the first `G_i` with `ts >= horizon_i`. With KEEP
the last granularity is the last `G_m` with zones of at most an eighth of it, and `horizon_m = floor((watermark - KEEP)
/ T_(m-1)) * T_(m-1)`; a timestamp before that has expired. Without, nothing expires.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from promising.errors import (
    BadCollapse,
    BadGranularity,
    BadWindow,
    EmptyBatch,
    MissingColumn,
    NullKey,
    NullTime,
    UnequalLengths,
)

Key = int | str
Row = dict[str, Any]
Window = tuple[int, int]

TOO_OLD = "too_old"
TOO_FAR_AHEAD = "too_far_ahead"
LAST = 64  # granularities, where nothing expires


class Oracle:
    """What a stream with one summary must hold and answer. All times are integers, microseconds since the epoch.

    Tuples are named by their *arrival*: their place, from 0, among all tuples ever offered, refused ones included.
    `offered == len(live()) + expired + sum(refused.values())` holds at all times. Every question costs a scan of all
    accepted tuples.

    >>> from promising.testing.clock import ManualClock
    >>> oracle = Oracle("ts", "item", granularity=10, collapse=(2, 2), keep=80, max_future=50, clock=ManualClock(100))
    >>> oracle.append({"ts": [95, 9, 151, 120], "item": ["tea", "tea", "jam", "jam"], "price": [2.0, None, 3.0, 3.0]})
    (2, {'too_old': 1, 'too_far_ahead': 1})
    >>> oracle.watermark, oracle.live()
    (100, [0, 3])
    >>> oracle.zone_of(95), oracle.zone_of(120)
    ((1, 9), (1, 12))
    >>> oracle.count("tea"), oracle.count("jam", window=(0, 120)), oracle.rows([0])
    (1, 0, [{'ts': 95, 'item': 'tea', 'price': 2.0}])
    >>> oracle.advance(180)
    >>> oracle.live(), oracle.expired
    ([3], 1)
    """

    def __init__(
        self,
        time: str,
        key: str,
        *,
        granularity: int,
        collapse: tuple[int, int],
        keep: int | None = None,
        clock: Callable[[], int],
        lateness: int = 0,
        max_future: int = 300_000_000,
        max_jump: int | None = None,
    ) -> None:
        rate, depth = collapse
        if granularity <= 0:
            raise BadGranularity(f"granularity must be positive, got {granularity}")
        if rate < 2 or depth < 1:
            raise BadCollapse(f"collapse needs rate >= 2 and depth >= 1, got {collapse}")
        self.time = time
        self.key = key
        self.granularity = granularity
        self.rate = rate
        self.floor: int | None = None  # what was older when KEEP last changed has expired for good
        self._keep(keep)
        self.lateness = lateness
        self.max_future = max_future
        self.max_jump = max_jump
        self.clock = clock
        self.offered = 0
        self.refused: Counter[str] = Counter()
        self._watermark: int | None = None
        self._counted: int | None = None  # the latest time that moves the watermark
        self._doubted: set[int] = set()  # times that do not yet
        self._accepted: dict[int, Row] = {}
        self._released: set[int] = set()

    # --- tuples in ---------------------------------------------------------------------------------------------

    def append(self, columns: Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]) -> tuple[int, dict[str, int]]:
        """Offer a batch, tuple by tuple in its order; returns how many were accepted, and refused by reason.

        The clock is read once. A batch with a null key or time, a missing key or time column, unequal lengths or no
        tuples is an error and changes nothing. `None` is null in the other columns.
        """
        rows = self._rows_of(columns)
        now = self.clock()
        jump = self.max_jump if self._accepted else None  # the first batch may jump
        accepted = 0
        self._follow(now, jump)
        refused: Counter[str] = Counter()
        for row in rows:
            reason = self._offer(row, now, jump)
            if reason is None:
                accepted += 1
            else:
                refused[reason] += 1
        self.refused.update(refused)
        return accepted, dict(refused)

    def _offer(self, row: Row, now: int, jump: int | None) -> str | None:
        """Accept one tuple, or return the reason for refusing it. Only an accepted tuple moves the watermark."""
        arrival = self.offered
        self.offered += 1
        ts = row[self.time]
        if ts > now + self.max_future:
            return TOO_FAR_AHEAD
        if not self._is_live(ts):
            return TOO_OLD
        self._accepted[arrival] = row
        self._doubted.add(ts)
        self._follow(now, jump)
        return None

    def _follow(self, now: int, jump: int | None) -> None:
        """Move the watermark as far as the clock and the tuples allow.

        A time counts if it is not further than `jump` ahead of the watermark, or if two greater ones are doubted too.
        """
        while True:
            if self._counted is not None:
                self.advance(min(self._counted - self.lateness, now))
            near = {t for t in self._doubted if jump is None or self._watermark is None or self._watermark + jump >= t}
            if not near and len(self._doubted) >= 3:
                near = {sorted(self._doubted)[-3]}
            if not near:
                return
            self._counted = max([*near] + ([] if self._counted is None else [self._counted]))
            self._doubted -= near

    def _rows_of(self, columns: Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]) -> list[Row]:
        for name in (self.time, self.key):
            if name not in columns:
                raise MissingColumn(f"column {name!r} is not in the batch: {sorted(columns)}")
        lists = {name: _as_list(values) for name, values in columns.items()}
        lengths = {name: len(values) for name, values in lists.items()}
        if len(set(lengths.values())) > 1:
            raise UnequalLengths(f"columns of unequal length: {lengths}")
        if not lists[self.time]:
            raise EmptyBatch("a batch without tuples")
        rows = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
        for place, row in enumerate(rows):
            if row[self.time] is None:
                raise NullTime(f"row {place}: no value in time column {self.time!r}")
            if row[self.key] is None:
                raise NullKey(f"row {place}: no value in key column {self.key!r}")
            row[self.time] = operator.index(row[self.time])
        return rows

    def set_watermark(self, watermark: int, stored: Iterable[int] | None = None) -> None:
        """Set it, even back; from then on only new tuples move it. What had expired is live again at the new watermark.

        stored: the only arrivals of which that holds, for a stream that has released the others; None: all.
        """
        self._watermark = self._counted = watermark
        self._doubted.clear()
        self.floor = None
        if stored is not None:
            here = set(stored)
            self._released.update(a for a in self._accepted if a not in here)

    def punctuate(self, watermark: int) -> None:
        """No tuple before `watermark`, which the clock has reached, is expected. It follows the clock first."""
        self._follow(self.clock(), self.max_jump)
        self.advance(watermark)

    def advance(self, watermark: int) -> None:
        """Move the watermark there, but never back."""
        self._watermark = watermark if self._watermark is None else max(self._watermark, watermark)

    def alter(self, keep: int | None) -> None:
        """KEEP changes; what has expired stays so."""
        self.floor = self.oldest
        self._keep(keep)
        self.floor = self.oldest

    def _keep(self, keep: int | None) -> None:
        self.keep = keep
        self.levels = LAST  # the number of granularities
        if keep is not None:
            self.levels = 1 + sum(8 * self.granularity * self.rate**i <= keep for i in range(LAST))
            if self.levels == 1:
                raise BadGranularity(f"granularity {self.granularity} is more than an eighth of {keep}")

    # --- geometry ----------------------------------------------------------------------------------------------

    @property
    def watermark(self) -> int | None:
        """`None` before the first accepted tuple or punctuation; until then nothing is too old."""
        return self._watermark

    def span(self, i: int) -> int:
        """`T_i`, the length of granularity `i`, counted from 1."""
        self._check_granularity(i)
        span = self.granularity
        for _ in range(i - 1):
            span *= self.rate
        return span

    def horizon(self, i: int) -> int | None:
        """The first instant still in `G_1..G_i`; `None` while there is no watermark, or for the last without KEEP."""
        if self._watermark is None:
            return None
        if i == self.levels:
            step = self.span(i - 1)
            return None if self.keep is None else (self._watermark - self.keep) // step * step
        reach = sum(self.span(j) for j in range(1, i + 1))
        return (self._watermark - reach) // self.span(i) * self.span(i)

    @property
    def oldest(self) -> int | None:
        """The least time that has not expired; `None` if nothing has."""
        return max((t for t in (self.horizon(self.levels), self.floor) if t is not None), default=None)

    def granularity_of(self, ts: int) -> int | None:
        """The current granularity of `ts`, from 1; `None` when `ts` is older than the last."""
        for i in range(1, self.levels + 1):
            horizon = self.horizon(i)
            if horizon is None or ts >= horizon:
                return i
        return None

    def zone_of(self, ts: int) -> tuple[int, int] | None:
        """Current granularity and zone number of `ts`.

        In `G_i`, i >= 2, zone z is `[z * T_(i-1), (z+1) * T_(i-1))`. Zones of `G_1` depend on behaviour; for them the
        number is that of their block of length `T_1`.
        """
        i = self.granularity_of(ts)
        if i is None:
            return None
        return i, ts // self.span(max(i - 1, 1))

    # --- answers -----------------------------------------------------------------------------------------------

    def live(self) -> list[int]:
        """Arrivals of the accepted tuples that have not expired, ascending."""
        oldest = self.oldest
        held = ((a, row[self.time]) for a, row in self._accepted.items() if a not in self._released)
        return [arrival for arrival, ts in held if oldest is None or ts >= oldest]

    @property
    def expired(self) -> int:
        """How many accepted tuples have expired."""
        return len(self._accepted) - len(self.live())

    def rows(self, arrivals: Iterable[int]) -> list[Row]:
        """Copies of accepted tuples, expired ones included, in the given order."""
        return [dict(self._accepted[arrival]) for arrival in arrivals]

    def tuples(self, key: Key, window: Window | None = None) -> list[int]:
        """Arrivals of the live tuples with this key and a time in `[start, end)`, ascending; any time without one."""
        return [arrival for arrival in self._live_in(window) if self._accepted[arrival][self.key] == key]

    def count(self, key: Key, window: Window | None = None) -> int:
        return len(self.tuples(key, window))

    def join(self, keys: Iterable[Key], window: Window | None = None) -> list[tuple[int, int]]:
        """Pairs (index in `keys`, arrival of a live tuple in the window with that key), ascending, keys may repeat."""
        matches: dict[Key, list[int]] = {}
        for arrival in self._live_in(window):
            matches.setdefault(self._accepted[arrival][self.key], []).append(arrival)
        probes = _as_list(keys)
        return [(place, arrival) for place, key in enumerate(probes) for arrival in matches.get(key, ())]

    def zone_counts(self, granularity: int) -> dict[int, Counter[Key]]:
        """Per non-empty zone of this granularity, numbered as in `zone_of`: how many live tuples each key has."""
        self._check_granularity(granularity)
        zones: dict[int, Counter[Key]] = {}
        for arrival in self.live():
            row = self._accepted[arrival]
            place = self.zone_of(row[self.time])
            if place is not None and place[0] == granularity:
                zones.setdefault(place[1], Counter())[row[self.key]] += 1
        return zones

    def _live_in(self, window: Window | None) -> list[int]:
        if window is None:
            return self.live()
        start, end = window
        if end < start:
            raise BadWindow(f"window [{start}, {end}) ends before it starts")
        return [arrival for arrival in self.live() if start <= self._accepted[arrival][self.time] < end]

    def _is_live(self, ts: int) -> bool:
        oldest = self.oldest
        return oldest is None or ts >= oldest

    def _check_granularity(self, i: int) -> None:
        if not 1 <= i <= self.levels:
            raise ValueError(f"granularities are 1..{self.levels}, not {i}")


def _as_list(values: Iterable[Any]) -> list[Any]:
    """Plain Python values, so that keys compare and print alike whatever the array type."""
    return values.tolist() if isinstance(values, np.ndarray) else list(values)
