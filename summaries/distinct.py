"""The number of distinct keys: HyperLogLog, read by Apache DataSketches."""

import math
import struct
from typing import Any, Self

import datasketches
import numpy as np
import numpy.typing as npt

from promising.errors import BadSize, CorruptSummary
from promising.summaries.adt import TOLERANCE, Estimate, Summary, empty_like, read_total
from promising.summaries.cells import Held, Part, SummaryCells, keys
from promising.summaries.frame import Reader, integers
from promising.summaries.hashing import hash_checked, inner_seed
from promising.summaries.kernels.registers import raise_registers
from promising.summaries.keys import as_counts, as_keys

MOST_RANK = 61  # of a register: a hash has 64 bits, at least 4 of which select it


class Distinct(Summary):
    """`2**lg_k` registers of a byte, each the greatest rank of its keys' hashes.

    They are a pure function of the set of keys: adding takes the greater of each two, so unions and batches agree to
    the bit. Updates are a kernel (the package takes no arrays); the estimate and its bounds are the package's.

    **Bounds** are two of its standard errors, 1.04 / sqrt(2**lg_k) of the estimate (2.3 % at lg_k = 11), less for few
    keys, rounded inwards to whole numbers.

    **Confidence** takes the error to be normal.

    It cannot subtract. It cannot say whether it contains a key.

    >>> items = Distinct(lg_k=11, seed=7)
    >>> items.summarize(np.arange(30_000) % 10_000)
    >>> estimate = items.estimate()
    >>> estimate.lower <= 10_000 <= estimate.upper <= 1.1 * estimate.lower
    True
    """

    kind = "distinct"
    subtracts = False

    def __init__(self, lg_k: int = 11, seed: int = 0) -> None:
        if not 4 <= lg_k <= 21:
            raise BadSize(f"lg_k {lg_k}: 4 to 21 is wanted")
        inner_seed(seed)
        self.lg_k, self.seed = lg_k, seed
        self.total = 0
        self.registers: npt.NDArray[np.uint8] = np.zeros(1 << lg_k, np.uint8)

    def summarize(self, values: Any, counts: Any = None) -> None:
        keys = as_keys(values)
        weights = as_counts(counts, len(keys), self.total)
        hashes = hash_checked(keys, self.seed)
        raise_registers(hashes if counts is None else hashes[weights > 0], self.lg_k, self.registers)
        self.total += int(weights.sum())

    def estimate(self) -> Estimate:
        if self.total == 0:
            return Estimate(0.0, 0.0, 0.0)
        sketch = self._sketch()
        most = float(self.total)
        lower = min(max(float(np.ceil(sketch.get_lower_bound(2))), 1.0), most)
        upper = min(max(float(np.floor(sketch.get_upper_bound(2))), lower), most)
        return Estimate(min(max(float(np.rint(sketch.get_estimate())), lower), upper), lower, upper)

    def confidence(self) -> float:
        if self.total == 0:
            return 1.0
        sketch = self._sketch()
        value, upper = sketch.get_estimate(), sketch.get_upper_bound(1)
        return math.erf(TOLERANCE * value / (upper - value) / math.sqrt(2)) if upper > value else 1.0

    def _sketch(self) -> Any:
        """The registers as a sketch of the package: 8 bits each, their order of insertion unknown."""
        ranks = self.registers
        shares = np.ldexp(1.0, -ranks.astype(np.int64))
        head = struct.pack("<8B", 10, 1, 7, self.lg_k, 0, 16, 0, 10)
        sums = float(shares[ranks < 32].sum()), float(shares[ranks >= 32].sum())
        counts = struct.pack("<3d2i", 0.0, *sums, int((ranks == 0).sum()), 0)
        return datasketches.hll_sketch.deserialize(head + counts + ranks.tobytes())

    def _sizes(self) -> str:
        return f"lg_k={self.lg_k}"

    def _shared_seed(self) -> int:
        return self.seed

    def _add(self, other: Self) -> None:
        np.maximum(self.registers, other.registers, out=self.registers)

    def _payload(self) -> bytes:
        return integers(self.lg_k, self.seed, self.total) + self.registers.tobytes()

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        lg_k, seed, total = reader.integer(), reader.integer(), read_total(reader)
        summary: Self = empty_like(cls, lg_k, seed)
        summary.registers = np.frombuffer(reader.raw(1 << lg_k), np.uint8).copy()
        summary.total = total
        if (summary.registers > MOST_RANK).any() or bool(summary.registers.any()) != (total > 0):
            raise CorruptSummary(f"registers that {total} tuples cannot have")
        return summary


class DistinctCells(SummaryCells):
    """DISTINCT(column): 4,096 registers a zone, 1.6 % of error. All NaN are one value."""

    types = frozenset({"int", "float", "timestamp", "bool", "string"})
    exact = True
    figures = ("distinct",)

    def make(self) -> Distinct:
        return Distinct(12, self.seed)

    def column(self, part: Part) -> tuple[Any, int]:
        return keys(part), 0

    def bytes_of(self, summary: Distinct) -> int:
        return summary.registers.nbytes + 256

    def ceiling(self, cells: int) -> int:
        return self.nbytes(self.empty(cells))

    def number(self, state: Held, cell: int, name: str) -> float:
        return self.estimate(state, cell).value

    def to_image(self, summary: Any) -> Any:
        return {"total": summary.total, "registers": summary.registers.copy()}  # not the seed

    def from_image(self, saved: Any) -> Distinct:
        made = self.make()
        made.total, made.registers = saved["total"], saved["registers"].copy()
        return made
