"""Subscriptions of an in-process session: polling one updates all of its queries."""

import threading
import time
from collections.abc import Iterable

from promising.errors import BadQuestion
from promising.query.standing.engine import Engine, Feed
from promising.query.standing.subscription import ELSEWHERE, Delta, LiveView, Subscription

WAIT = 0.01  # seconds between two polls


class Watched(Subscription):
    """A subscription to a continuous query of this process."""

    def __init__(self, engine: Engine, feed: Feed) -> None:
        super().__init__(LiveView(feed.schema, feed.keyed, feed.endless), self._next, self._leave)
        self.engine = engine
        self.feed = feed
        self.closed = threading.Event()

    def _next(self, timeout: float | None) -> Delta | None:
        return _look(self.engine, [self], timeout).get(self.feed)

    def _leave(self) -> None:
        self.closed.set()
        self.feed.close()


def poll(engine: Engine, subscriptions: Iterable[Subscription], timeout: float | None) -> dict[Subscription, Delta]:
    """Apply the next change of each subscription to its view; those without one are omitted."""
    watched = []
    for one in dict.fromkeys(subscriptions):
        if not isinstance(one, Watched) or one.engine is not engine:
            raise BadQuestion(ELSEWHERE)
        watched.append(one)
    found = _look(engine, watched, timeout)
    return {one: one.told(found[one.feed]) for one in watched if one.feed in found}


def _look(engine: Engine, watched: list[Watched], timeout: float | None) -> dict[Feed, Delta]:
    """The changes of all open subscriptions, as soon as there is one or the timeout expires."""
    until = None if timeout is None else time.monotonic() + timeout
    while watched := [one for one in watched if not one.closed.is_set()]:
        engine.tick()
        found = engine.take([one.feed for one in watched])
        if found or (until is not None and time.monotonic() >= until):
            return found
        watched[0].closed.wait(WAIT)
    return {}
