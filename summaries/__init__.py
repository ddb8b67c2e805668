"""The summaries of a cell, behind one interface.

>>> from promising.summaries import CountSketch, from_bytes
>>> sketch = CountSketch(depth=5, width=64, seed=7)
>>> sketch.summarize(["milk", "eggs", "milk"])
>>> from_bytes(sketch.to_bytes())
<count-sketch depth=5 width=64 of 3 tuples>
"""

from typing import TYPE_CHECKING

from promising.lazy import lazy

if TYPE_CHECKING:
    from promising.summaries.adt import BOUNDS as BOUNDS
    from promising.summaries.adt import TOLERANCE as TOLERANCE
    from promising.summaries.adt import Estimate as Estimate
    from promising.summaries.adt import Estimates as Estimates
    from promising.summaries.adt import FrequencySummary as FrequencySummary
    from promising.summaries.adt import Summary as Summary
    from promising.summaries.count_min import CountMin as CountMin
    from promising.summaries.count_sketch import CountSketch as CountSketch
    from promising.summaries.distinct import Distinct as Distinct
    from promising.summaries.exact import Exact as Exact
    from promising.summaries.frequent import Frequent as Frequent
    from promising.summaries.hashing import hash_keys as hash_keys
    from promising.summaries.histogram import Histogram as Histogram
    from promising.summaries.kinds import KINDS as KINDS
    from promising.summaries.kinds import from_bytes as from_bytes
    from promising.summaries.quantile import Quantile as Quantile
    from promising.summaries.sample import Sample as Sample

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "adt": ["BOUNDS", "TOLERANCE", "Estimate", "Estimates", "FrequencySummary", "Summary"],
        "count_min": ["CountMin"],
        "count_sketch": ["CountSketch"],
        "distinct": ["Distinct"],
        "exact": ["Exact"],
        "frequent": ["Frequent"],
        "hashing": ["hash_keys"],
        "histogram": ["Histogram"],
        "kinds": ["KINDS", "from_bytes"],
        "quantile": ["Quantile"],
        "sample": ["Sample"],
    },
)
