"""Resume tokens: unforgeable names of suspended answers."""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from promising.errors import BadToken, TokenExpired
from promising.query.cursor import Cursor

MOST = 256  # suspended answers
MOST_BYTES = 1 << 30  # and their total size in memory
KEPT = 600_000_000  # lifetime in microseconds


class Shelf:
    """Suspended cursors. A token is valid for one use; the oldest cursors are evicted when there are too many."""

    def __init__(self, clock: Callable[[], int], secret: bytes) -> None:
        self._clock = clock
        self._secret = secret
        self._lock = Lock()
        self._cursors: OrderedDict[str, tuple[int, Cursor]] = OrderedDict()

    def put(self, cursor: Cursor) -> str:
        name = secrets.token_hex(12)
        now = self._clock()
        with self._lock:
            self._cursors[name] = (now + KEPT, cursor)
            while self._crowded(now):
                self._pop()
        return f"{name}.{self._sign(name)}"

    def _pop(self) -> None:
        """Release the oldest."""
        _, (_, cursor) = self._cursors.popitem(last=False)
        cursor.close()

    def tidy(self) -> None:
        """Release the expired ones."""
        now = self._clock()
        with self._lock:
            for name in [name for name, (until, _) in self._cursors.items() if until < now]:
                self._cursors.pop(name)[1].close()

    def evict(self, client: str | None) -> bool:
        """Release the oldest, of a client unless None; returns whether there was one."""
        with self._lock:
            for name, (_, cursor) in self._cursors.items():
                if client is None or (cursor.account is not None and cursor.account.client == client):
                    del self._cursors[name]
                    cursor.close()
                    return True
        return False

    def _crowded(self, now: int) -> bool:
        """Whether the oldest must be evicted. The newest stays, however large."""
        if len(self._cursors) < 2:
            return False
        oldest, _ = next(iter(self._cursors.values()))
        held = sum(cursor.nbytes for _, cursor in self._cursors.values())
        return oldest < now or len(self._cursors) > MOST or held > MOST_BYTES

    def take(self, token: str) -> Cursor:
        """The cursor of a token; the token is then invalid."""
        name, _, signature = token.partition(".") if isinstance(token, str) else ("", "", "")
        known = name.isascii() and signature.isascii() and hmac.compare_digest(self._sign(name), signature)
        if not known:
            raise BadToken("no resume token of this session: it was changed, or made elsewhere")
        self.tidy()
        with self._lock:
            _, cursor = self._cursors.pop(name, (0, None))
        if cursor is None:
            raise TokenExpired(
                f"nothing left under this token: it was used, kept longer than {KEPT // 60_000_000} minutes, or pushed"
                " out by newer ones; ask again"
            )
        return cursor

    def drop(self, token: str) -> None:
        """Release the cursor of a token, if still stored."""
        with self._lock:
            _, cursor = self._cursors.pop(token.partition(".")[0], (0, None))
        if cursor is not None:
            cursor.close()

    def clear(self) -> None:
        with self._lock:
            while self._cursors:
                self._pop()

    def _sign(self, name: str) -> str:
        return hmac.new(self._secret, name.encode(), "sha256").hexdigest()[:32]
