"""The seam: kinds of summaries of cells.

A zone stores one state of each of its measures. A *measure* is a kind, the column it measures and further arguments; a
kind says how a state is built from tuples, merged, asked and stored. States of grain "cell" have one part per value
bucket, those of grain "zone" a single one. An index handles all kinds alike: a new one is a file and a line in `KINDS`.
"""

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from promising.errors import BadMeasure, CannotSubtract
from promising.summaries.adt import Estimate, Summary

State = TypeVar("State")
Longs = npt.NDArray[np.int64]
Number = int | float

KINDS: dict[str, str] = {
    "moments": "promising.summaries.moment_cells:MomentCells",
    "quantiles": "promising.summaries.quantile:QuantileCells",
    "distinct": "promising.summaries.distinct:DistinctCells",
    "frequent": "promising.summaries.frequent:FrequentCells",
    "histogram": "promising.summaries.histogram:HistogramCells",
    "sample": "promising.summaries.row_sample:RowSample",
}
"""The kinds that MEASURES knows: where each class is, imported on first use."""

TEXT = re.compile(r'\s*([A-Za-z_]+)\s*\(\s*(?:("(?:[^"]|"")*"|[^\s",()]+)\s*((?:,[^,()"]*)*))?\)\s*')
NAME = re.compile(r"[^\W\d]\w*")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Measure:
    """What to measure. Its text is canonical, and is what definitions store.

    >>> [str(Measure.read(text)) for text in ("MOMENTS(price)", 'distinct( "unit price" )', "Histogram(price, 0, 1e2)")]
    ['moments(price)', 'distinct("unit price")', 'histogram(price, 0, 100)']
    """

    kind: str
    column: str | None = None
    arguments: tuple[Number, ...] = ()

    @classmethod
    def read(cls, text: "str | Measure") -> "Measure":
        """The measure of a text like "moments(price)"."""
        if isinstance(text, Measure):
            return text
        found = TEXT.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise BadMeasure(f"{text!r} is not a measure; write a kind and a column, for example moments(price)")
        kind, column, rest = found.groups()
        given = [] if column is None else [column, *(part.strip() for part in (rest or "").split(",")[1:])]
        if given and NUMBER.fullmatch(given[0]):
            column = None
        elif given:
            column = _plain(given.pop(0))
        for number in given:
            if not NUMBER.fullmatch(number):
                raise BadMeasure(f"{text!r}: {number!r} is not a number")
        return cls(kind.lower(), column, tuple(as_number(number) for number in given))

    def __str__(self) -> str:
        name = self.column
        if name is not None and not NAME.fullmatch(name):
            name = '"' + name.replace('"', '""') + '"'
        return f"{self.kind}({', '.join([*([] if name is None else [name]), *map(_text, self.arguments)])})"

    @property
    def sql(self) -> str:
        """Its text with the kind in capitals; MEASURES reads it, whatever the name of the column.

        >>> Measure.read('histogram("unit price", -0.5, 100)').sql
        'HISTOGRAM("unit price", -0.5, 100)'
        """
        return self.kind.upper() + str(self)[len(self.kind) :]


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def as_number(text: str) -> Number:
    """A number as measures have it: whole if it is."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 1 << 53 else value


def _text(number: Number) -> str:
    return str(as_number(repr(number))) if np.isfinite(number) else repr(number)


@dataclass(frozen=True)
class Part:
    """Tuples to measure.

    starts: cell c has `order[starts[c]:starts[c + 1]]` of them; without `order` they are sorted by cell.
    values: of the measured column, int64, float64 or uint8; strings are in `text`, an Arrow array. nulls: which have
    none; their values are arbitrary. rows, arrivals: where the log has them, for kinds without a column.
    """

    starts: Longs
    order: npt.NDArray[np.int32] | None = None
    values: npt.NDArray[Any] | None = None
    text: Any = None
    nulls: npt.NDArray[np.bool_] | None = None
    rows: npt.NDArray[np.int32] | None = None
    arrivals: Longs | None = None

    @classmethod
    def whole(cls, values: Any, nulls: npt.NDArray[np.bool_] | None = None) -> Self:
        """A part with a single cell, of numbers or of an Arrow array of strings."""
        starts = np.array([0, len(values)], np.int64)
        strings = not isinstance(values, np.ndarray)
        return cls(starts, None, None if strings else values, values if strings else None, nulls)

    def cell(self, cell: int) -> "Part":
        """The tuples of one cell."""
        first, last = int(self.starts[cell]), int(self.starts[cell + 1])
        if self.order is None and last - first == self.starts[-1]:
            return self
        return self.taken(np.arange(first, last) if self.order is None else self.order[first:last])

    def valid(self) -> "Part":
        """A part with one cell, without its nulls."""
        return self if self.nulls is None else replace(self.taken(np.flatnonzero(~self.nulls)), nulls=None)

    def taken(self, at: npt.NDArray[Any]) -> "Part":
        """These tuples, as one cell."""
        arrays = {name: getattr(self, name) for name in ("values", "nulls", "rows", "arrivals")}
        return Part(
            np.array([0, len(at)], np.int64),
            text=None if self.text is None else self.text.take(at),
            **{name: None if array is None else array[at] for name, array in arrays.items()},
        )


class CellKind(ABC, Generic[State]):
    """A kind, for one measure. A state has a number of cells and belongs to the caller, who never looks inside.

    grain: whether a zone has a cell per value bucket, or a single one.
    types: of the columns it measures; empty: it measures whole tuples.
    exact: a state depends on its tuples only, to the bit, in whatever order they were added or absorbed.
    figures: numbers that describe a cell, in pictures and stories.
    tuple_bytes: that a tuple may add beside `ceiling`.
    """

    grain: ClassVar[Literal["cell", "zone"]] = "zone"
    types: ClassVar[frozenset[str]] = frozenset({"int", "float", "timestamp"})
    arguments: ClassVar[str] = ""  # further ones, for messages
    exact: ClassVar[bool] = False
    figures: ClassVar[tuple[str, ...]] = ()
    subtracts: ClassVar[bool] = False
    tuple_bytes: ClassVar[int] = 0

    def __init__(self, measure: Measure, type_: str | None, seed: int) -> None:
        """type_: of the column. seed: of the key hash. Raises `BadMeasure` for arguments that it does not take."""
        self.measure, self.type, self.seed = measure, type_, seed
        if measure.arguments:
            raise BadMeasure(f"{measure} has too many arguments; {measure.kind.upper()} takes a column only")

    @abstractmethod
    def empty(self, cells: int) -> State:
        """A state without tuples."""

    @abstractmethod
    def add(self, state: State, part: Part) -> None:
        """Add tuples, cell by cell. Nulls are skipped; NaN and infinities never make a bound wrong."""

    @abstractmethod
    def absorb(self, state: State, other: State) -> None:
        """Become the state of the tuples of both, cell by cell; the other stays as it is."""

    def subtract(self, state: State, other: State) -> None:
        """Undo `absorb`."""
        raise CannotSubtract(f"{self.measure} cannot subtract; rebuild it from its tuples")

    @abstractmethod
    def estimate(self, state: State, cell: int, *question: Any) -> Estimate:
        """Answer this kind's question about a cell, with bounds."""

    def confidence(self, state: State, cell: int) -> float:
        """As in `promising.summaries.adt`, of a cell's answers: a lower bound, 0 where a kind has none."""
        return 0.0

    @abstractmethod
    def image(self, state: State) -> Any:
        """The state as a tree of arrays and bytes, without the seed; independent of it."""

    @abstractmethod
    def restore(self, image: Any) -> State:
        """The inverse of `image`."""

    @abstractmethod
    def nbytes(self, state: State) -> int:
        """Its bytes in memory."""

    @abstractmethod
    def ceiling(self, cells: int) -> int:
        """Maximum bytes of a state, without `tuple_bytes`."""

    def figure(self, state: State, name: str) -> npt.NDArray[np.float64]:
        """One of `figures` of each cell; NaN where it has no values."""
        raise NotImplementedError(name)

    def whole(self, state: State) -> State:
        """A state with the tuples of all cells in one; the same state if it has only one."""
        return state

    def differs(self, state: State, rebuilt: State) -> str | None:
        """How a state contradicts one that was built from the same tuples; None if it does not."""
        same = not self.exact or same_images(self.image(state), self.image(rebuilt))
        return None if same else "is not that of its tuples"


