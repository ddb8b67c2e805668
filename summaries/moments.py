"""Exact moments of a column for each of many groups: count, sum, sum of squares, least and greatest.

    sums = the real sum of the values, rounded once when read: math.fsum(values)
    squares = the real sum of the squares, each rounded to a double: math.fsum(x * x for x in values)

No order of additions, batching, merging or number of threads changes a bit, and subtracting undoes adding. State: 24
bytes a group, 24 for a sum of integers, and for one of doubles 8 for each 32 bits of the range of their exponents:
prices need 40.

NaN counts as a value: sums become NaN. An infinity is a value like any other: sums become infinite, or NaN if there are
both. Finite values of which the sum is beyond doubles make it infinite when it is read, and only then.
"""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from promising.summaries.kernels import moments as kernels
from promising.summaries.kernels.moments import UNIT

Ids = NDArray[np.int32]
Numbers = NDArray[Any]  # int64, or float64

DOUBLES = {"float": True, "int": False, "timestamp": False}
"""The types of columns that have moments, and whether they are doubles."""

LOOSE = 1 << 29  # additions after which digits are carried, long before they overflow
MOST_LAST = (1 << 32) - 1  # the greatest last digit that needs no further one
LONG = 32  # values of a run from which on `add_runs` is faster than `add`
FAR = 2.0**400  # values below have finite squares
EVERY: Ids = np.empty(0, np.int32)  # places of values in their own order
NAN, INFINITE, NEGATIVE, STEEP = range(4)  # columns of `special`; the last counts finite values with infinite squares
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Digits:
    """Sums of doubles, a row of digits each; digits are added as the range of exponents grows."""

    def __init__(self, groups: int, wide: int = 0) -> None:
        self.words: NDArray[np.int64] = np.zeros((groups, wide), np.int64)
        self.low = 0  # the first digit counts 2^(32 low - 1075)
        self.loose = 0  # additions since digits were carried, at most

    def reserve(self, values: Numbers, squared: bool) -> None:
        """Have digits for these values, or their squares, as far as they are finite."""
        found = np.empty(2)
        kernels.magnitudes(values, squared, found)
        if found[1]:
            least, most = np.maximum(found.view(np.int64) >> 52, 1).tolist()
            self.widen(least >> 5, (most >> 5) + 4)

    def widen(self, low: int, end: int) -> None:
        wide = self.words.shape[1]
        if wide:
            low, end = min(low, self.low), max(end, self.low + wide)
        if (low, end) != (self.low, self.low + wide):
            words = np.zeros((len(self.words), end - low), np.int64)
            words[:, self.low - low :][:, :wide] = self.words
            self.words, self.low = words, low

    def adding(self, values: int) -> None:
        """Keep digits from overflowing when so many values are added."""
        if self.loose + values > LOOSE:
            self.settle()
        self.loose += values

    def settle(self) -> None:
        """Carry digits; then all of them, and the magnitude of the last one, are below 2^32."""
        kernels.carry(self.words)
        self.loose = 1
        wide = self.words.shape[1]
        if wide and len(self.words) and np.abs(self.words[:, -1]).max() > MOST_LAST:
            self.widen(self.low, self.low + wide + 1)
            kernels.carry(self.words)

    def add(self, ids: Ids, values: Numbers, squared: bool) -> int:
        """Add values[i], or its square, to sum ids[i], up to the first that is not finite. Returns which that is."""
        self.adding(len(values))
        at, before = 0, -1
        while (at := kernels.add_floats(ids, values, squared, at, self.words, self.low)) < len(values):
            if at == before:
                break
            before = at
            self.reserve(values[at:], squared)
        return at

    def add_bins(self, groups: Ids, found: NDArray[np.float64], which: int, values: int) -> None:
        """Add the exact bins found[r, which] of runs of so many values to sum groups[r]."""
        self.adding(values)
        at = kernels.enter_runs(groups, found, which, 0, self.words, self.low)
        if at < len(groups):
            least, most = map(int, kernels.reach(found[at:], which))
            self.widen(least >> 5, (max(least, most) >> 5) + 4)
            kernels.enter_runs(groups, found, which, at, self.words, self.low)

    def merge(self, other: "Digits", into: Ids, sign: int) -> None:
        if other.words.shape[1]:
            if other.loose * len(into) > LOOSE >> 4:
                other.settle()
            self.widen(other.low, other.low + other.words.shape[1])
            self.adding(max(other.loose, 1) * len(into))
            kernels.merge(into, other.words, other.low - self.low, sign, self.words)

    def rounded(self, scale: int | None = None) -> NDArray[np.float64]:
        out = np.zeros(len(self.words))
        if self.words.shape[1]:
            self.settle()
            kernels.rounded(self.words, 32 * self.low - UNIT if scale is None else scale, out)
        return out

    def canonical(self) -> tuple[NDArray[np.int64], int]:
        """The fewest digits that hold these sums, which depend on nothing else, and `low`."""
        self.settle()
        words = self.words.copy()
        while words.shape[1] > 1 and not (words[:, -1] + 1 >> 1).any():  # 0 or -1: a sign
            words[:, -2] += words[:, -1] << 32
            words = words[:, :-1]
        used = np.flatnonzero(words.any(0))
        if not len(used):
            return np.zeros((len(words), 0), np.int64), 0
        return np.ascontiguousarray(words[:, used[0] :]), self.low + int(used[0])


