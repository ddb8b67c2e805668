"""Where tuples live: the log, zones and cells, granularities, postings, and the read side over them."""

from index.options import Options
from index.regions import Description, Matches, Region, Regions
from index.stream import Appended, Stream
from index.summary_index import SummaryIndex

__all__ = [
    "Appended",
    "Description",
    "Matches",
    "Options",
    "Region",
    "Regions",
    "Stream",
    "SummaryIndex",
]
