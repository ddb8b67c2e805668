"""Authentication, authorisation and accounting: every call passes through here."""

import asyncio
import contextlib
import inspect
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, cast

import grpc

from promising import wire_errors
from promising.errors import (
    BadRequest,
    Forbidden,
    InternalError,
    LimitReached,
    PromisingError,
    Unauthenticated,
    Unavailable,
)
from promising.server import logs
from promising.server.access_tokens import Caller
from promising.server.authentication import Authentication, Known
from promising.server.metrics import Metrics
from promising.server.open_calls import RETRY, Calls

__all__ = ["METHODS", "AccessInterceptor", "Caller", "caller", "fault", "require"]

if TYPE_CHECKING:  # gRPC's own classes are not generic
    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]
    Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    Context, Handler, Interceptor = grpc.aio.ServicerContext, grpc.RpcMethodHandler, grpc.aio.ServerInterceptor

Allowed = frozenset[str] | Literal["any", "open"]

_ADMIN, _INGEST, _QUERY = frozenset({"admin"}), frozenset({"ingest"}), frozenset({"query"})
_BY_SERVICE: dict[str, dict[str, Allowed]] = {
    "promising.v1.StreamService": {
        "CreateStream": _ADMIN,
        "ListStreams": "any",
        "DescribeStream": "any",
        "DropStream": _ADMIN,
        "Advance": _INGEST,
        "Ingest": _INGEST,
        "PlanLoad": _INGEST,
        "Attach": _INGEST,
    },
    "promising.v1.SummaryService": {
        "CreateSummary": _ADMIN,
        "ListSummaries": "any",
        "DescribeSummary": "any",
        "DropSummary": _ADMIN,
        "Estimate": _QUERY,
        "Regions": _QUERY,
        "Story": _QUERY,
    },
    "promising.v1.QueryService": {
        "Execute": "any",  # the role depends on the statement; the servicer checks it by `require`
        "Query": _QUERY,
        "CancelQuery": _QUERY,
        "QueryBatch": _QUERY,
        "Probe": _QUERY,
        "Explain": _QUERY,
        "PlanScan": _QUERY,
        "Fetch": _QUERY,
        "Subscribe": _QUERY,
        "LoadTable": _INGEST,
        "ReadTable": _QUERY,
    },
    "promising.v1.AdminService": {
        "GetVersion": "any",
        "GetConfig": _ADMIN,
        "GetStats": "any",
        "ListQueries": _ADMIN,
        "ListStanding": _QUERY,
    },
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": "any"},
    "grpc.reflection.v1.ServerReflection": {"ServerReflectionInfo": "any"},
    "grpc.health.v1.Health": {"Check": "open", "Watch": "open", "List": "open"},
}
METHODS: dict[str, Allowed] = {
    f"/{service}/{method}": allowed for service, methods in _BY_SERVICE.items() for method, allowed in methods.items()
}
"""Roles by full method: "any" for all authenticated callers, "open" for everyone. Other methods are closed."""

LATE = 0.05  # seconds: a call cancelled so close to its deadline counts as expired; the client's clock fires first
OURS = "/promising."  # prefix of our own methods
OTHER = "other"  # label of all unknown methods
ENDED = "the token was revoked or has expired, which ends its calls"
ANONYMOUS = Caller("anonymous", frozenset(), "nothing")

_caller: ContextVar[Caller] = ContextVar("caller")


def caller() -> Caller:
    """The caller of the current call."""
    return _caller.get()


def require(role: str) -> None:
    """Raise Forbidden unless the caller has the role."""
    _require(caller(), frozenset({role}))


def _require(who: Caller, roles: frozenset[str]) -> None:
    if not any(who.may(role) for role in roles):
        has = " and ".join(sorted(who.roles)) or "none"
        raise Forbidden(f"this needs the role {' or '.join(sorted(roles))}; {who.name} has {has}")


