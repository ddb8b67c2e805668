"""Where tuples live: the log, zones and cells, granularities, postings, and the read side over them."""

from typing import TYPE_CHECKING

from promising.lazy import lazy

if TYPE_CHECKING:
    from promising.index.options import Options as Options
    from promising.index.regions import Absorbed as Absorbed
    from promising.index.regions import Appended as Appended
    from promising.index.regions import Description as Description
    from promising.index.regions import Guess as Guess
    from promising.index.regions import Matches as Matches
    from promising.index.regions import Region as Region
    from promising.index.regions import Regions as Regions
    from promising.index.regions import Story as Story
    from promising.index.stream import Stream as Stream
    from promising.index.summary_index import SummaryIndex as SummaryIndex

_WHERE = {
    "Options": "promising.index.options",
    "Absorbed": "promising.index.regions",
    "Appended": "promising.index.regions",
    "Description": "promising.index.regions",
    "Guess": "promising.index.regions",
    "Matches": "promising.index.regions",
    "Region": "promising.index.regions",
    "Regions": "promising.index.regions",
    "Story": "promising.index.regions",
    "Stream": "promising.index.stream",
    "SummaryIndex": "promising.index.summary_index",
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
