"""What a session watches, and what has come of it and was not looked at yet: the part that needs no connection."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc

from promising import wire_changes, wire_errors, wire_times
from promising.client.calls import name_of
from promising.client.channels import Place
from promising.client.retries import Retries
from promising.errors import BadToken, PromisingError, Unavailable
from promising.query.standing.subscription import Delta, LiveView
from promising.v1 import queries_pb2

MANY = 1 << 18  # rows that may wait to be looked at, of one subscription
TRIES = 12  # after which pauses are no longer
FINAL = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INVALID_ARGUMENT,
)
"""How a call ends that would end in the same way again, if gRPC says so and not the service."""


@dataclass(eq=False)
class Watched:
    """One subscription.

    `token` resumes after what has come, `number` is what it is called on the call that is open, None if it is not part
    of it: because too much waits, or because it is over. `problem` is why it is.
    """

    name: str
    token: str | None
    number: int | None = None
    opened: wire_changes.Opened | None = None
    problem: PromisingError | None = None
    closed: bool = False
    _sections: wire_changes.Sections | None = None
    _waiting: deque[tuple[wire_changes.Opened, Delta]] = field(default_factory=deque)
    _rows: int = 0
    _last: Delta | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more can come."""
        return self.closed or self.problem is not None

    @property
    def waiting(self) -> bool:
        """Whether a change was not looked at yet."""
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        """Whether so much waits that no more should come."""
        return self._rows > MANY

    def section(self, tick: int, part: queries_pb2.SubscriptionSection) -> None:
        """Take in a part of a section."""
        if part.HasField("error"):
            self.problem = wire_errors.rebuild(part.error.reason, part.error.message)
            return
        if part.HasField("opened"):
            self.opened = wire_changes.opened_from(part.opened)
            self._sections = wire_changes.Sections(self.opened)
        assert self._sections is not None, "the service sends what is known of a query first"
        delta = self._sections.add(tick, part)
        if delta is not None:
            self._add(delta)

    def time(self, tick: int, watermark: int) -> None:
        """Take in that nothing but the time has changed."""
        if self._sections is None or self._last is None:
            return
        if self._waiting and wire_changes.is_time(self._waiting[-1][1]):
            self._waiting.pop()
        self._add(self._sections.time(tick, watermark, self._last))

    def _add(self, delta: Delta) -> None:
        assert self.opened is not None
        if delta.reset and not self.opened.endless:  # what has come without a view is not told again
            self._waiting.clear()
            self._rows = 0
        if self._waiting and _says_little(delta) and _says_little(self._waiting[-1][1]):
            self._waiting.pop()
        self._waiting.append((self.opened, delta))
        self._rows += delta.inserts.num_rows + len(delta.retractions)
        self._last, self.token = delta, delta.token

    def take(self) -> tuple[wire_changes.Opened, Delta] | None:
        """The next change, and the query that it is of."""
        if not self._waiting:
            return None
        opened, delta = self._waiting.popleft()
        self._rows -= delta.inserts.num_rows + len(delta.retractions)
        return opened, delta

    def lost(self) -> None:
        """What has come of a section that has no end will come again."""
        self.number = None
        if self._sections is not None:
            self._sections.forget()


class Board:
    """All that a session watches over one call, and what is to be sent for it."""

    def __init__(self) -> None:
        self.unsent: list[queries_pb2.SubscribeRequest] = []
        self.interrupted: PromisingError | None = None
        """Why there is no connection, while one is sought."""
        self._all: list[Watched] = []
        self._by_number: dict[int, Watched] = {}
        self._numbers = 0

    def __len__(self) -> int:
        """Subscriptions that something may come for."""
        self._all = [watched for watched in self._all if not watched.over]
        return len(self._all)

    def watch(self, name: str, token: str | None) -> Watched:
        """A new subscription."""
        if token is not None and not isinstance(token, str):
            raise BadToken(f"a token of a subscription is a text, not {token!r}")
        watched = Watched(name_of("continuous query", name), token)
        self._all.append(watched)
        self._ask(watched)
        return watched

    def leave(self, watched: Watched) -> None:
        """Nobody looks at it any more."""
        watched.closed = True
        self._stop(watched)

    def take(self, watched: Watched) -> tuple[wire_changes.Opened, Delta] | None:
        """The next change of a subscription. If more of it was held back, it goes on when all has been taken."""
        found = watched.take()
        if found is None and watched.number is None and not watched.over and self.interrupted is None:
            self._ask(watched)
        return found

    def take_all(self, several: Sequence[Watched]) -> dict[Watched, tuple[wire_changes.Opened, Delta]]:
        """The next change of each that has one. Raises why one of them is over that has none left; no other is taken
        then."""
        for watched in several:
            if watched.problem is not None and not watched.closed and not watched.waiting:
                raise watched.problem
        return {watched: found for watched in several if (found := self.take(watched)) is not None}

    def begin(self) -> None:
        """A new call: everything is asked for again, from where it was."""
        self.unsent.clear()
        self._by_number.clear()
        for watched in list(self._all):
            watched.lost()
            if not watched.over and not watched.full:
                self._ask(watched)

    def add(self, response: queries_pb2.SubscribeResponse) -> None:
        """Take in a message."""
        self.interrupted = None
        for part in response.sections:
            watched = self._by_number.get(part.number)
            if watched is not None:
                watched.section(response.tick, part)
                if watched.over:
                    del self._by_number[part.number]
                elif watched.full and not part.continued:
                    self._stop(watched)
        for times in response.times:
            watermark = wire_times.micros(times.watermark)
            for number in times.numbers:
                watched = self._by_number.get(number)
                if watched is not None:
                    watched.time(response.tick, watermark)

    def failed(self, problem: PromisingError) -> None:
        """There will be no call any more."""
        for watched in self._all:
            if not watched.over:
                watched.problem = problem
        self._by_number.clear()
        self.unsent.clear()

    def _ask(self, watched: Watched) -> None:
        self._numbers += 1
        watched.number = self._numbers
        self._by_number[self._numbers] = watched
        asked = queries_pb2.Subscription(number=self._numbers, query=watched.name, resume_token=watched.token or "")
        self.unsent.append(queries_pb2.SubscribeRequest(add=asked))

    def _stop(self, watched: Watched) -> None:
        if watched.number is not None and self._by_number.pop(watched.number, None) is not None:
            self.unsent.append(queries_pb2.SubscribeRequest(remove=watched.number))
        watched.lost()


def view_of(opened: wire_changes.Opened) -> LiveView:
    """The view of a query, before its first row."""
    return LiveView(opened.schema, opened.keyed, opened.endless)


def why(place: Place, error: grpc.RpcError) -> PromisingError:
    """Why a call ended. Whatever gRPC tells of a connection that broke, it is one that may be made again."""
    code = error.code()
    if wire_errors.was_told(error) or code in FINAL:
        return place.problem(error)
    found = place.problem(error)
    return found if isinstance(found, Unavailable) else Unavailable(f"the connection to {place.address} broke: {found}")


def pause(retries: Retries, tries: int, problem: PromisingError, connected: bool) -> float | None:
    """Seconds after which to try again; None to give up. Once there was a connection it is tried for as long as it
    takes, unless nothing is to be tried a second time.
    """
    if connected and retries.most:
        tries = min(tries, TRIES)
        return Retries(TRIES, retries.draw).pause(tries, problem)
    return retries.pause(tries, problem)


def _says_little(delta: Delta) -> bool:
    """Whether only the time has changed, or what is told beside it."""
    return not delta.reset and not delta.inserts.num_rows and not len(delta.retractions)
