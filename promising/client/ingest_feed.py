"""State of an ingest call: batches in flight, batches to send again, and results. No I/O.

A batch is retained until it is acknowledged. After a lost connection, retained batches are sent again under their
numbers, and the service adds none of them twice.

The first batch of a call is sent alone, so that a refused call ends with its reason; if further batches were being
written, only the failed write would be visible.
"""

from collections import deque
from dataclasses import replace
from itertools import islice

from promising import wire, wire_errors
from promising.errors import InternalError
from promising.index.regions import Appended
from promising.v1 import streams_pb2

BATCHES = 8  # in flight at a time
BYTES = 32 << 20  # in flight in total, unless a single batch is larger


class Feed:
    """Batches to send, in order, and the totals of those acknowledged.

    >>> feed = Feed()
    >>> feed.add(streams_pb2.IngestRequest(stream="s", producer_id="till 7", sequence=1))
    >>> feed.unsent().sequence, feed.unsent()
    (1, None)
    >>> feed.lost()
    >>> feed.unsent().sequence
    1
    >>> feed.take(streams_pb2.IngestResponse(sequence=1, appended=streams_pb2.Appended(accepted=500)))
    Appended(accepted=500, refused={}, duplicate=False)
    >>> feed.waiting, feed.total.accepted
    (False, 500)
    """

    def __init__(self) -> None:
        self._pending: deque[streams_pb2.IngestRequest] = deque()
        self._sent = 0  # pending batches sent over the current call
        self._bytes = 0
        self._proven = False  # whether the current call has been answered
        self.answered = 0
        self.total = Appended(0)
        self.problem: Exception | None = None
        """Why no further batch is accepted: the first that was refused, or that could not be produced."""

    @property
    def room(self) -> bool:
        """Whether a further batch is accepted."""
        full = len(self._pending) >= BATCHES or self._bytes >= BYTES
        return self.problem is None and not full

    @property
    def waiting(self) -> bool:
        """Whether a batch is unanswered."""
        return bool(self._pending)

    def add(self, request: streams_pb2.IngestRequest) -> None:
        self._pending.append(request)
        self._bytes += len(request.arrow)

    def unsent(self) -> streams_pb2.IngestRequest | None:
        """The next batch to send, which then counts as sent."""
        if self._sent == len(self._pending) or (self._sent and not self._proven):
            return None
        self._sent += 1
        return self._pending[self._sent - 1]

    def lost(self) -> None:
        """The call has ended: unanswered batches must be sent again."""
        for request in islice(self._pending, self._sent):
            request.resent = True
        self._sent = 0
        self._proven = False

    def take(self, response: streams_pb2.IngestResponse) -> Appended | None:
        """The result of the oldest unanswered batch: None if it was refused.

        A batch that we sent again and that had been added before was added by this call: not a duplicate to the caller.
        """
        if not self._sent or response.sequence != self._pending[0].sequence:
            raise InternalError(f"the service answered batch {response.sequence}, which was not asked")
        request = self._pending.popleft()
        self._sent -= 1
        self._bytes -= len(request.arrow)
        self.answered += 1
        self._proven = True
        if not response.HasField("appended"):
            self.problem = self.problem or wire_errors.rebuild(response.refusal.reason, response.refusal.message)
            return None
        added = wire.appended_from(response.appended)
        if request.resent:
            added = replace(added, duplicate=False)
        self.total = _sum(self.total, added)
        return added

    def result(self) -> Appended:
        """The totals when every batch is answered, or the error."""
        if self.problem is not None:
            raise self.problem
        return self.total


def _sum(one: Appended, other: Appended) -> Appended:
    refused = dict(one.refused)
    for reason, tuples in other.refused.items():
        refused[reason] = refused.get(reason, 0) + tuples
    return Appended(one.accepted + other.accepted, refused, one.duplicate or other.duplicate)
