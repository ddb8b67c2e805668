"""Calls to a service over one channel, in an event loop: `Connection` as coroutines."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from promising.client.channels import Place
from promising.client.connection import CLOSED, Ask, Stubs
from promising.client.retries import SHORTEST_WAIT, Retries
from promising.errors import InternalError, PromisingError, Unavailable

EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # not in the stubs
T = TypeVar("T")


class AsyncConnection:
    """Makes calls, and retries them where that is safe and may help. Used in one event loop."""

    def __init__(self, where: Place, timeout: float | None, retries: Retries) -> None:
        self.place = where
        self.timeout = timeout
        self.retries = retries
        self.closed = False
        if where.credentials is None:
            self._channel = grpc.aio.insecure_channel(where.address, where.options)
        else:
            self._channel = grpc.aio.secure_channel(where.address, where.credentials, where.options)
        self.stubs = Stubs(self._channel)

    async def await_service(self, seconds: float) -> None:
        """Wait until the service is ready; raises the last error after so many seconds, and closes the connection."""
        until = time.monotonic() + seconds
        health = health_pb2_grpc.HealthStub(self._channel)
        while True:
            left = max(until - time.monotonic(), SHORTEST_WAIT)
            try:
                found = await health.Check(health_pb2.HealthCheckRequest(), timeout=left)
                if found.status == health_pb2.HealthCheckResponse.SERVING:
                    return
                problem: PromisingError = Unavailable(f"the service at {self.place.address} is not ready")
            except grpc.RpcError as error:
                problem = self.problem(error)
            if time.monotonic() + SHORTEST_WAIT >= until:
                await self.close()
                raise Unavailable(f"{problem}; waited {seconds:g} s")
            await asyncio.sleep(SHORTEST_WAIT)

    async def ask(self, ask: Ask[T]) -> T:
        """A call with one response."""

        async def once() -> T:
            return ask.read(await self.start(ask.of(self.stubs), ask.request, self.timeout))

        return await self.tried(once, ask.again)

    async def gather(self, ask: Ask[T]) -> T:
        """A call whose response is streamed; waits for all parts."""

        async def once() -> T:
            call = self.start(ask.of(self.stubs), ask.request, self.timeout)
            return ask.read([part async for part in call])

        return await self.tried(once, ask.again)

    async def tried(self, once: Callable[[], Awaitable[T]], again: bool = True) -> T:
        """The result of a call, retried if that may help and `again` allows it."""
        tries = 0
        while True:
            try:
                return await once()
            except grpc.RpcError as error:
                problem = self.problem(error)
            except asyncio.CancelledError:
                self.check_open()
                raise
            tries += 1
            if not again:
                raise problem
            await self.wait(tries, problem)

    def start(self, method: Any, *request: Any) -> Any:
        """Start a call: with a request and a timeout, or with neither, to write to it."""
        self.check_open()
        if not request:
            return method(metadata=self.place.metadata)
        message, timeout = request
        return method(message, timeout=timeout, metadata=self.place.metadata)

    def check_open(self) -> None:
        """Raise if closed. Closing cancels calls as asyncio cancels tasks; callers need the reason instead."""
        if self.closed and not is_cancelled():
            raise Unavailable(CLOSED)

    async def wait(self, tries: int, problem: PromisingError) -> None:
        """Wait before the next try, or raise the last error."""
        pause = None if self.closed else self.retries.pause(tries, problem)
        if pause is None:
            raise problem
        await asyncio.sleep(pause)

    def problem(self, error: grpc.RpcError) -> PromisingError:
        """The error of a call."""
        return Unavailable(CLOSED) if self.closed else self.place.problem(error)

    async def close(self) -> None:
        """Close the connection and all open calls."""
        self.closed = True
        await self._channel.close(None)


async def first_of(call: Any, what: str) -> Any:
    """The next response of a call that must have one."""
    found = await call.read()
    if found is EOF:
        raise InternalError(f"the service ended {what} without an answer")
    return found


def is_cancelled() -> bool:
    """Whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
