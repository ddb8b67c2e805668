"""What a cell knows: one interface, several summaries behind it.

>>> from summaries import CountSketch, from_bytes
>>> sketch = CountSketch(depth=5, width=64, seed=7)
>>> sketch.summarize(["milk", "eggs", "milk"])
>>> from_bytes(sketch.to_bytes())
<count-sketch depth=5 width=64 of 3 tuples>
"""

from typing import TYPE_CHECKING

from summaries.lazy import lazy

if TYPE_CHECKING:
    from summaries.adt import BOUNDS as BOUNDS
    from summaries.adt import TOLERANCE as TOLERANCE
    from summaries.adt import Estimate as Estimate
    from summaries.adt import Estimates as Estimates
    from summaries.adt import FrequencySummary as FrequencySummary
    from summaries.adt import Summary as Summary
    from summaries.count_min import CountMin as CountMin
    from summaries.count_sketch import CountSketch as CountSketch
    from summaries.distinct import Distinct as Distinct
    from summaries.exact import Exact as Exact
    from summaries.frequent import Frequent as Frequent
    from summaries.hashing import hash_keys as hash_keys
    from summaries.histogram import Histogram as Histogram
    from summaries.kinds import KINDS as KINDS
    from summaries.kinds import from_bytes as from_bytes
    from summaries.quantile import Quantile as Quantile
    from summaries.sample import Sample as Sample

_WHERE = {
    "BOUNDS": "summaries.adt",
    "TOLERANCE": "summaries.adt",
    "Estimate": "summaries.adt",
    "Estimates": "summaries.adt",
    "FrequencySummary": "summaries.adt",
    "Summary": "summaries.adt",
    "CountMin": "summaries.count_min",
    "CountSketch": "summaries.count_sketch",
    "Distinct": "summaries.distinct",
    "Exact": "summaries.exact",
    "Frequent": "summaries.frequent",
    "hash_keys": "summaries.hashing",
    "Histogram": "summaries.histogram",
    "KINDS": "summaries.kinds",
    "from_bytes": "summaries.kinds",
    "Quantile": "summaries.quantile",
    "Sample": "summaries.sample",
}
__getattr__ = lazy(__name__, _WHERE)
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
