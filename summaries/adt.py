"""The summary: what a cell knows of its tuples, behind one interface.

A summary stands for a multiset of tuples. `summarize` puts tuples in, `add` unites two multisets, `subtract` takes a
contained one away, `estimate` answers with bounds, `confidence` says how far the answers can be trusted.

Bounds hold with a chance of at least `BOUNDS` for each single answer, and never contain what is impossible: no count
below 0 or above `total`. The chance is over the secret seed (sketches), the draw (sample, quantiles), or there is no
chance in it and they always hold (exact, histogram, frequent items).

`confidence` has one meaning for all kinds: a lower bound on the chance that an answer is within `TOLERANCE` of the
truth, where 1 is the whole of the tuples (for `Distinct`, the whole of the distinct keys). 1.0 for an empty summary.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from promising.errors import CannotSubtract, CorruptSummary, Incompatible, NotContained, PromisingError
from promising.summaries.frame import Reader, pack, unpack
from promising.summaries.keys import Key, check_room

BOUNDS = 0.95
TOLERANCE = 0.05


@dataclass(frozen=True)
class Estimate:
    """An answer and its bounds; `lower <= value <= upper`."""

    value: float
    lower: float
    upper: float


class Estimates(NamedTuple):
    """Answers for a column of keys, each with its bounds."""

    value: npt.NDArray[np.float64]
    lower: npt.NDArray[np.float64]
    upper: npt.NDArray[np.float64]


class Summary(ABC):
    """What every summary can do. A call that raises leaves the summary as it was."""

    kind: ClassVar[str]
    subtracts: ClassVar[bool] = True
    total: int
    """Tuples summarised: those put in and added, less those subtracted."""

    @abstractmethod
    def summarize(self, values: Any, counts: Any = None) -> None:
        """Take in `counts[i]` tuples of each `values[i]`, one without `counts`. An empty column changes nothing."""

    @abstractmethod
    def estimate(self, *args: Any, **kwargs: Any) -> Estimate:
        """Answer the question of this kind of summary."""

    @abstractmethod
    def confidence(self) -> float:
        """A lower bound on the chance that an answer is within `TOLERANCE` of the truth, in [0, 1]."""

    def add(self, other: Self) -> None:
        """Become the summary of both multisets. `Incompatible` if kind, sizes or seed differ."""
        self._check_like(other)
        check_room(other.total, self.total)
        more = other.total
        self._add(other.copy() if other is self else other)
        self.total += more

    def subtract(self, other: Self) -> None:
        """Become the summary of what is left without `other`, which must be contained in this one.

        `NotContained` where it can be seen that it is not; `CannotSubtract` by kinds that forget what it would take.
        """
        if not self.subtracts:
            raise CannotSubtract(f"a {self.kind} summary cannot subtract; rebuild from children")
        self._check_like(other)
        if other.total > self.total:
            raise NotContained(f"cannot take {other.total} tuples from {self.total}")
        less = other.total
        self._subtract(other.copy() if other is self else other)
        self.total -= less

    def to_bytes(self) -> bytes:
        """The summary with its kind, format version and checksum. The seed is inside: keep them as secret as it is."""
        return pack(self.kind, self._payload())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The summary that `to_bytes` wrote, or `CorruptSummary`."""
        kind, payload = unpack(data)
        if kind != cls.kind:
            raise CorruptSummary(f"bytes of a {kind!r} summary, not of {cls.kind!r}")
        reader = Reader(payload)
        summary = cls._read(reader)
        reader.finish()
        return summary

    def copy(self) -> Self:
        """A summary of the same tuples that shares nothing with this one."""
        return self.from_bytes(self.to_bytes())

    def __repr__(self) -> str:
        return f"<{self.kind} {self._sizes()} of {self.total} tuples>"

    def _check_like(self, other: "Summary") -> None:
        if not isinstance(other, type(self)):
            raise Incompatible(f"{self!r} and {other!r} are of different kinds")
        if self._sizes() != other._sizes():
            raise Incompatible(f"{self!r} and {other!r} have different sizes")
        if self._shared_seed() != other._shared_seed():  # a secret: that they differ is all the message may say
            raise Incompatible(f"{self!r} and {other!r} have different seeds")

    def _shared_seed(self) -> int:
        """The seed that must be equal to add; 0 where none must."""
        return 0

    @abstractmethod
    def _sizes(self) -> str:
        """The sizes that must be equal to add; shown in messages."""

    @abstractmethod
    def _add(self, other: Self) -> None:
        """`add` of a like summary, without the total."""

    def _subtract(self, other: Self) -> None:
        """`subtract` of a like summary, without the total."""
        raise CannotSubtract(f"a {self.kind} summary cannot subtract; rebuild from children")

    @abstractmethod
    def _payload(self) -> bytes:
        """What the frame carries."""

    @classmethod
    @abstractmethod
    def _read(cls, reader: Reader) -> Self:
        """The inverse of `_payload`; anything impossible is `CorruptSummary`."""


class FrequencySummary(Summary):
    """A summary that estimates how many tuples have a key."""

    @abstractmethod
    def estimates(self, keys: Any) -> Estimates:
        """For each key, how many tuples have it; whole numbers."""

    def estimate(self, key: Key) -> Estimate:
        """How many tuples have the key."""
        value, lower, upper = self.estimates([key])
        return Estimate(float(value[0]), float(lower[0]), float(upper[0]))


def read_total(reader: Reader) -> int:
    """A total that a summary can have."""
    total = reader.integer()
    if not 0 <= total <= 1 << 62:
        raise CorruptSummary(f"a total of {total} tuples")
    return total


def empty_like(cls: type[Summary], *sizes: Any) -> Any:
    """An empty summary of sizes read from bytes; sizes that cannot be are damage, not a caller's mistake."""
    try:
        return cls(*sizes)
    except PromisingError as error:
        raise CorruptSummary(f"impossible sizes: {error}") from None
