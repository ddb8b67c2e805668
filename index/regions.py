"""Result types of the index."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from promising.errors import BadWindow
from promising.index import instants

EVER = instants.EVER
Window = tuple[int, int] | None


def check_window(window: Window) -> tuple[int, int]:
    """A half-open range of event time, in microseconds; None is all of it."""
    if window is None:
        return EVER
    try:
        start, end = (int(edge) for edge in window)
    except (TypeError, ValueError, OverflowError):
        raise BadWindow(f"a window is (start, end) in microseconds, not {window!r}") from None
    if end < start:
        raise BadWindow(f"the window ends at {end}, before it starts at {start}")
    least, most = EVER
    return min(max(start, least), most), min(max(end, least), most)


class Guess(NamedTuple):
    """A number with bounds. If it is not `known`, the bounds hold but are far apart, and the value is NaN.

    >>> Guess(5.0, 4.0, 7.0).known, Guess(math.nan, 4.0, 700.0).known
    (True, False)
    """

    value: float
    lower: float
    upper: float

    @property
    def known(self) -> bool:
        return not math.isnan(self.value)


@dataclass(frozen=True)
class Appended:
    """The result of a batch: tuples accepted, and refused by reason. A `duplicate` has its original figures."""

    accepted: int
    refused: dict[str, int] = field(default_factory=dict)
    duplicate: bool = False


@dataclass(frozen=True)
class Region:
    """A cell that may hold tuples of a key: `estimate` of them in the window, between `lower` and `upper`.

    `tuples` is the cell's total, [start, end) the time range of its tuples. Zones of `G_1` are numbered in order of
    their cutting, those of `G_i` by time.
    """

    key: int
    granularity: int
    zone: int
    bucket: int
    estimate: float
    lower: float
    upper: float
    tuples: int
    start: int
    end: int


@dataclass(frozen=True)
class Regions:
    """Regions as columns, by key, then granularity, then zone. Other cells hold no tuple of that key in the window.

    `considered` counts (key, zone) pairs before pruning, `by_window` and `by_filter` those pruned.
    """

    key: NDArray[np.int64]
    granularity: NDArray[np.int64]
    zone: NDArray[np.int64]
    bucket: NDArray[np.int64]
    estimate: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    tuples: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    considered: int
    by_window: int
    by_filter: int

    @property
    def pruned(self) -> int:
        """(key, zone) pairs that need no visit."""
        return self.by_window + self.by_filter

    def __len__(self) -> int:
        return len(self.key)

    def __getitem__(self, at: int) -> Region:
        columns = (self.key, self.granularity, self.zone, self.bucket)
        bounds = (self.estimate, self.lower, self.upper)
        place = (self.tuples, self.start, self.end)
        return Region(*(int(c[at]) for c in columns), *(float(c[at]) for c in bounds), *(int(c[at]) for c in place))

    def __iter__(self) -> Iterator[Region]:
        return (self[i] for i in range(len(self)))


@dataclass(frozen=True)
class Matches:
    """Tuples with one of the requested keys: `probe` is the index of the key, `rows` the log row."""

    probe: NDArray[np.int32]
    rows: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class ZoneInfo:
    """One zone, as in `describe`. `reason` is why it was cut; zones of `G_2..G_m` are cut by the calendar."""

    granularity: int
    zone: int
    start: int
    end: int
    tuples: int
    reason: str


@dataclass(frozen=True)
class Description:
    """The state of a summary: `spans[i-1]` is the length of `G_i`, `cuts` counts the reasons for cuts so far."""

    name: str
    key: str
    structure: str  # as created: one of the four, or auto
    spans: tuple[int, ...]
    zones: tuple[ZoneInfo, ...]
    tuples: int
    expired: int
    keys: int
    cuts: dict[str, int]
    bytes: int
    ceiling: int  # maximum bytes; in a stream without a limit, without what tuples and keys add
    watermark: int | None
    horizons: tuple[int, ...]
    cells: NDArray[np.int64] | None = None  # tuples by zone and value bucket, zones as in `zones`; on request
    now: str = ""  # the current structure; with auto it may change
    why: str = ""  # the reason, if it was chosen
    sketch_bytes: int = 0  # maximum, of sketches and filters
    tuple_bytes: int = 0  # maximum that a tuple adds to them
    key_bytes: int = 0  # maximum that a distinct key adds
    using: str = ""  # how its cells count the key, as SQL; empty without structure
    measures: tuple[str, ...] = ()  # as SQL
    postings: bool = True  # as in OPTIONS
    building: str = ""  # how far ALTER SUMMARY ADD MEASURES is
    show: str = ""  # the figure that `shown` has, such as avg(price)
    shown: NDArray[np.float64] | None = None  # by zone and value bucket, or one of the zone; NaN where there is none

    @property
    def structure_text(self) -> str:
        """The structure in words.

        >>> structure_in_words("auto", "time", "many keys are probed")
        'auto: time, because many keys are probed'
        """
        return structure_in_words(self.structure, self.now, self.why)

    @property
    def cutting(self) -> str:
        """Whether zones of `G_1` follow the stream, in words; see `cutting_in_words`."""
        return cutting_in_words(self.now, self.cuts)


def structure_in_words(structure: str, now: str, why: str) -> str:
    """A structure in words; if it was chosen, with the reason."""
    return structure if structure != "auto" else f"auto: {now}, because {why}"


def cutting_in_words(structure: str, cuts: Mapping[str, int]) -> str:
    """Whether cuts have paid, by the zones cut so far; empty without `adaptive`, or before the first.

    >>> cutting_in_words("adaptive", {"error": 12})
    'zones have one length: behaviour has not jumped, so other cuts would not pay'
    >>> cutting_in_words("adaptive", {"error": 12, "behaviour": 2})
    'zones are cut at jumps of behaviour, 2 so far'
    """
    jumps = cuts.get("behaviour", 0)
    if structure != "adaptive" or not (jumps or cuts.get("error") or cuts.get("maxlength")):
        return ""
    if jumps:
        return f"zones are cut at jumps of behaviour, {jumps:,} so far"
    return "zones have one length: behaviour has not jumped, so other cuts would not pay"


@dataclass(frozen=True)
class Absorbed:
    """Zones with one reason that collapsed into a coarser one, and their tuples."""

    reason: str
    zones: int
    tuples: int


@dataclass(frozen=True)
class Story:
    """The history of one zone: `lines` for people; what it absorbed, if finer zones collapsed into it."""

    zone: ZoneInfo
    lines: tuple[str, ...]
    absorbed: tuple[Absorbed, ...] = ()
    measures: tuple[str, ...] = ()  # what it measured, a line each
