"""The memory that queries may take: one, all of a client, and all together."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from promising.errors import LimitReached

PRESSED = 0.75  # share of a limit of several queries from which on those that can spill do so
OWN = 0.5  # the same for the limit of one query: spilling itself takes some
SMALL, EXCESS = 8, 4  # queries with at most 1/2^8 of a limit of several may exceed it by 1/2^4
SPARE = 3  # others end 1/2^3 before it: slices that run and last frames are still to come
FRAME = 10  # a frame may have 1/2^10 of the limit of all
STEP = 4  # a slice may add 1/2^4 of the limit of one query
RETRY = 1.0  # seconds after which other queries may have ended


@dataclass(frozen=True)
class QueryLimits:
    """Bytes of one query, of all queries of a client, and of all; suspended answers included."""

    query: int
    client: int
    total: int


class QueryMemory:
    """Counts the bytes of all queries.

    `evict` drops the oldest suspended answer, of a client unless None, and returns whether there was one: suspended
    answers yield to running ones.
    """

    def __init__(self, limits: QueryLimits) -> None:
        self.limits = limits
        self.evict: Callable[[str | None], bool] = lambda client: False
        self._lock = Lock()
        self._used = 0
        self._clients: Counter[str] = Counter()
        self._forgotten: deque[tuple[str, int]] = deque()  # of accounts that nobody closed

    @property
    def used(self) -> int:
        with self._lock:
            self._settle()
            return self._used

    def open(self, client: str) -> "Account":
        return Account(self, client)

    def add(self, client: str, size: int) -> tuple[int, int]:
        """Add to the bytes of a client; returns those of the client and of all."""
        with self._lock:
            self._settle()
            self._add(client, size)
            return self._clients[client], self._used

    def forget(self, client: str, size: int) -> None:
        """Subtract later: the collector of garbage calls this at any moment, even inside of `add`."""
        self._forgotten.append((client, size))

    def _settle(self) -> None:
        while self._forgotten:
            client, size = self._forgotten.popleft()
            self._add(client, -size)

    def _add(self, client: str, size: int) -> None:
        self._used += size
        self._clients[client] += size
        if not self._clients[client]:
            del self._clients[client]


class Account:
    """The bytes of one query, used by one thread at a time."""

    def __init__(self, memory: QueryMemory, client: str) -> None:
        self.client = client
        self.size = 0
        self._memory = memory

    @property
    def step(self) -> int:
        """Bytes that it may add before they are counted."""
        return self._memory.limits.query >> STEP

    @property
    def frame(self) -> int:
        """Bytes of rows that make a frame: of every query one may wait for its consumer."""
        return self._memory.limits.total >> FRAME

    def hold(self, size: int) -> bool:
        """The query now has so many bytes. Returns whether it should spill."""
        of_client, of_all = self._memory.add(self.client, size - self.size)
        self.size = size
        limits = self._memory.limits
        return size > OWN * limits.query or of_client > PRESSED * limits.client or of_all > PRESSED * limits.total

    def check(self, *, spills: bool) -> None:
        """Raise LimitReached if there are too many. spills: whether queries of this session can spill."""
        limits = self._memory.limits
        if self.size > limits.query:
            way = "" if spills else "; with a data directory, sorts and groups spill to it"
            raise LimitReached(
                f"the query needs {self.size:,} bytes, and limits.max_query_bytes allows {limits.query:,}: narrow the"
                f" WINDOW, or add a condition or a LIMIT{way}"
            )
        for limit, setting, client in (
            (limits.client, "max_query_bytes_per_client", self.client),
            (limits.total, "max_query_bytes_total", None),
        ):
            room = limit + (limit >> EXCESS) if self.size <= limit >> SMALL else limit - (limit >> SPARE)
            while (used := self._memory.add(self.client, 0)[client is None]) > room:
                if not self._memory.evict(client):
                    whose = "all queries" if client is None else "the queries of this client"
                    raise LimitReached(
                        f"{whose} have {used:,} bytes, and limits.{setting} allows {limit:,}, with an eighth left to"
                        f" small ones: this one ends with {self.size:,}; ask again when others have ended, or for less",
                        RETRY,
                    )

    def close(self) -> None:
        """The query has ended. Idempotent."""
        size, self.size = self.size, 0
        self._memory.add(self.client, -size)

    def __del__(self) -> None:
        if self.size:
            self._memory.forget(self.client, self.size)