class Moments:
    """Moments of a column for groups 0 to n - 1. `count` is of non-null values, NaN included.

    least, greatest: of the values that are no NaN; of none, the greatest and the least that there is. `subtract` leaves
        them as they were: then they are bounds.
    special: counts of NaN, infinity, negative infinity and finite values with infinite squares; no rows if there is
        none.
    """

    def __init__(self, groups: int, kind: str, *, squares: bool = True) -> None:
        self.kind = kind
        self.doubles = DOUBLES[kind]
        self.squared = squares
        self.count = np.zeros(groups, np.int64)
        self.least: Numbers = np.full(groups, np.inf if self.doubles else MOST)
        self.greatest: Numbers = np.full(groups, -np.inf if self.doubles else LEAST)
        self.special = np.zeros((0, 4), np.int64)
        self._sums = Digits(groups, 0 if self.doubles else 3)
        self._squares = Digits(groups)

    def __len__(self) -> int:
        return len(self.count)

    @property
    def nbytes(self) -> int:
        words = self._sums.words.nbytes + self._squares.words.nbytes
        return self.count.nbytes + self.least.nbytes + self.greatest.nbytes + self.special.nbytes + words

    # --- change --------------------------------------------------------------------------------------------------

    def grow(self, groups: int) -> None:
        """Have at least so many groups; new ones are empty."""
        more = groups - len(self)
        if more <= 0:
            return
        empty = type(self)(more, self.kind)
        for name in ("count", "least", "greatest"):
            setattr(self, name, np.concatenate((getattr(self, name), getattr(empty, name))))
        if len(self.special):
            self.special = np.concatenate((self.special, np.zeros((more, 4), np.int64)))
        for digits in (self._sums, self._squares):
            digits.words = np.concatenate((digits.words, np.zeros((more, digits.words.shape[1]), np.int64)))

    def take(self, groups: NDArray[Any]) -> Self:
        """The moments of these groups, in this order, as a copy."""
        made = type(self)(0, self.kind, squares=self.squared)
        for name in ("count", "least", "greatest"):
            setattr(made, name, getattr(self, name)[groups])
        made.special = self.special[groups] if len(self.special) else self.special
        for mine, other in ((made._sums, self._sums), (made._squares, self._squares)):
            mine.words, mine.low, mine.loose = np.ascontiguousarray(other.words[groups]), other.low, other.loose
        return made

    def clear(self, groups: NDArray[Any]) -> None:
        """Make these groups empty."""
        self.count[groups] = 0
        self.least[groups] = np.inf if self.doubles else MOST
        self.greatest[groups] = -np.inf if self.doubles else LEAST
        for rows in (self.special, self._sums.words, self._squares.words):
            if len(rows):
                rows[groups] = 0

    def add(self, ids: Ids, values: Numbers, nulls: NDArray[np.bool_] | None = None) -> None:
        """Add values[i] to group ids[i], in any order."""
        if nulls is not None:
            ids, values = ids[~nulls], values[~nulls]
        kernels.tally(ids, values, self.count, self.least, self.greatest)
        if self.doubles:
            self._add(ids, values, squared=False)
        else:
            self._sums.adding(len(values))
            kernels.add_ints(ids, values, self._sums.words)
        if self.squared:
            self._add(ids, values, squared=True)

    def _add(self, ids: Ids, values: Numbers, *, squared: bool) -> None:
        """Add values, or their squares, as doubles; what is not finite is counted apart."""
        digits = self._squares if squared else self._sums
        at = digits.add(ids, values, squared)
        if at == len(values):
            return
        ids, values = ids[at:], values[at:]
        with np.errstate(over="ignore"):
            found = values * values if squared else values
        finite = np.isfinite(found)
        odd, values = values[~finite], values[finite]
        which = np.where(np.isnan(odd), NAN, np.where(odd > 0, INFINITE, NEGATIVE))
        if squared:
            which[:] = STEEP
        self._have_special()
        some = np.isfinite(odd) == squared
        np.add.at(self.special, (ids[~finite][some], which[some]), 1)
        digits.add(ids[finite], values, squared)

    def _have_special(self) -> None:
        if not len(self.special):
            self.special = np.zeros((len(self), 4), np.int64)

    def add_runs(
        self,
        groups: Ids,
        starts: NDArray[np.int64],
        values: Numbers,
        nulls: NDArray[np.bool_] | None = None,
        order: Ids = EVERY,
    ) -> None:
        """Add values[starts[r]:starts[r + 1]] to groups[r]; `starts` begins with 0 and ends with the number of values.

        order: the places of the values, if they are in another order. The same result as of `add`, in less time where
        runs are long.
        """
        if nulls is not None:
            if len(order):
                values, nulls, order = values[order], nulls[order], EVERY
            starts, values = np.append(0, np.cumsum(~nulls))[starts], values[~nulls]
        most = 0.0 if not len(values) else max(float(values.max()), -float(values.min()))  # NaN if there is one
        if (
            len(values) < LONG * len(groups)
            or not most < FAR
            or not self._add_runs(groups, starts, values, most, order)
        ):
            self.add(np.repeat(groups, np.diff(starts)), values[order] if len(order) else values)

    def _add_runs(self, groups: Ids, starts: NDArray[np.int64], values: Numbers, most: float, order: Ids) -> bool:
        """Add runs of finite values up to `most` by bins; False, and nothing is added, if those are not exact."""
        if np.diff(starts).max() > kernels.SLICE:
            cuts = np.union1d(starts, np.arange(0, len(values), kernels.SLICE))
            groups, starts = groups[np.searchsorted(starts, cuts[:-1], side="right") - 1], cuts
        top, steep = math.frexp(most)[1], math.frexp(most * most)[1]
        if not (-900 < top < 900 and -900 < steep < 900):
            return False
        bounds = np.empty((len(groups), 2), values.dtype)
        found = np.zeros((len(groups), 2 if self.squared else 1, 3))
        if not kernels.measure_runs(starts, order, values, not self.doubles, top, steep, bounds, found):
            return False
        kernels.enter_bounds(groups, starts, bounds, self.count, self.least, self.greatest)
        if self.doubles:
            self._sums.add_bins(groups, found, 0, len(values))
        else:
            self._sums.adding(len(values))
            kernels.enter_digits(groups, found, self._sums.words)
        if self.squared:
            self._squares.add_bins(groups, found, 1, len(values))
        return True

    def merge(self, other: Self, into: Ids) -> None:
        """Add group r of another to group into[r]; both are of one kind of column."""
        kernels.merge_bounds(into, other.count, other.least, other.greatest, self.count, self.least, self.greatest)
        self._merge(other, into, 1)

    def subtract(self, other: Self, groups: Ids) -> None:
        """Take group r of another, which is contained in it, out of groups[r]. An empty group has no bounds."""
        np.subtract.at(self.count, groups, other.count)
        self._merge(other, groups, -1)
        self.clear(np.unique(groups[self.count[groups] == 0]))

    def _merge(self, other: Self, into: Ids, sign: int) -> None:
        self._sums.merge(other._sums, into, sign)
        self._squares.merge(other._squares, into, sign)
        if len(other.special):
            self._have_special()
            np.add.at(self.special, into, sign * other.special)

    # --- read ----------------------------------------------------------------------------------------------------

    @property
    def nan(self) -> NDArray[np.int64]:
        """The number of NaN in each group."""
        return self.special[:, NAN] if len(self.special) else np.zeros(len(self), np.int64)

    def sums(self) -> NDArray[np.float64]:
        """The sum of each group as the nearest double."""
        return self._infinite(self._sums.rounded(None if self.doubles else 0), squared=False)

    def squares(self) -> NDArray[np.float64]:
        """The sum of the squares of each group, each rounded, as the nearest double."""
        return self._infinite(self._squares.rounded(), squared=True)

    def pairs(self) -> NDArray[np.int64]:
        """The sums of integers as (high, low): high * 2^32 + low, 0 <= low < 2^32."""
        kernels.carry(self._sums.words)
        low, high, higher = self._sums.words.T
        return np.stack((high + (higher << 32), low), 1)

    def _infinite(self, sums: NDArray[np.float64], *, squared: bool) -> NDArray[np.float64]:
        """Sums of finite values, with what is not finite."""
        if not len(self.special):
            return sums
        nan, more, less, steep = (self.special > 0).T
        if squared:
            return np.where(nan, np.nan, np.where(more | less | steep, np.inf, sums))
        sums = np.where(more, np.inf, np.where(less, -np.inf, sums))  # even if finite ones are beyond doubles
        return np.where(nan | (more & less), np.nan, sums)

    # --- to bytes and back ---------------------------------------------------------------------------------------

    def image(self) -> dict[str, Any]:
        """The state as a tree of arrays: equal if and only if the groups' moments are."""
        made: dict[str, Any] = {"count": self.count, "least": self.least, "greatest": self.greatest}
        if self.special.any():
            made["special"] = self.special
        for name, digits in (("sums", self._sums), ("squares", self._squares)):
            made[name], made[f"{name}_low"] = digits.canonical()
        return made

    @classmethod
    def restore(cls, image: dict[str, Any], kind: str, *, squares: bool = True) -> Self:
        made = cls(0, kind, squares=squares)
        made.count, made.least, made.greatest = (image[name].copy() for name in ("count", "least", "greatest"))
        made.special = image["special"].copy() if "special" in image else made.special
        for name, digits in (("sums", made._sums), ("squares", made._squares)):
            digits.words, digits.low = image[name].copy(), int(image[f"{name}_low"])
            digits.loose = 2
        if not made.doubles:
            made._sums.widen(0, 3)
        return made
