"""The interface of all summaries. A summary represents a multiset of tuples.

Bounds hold with a probability of at least `BOUNDS` for each single answer and exclude impossible values: no count is
below 0 or above `total`. The probability is over the secret seed (sketches) or the draw (sample, quantiles); the bounds
of exact counters, histograms and frequent items always hold.

`confidence` has one meaning for all kinds: a lower bound on the probability that an answer is within `TOLERANCE` of the
truth, as a fraction of all tuples (for `Distinct`, of all distinct keys). An empty summary has 1.0.
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
    """Answers for a column of keys, with bounds."""

    value: npt.NDArray[np.float64]
    lower: npt.NDArray[np.float64]
    upper: npt.NDArray[np.float64]


class Summary(ABC):
    """The operations of every summary. A call that raises leaves the summary unchanged."""

    kind: ClassVar[str]
    subtracts: ClassVar[bool] = True
    total: int  # tuples summarised: inserted and added, minus subtracted

    @abstractmethod
    def summarize(self, values: Any, counts: Any = None) -> None:
        """Insert `counts[i]` tuples (default 1) of each `values[i]`. An empty column changes nothing."""

    @abstractmethod
    def estimate(self, *args: Any, **kwargs: Any) -> Estimate:
        """Answer this kind's question."""

    @abstractmethod
    def confidence(self) -> float:
        """A lower bound on the probability that an answer is within `TOLERANCE` of the truth, in [0, 1]."""

    def add(self, other: Self) -> None:
        """Become the summary of both multisets. `Incompatible` if kind, sizes or seed differ."""
        self._check_like(other)
        check_room(other.total, self.total)
        more = other.total
        self._add(other.copy() if other is self else other)
        self.total += more

    def subtract(self, other: Self) -> None:
        """Become the summary of the remainder without `other`, which must be contained in this one.

        `NotContained` where a violation is detected; `CannotSubtract` for kinds that do not support it.
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
        """The summary with its kind, format version and checksum. Contains the seed: keep the bytes equally secret."""
        return pack(self.kind, self._payload())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of `to_bytes`; `CorruptSummary` if the bytes are damaged."""
        kind, payload = unpack(data)
        if kind != cls.kind:
            raise CorruptSummary(f"bytes of a {kind!r} summary, not of {cls.kind!r}")
        reader = Reader(payload)
        summary = cls._read(reader)
        reader.finish()
        return summary

    def copy(self) -> Self:
        """An independent summary of the same tuples."""
        return self.from_bytes(self.to_bytes())

    def __repr__(self) -> str:
        return f"<{self.kind} {self._sizes()} of {self.total} tuples>"

    def _check_like(self, other: "Summary") -> None:
        if not isinstance(other, type(self)):
            raise Incompatible(f"{self!r} and {other!r} are of different kinds")
        if self._sizes() != other._sizes():
            raise Incompatible(f"{self!r} and {other!r} have different sizes")
        if self._shared_seed() != other._shared_seed():  # the seed is secret: the message reports only that they differ
            raise Incompatible(f"{self!r} and {other!r} have different seeds")

    def _shared_seed(self) -> int:
        """The seed that must be equal to add; 0 if none."""
        return 0

    @abstractmethod
    def _sizes(self) -> str:
        """The sizes that must be equal to add; shown in messages."""

    @abstractmethod
    def _add(self, other: Self) -> None:
        """`add` of a compatible summary, without the total."""

    def _subtract(self, other: Self) -> None:
        """`subtract` of a compatible summary, without the total."""
        raise CannotSubtract(f"a {self.kind} summary cannot subtract; rebuild from children")

    @abstractmethod
    def _payload(self) -> bytes:
        """The content of the frame."""

    @classmethod
    @abstractmethod
    def _read(cls, reader: Reader) -> Self:
        """The inverse of `_payload`; invalid content is `CorruptSummary`."""


class FrequencySummary(Summary):
    """A summary that estimates the number of tuples with a key."""

    @abstractmethod
    def estimates(self, keys: Any) -> Estimates:
        """The number of tuples with each key; whole numbers."""

    def estimate(self, key: Key) -> Estimate:
        value, lower, upper = self.estimates([key])
        return Estimate(float(value[0]), float(lower[0]), float(upper[0]))


def read_total(reader: Reader) -> int:
    total = reader.integer()
    if not 0 <= total <= 1 << 62:
        raise CorruptSummary(f"a total of {total} tuples")
    return total


def empty_like(cls: type[Summary], *sizes: Any) -> Any:
    """An empty summary with sizes read from bytes; invalid sizes mean damage, not a caller's mistake."""
    try:
        return cls(*sizes)
    except PromisingError as error:
        raise CorruptSummary(f"impossible sizes: {error}") from None
