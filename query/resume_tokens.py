"""Resume tokens: unforgeable names of suspended answers."""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from promising.errors import BadToken, TokenExpired
from promising.query.cursor import Cursor

MOST = 256  # suspended answers of a client
MOST_BYTES = 1 << 30  # and the total size in memory of all
KEPT = 600_000_000  # lifetime in microseconds


Cursors = OrderedDict[str, tuple[int, Cursor]]  # by name, with the time until when it may be resumed


class Shelf:
    """Suspended cursors. A token is valid for one use, by the client that asked; for others it is unknown.

    Each client has its own: its oldest are evicted when it has too many, and no one else's. When all together are too
    large, those of the client with the most bytes are: who has no more than an equal share loses nothing to others.
    """

    def __init__(self, clock: Callable[[], int], secret: bytes) -> None:
        self._clock = clock
        self._secret = secret
        self._lock = Lock()
        self._clients: dict[str, Cursors] = {}
        self._sizes: dict[str, int] = {}  # in bytes, when last measured

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))

    def put(self, cursor: Cursor, client: str = "") -> str:
        name = secrets.token_hex(12)
        now = self._clock()
        with self._lock:
            own = self._clients.setdefault(client, OrderedDict())
            own[name] = (now + KEPT, cursor)
            self._tidy(client, now)
        return f"{name}.{self._sign(name, client)}"

    def _tidy(self, client: str, now: int) -> None:
        """Evict what has expired or is too much. A single cursor stays, however large."""
        for other, cursors in list(self._clients.items()):
            for name in [name for name, (until, _) in cursors.items() if until < now]:
                self._release(name, other)
        own = list(self._clients.get(client, ()))
        for name in own[: max(len(own) - MOST, 0)]:
            self._release(name, client)
        self._measure(client)
        if sum(self._sizes.values()) > MOST_BYTES:
            for other in self._clients:
                self._measure(other)
        while sum(self._sizes.values()) > MOST_BYTES and len(self) > 1:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self._release(next(iter(self._clients[largest])), largest)
            self._measure(largest)

    def tidy(self) -> None:
        """Release the expired ones."""
        with self._lock:
            self._tidy("", self._clock())

    def evict(self, client: str | None) -> bool:
        """Release the oldest of a client, or of all if None; returns whether there was one."""
        with self._lock:
            owners = [c for c in self._clients if client is None or c == client]
            oldest = [(next(iter(self._clients[c].values()))[0], c) for c in owners]
            if not oldest:
                return False
            _, owner = min(oldest)
            self._release(next(iter(self._clients[owner])), owner)
            self._measure(owner)
            return True

    def _measure(self, client: str) -> None:
        """Its cursors may have grown: what others release meanwhile is held by them alone."""
        if client in self._clients:
            self._sizes[client] = sum(cursor.nbytes for _, cursor in self._clients[client].values())

    def take(self, token: str, client: str = "") -> Cursor:
        """The cursor of a token of this client; the token is then invalid."""
        name, _, signature = token.partition(".") if isinstance(token, str) else ("", "", "")
        known = name.isascii() and signature.isascii() and hmac.compare_digest(self._sign(name, client), signature)
        if not known:
            raise BadToken("no resume token of this session: it was changed, or made elsewhere")
        with self._lock:
            until, cursor = self._remove(name, client)
        if cursor is not None and until < self._clock():
            cursor.close()
            cursor = None
        if cursor is None:
            raise TokenExpired(
                f"no answer under this token: it was used, is older than {KEPT // 60_000_000} minutes, or was evicted"
                " for newer ones; run the query again"
            )
        return cursor

    def drop(self, token: str, client: str = "") -> None:
        """Release the cursor of a token, if still stored."""
        with self._lock:
            self._release(token.partition(".")[0], client)

    def _release(self, name: str, client: str) -> None:
        _, cursor = self._remove(name, client)
        if cursor is not None:
            cursor.close()

    def _remove(self, name: str, client: str) -> tuple[int, Cursor | None]:
        own = self._clients.get(client)
        if own is None or name not in own:
            return 0, None
        found = own.pop(name)
        if not own:
            del self._clients[client]
            self._sizes.pop(client, None)
        return found

    def clear(self) -> None:
        with self._lock:
            for client, cursors in list(self._clients.items()):
                for name in list(cursors):
                    self._release(name, client)

    def _sign(self, name: str, client: str) -> str:
        return hmac.new(self._secret, repr((name, client)).encode(), "sha256").hexdigest()[:32]
