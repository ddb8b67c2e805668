"""Everything that a run of the demo has measured."""

from dataclasses import dataclass

from promising.demo.plain_engine import Timing
from promising.demo.questions import Average, Pairs
from promising.demo.watches import Watched
from promising.index.regions import Description


@dataclass(frozen=True)
class Findings:
    """The figures of the page and of the terminal's table. Those of the plain engine are None without it.

    `total`: pairs of the whole join; `whole`: the plain engine fetching them; `simple`: seconds of a plain aggregate.
    """

    rows: int
    total: int
    pairs: dict[str, Pairs]
    year: Average
    month: Average
    watched: Watched
    whole: Timing | None
    simple: float
    simple_plain: float | None
    told: Description
