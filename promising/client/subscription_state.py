"""Subscriptions of a session and their unread changes, without I/O."""

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

MANY = 1 << 18  # maximum unread rows of one subscription
TRIES = 12  # after which pauses stop growing
FINAL = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INVALID_ARGUMENT,
)
"""Status codes raised by gRPC itself that a retry would repeat."""


@dataclass(eq=False)
class Watched:
    """One subscription.

    `token` resumes after the last change received. `number` identifies it on the open call; None if it is not part of
    it, because too many rows are unread, or because it has ended with `problem`.
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
        """Whether no change can follow."""
        return self.closed or self.problem is not None

    @property
    def waiting(self) -> bool:
        """Whether a change is unread."""
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        """Whether so many rows are unread that it pauses."""
        return self._rows > MANY

    def section(self, tick: int, part: queries_pb2.SubscriptionSection) -> None:
        """Add a part of a section."""
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
        """Add a change of the watermark only."""
        if self._sections is None or self._last is None:
            return
        if self._waiting and wire_changes.is_time(self._waiting[-1][1]):
            self._waiting.pop()
        self._add(self._sections.time(tick, watermark, self._last))

    def _add(self, delta: Delta) -> None:
        assert self.opened is not None
        if delta.reset and not self.opened.endless:  # changes of a query without a view are not repeated
            self._waiting.clear()
            self._rows = 0
        if self._waiting and _says_little(delta) and _says_little(self._waiting[-1][1]):
            self._waiting.pop()
        self._waiting.append((self.opened, delta))
        self._rows += delta.inserts.num_rows + len(delta.retractions)
        self._last, self.token = delta, delta.token

    def take(self) -> tuple[wire_changes.Opened, Delta] | None:
        """The next change, and its query."""
        if not self._waiting:
            return None
        opened, delta = self._waiting.popleft()
        self._rows -= delta.inserts.num_rows + len(delta.retractions)
        return opened, delta

    def lost(self) -> None:
        """Drop an incomplete section: it will be sent again."""
        self.number = None
        if self._sections is not None:
            self._sections.forget()


class Board:
    """All subscriptions of a session over one call, and the requests to send."""

    def __init__(self) -> None:
        self.unsent: list[queries_pb2.SubscribeRequest] = []
        self.interrupted: PromisingError | None = None
        """Why the connection is lost, while it is being restored."""
        self._all: list[Watched] = []
        self._by_number: dict[int, Watched] = {}
        self._numbers = 0

    def __len__(self) -> int:
        """Subscriptions that may still get changes."""
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
        """End a subscription."""
        watched.closed = True
        self._stop(watched)

    def take(self, watched: Watched) -> tuple[wire_changes.Opened, Delta] | None:
        """The next change of a subscription. If it was paused, it resumes when all its changes have been taken."""
        found = watched.take()
        if found is None and watched.number is None and not watched.over and self.interrupted is None:
            self._ask(watched)
        return found

    def take_all(self, several: Sequence[Watched]) -> dict[Watched, tuple[wire_changes.Opened, Delta]]:
        """The next change of each that has one. Raises the error of one that has ended before taking any."""
        for watched in several:
            if watched.problem is not None and not watched.closed and not watched.waiting:
                raise watched.problem
        return {watched: found for watched in several if (found := self.take(watched)) is not None}

    def begin(self) -> None:
        """Begin a new call: every subscription is requested again from its position."""
        self.unsent.clear()
        self._by_number.clear()
        for watched in list(self._all):
            watched.lost()
            if not watched.over and not watched.full:
                self._ask(watched)

    def add(self, response: queries_pb2.SubscribeResponse) -> None:
        """Add a message."""
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
        """Fail all subscriptions: there will be no further call."""
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
    """The empty view of a query."""
    return LiveView(opened.schema, opened.keyed, opened.endless)


def why(place: Place, error: grpc.RpcError) -> PromisingError:
    """Why a call ended. Whatever gRPC reports for a broken connection, it counts as one to restore."""
    code = error.code()
    if wire_errors.was_told(error) or code in FINAL:
        return place.problem(error)
    found = place.problem(error)
    return found if isinstance(found, Unavailable) else Unavailable(f"the connection to {place.address} broke: {found}")


def pause(retries: Retries, tries: int, problem: PromisingError, connected: bool) -> float | None:
    """Seconds before a retry; None to give up. Once connected, it retries without limit unless retries are off."""
    if connected and retries.most:
        tries = min(tries, TRIES)
        return Retries(TRIES, retries.draw).pause(tries, problem)
    return retries.pause(tries, problem)


def _says_little(delta: Delta) -> bool:
    """Whether a change has only a watermark and figures."""
    return not delta.reset and not delta.inserts.num_rows and not len(delta.retractions)
