"""SHOW STREAMS and SHOW SUMMARIES, without Arrow."""

from datetime import datetime, timedelta
from typing import Any

from promising import wire_times
from promising.client.connection import Ask
from promising.v1 import streams_pb2, summaries_pb2

EPOCH = datetime(1970, 1, 1)


def list_streams() -> Ask[list[dict[str, Any]]]:
    """A row for each stream, as in SHOW STREAMS, but with the names of its summaries."""

    def row(told: streams_pb2.Stream) -> dict[str, Any]:
        return {
            "name": told.name,
            "time": told.time_column,
            "tuples": told.tuples,
            "refused": sum(told.refused.values()),
            "watermark": _instant(wire_times.micros(told.watermark)) if told.HasField("watermark") else None,
            "keep": timedelta(microseconds=wire_times.span_micros(told.keep)) if told.HasField("keep") else None,
            "bytes": told.bytes,
            "summaries": sorted(told.summaries, key=str.lower),
        }

    return Ask("streams", "ListStreams", streams_pb2.ListStreamsRequest(), lambda told: list(map(row, told.streams)))


def list_summaries() -> Ask[list[dict[str, Any]]]:
    """A row for each summary, as in SHOW SUMMARIES."""
    from promising import wire  # noqa: PLC0415  # numpy: only if called

    def row(told: summaries_pb2.Summary) -> dict[str, Any]:
        described = wire.description_from(told)
        return {
            "name": described.name,
            "stream": told.stream,
            "key": described.key,
            "structure": described.structure_text,
            "using": described.using,
            "granularity": timedelta(microseconds=described.spans[0]),
            "granularities": len(described.spans),
            "zones": told.zone_count,
            "tuples": described.tuples,
            "bytes": described.bytes,
            "ceiling": described.ceiling,
            "measures": ", ".join(described.measures),
            "postings": "on" if described.postings else "off",
            "building": described.building,
            "statement": told.statement,
        }

    asked = summaries_pb2.ListSummariesRequest()
    return Ask("summaries", "ListSummaries", asked, lambda told: list(map(row, told.summaries)))


def _instant(micros: int) -> datetime | str:
    """An instant in UTC; as text if Python does not support the year."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        from promising.index.time_text import instant  # noqa: PLC0415  # numpy: rarely needed

        return instant(micros)
