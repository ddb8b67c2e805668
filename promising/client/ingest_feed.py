"""The order of an ingest call: which batches are under way, which come again, what became of each. No I/O.

A batch stays here until it is acknowledged. When the connection is lost, those that are still here are sent again
under their numbers, and the service adds none of them twice.

The first batch of a call goes alone. A call that is not allowed, or one too many, then ends with its reason; if further
batches were being written meanwhile, all that could be seen is that they cannot be.
"""

from collections import deque
from dataclasses import replace

from promising import wire, wire_errors
from promising.errors import InternalError
from promising.index.regions import Appended
from promising.v1 import streams_pb2

BATCHES = 8  # that may be under way at one time
BYTES = 32 << 20  # that these may have together, unless a single one has more


class Feed:
    """Batches that were given for sending, in order, and the sums of those that are in.

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
        self._sent = 0  # of those pending, over the call as it is now
        self._bytes = 0
        self._proven = False  # that the call as it is now was answered
        self._again: set[int] = set()  # numbers that were sent more than once
        self.answered = 0
        self.total = Appended(0)
        self.problem: Exception | None = None
        """Why no further batch may be given: the first one that was refused, or one that could not be made."""

    @property
    def room(self) -> bool:
        """Whether a further batch may be given."""
        full = len(self._pending) >= BATCHES or self._bytes >= BYTES
        return self.problem is None and not full

    @property
    def waiting(self) -> bool:
        """Whether some batch is not answered."""
        return bool(self._pending)

    def add(self, request: streams_pb2.IngestRequest) -> None:
        self._pending.append(request)
        self._bytes += len(request.arrow)

    def unsent(self) -> streams_pb2.IngestRequest | None:
        """The next batch to send; from now on it counts as sent."""
        if self._sent == len(self._pending) or (self._sent and not self._proven):
            return None
        self._sent += 1
        return self._pending[self._sent - 1]

    def lost(self) -> None:
        """The call ended: what was sent and not answered has to be sent again."""
        self._again |= {request.sequence for request in list(self._pending)[: self._sent]}
        self._sent = 0
        self._proven = False

    def take(self, response: streams_pb2.IngestResponse) -> Appended | None:
        """What became of the oldest batch that was not answered: None if it was refused.

        One that was sent again by us, and was in already, was added by this call: it is no duplicate to the caller.
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
        if request.sequence in self._again:
            added = replace(added, duplicate=False)
        self.total = _sum(self.total, added)
        return added

    def result(self) -> Appended:
        """The sums, when every batch is answered, or the problem."""
        if self.problem is not None:
            raise self.problem
        return self.total


def _sum(one: Appended, other: Appended) -> Appended:
    refused = dict(one.refused)
    for reason, tuples in other.refused.items():
        refused[reason] = refused.get(reason, 0) + tuples
    return Appended(one.accepted + other.accepted, refused, one.duplicate or other.duplicate)
