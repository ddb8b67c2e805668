"""Errors on the wire: what goes in comes out, whatever the class, and fits where it has to."""

import grpc
import pytest
from google.rpc import error_details_pb2
from hypothesis import given
from hypothesis import strategies as st

from promising import errors, wire_errors, wire_times
from promising.errors import BadRequest, LimitReached, PromisingError, StatementError

CLASSES = sorted(wire_errors.CLASSES.values(), key=lambda kind: kind.__name__)
FAULTS = {  # nothing that a client sends leads to these; if one comes up, it is a fault
    errors.PromisingError,
    errors.BadSize,
    errors.Incompatible,
    errors.CannotSubtract,
    errors.CorruptSummary,
    errors.NotContained,
    errors.ServiceError,
    errors.InternalError,
    errors.BadSettings,
    errors.StorageError,
    errors.LoadError,
    errors.BadSource,
    errors.MixedZones,
    errors.NothingToLoad,
    errors.SourceChanged,
}
TEXT = st.text(st.characters(codec="utf-8"), max_size=60)


@st.composite
def problems(draw):
    """An error of any class, with all that its class knows."""
    kind = draw(st.sampled_from(CLASSES))
    said = draw(TEXT)
    if issubclass(kind, StatementError):
        sql = draw(st.none() | TEXT)
        return kind(said, sql, None if sql is None else draw(st.integers(-1, len(sql) + 1)))
    if issubclass(kind, LimitReached):
        return kind(said, draw(st.none() | st.floats(0, 1e6)))
    if issubclass(kind, BadRequest):
        return kind(said, draw(TEXT))
    return kind(said)


def known(problem):
    """All that an error knows: its class, its text, its attributes."""
    return type(problem), str(problem), vars(problem)


@given(problems())
def test_every_error_survives_the_wire(problem):
    status = wire_errors.to_status(problem)
    assert known(wire_errors.from_status(status)) == known(problem)
    assert status.code == wire_errors.code_of(problem).value[0]
    assert wire_errors._size(status) <= wire_errors.ROOM


@given(problems(), st.sampled_from("aé€😀\n%"), st.integers(0, 100_000))
def test_however_long_it_fits_into_the_trailers(problem, letter, length):
    long = type(problem)("so: " + letter * length)
    status = wire_errors.to_status(long)
    assert wire_errors._size(status) <= wire_errors.ROOM
    back = wire_errors.from_status(status)
    assert type(back) is type(problem)
    told = str(back)
    assert told == str(long) or (told.endswith("...") and str(long).startswith(told[:-3]) and len(told) >= 200)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_has_a_code_on_purpose(kind):
    code = wire_errors.code_of(kind("no"))
    assert (code is grpc.StatusCode.INTERNAL) == (kind in FAULTS)


@given(st.floats(0, 1e6))
def test_when_to_try_again_is_a_duration_that_can_be(seconds):
    (_, packed) = wire_errors.to_status(LimitReached("full", seconds)).details
    retry = error_details_pb2.RetryInfo()
    assert packed.Unpack(retry)
    assert 0 <= retry.retry_delay.nanos < 1_000_000_000
    assert abs(wire_times.seconds(retry.retry_delay) - seconds) < 1e-6


@given(st.floats(-1e9, 1e9))
def test_seconds_become_a_duration_and_back(seconds):
    span = wire_times.duration(seconds)
    assert 0 <= span.nanos < 1_000_000_000
    assert abs(wire_times.seconds(span) - seconds) < 1e-6


def test_a_statement_error_without_a_place_names_no_field():
    (info,) = wire_errors.to_status(errors.NoSuchName("no query is open")).details
    assert info.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)


class _Ended(grpc.RpcError):
    """A call that gRPC itself ended."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    def trailing_metadata(self):
        return ()

    def code(self):
        return self._code

    def details(self):
        return self._details


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
@pytest.mark.parametrize("said", ["", "too many pings"])
def test_what_grpc_itself_says_is_an_error_of_ours(code, said):
    problem = wire_errors.from_rpc_error(_Ended(code, said))
    assert isinstance(problem, PromisingError)
    assert said in str(problem)
    assert str(problem)
    assert not wire_errors.was_told(_Ended(code, said))


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (grpc.StatusCode.CANCELLED, "", errors.Unavailable),
        (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2", errors.Unavailable),
        (grpc.StatusCode.UNKNOWN, "Stream removed", errors.Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Stream removed (Deadline Exceeded)", errors.DeadlineExceeded),
        (grpc.StatusCode.INTERNAL, "something else", errors.InternalError),
    ],
)
def test_a_service_that_goes_away_in_the_middle_of_a_call_can_be_tried_again(code, details, kind):
    assert type(wire_errors._plain(code, details)) is kind
