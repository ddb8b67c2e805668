"""All kinds of summaries, and their deserialisation."""

from typing import Any

from promising.errors import CorruptSummary
from promising.summaries.adt import Summary
from promising.summaries.count_min import CountMin
from promising.summaries.count_sketch import CountSketch
from promising.summaries.distinct import Distinct
from promising.summaries.exact import Exact
from promising.summaries.frame import unpack
from promising.summaries.frequent import Frequent
from promising.summaries.histogram import Histogram
from promising.summaries.quantile import Quantile
from promising.summaries.sample import Sample

KINDS: dict[str, type[Summary]] = {
    cls.kind: cls for cls in (CountSketch, CountMin, Exact, Histogram, Sample, Quantile, Distinct, Frequent)
}  # by the kind in the frame


def from_bytes(data: bytes) -> Any:
    """The summary in the bytes, of any kind, or `CorruptSummary`."""
    kind, _ = unpack(data)
    if kind not in KINDS:
        raise CorruptSummary(f"unknown kind {kind!r}; this release knows {', '.join(sorted(KINDS))}")
    return KINDS[kind].from_bytes(data)
