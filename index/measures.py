"""What the zones of a summary measure, beside counting its key.

`Measures` belongs to a summary, `Measured` to one of its zones: a state for each measure. A measure that is added to a
summary with tuples is a *draft* until it has been built from them all, in slices: new tuples are added to drafts at
once, tuples from before are *pending* in their zones and move with them. Nothing reads a draft.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import BadMeasure
from promising.index.kernels.seal import order_by_bucket
from promising.index.schema import Column
from promising.summaries.cells import CellKind, Measure, Part, kind_of

Kinds = tuple[CellKind[Any], ...]
Rows = NDArray[np.int32]


class Source(NamedTuple):
    """Tuples to measure: hashes of the key, and what reads a column of them.

    rows: where the log has them, and `arrivals` their numbers; None outside of it, where kinds of whole tuples are left
        out.
    """

    hashes: NDArray[np.int64]
    columns: Mapping[str, Column]
    rows: Rows | None = None
    arrivals: Callable[[Rows], NDArray[np.int64]] | None = None


class Columns(Mapping[str, Column]):
    """The columns of some rows of a log, read on demand."""

    def __init__(self, log: Any, rows: Rows) -> None:
        self._log = log
        self._rows = rows

    def __getitem__(self, name: str) -> Column:
        nulls = self._log.nulls(name, self._rows)
        if self._log.schema.types[name] == "string":
            return Column(None, self._log.array(name, self._rows), nulls)
        return Column(self._log.view(name, self._rows), None, nulls)

    def __iter__(self) -> Iterator[str]:
        return iter(self._log.schema.types)

    def __len__(self) -> int:
        return len(self._log.schema.types)


class Chosen(Mapping[str, Column]):
    """Some rows of columns."""

    def __init__(self, columns: Mapping[str, Column], rows: NDArray[np.int64]) -> None:
        self._columns = columns
        self._rows = rows

    def __getitem__(self, name: str) -> Column:
        values, text, nulls = self._columns[name]
        return Column(
            None if values is None else values[self._rows],
            None if text is None else text.take(pa.array(self._rows)),
            None if nulls is None else nulls[self._rows],
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def logged(log: Any, rows: Rows, hashes: NDArray[np.int64]) -> Source:
    """Tuples in a log."""
    return Source(hashes, Columns(log, rows), rows, log.arrivals)


class Measures:
    """The kinds of a summary with so many value buckets; `shift` is 64 less the bits of a bucket."""

    def __init__(self, kinds: Kinds, buckets: int) -> None:
        self.kinds = kinds
        self.drafts: Kinds = ()
        self.buckets = buckets
        self.shift = 64 - (buckets.bit_length() - 1)

    @property
    def any(self) -> bool:
        """Whether there is anything to measure."""
        return bool(self.kinds or self.drafts)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(str(kind.measure) for kind in self.kinds)

    def cells(self, kind: CellKind[Any]) -> int:
        return self.buckets if kind.grain == "cell" else 1

    def empty(self) -> "Measured":
        return Measured(self, self._empty(self.kinds), self._empty(self.drafts))

    def _empty(self, kinds: Kinds) -> list[Any]:
        return [kind.empty(self.cells(kind)) for kind in kinds]

    def built(self, source: Source) -> "Measured":
        """The states of a zone with these tuples."""
        made = self.empty()
        made.add(source)
        return made

    def restored(self, image: Mapping[str, Any]) -> "Measured":
        """The inverse of `Measured.image`."""
        return Measured(self, [kind.restore(image[str(kind.measure)]) for kind in self.kinds], self._empty(self.drafts))

    def completed(self, image: Mapping[str, Any], source: Source) -> "Measured":
        """The states of a zone with these tuples; those in the image, made elsewhere, are not built again."""
        made = self.empty()
        known = {kind: image[text] for kind in self.kinds if kind.types and (text := str(kind.measure)) in image}
        for at, kind in enumerate(self.kinds):
            if kind in known:
                made.states[at] = kind.restore(known[kind])
            else:
                self.add((kind,), (made.states[at],), source)
        self.add(self.drafts, made.drafts, source)
        return made

    def add(self, kinds: Kinds, states: Iterable[Any], source: Source) -> None:
        """Add tuples to the states of these kinds; kinds of whole tuples only if they are in the log."""
        whole = np.array([0, len(source.hashes)], np.int64)
        sorted_: tuple[NDArray[np.int64], Rows | None] | None = None
        for kind, state in zip(kinds, states, strict=True):
            name = kind.measure.column
            if name is None and source.rows is None:
                continue
            starts, order = whole, None
            if kind.grain == "cell" and self.buckets > 1:
                sorted_ = sorted_ or self._sorted(source.hashes)
                starts, order = sorted_
            column = Column(None, None, None) if name is None else source.columns[name]
            arrivals = None
            if name is None and source.rows is not None and source.arrivals is not None:
                arrivals = source.arrivals(source.rows)
            kind.add(state, Part(starts, order, *column, source.rows, arrivals))

    def _sorted(self, hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], Rows]:
        """The tuples by bucket."""
        starts, order = np.empty(self.buckets + 1, np.int64), np.empty(len(hashes), np.int32)
        order_by_bucket(hashes, self.shift, np.arange(len(hashes), dtype=np.int32), starts, order)
        return starts, order


class Measured:
    """The states of one zone; `drafts` lack the tuples at the `pending` ranges of rows (first, last + 1)."""

    __slots__ = ("drafts", "of", "pending", "states")

    def __init__(self, of: Measures, states: list[Any], drafts: list[Any]) -> None:
        self.of = of
        self.states = states
        self.drafts = drafts
        self.pending: list[NDArray[np.int32]] = []

    def add(self, source: Source) -> None:
        """Tuples enter the zone."""
        self.of.add(self.of.kinds, self.states, source)
        self.of.add(self.of.drafts, self.drafts, source)

    def absorb(self, other: "Measured") -> None:
        """Become the states of the tuples of both zones."""
        self.absorb_states(other)
        self.absorb_drafts(other)

    def absorb_states(self, other: "Measured") -> None:
        for kind, mine, more in zip(self.of.kinds, self.states, other.states, strict=True):
            kind.absorb(mine, more)

    def absorb_drafts(self, other: "Measured") -> None:
        for kind, mine, more in zip(self.of.drafts, self.drafts, other.drafts, strict=True):
            kind.absorb(mine, more)
        self.pending += other.pending

    def begin(self, stretches: NDArray[np.int32] | None) -> None:
        """There are new drafts; the zone has these tuples. None: they come from zones that it absorbs."""
        self.drafts = self.of._empty(self.of.drafts)
        self.pending = [] if stretches is None or not len(stretches) else [stretches.copy()]

    def end(self, kept: Sequence[int]) -> None:
        """Drafts become states, after those of the `kept` measures."""
        self.states = [*(self.states[at] for at in kept), *self.drafts]
        self.drafts, self.pending = [], []

    def image(self) -> dict[str, Any]:
        return {str(kind.measure): kind.image(state) for kind, state in zip(self.of.kinds, self.states, strict=True)}

    @property
    def nbytes(self) -> int:
        states = (*zip(self.of.kinds, self.states, strict=True), *zip(self.of.drafts, self.drafts, strict=True))
        return sum(kind.nbytes(state) for kind, state in states)


def kinds_of(texts: Iterable[str | Measure], types: Mapping[str, str], seed: int) -> Kinds:
    """The kinds of measures, each once; `BadMeasure` says what is wrong."""
    if isinstance(texts, str | Measure):
        raise BadMeasure(f"measures are a list, for example [{str(texts)!r}], not {texts!r}")
    found: dict[Measure, CellKind[Any]] = {}
    for text in texts:
        measure = Measure.read(text)
        if measure in found:
            raise BadMeasure(f"{measure} is measured twice; name it once")
        found[measure] = kind_of(measure, types, seed)
    return tuple(found.values())
