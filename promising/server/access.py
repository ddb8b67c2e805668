"""Authentication, authorisation and accounting: every call passes through here."""

import asyncio
import contextlib
import inspect
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
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
from promising.server.access_tokens import Caller, TokenStore
from promising.server.metrics import Metrics
from promising.settings import Settings

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

RETRY = 1.0  # seconds to retry after at overload
LATE = 0.05  # seconds: a call cancelled so close to its deadline counts as expired; the client's clock fires first
OURS = "/promising."  # prefix of our own methods
OTHER = "other"  # label of all unknown methods
LOCAL = Caller("local", frozenset({"admin"}))
ANONYMOUS = Caller("anonymous", frozenset())

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
    """Authenticates callers, and accounts for every call to its end.

    The caller is identified by the token in the metadata; without one, by the client certificate, if these are
    required; without either configured, everyone is the local admin. Unauthorised calls are refused before the request
    is read. Each call is counted, timed and logged once, with its status code. A PromisingError of a handler becomes
    its status; any other exception is an internal error, with an id to find it in the log.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._metrics = metrics
        self._most = settings.limits.max_calls
        self.under_way = 0
        """Calls of our own services whose end, with all responses, has not reached the client."""
        self.closed = False
        """Whether new calls of our own services are refused."""
        self._others: set[asyncio.Task[Any]] = set()  # calls not awaited at shutdown
        self._ending = False  # whether these are being ended
        self._tokens = None if settings.auth.tokens is None else TokenStore(settings.auth.tokens)
        if self._tokens is not None:
            self._tokens.list()  # an unusable token file stops the server's start, instead of refusing clients later
        self._certificates = settings.tls.client_ca is not None
        self._certificate_roles = frozenset({settings.tls.client_role})

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
        who: Caller | None = ANONYMOUS
        try:
            if allowed != "open":
                who = self._known(details.invocation_metadata)
                if allowed != "any":
                    _require(who or Caller("the certificate", self._certificate_roles), allowed)
            if self.closed and method.startswith(OURS):
                raise Unavailable("the service is shutting down; ask again in a moment")
            if self.under_way >= self._most and method.startswith(OURS):
                raise LimitReached(f"{self._most:,} calls are open, which is all this service takes", RETRY)
        except PromisingError as problem:
            return self._refusing(method, who, problem)
        return self._watched(method, found, who)

    def close_watchers(self) -> int:
        """End the calls that are not of our own services; returns how many of our own are open."""
        self._ending = True
        for task in self._others:
            task.cancel()
        return self.under_way

    def close(self) -> None:
        """Close the token file."""
        if self._tokens is not None:
            self._tokens.close()

    # --- authentication ----------------------------------------------------------------------------------------

    def _known(self, metadata: Any) -> Caller | None:
        """The caller by token; None if by certificate, which only the running call can show."""
        if self._tokens is None:
            return None if self._certificates else LOCAL
        given = [value for key, value in metadata if key == "authorization"]
        if not given and self._certificates:
            return None
        if not given:
            raise Unauthenticated("this service asks for a token: send the metadata `authorization: Bearer <token>`")
        scheme, _, secret = str(given[0]).partition(" ")
        found = self._tokens.check(secret.strip()) if len(given) == 1 and scheme.lower() == "bearer" else None
        if found is None:
            raise Unauthenticated("the token is not known, was revoked or has expired")
        return found

    def _certified(self, context: Context) -> Caller:
        names = list(context.auth_context().get("x509_common_name", ()))
        if not names or not names[0]:
            raise Unauthenticated("the client's certificate has no common name to know it by")
        return Caller(names[0].decode("utf-8", "replace"), self._certificate_roles)

    # --- around a call -----------------------------------------------------------------------------------------

    def _refusing(self, method: str, who: Caller | None, problem: PromisingError) -> Handler:
        """A handler that refuses. It is stream-typed for every method, so that no request is awaited."""

        async def refuse(request: object, context: Context) -> None:
            await self._watch(method, who, context, _raised(problem), waited_for=False)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _watched(self, method: str, found: Handler, who: Caller | None) -> Handler:
        """The wrapped handler. One that yields its responses becomes one that writes them, so that it can be closed."""
        parse = _parsing(found.request_deserializer)
        ways = ["stream" if streams else "unary" for streams in (found.request_streaming, found.response_streaming)]
        kind = "_".join(ways)
        inner: Any = getattr(found, kind)
        yields = inspect.isasyncgenfunction(inner)
        late = None if found.request_streaming else parse

        async def run(request: Any, context: Context) -> Any:
            if late is not None:
                request = late(request)
            if not yields:
                return await inner(request, context)
            async with contextlib.aclosing(inner(request, context)) as responses:
                async for response in responses:
                    await context.write(response)
            return None

        async def watched(request: Any, context: Context) -> Any:
            return await self._watch(method, who, context, run(request, context))

        make = getattr(grpc, f"{kind}_rpc_method_handler")
        # An undecodable request is refused inside the call, where it is accounted for: a unary one is read there.
        handler: Handler = make(watched, None if late else parse, found.response_serializer)
        return handler

    async def _watch(
        self,
        method: str,
        who: Caller | None,
        context: Context,
        call: Coroutine[Any, Any, Any],
        waited_for: bool = True,
    ) -> Any:
        """Run a call to its end and account for it."""
        began = time.monotonic()
        code = grpc.StatusCode.UNKNOWN
        if not method.startswith(OURS):
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            self._others.add(task)
            task.add_done_callback(self._others.discard)
        elif waited_for:
            self.under_way += 1
            context.add_done_callback(self._left)  # type: ignore[arg-type]  # the stubs expect a class for a function
        try:
            try:
                if who is None:
                    who = self._certified(context)
                _caller.set(who)
                response = await call
                code = _code(context, grpc.StatusCode.OK)
                return response
            except PromisingError as problem:
                code = wire_errors.code_of(problem)
                if code is grpc.StatusCode.INTERNAL:
                    raise
                await wire_errors.abort(context, problem)
        except asyncio.CancelledError:
            if self._ending and asyncio.current_task() in self._others:  # by us: gRPC would leave the call open
                code = grpc.StatusCode.UNAVAILABLE
                with contextlib.suppress(grpc.aio.InternalError):  # the client disconnected at that moment
                    await wire_errors.abort(context, Unavailable("the service is shutting down"))
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
            self._ended(method, code, began, who or ANONYMOUS, context)

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
