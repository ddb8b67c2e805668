"""Errors on the wire: each class of `promising.errors` as a gRPC status with details, and back."""

import re
from typing import Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2

from promising import errors
from promising.errors import PromisingError, StatementError

DOMAIN = "promising"
DETAILS = "grpc-status-details-bin"
LENGTHS = (2000, 1000, 500, 200)  # of a message, in characters: the first that fits is used
ROOM = 7000  # maximum bytes of an error in trailers; clients refuse calls with more than 8192 in total

CODES: dict[type[PromisingError], grpc.StatusCode] = {
    errors.StatementError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.BatchError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.DefinitionError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.BadQuestion: grpc.StatusCode.INVALID_ARGUMENT,
    errors.BadWindow: grpc.StatusCode.INVALID_ARGUMENT,
    errors.BadToken: grpc.StatusCode.INVALID_ARGUMENT,
    errors.BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NoSuchName: grpc.StatusCode.NOT_FOUND,
    errors.UnknownName: grpc.StatusCode.NOT_FOUND,
    errors.UnknownMeasure: grpc.StatusCode.NOT_FOUND,
    errors.DuplicateName: grpc.StatusCode.ALREADY_EXISTS,
    errors.InUse: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NoSummary: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Unsupported: grpc.StatusCode.UNIMPLEMENTED,
    errors.TokenExpired: grpc.StatusCode.OUT_OF_RANGE,
    errors.SequenceTooOld: grpc.StatusCode.OUT_OF_RANGE,
    errors.ProducerFenced: grpc.StatusCode.FAILED_PRECONDITION,
    errors.CeilingReached: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.CeilingTooLow: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.DuplicateKey: grpc.StatusCode.ALREADY_EXISTS,
    errors.MissingKey: grpc.StatusCode.NOT_FOUND,
    errors.TableFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.BatchTooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.LimitReached: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.StorageFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StorageUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.StoreInUse: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NewerFormat: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NotAStore: grpc.StatusCode.FAILED_PRECONDITION,
    errors.DataDamaged: grpc.StatusCode.DATA_LOSS,
    errors.BadPackage: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TokenReused: grpc.StatusCode.ALREADY_EXISTS,
    errors.PromisingError: grpc.StatusCode.INTERNAL,
}
"""By class; other classes have the code of their nearest base."""

CLASSES: dict[str, type[PromisingError]] = {}
"""By the name on the wire, `reason_of` of the class."""