class AccessInterceptor(Interceptor):
    """Asks who calls, and accounts for every call to its end.

    Unauthorised calls are refused before the request is read; those whose token is revoked while they run are ended.
    Each call is counted, timed and logged once, with its status code. A PromisingError of a handler becomes its status;
    any other exception is an internal error, with an id to find it in the log.

    watches: limits the streams of gRPC's own services, such as health watches, which need no token.
    most: calls of our own services at one time; with more, gRPC would drop some without a reason.
    """

    def __init__(self, authentication: Authentication, metrics: Metrics, watches: Calls, most: int) -> None:
        self._authentication = authentication
        self._metrics = metrics
        self._most = most
        self._watches = watches
        self.under_way = 0
        """Calls of our own services whose end, with all responses, has not reached the client."""
        self.closed = False
        """Whether new calls of our own services are refused."""
        self._others: set[asyncio.Task[Any]] = set()  # calls not awaited at shutdown
        self._ending = False  # whether these are being ended
        self._by_token: dict[tuple[str, Caller], set[asyncio.Task[Any]]] = {}  # open calls by secret
        self._revoked: set[asyncio.Task[Any]] = set()  # calls being ended

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """The wrapped handler of a method; one that refuses if the caller is not authorised."""
        began = time.monotonic()
        found: Handler | None = await continuation(details)
        method = details.method if details.method in METHODS else OTHER
        if found is None:
            self._ended(method, grpc.StatusCode.UNIMPLEMENTED, began, ANONYMOUS, None)
            return found  # type: ignore[return-value]  # gRPC responds that there is no such method
        allowed = METHODS.get(details.method, frozenset())
        known = Known(ANONYMOUS)
        try:
            if allowed != "open":
                known = await self._authentication.known(details.invocation_metadata)
                if allowed != "any":
                    _require(known.caller or self._authentication.by_certificate, allowed)
            if self.closed and method.startswith(OURS):
                raise Unavailable("the service is shutting down; ask again in a moment")
            if self.under_way >= self._most and method.startswith(OURS):
                raise LimitReached(f"{self._most:,} calls are open, which is all this service takes", RETRY)
        except PromisingError as problem:
            return self._refusing(method, known, problem)
        return self._watched(method, found, known)

    def close_watchers(self) -> int:
        """End the calls that are not of our own services; returns how many of our own are open."""
        self._ending = True
        for task in self._others:
            task.cancel()
        return self.under_way

    @property
    def revoked(self) -> int:
        """Calls that were ended with their token, and whose client has not read so far."""
        return len(self._revoked)

    def end_revoked(self) -> int:
        """End the calls whose token is no longer valid; returns how many."""
        gone = [tasks for (secret, who), tasks in self._by_token.items() if not self._authentication.holds(secret, who)]
        tasks = set().union(*gone) - self._revoked
        for task in tasks:
            self._revoked.add(task)
            task.cancel()
        return len(tasks)

    # --- around a call -----------------------------------------------------------------------------------------

    def _refusing(self, method: str, known: Known, problem: PromisingError) -> Handler:
        """A handler that refuses. It is stream-typed for every method, so that no request is awaited."""

        async def refuse(request: object, context: Context) -> None:
            await self._watch(method, Known(known.caller), context, _raised(problem), waited_for=False)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _watched(self, method: str, found: Handler, known: Known) -> Handler:
        """The wrapped handler. One that yields its responses becomes one that writes them, so that it can be closed."""
        parse = _parsing(found.request_deserializer)
        ways = ["stream" if streams else "unary" for streams in (found.request_streaming, found.response_streaming)]
        kind = "_".join(ways)
        inner: Any = getattr(found, kind)
        yields = inspect.isasyncgenfunction(inner)
        late = None if found.request_streaming else parse
        limited = found.response_streaming and not method.startswith(OURS)

        async def run(request: Any, context: Context) -> Any:
            if late is not None:
                request = late(request)
            with self._limited(known, context) if limited else contextlib.nullcontext():
                if not yields:
                    return await inner(request, context)
                async with contextlib.aclosing(inner(request, context)) as responses:
                    async for response in responses:
                        await context.write(response)
            return None

        async def watched(request: Any, context: Context) -> Any:
            return await self._watch(method, known, context, run(request, context))

        make = getattr(grpc, f"{kind}_rpc_method_handler")
        # An undecodable request is refused inside the call, where it is accounted for: a unary one is read there.
        handler: Handler = make(watched, None if late else parse, found.response_serializer)
        return handler

    def _limited(self, known: Known, context: Context) -> contextlib.AbstractContextManager[object]:
        """Admits a stream of gRPC's own services; without a token, per address."""
        peer = Caller(context.peer().rpartition(":")[0], frozenset(), "address")
        return self._watches.admitted(peer if known.secret is None else caller())

    async def _watch(
        self,
        method: str,
        known: Known,
        context: Context,
        call: Coroutine[Any, Any, Any],
        waited_for: bool = True,
    ) -> Any:
        """Run a call to its end and account for it."""
        began = time.monotonic()
        code = grpc.StatusCode.UNKNOWN
        who = known.caller
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        if not method.startswith(OURS):
            self._others.add(task)
        elif waited_for:
            self.under_way += 1
            context.add_done_callback(self._left)  # type: ignore[arg-type]  # the stubs expect a class for a function
        try:
            try:
                if who is None:
                    who = self._authentication.certified(context)
                _caller.set(who)
                with self._held(known.secret, who, task):
                    if known.secret is not None and await self._authentication.check(known.secret) != who:
                        raise Unauthenticated(ENDED)  # revoked while the request was on its way
                    response = await call
                code = _code(context, grpc.StatusCode.OK)
                return response
            except PromisingError as problem:
                code = wire_errors.code_of(problem)
                if code is grpc.StatusCode.INTERNAL:
                    raise
                await wire_errors.abort(context, problem)
        except asyncio.CancelledError:
            ended: PromisingError | None = None  # by us: gRPC would leave the call open
            if task in self._revoked:
                ended = Unauthenticated(ENDED)
            elif self._ending and task in self._others:
                ended = Unavailable("the service is shutting down")
            if ended is not None:
                code = wire_errors.code_of(ended)
                # The client disconnected at that moment, or the call was just being aborted.
                with contextlib.suppress(grpc.aio.InternalError, grpc.aio.UsageError):
                    await wire_errors.abort(context, ended)
            # Never swallowed: gRPC releases a cancelled call only if its handler ends with this.
            code = _code(context, code)  # set, if it was aborted just before
            if code is grpc.StatusCode.UNKNOWN:  # else the client has its response, and left before we were notified
                left: float | None = context.time_remaining()
                late = left is not None and left < LATE
                code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.AbortError:
            code = _code(context, code)
            raise
        except grpc.aio.BaseError as problem:
            # The client disconnected, or the server stopped, during a write; or we misused gRPC.
            if isinstance(problem, grpc.aio.UsageError):
                code = grpc.StatusCode.INTERNAL
                raise
            code = grpc.StatusCode.CANCELLED
            raise asyncio.CancelledError from None
        except Exception as problem:
            code = grpc.StatusCode.INTERNAL
            await wire_errors.abort(
                context, InternalError(f"a fault of the service; its log has it as {fault(problem)}")
            )
        finally:
            call.close()  # if it never began; else without effect
            self._others.discard(task)  # at once: what ended is not ended again while its response is being sent
            self._revoked.discard(task)
            self._ended(method, code, began, who or ANONYMOUS, context)

    @contextlib.contextmanager
    def _held(self, secret: str | None, who: Caller, task: "asyncio.Task[Any]") -> Iterator[None]:
        """Registers a call with its token."""
        if secret is None:
            yield
            return
        tasks = self._by_token.setdefault((secret, who), set())
        tasks.add(task)
        try:
            yield
        finally:
            tasks.discard(task)
            if not tasks:
                self._by_token.pop((secret, who), None)

    def _left(self, context: Context) -> None:
        self.under_way -= 1

    def _ended(self, method: str, code: grpc.StatusCode, began: float, who: Caller, context: Context | None) -> None:
        seconds = time.monotonic() - began
        self._metrics.rpcs_total.labels(method, code.name).inc()
        self._metrics.rpc_seconds.labels(method).observe(seconds)
        logs.event(
            "rpc",
            level=logging.DEBUG if METHODS.get(method) == "open" else logging.INFO,
            method=method,
            code=code.name,
            seconds=seconds,
            client=who.name,
            peer=None if context is None else context.peer(),
        )


async def _raised(problem: PromisingError) -> None:
    raise problem


def _parsing(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    def parsed(message: bytes) -> Any:
        if parse is None:
            return message
        try:
            return parse(message)
        except Exception:
            raise BadRequest("the request is not a message of this call") from None

    return parsed


def _code(context: Context, otherwise: grpc.StatusCode) -> grpc.StatusCode:
    """The status code that a handler has set itself, possibly as a number."""
    code: Any = context.code()
    if isinstance(code, int):
        return next((known for known in grpc.StatusCode if known.value[0] == code), grpc.StatusCode.UNKNOWN)
    return code or otherwise


def fault(problem: BaseException) -> str:
    """Log the origin of an unexpected error; returns its id in the log."""
    number = secrets.token_hex(4)
    logs.event("fault", level=logging.ERROR, log_id=number, error=type(problem).__name__, frames=logs.frames(problem))
    return number
