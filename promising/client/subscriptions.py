"""Continuous queries watched by a session: one call for all, read by a thread while there are any."""

import queue
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any

import grpc

from promising.client.connection import CLOSED, Connection
from promising.client.subscription_state import Board, Watched, pause, view_of, why
from promising.errors import BadQuestion, InternalError, PromisingError, Unavailable
from promising.query.standing.subscription import ELSEWHERE, Delta, Subscription
from promising.v1 import queries_pb2
from promising.wire_changes import Opened

Outbox = queue.SimpleQueue[queries_pb2.SubscribeRequest | None]


class RemoteSubscription(Subscription):
    """A continuous query of a service, as one subscriber sees it.

    A broken connection is restored, and missed changes are delivered then. Errors that a retry would not fix are raised
    by `poll` and by iteration.
    """

    def __init__(self, watching: "Watching", watched: Watched, token: str | None) -> None:
        assert watched.opened is not None
        super().__init__(view_of(watched.opened), self._next, lambda: watching.leave(watched))
        self._watching = watching
        self._watched = watched
        self._opened = watched.opened
        self.token = token
        weakref.finalize(self, watching.forget, watched).atexit = False

    @property
    def name(self) -> str:
        """Name of the query."""
        return self._watched.name

    @property
    def interrupted(self) -> PromisingError | None:
        """Why the connection is lost, while it is being restored."""
        return self._watching.interrupted

    def __enter__(self) -> "RemoteSubscription":
        return self

    def _next(self, timeout: float | None) -> Delta | None:
        found = self._watching.take([self._watched], timeout).get(self._watched)
        return None if found is None else self._opening(*found)

    def _opening(self, opened: Opened, delta: Delta) -> Delta:
        if opened != self._opened:  # dropped, and created again with other columns
            self._opened, self._view = opened, view_of(opened)
        return delta


class Watching:
    """All subscriptions of a session."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._closed = connection.closed
        self._board = Board()
        self._news = threading.Condition()
        self._outbox: Outbox = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._call: Any = None
        self._ending = False  # whether the call was ended because no subscription was left

    @property
    def interrupted(self) -> PromisingError | None:
        return self._board.interrupted

    def subscribe(self, name: str, token: str | None) -> RemoteSubscription:
        """Subscribe to a query. Errors in the request are raised here."""
        with self._news:
            if self._closed.is_set():
                raise Unavailable(CLOSED)
            watched = self._board.watch(name, token)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="subscriptions", daemon=True)
                self._thread.start()
            else:
                self._send()
            try:
                while watched.opened is None and watched.problem is None:
                    self._news.wait()
            except BaseException:
                self.leave(watched)
                raise
            if watched.problem is not None:
                raise watched.problem
        return RemoteSubscription(self, watched, token)

    def poll(self, subscriptions: Iterable[Subscription], timeout: float | None) -> dict[Subscription, Delta]:
        """The next change of each subscription that has one, applied to its view."""
        mine: list[RemoteSubscription] = []
        for one in dict.fromkeys(subscriptions):
            if not isinstance(one, RemoteSubscription) or one._watching is not self:
                raise BadQuestion(ELSEWHERE)
            mine.append(one)
        found = self.take([one._watched for one in mine], timeout)
        return {one: one.told(one._opening(*found[one._watched])) for one in mine if one._watched in found}

    def take(self, several: list[Watched], timeout: float | None) -> dict[Watched, tuple[Opened, Delta]]:
        """The next change of each; empty on a timeout, or if all are closed."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._news:
            while True:
                found = self._board.take_all(several)
                self._send()
                left = None if until is None else until - time.monotonic()
                if found or all(watched.closed for watched in several) or (left is not None and left <= 0):
                    return found
                self._news.wait(left)

    def leave(self, watched: Watched) -> None:
        """End a subscription. The last one ends the call."""
        with self._news:
            self._board.leave(watched)
            self._send()
            self._news.notify_all()
            if len(self._board) or self._call is None:
                return
            self._ending, call = True, self._call
        call.cancel()  # not under the lock, for which the reading thread may wait

    def forget(self, watched: Watched) -> None:
        """`leave` for a finaliser: it may run in any thread and must not block, so the next message does the work."""
        watched.closed = True
        if watched.number is not None:
            self._outbox.put(queries_pb2.SubscribeRequest(remove=watched.number))

    def _send(self) -> None:
        for request in self._board.unsent:
            self._outbox.put(request)
        self._board.unsent.clear()

    # --- in its own thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        tries, connected = 0, False
        while True:
            came, problem = self._read()
            tries, connected = 1 if came else tries + 1, connected or came
            with self._news:
                if not len(self._board):
                    self._thread = None
                    return
                if self._ending:  # there is a new subscription
                    continue
                wait = None if self._closed.is_set() else pause(self._connection.retries, tries, problem, connected)
                if wait is None:
                    self._board.failed(Unavailable(CLOSED) if self._closed.is_set() else problem)
                    self._thread = None
                    self._news.notify_all()
                    return
                self._board.interrupted = problem
                self._news.notify_all()
            self._closed.wait(wait)

    def _read(self) -> tuple[bool, PromisingError]:
        """Run one call to its end: whether anything arrived, and why it ended."""
        came, outbox = False, self._outbox
        try:
            with self._news:
                self._ending = False
                self._outbox = outbox = queue.SimpleQueue()
                self._board.begin()
                self._send()
                self._call = call = self._connection.start(
                    self._connection.stubs.queries.Subscribe, iter(outbox.get, None)
                )
            for response in call:
                came = True
                with self._news:
                    self._board.add(response)
                    self._send()
                    self._news.notify_all()
                    if not len(self._board):
                        break
            return came, Unavailable("the service ended the call")
        except grpc.RpcError as error:
            return came, why(self._connection.place, error)
        except PromisingError as problem:
            return came, problem
        except Exception as problem:  # else its waiters would wait forever
            return came, InternalError(f"what the service sent cannot be read: {type(problem).__name__}: {problem}")
        finally:
            outbox.put(None)
            with self._news:
                call, self._call = self._call, None
            if call is not None:
                call.cancel()