def reason_of(kind: type[PromisingError]) -> str:
    """The name of an error on the wire.

    >>> reason_of(errors.NaNKey), reason_of(errors.UnknownColumn), reason_of(errors.NotAStore)
    ('NAN_KEY', 'UNKNOWN_COLUMN', 'NOT_A_STORE')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind.__name__.replace("NaN", "Nan")).upper()


CLASSES.update(
    {reason_of(c): c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, PromisingError)}
)


def code_of(problem: PromisingError) -> grpc.StatusCode:
    """The status code of an error."""
    return next(CODES[kind] for kind in type(problem).__mro__ if kind in CODES)


def to_status(problem: PromisingError) -> status_pb2.Status:
    """An error with its details: ErrorInfo always, BadRequest and RetryInfo where they apply.

    Texts that do not fit into the trailers of a call are truncated.
    """
    made = (_status(problem, longest) for longest in LENGTHS)
    return next((status for status in made if _size(status) <= ROOM), _status(problem, LENGTHS[-1]))


def _status(problem: PromisingError, longest: int) -> status_pb2.Status:
    def short(text: str) -> str:
        return text if len(text) <= longest else text[: longest - 3] + "..."

    info = error_details_pb2.ErrorInfo(reason=reason_of(type(problem)), domain=DOMAIN)
    details: list[Any] = [info]
    violation = None
    if isinstance(problem, StatementError):
        info.metadata["problem"] = short(problem.problem)
        if problem.line is not None and problem.column is not None:
            info.metadata.update({"line": str(problem.line), "column": str(problem.column)})
            violation = ("sql", problem.problem)
    elif isinstance(problem, errors.BatchError):
        violation = ("arrow", str(problem))
    elif isinstance(problem, errors.BadRequest):
        info.metadata["field"] = problem.field
        violation = (problem.field, str(problem))
    elif isinstance(problem, errors.LimitReached) and problem.retry_seconds is not None:
        info.metadata["retry_seconds"] = repr(problem.retry_seconds)
        details.append(error_details_pb2.RetryInfo(retry_delay=_duration(problem.retry_seconds)))
    elif isinstance(problem, errors.Unavailable | errors.StorageFull | errors.StorageUnavailable):
        details.append(error_details_pb2.RetryInfo(retry_delay=_duration(1.0)))
    if violation is not None:
        field, description = violation
        bad = error_details_pb2.BadRequest()
        bad.field_violations.add(field=field, description=short(description))
        details.append(bad)
    packed = []
    for detail in details:
        packed.append(Packed())
        packed[-1].Pack(detail)
    return status_pb2.Status(code=code_of(problem).value[0], message=short(str(problem)), details=packed)


def _size(status: status_pb2.Status) -> int:
    """Bytes of a status in trailers: its message percent-encoded, and all of it in base64."""
    message = sum(1 if 32 <= byte < 127 and byte != 37 else 3 for byte in status.message.encode())
    return int(message + status.ByteSize() * 4 // 3)


async def abort(context: "grpc.aio.ServicerContext[Any, Any]", problem: PromisingError) -> NoReturn:
    """End a call with an error and its details."""
    status = to_status(problem)
    await context.abort(code_of(problem), status.message, ((DETAILS, status.SerializeToString()),))


def from_rpc_error(problem: grpc.RpcError) -> PromisingError:
    """The error of a call, as a local session would raise it."""
    call: Any = problem
    for key, value in call.trailing_metadata() or ():
        if key == DETAILS:
            status = status_pb2.Status.FromString(value)
            found = from_status(status) or _plain(call.code(), call.details() or "")
            if isinstance(found, errors.LimitReached) and (delay := _delay(status)) is not None:
                found.retry_seconds = delay
            return found
    return _plain(call.code(), call.details() or "")


def _delay(status: status_pb2.Status) -> float | None:
    """The seconds after which to retry, if that helps."""
    for detail in status.details:
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
    return None


def was_told(problem: grpc.RpcError) -> bool:
    """Whether the service itself ended the call: its errors have details, those of gRPC have none."""
    call: Any = problem
    return any(key == DETAILS for key, _ in call.trailing_metadata() or ())


def from_status(status: status_pb2.Status) -> PromisingError | None:
    """The error of a status with our ErrorInfo; None for any other."""
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            return rebuild(info.reason, status.message, dict(info.metadata))
    return None


def rebuild(reason: str, message: str, metadata: dict[str, str] | None = None) -> PromisingError:
    """An error from its name, message and attributes."""
    told = metadata or {}
    kind = CLASSES.get(reason, errors.ServiceError)
    made = kind.__new__(kind)
    Exception.__init__(made, message)
    if isinstance(made, StatementError):
        made.problem = told.get("problem", message)
        made.line = int(told["line"]) if "line" in told else None
        made.column = int(told["column"]) if "column" in told else None
    if isinstance(made, errors.LimitReached):
        made.retry_seconds = float(told["retry_seconds"]) if "retry_seconds" in told else None
    if isinstance(made, errors.BadRequest):
        made.field = told.get("field", "")
    return made


BROKEN = ("RST_STREAM", "GOAWAY", "Stream removed", "Socket closed")
"""Messages of gRPC, under various codes, when a service disconnects during a call."""


def _plain(code: grpc.StatusCode, details: str) -> PromisingError:
    """An error raised by gRPC itself."""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return errors.Unsupported(f"the service does not know this call: {details}")
    vague = code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
    if vague and any(word in details for word in BROKEN):
        return errors.Unavailable(details)
    kinds: dict[grpc.StatusCode, type[PromisingError]] = {
        grpc.StatusCode.RESOURCE_EXHAUSTED: errors.LimitReached,
        grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
        grpc.StatusCode.CANCELLED: errors.Unavailable,  # no caller here cancels a call and reads its status
        grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
        grpc.StatusCode.PERMISSION_DENIED: errors.Forbidden,
        grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
        grpc.StatusCode.INVALID_ARGUMENT: errors.BadRequest,
        grpc.StatusCode.INTERNAL: errors.InternalError,
    }
    return kinds.get(code, errors.ServiceError)(details or code_pb2.Code.Name(code.value[0]).lower())


def _duration(seconds: float) -> Duration:
    whole, nanos = divmod(round(seconds * 1e9), 1_000_000_000)
    return Duration(seconds=whole, nanos=nanos)
