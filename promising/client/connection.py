"""Calls to a service over one channel: the part of a session without Arrow."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from promising.client.channels import SENT, FilePath, Place, place
from promising.client.retries import SHORTEST_WAIT, Retries
from promising.errors import BadSettings, InternalError, PromisingError, Unavailable
from promising.v1 import admin_pb2_grpc, queries_pb2_grpc, streams_pb2_grpc, summaries_pb2_grpc

T = TypeVar("T")
CLOSED = "the session is closed"


class Stubs:
    """The stubs of all services, over one channel."""

    def __init__(self, channel: Any) -> None:  # a channel of grpc or of grpc.aio: the stubs accept both
        self.streams = streams_pb2_grpc.StreamServiceStub(channel)
        self.summaries = summaries_pb2_grpc.SummaryServiceStub(channel)
        self.queries = queries_pb2_grpc.QueryServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)


@dataclass(frozen=True)
class Ask(Generic[T]):
    """One call: method, request, and conversion of the response.

    For a streamed response `read` gets a list. `again`: it may be retried when the outcome of the first try is unknown.
    """

    service: Literal["streams", "summaries", "queries", "admin"]
    method: str
    request: Message
    read: Callable[[Any], T]
    again: bool = True

    def of(self, stubs: Stubs) -> Any:
        return getattr(getattr(stubs, self.service), self.method)


def dial(
    target: str,
    *,
    token: str | None,
    ca: FilePath | None,
    certificate: FilePath | None,
    key: FilePath | None,
    timeout: float | None,
    retries: int,
    wait: float = 0.0,
    max_message_bytes: int = SENT,
) -> "Connection":
    """A connection for the arguments of `connect`. The first call connects, unless it is to `wait` for the service."""
    where = place(target, token=token, ca=ca, certificate=certificate, key=key, max_message_bytes=max_message_bytes)
    made = Connection(where, timeout, Retries(retries))
    if check_wait(wait):
        try:
            made.await_service(wait)
        except BaseException:
            made.close()
            raise
    return made


def check_wait(seconds: float) -> float:
    """The seconds to wait for a service; raises unless they are a number from 0 on."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise BadSettings(f"wait is a number of seconds from 0 on, not {seconds!r}")
    return seconds


class Connection:
    """Makes calls, and retries them where that is safe and may help. Thread-safe."""

    def __init__(self, where: Place, timeout: float | None, retries: Retries) -> None:
        self.place = where
        self.timeout = timeout
        self.retries = retries
        self.closed = threading.Event()
        if where.credentials is None:
            self._channel = grpc.insecure_channel(where.address, where.options)
        else:
            self._channel = grpc.secure_channel(where.address, where.credentials, where.options)
        self.stubs = Stubs(self._channel)

    def await_service(self, seconds: float) -> None:
        """Wait until the service is ready; raises the last error after so many seconds."""
        until = time.monotonic() + seconds
        health = health_pb2_grpc.HealthStub(self._channel)
        while True:
            left = max(until - time.monotonic(), SHORTEST_WAIT)
            try:
                found = health.Check(health_pb2.HealthCheckRequest(), timeout=left)
                if found.status == health_pb2.HealthCheckResponse.SERVING:
                    return
                problem: PromisingError = Unavailable(f"the service at {self.place.address} is not ready")
            except grpc.RpcError as error:
                problem = self.problem(error)
            if time.monotonic() + SHORTEST_WAIT >= until:
                raise Unavailable(f"{problem}; waited {seconds:g} s")
            time.sleep(SHORTEST_WAIT)

    def ask(self, ask: Ask[T]) -> T:
        """A call with one response."""
        return self._finished(ask, lambda call: call)

    def gather(self, ask: Ask[T]) -> T:
        """A call whose response is streamed; waits for all parts."""
        return self._finished(ask, list)

    def _finished(self, ask: Ask[T], finish: Callable[[Any], Any]) -> T:
        def once() -> T:
            return ask.read(finish(self.start(ask.of(self.stubs), ask.request, self.timeout)))

        return self.tried(once, ask.again)

    def tried(self, once: Callable[[], T], again: bool = True) -> T:
        """The result of a call, retried if that may help and `again` allows it."""
        tries = 0
        while True:
            try:
                return once()
            except grpc.RpcError as error:
                problem = self.problem(error)
            tries += 1
            if not again:
                raise problem
            self.wait(tries, problem)

    def start(self, method: Any, request: Any, timeout: float | None = None) -> Any:
        """Start a call."""
        try:
            return method(request, timeout=timeout, metadata=self.place.metadata)
        except ValueError:
            if self.closed.is_set():
                raise Unavailable(CLOSED) from None
            raise

    def wait(self, tries: int, problem: PromisingError) -> None:
        """Wait before the next try, or raise the last error."""
        pause = None if self.closed.is_set() else self.retries.pause(tries, problem)
        if pause is None:
            raise problem
        time.sleep(pause)

    def problem(self, error: grpc.RpcError) -> PromisingError:
        """The error of a call."""
        return Unavailable(CLOSED) if self.closed.is_set() else self.place.problem(error)

    def close(self) -> None:
        """Close the connection and all open calls."""
        self.closed.set()
        self._channel.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def first_of(call: Any, what: str) -> Any:
    """The next response of a call that must have one."""
    try:
        return next(call)
    except StopIteration:
        raise InternalError(f"the service ended {what} without an answer") from None
