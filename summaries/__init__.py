"""What a cell knows: one interface, several summaries behind it.

>>> sketch = CountSketch(depth=5, width=64, seed=7)
>>> sketch.summarize(["milk", "eggs", "milk"])
>>> from_bytes(sketch.to_bytes())
<count-sketch depth=5 width=64 of 3 tuples>
"""

from typing import Any

from summaries.adt import BOUNDS, TOLERANCE, Estimate, Estimates, FrequencySummary, Summary
from summaries.count_min import CountMin
from summaries.count_sketch import CountSketch
from summaries.distinct import Distinct
from summaries.errors import CorruptSummary
from summaries.exact import Exact
from summaries.frame import unpack
from summaries.frequent import Frequent
from summaries.hashing import hash_keys
from summaries.histogram import Histogram
from summaries.quantile import Quantile
from summaries.sample import Sample

KINDS: dict[str, type[Summary]] = {
    cls.kind: cls for cls in (CountSketch, CountMin, Exact, Histogram, Sample, Quantile, Distinct, Frequent)
}
"""Every kind of summary by its name in the bytes."""


def from_bytes(data: bytes) -> Any:
    """The summary of whichever kind the bytes hold, or `CorruptSummary`."""
    kind, _ = unpack(data)
    if kind not in KINDS:
        raise CorruptSummary(f"unknown kind {kind!r}; this release knows {', '.join(sorted(KINDS))}")
    return KINDS[kind].from_bytes(data)


__all__ = [
    "BOUNDS",
    "KINDS",
    "TOLERANCE",
    "CountMin",
    "CountSketch",
    "Distinct",
    "Estimate",
    "Estimates",
    "Exact",
    "FrequencySummary",
    "Frequent",
    "Histogram",
    "Quantile",
    "Sample",
    "Summary",
    "from_bytes",
    "hash_keys",
]
