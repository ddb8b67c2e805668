"""Where tuples live: the log, zones and cells, granularities, postings, and the read side over them."""

from typing import TYPE_CHECKING

from summaries.lazy import lazy

if TYPE_CHECKING:
    from index.options import Options as Options
    from index.regions import Absorbed as Absorbed
    from index.regions import Appended as Appended
    from index.regions import Description as Description
    from index.regions import Guess as Guess
    from index.regions import Matches as Matches
    from index.regions import Region as Region
    from index.regions import Regions as Regions
    from index.regions import Story as Story
    from index.stream import Stream as Stream
    from index.summary_index import SummaryIndex as SummaryIndex

_WHERE = {
    "Options": "index.options",
    "Absorbed": "index.regions",
    "Appended": "index.regions",
    "Description": "index.regions",
    "Guess": "index.regions",
    "Matches": "index.regions",
    "Region": "index.regions",
    "Regions": "index.regions",
    "Story": "index.regions",
    "Stream": "index.stream",
    "SummaryIndex": "index.summary_index",
}
__getattr__ = lazy(__name__, _WHERE)
__all__ = [
    "Absorbed",
    "Appended",
    "Description",
    "Guess",
    "Matches",
    "Options",
    "Region",
    "Regions",
    "Story",
    "Stream",
    "SummaryIndex",
]