def same_images(one: Any, two: Any) -> bool:
    """Whether trees of arrays are equal to the bit."""
    if isinstance(one, Mapping):
        return one.keys() == two.keys() and all(same_images(one[name], two[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same_images, one, two))
    if isinstance(one, np.ndarray):
        return bool(one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes())
    return bool(one == two)


def kind_of(measure: Measure, types: Mapping[str, str], seed: int) -> CellKind[Any]:
    """The kind for a measure of a stream with these column types; `BadMeasure` says what does not fit."""
    if measure.kind not in KINDS:
        known = ", ".join(sorted(name.upper() for name in KINDS))
        raise BadMeasure(f"unknown measure {measure.kind.upper()}; there are {known}")
    module, _, name = KINDS[measure.kind].partition(":")
    cls: type[CellKind[Any]] = getattr(importlib.import_module(module), name)
    said = f"{measure.kind.upper()}({', '.join(['column'] * bool(cls.types) + [cls.arguments] * bool(cls.arguments))})"
    if not cls.types:
        if measure.column is not None:
            raise BadMeasure(f"{measure} measures whole tuples, not column {measure.column!r}; write {said}")
        return cls(measure, None, seed)
    if measure.column is None:
        raise BadMeasure(f"{measure} names no column; write {said}")
    found = types.get(measure.column)
    if found is None:
        raise BadMeasure(f"{measure}: there is no column {measure.column!r}; columns are {', '.join(types)}")
    if found not in cls.types:
        those = ", ".join(sorted(name for name, kind in types.items() if kind in cls.types)) or "no column here"
        wanted = ", ".join(sorted(cls.types))
        raise BadMeasure(
            f"{measure}: column {measure.column!r} is of type {found}; {measure.kind.upper()} measures columns of type"
            f" {wanted}: {those}"
        )
    return cls(measure, found, seed)


# --- summaries as cells ------------------------------------------------------------------------------------------


class Held:
    """Summaries by cell. apart: values that the summaries reject (NaN), which are counted only."""

    __slots__ = ("apart", "summaries")

    def __init__(self, summaries: list[Any], apart: Longs) -> None:
        self.summaries = summaries
        self.apart = apart


class SummaryCells(CellKind[Held]):
    """A kind of which every cell is a `Summary`."""

    @abstractmethod
    def make(self) -> Summary:
        """An empty summary."""

    @abstractmethod
    def column(self, part: Part) -> tuple[Any, int]:
        """The values to summarize, of a part without nulls, and how many were counted apart."""

    @abstractmethod
    def bytes_of(self, summary: Any) -> int:
        """Bytes of a summary in memory."""

    def empty(self, cells: int) -> Held:
        return Held([self.make() for _ in range(cells)], np.zeros(cells, np.int64))

    def add(self, state: Held, part: Part) -> None:
        for cell, summary in enumerate(state.summaries):
            if part.starts[cell] < part.starts[cell + 1]:
                values, apart = self.column(part.cell(cell).valid())
                summary.summarize(values)
                state.apart[cell] += apart

    def absorb(self, state: Held, other: Held) -> None:
        for mine, more in zip(state.summaries, other.summaries, strict=True):
            mine.add(more)
        state.apart += other.apart

    def estimate(self, state: Held, cell: int, *question: Any) -> Estimate:
        found: Estimate = state.summaries[cell].estimate(*question)
        return found

    def confidence(self, state: Held, cell: int) -> float:
        return 0.0 if state.apart[cell] else state.summaries[cell].confidence()

    def image(self, state: Held) -> Any:
        return {"summaries": [self.to_image(summary) for summary in state.summaries], "apart": state.apart.copy()}

    def restore(self, image: Any) -> Held:
        return Held([self.from_image(saved) for saved in image["summaries"]], image["apart"].copy())

    def to_image(self, summary: Any) -> Any:
        data: bytes = summary.to_bytes()
        return data

    def from_image(self, saved: Any) -> Summary:
        return type(self.make()).from_bytes(saved)

    def nbytes(self, state: Held) -> int:
        return state.apart.nbytes + sum(map(self.bytes_of, state.summaries))

    def figure(self, state: Held, name: str) -> npt.NDArray[np.float64]:
        return np.array([float(self.number(state, cell, name)) for cell in range(len(state.summaries))])

    def number(self, state: Held, cell: int, name: str) -> float:
        """One of `figures` of a cell."""
        raise NotImplementedError(name)

    def differs(self, state: Held, rebuilt: Held) -> str | None:
        counts = [[summary.total for summary in held.summaries] for held in (state, rebuilt)]
        if counts[0] != counts[1] or (state.apart != rebuilt.apart).any():
            return "counts other values than its tuples have"
        return super().differs(state, rebuilt)


def real_numbers(part: Part) -> tuple[npt.NDArray[np.float64], int]:
    """The numbers of a part without nulls, and how many NaN were left out."""
    assert part.values is not None
    values = part.values.astype(np.float64, copy=False)
    missing = np.isnan(values) if part.values.dtype.kind == "f" else None
    return (values, 0) if missing is None or not missing.any() else (values[~missing], int(missing.sum()))


def keys(part: Part) -> Any:
    """The values of a part without nulls as keys: int64, or strings. All NaN are one key, and so are 0.0 and -0.0."""
    if part.values is None:
        return part.text
    if part.values.dtype.kind != "f":
        return part.values.astype(np.int64, copy=False)
    values = part.values + 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.int64)
