"""Calls that stay open: which there are, whose, how many may be, and which of them have a reader that does not read."""

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
from promising.server.access import Caller

RETRY = 1.0  # seconds after which to try again when there is too much to do


@dataclass(eq=False)
class Call:
    """One open call.

    `waiting` is since when it has waited for its reader, by the monotonic clock; None while it works. `slow` says that
    it was ended for that, `ending` that it is to send what it has, `deadline` that this is because its time was nearly
    over, `closed` that nobody waits for it any more. `rows` are those it has answered with, `before` the CPU seconds of
    an answer that it goes on with.
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
        """Let a query send what it has, and a token; if it is still being planned, as soon as it is."""
        self.ending = True
        if self.answer is not None:
            self.answer.cancel()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """While a message waits to be taken."""
        self.waiting = time.monotonic()
        try:
            yield
        except grpc.aio.InternalError:  # what gRPC raises if the client goes at that very moment
            raise asyncio.CancelledError from None
        finally:
            self.waiting = None


class Calls:
    """The open calls of one kind: at most `most`, and `each` of one client.

    Calls that were cut because nobody reads them no longer count against all, only against their client.
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
        """Calls at work."""
        return len(self._open) - self._slow

    def __iter__(self) -> Iterator[Call]:
        """The oldest first."""
        return iter(list(self._open.values()))

    @contextlib.contextmanager
    def admitted(self, caller: Caller) -> Iterator[Call]:
        """A new call, while it lasts; `LimitReached` if there are too many."""
        if len(self._open) - self._slow >= self._most:
            raise LimitReached(f"{self._most:,} {self._kind} are open, which is all this service takes", RETRY)
        if self._by_client[caller.name] >= self._each:
            raise LimitReached(f"{self._each:,} {self._kind} of this client are open, which is all it may have", RETRY)
        call = Call(caller)
        self._open[call.id] = call
        self._by_client[caller.name] += 1
        try:
            yield call
        finally:
            del self._open[call.id]
            self._slow -= call.slow
            self._by_client[caller.name] -= 1
            if not self._by_client[caller.name]:
                del self._by_client[caller.name]

    def find(self, name: str, caller: Caller) -> Call:
        """An open call of that caller; an admin finds everybody's."""
        call = self._open.get(name)
        if call is None or ("admin" not in caller.roles and call.caller.name != caller.name):
            raise NoSuchName(f"no query {name[:40]!r} is open; it may have ended")
        return call

    def cut_slow(self) -> int:
        """End the calls whose reader has taken nothing for too long; returns how many."""
        now = time.monotonic()
        slow = [c for c in self if c.waiting is not None and now - c.waiting > self._patience and not c.slow]
        for call in slow:
            call.slow = True
            self._slow += 1
            if call.task is not None:
                call.task.cancel()
        return len(slow)

    async def give_up(self, call: Call, context: Any, retry: float | None = None) -> NoReturn:
        """End a call that was cancelled: by its client, or by `cut_slow`, and then with the reason, and after how many
        seconds to come back, if that helps.

        A status waits behind what was sent before it, so this may last until the client reads, or is gone. Until then
        the call counts against its client, so that what waits to be read is bounded.
        """
        if call.slow:
            problem = LimitReached(
                f"nothing was read for {self._patience:g} seconds; read faster, or ask for less", retry
            )
            with contextlib.suppress(grpc.aio.InternalError):  # the client went without having read
                await wire_errors.abort(context, problem)
        raise asyncio.CancelledError
