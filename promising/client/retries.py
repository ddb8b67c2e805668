"""When to try again, and after how long."""

import random
from dataclasses import dataclass, field

from promising.errors import BadSettings, LimitReached, PromisingError, StorageFull, StorageUnavailable, Unavailable

RETRIES = 5
SHORTEST_WAIT = 0.1  # seconds
LONGEST_WAIT = 5.0


@dataclass(frozen=True)
class Retries:
    """At most `most` further tries, each after a pause of random length whose bound doubles.

    The pauses are random so that clients which lost one service do not come back at one instant.
    """

    most: int = RETRIES
    draw: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 0:
            raise BadSettings(f"retries is a whole number from 0 on, not {self.most!r}")

    def pause(self, tries: int, problem: PromisingError) -> float | None:
        """Seconds to wait after so many tries, the last of which ended with `problem`; None to give up.

        A service that was not there may be there again, and its disk may have space again. One that had reached a
        limit says when to come back, if that helps. All else would only go wrong once more.
        """
        if tries > self.most:
            return None
        bound: float = min(SHORTEST_WAIT * 2 ** (tries - 1), LONGEST_WAIT)
        if isinstance(problem, Unavailable | StorageFull | StorageUnavailable):
            return self.draw.uniform(bound / 2, bound)
        if isinstance(problem, LimitReached) and problem.retry_seconds is not None:
            return problem.retry_seconds + self.draw.uniform(0, bound)
        return None
