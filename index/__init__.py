"""The index: tuple log, zones and cells, granularities, postings, and the read side over them."""

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

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "options": ["Options"],
        "regions": ["Absorbed", "Appended", "Description", "Guess", "Matches", "Region", "Regions", "Story"],
        "stream": ["Stream"],
        "summary_index": ["SummaryIndex"],
    },
)
