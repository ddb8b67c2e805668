"""Long-running calls: registry, limits, and detection of slow consumers."""

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc

from promising import wire_errors
from promising.errors import LimitReached, NoSuchName
from promising.query.answers import Answer, Progress
from promising.server.access_tokens import Caller

RETRY = 1.0  # seconds to retry after at overload


@dataclass(eq=False)
class Call:
    """One open call.

    `waiting`: since when it waits for its consumer, by the monotonic clock; None while it works. `slow`: it was ended
    for that. `ending`: it is to send its last frame. `deadline`: because its deadline is near. `closed`: nobody awaits
    it. `rows`: rows sent. `before`: CPU seconds of the answer that it resumes.
    """

    caller: Caller
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    started: float = field(default_factory=time.time)
    task: "asyncio.Task[object] | None" = field(default_factory=asyncio.current_task)
    waiting: float | None = None
    slow: bool = False
    answer: Answer | None = None
    progress: Progress | None = None
    rows: int = 0
    before: float = 0.0
    ending: bool = False
    deadline: bool = False
    closed: bool = False

    def end(self) -> None:
        """Make a query send its last frame with a token; if it is being planned, as soon as it is."""
        self.ending = True
        if self.answer is not None:
            self.answer.cancel()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Marks the call as waiting for its consumer."""
        self.waiting = time.monotonic()
        try:
            yield
        except grpc.aio.InternalError:  # raised by gRPC if the client disconnects at that moment
            raise asyncio.CancelledError from None
        finally:
            self.waiting = None


class Calls:
    """The open calls of one kind: at most `most`, and `each` per client.

    Calls that were ended for a slow consumer count only against their client.
    """

    def __init__(self, kind: str, most: int, each: int, patience: float) -> None:
        self._kind = kind
        self._most = most
        self._each = each
        self._patience = patience
        self._open: dict[str, Call] = {}
        self._slow = 0
        self._by_client: Counter[str] = Counter()

    def __len__(self) -> int:
        """Calls not ended for a slow consumer."""
        return len(self._open) - self._slow

    def __iter__(self) -> Iterator[Call]:
        """The oldest first."""
        return iter(list(self._open.values()))

    @contextlib.contextmanager
    def admitted(self, caller: Caller) -> Iterator[Call]:
        """Register a call for the block; raises `LimitReached` if there are too many."""
        if len(self._open) - self._slow >= self._most:
            raise LimitReached(f"{self._most:,} {self._kind} are open, which is all this service takes", RETRY)
        if self._by_client[caller.client] >= self._each:
            raise LimitReached(f"{self._each:,} {self._kind} of this client are open, which is all it may have", RETRY)
        call = Call(caller)
        self._open[call.id] = call
        self._by_client[caller.client] += 1
        try:
            yield call
        finally:
            del self._open[call.id]
            self._slow -= call.slow
            self._by_client[caller.client] -= 1
            if not self._by_client[caller.client]:
                del self._by_client[caller.client]

    def find(self, name: str, caller: Caller) -> Call:
        """An open call of that caller; an admin finds those of all."""
        call = self._open.get(name)
        if call is None or ("admin" not in caller.roles and call.caller.client != caller.client):
            raise NoSuchName(f"no query {name[:40]!r} is open; it may have ended")
        return call

    def cut_slow(self) -> int:
        """End the calls of slow consumers; returns how many."""
        now = time.monotonic()
        slow = [c for c in self if c.waiting is not None and now - c.waiting > self._patience and not c.slow]
        for call in slow:
            call.slow = True
            self._slow += 1
            if call.task is not None:
                call.task.cancel()
        return len(slow)

    async def give_up(self, call: Call, context: Any, retry: float | None = None) -> NoReturn:
        """End a cancelled call: cancelled by its client, or by `cut_slow`, which adds the reason and the retry delay.

        The status queues behind earlier messages, so this may last until the client reads or disconnects. Until then
        the call counts against its client, which bounds the unread data.
        """
        if call.slow:
            problem = LimitReached(
                f"nothing was read for {self._patience:g} seconds; read faster, or ask for less", retry
            )
            with contextlib.suppress(grpc.aio.InternalError):  # the client disconnected without reading
                await wire_errors.abort(context, problem)
        raise asyncio.CancelledError
