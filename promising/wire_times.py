"""Instants and durations as messages, and back."""

from datetime import timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

SECOND = 1_000_000
EARLIEST, LATEST = -62_135_596_800 * SECOND, 253_402_300_800 * SECOND - 1


def timestamp(micros: int) -> Timestamp:
    seconds, rest = divmod(int(micros), SECOND)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def shown(micros: int) -> Timestamp:
    """The nearest instant that the type is defined for, from year 1 to 9999: for libraries that check."""
    return timestamp(min(max(micros, EARLIEST), LATEST))


def micros(time: Timestamp) -> int:
    return time.seconds * SECOND + time.nanos // 1000


def duration(span: float | timedelta) -> Duration:
    """A duration given in seconds."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    whole, nanos = divmod(round(seconds * 1e9), 1_000_000_000)
    return Duration(seconds=whole, nanos=nanos)


def duration_of(span: int) -> Duration:
    """A duration given in microseconds."""
    seconds, rest = divmod(int(span), SECOND)
    return Duration(seconds=seconds, nanos=rest * 1000)


def seconds(span: Duration) -> float:
    return span.seconds + span.nanos / 1e9


def span_micros(span: Duration) -> int:
    return span.seconds * SECOND + span.nanos // 1000
