"""The CREATE SUMMARY statement that an error suggests: it fits the span of its stream, and can be pasted."""

from sqlglot import exp

from promising.index import Stream
from promising.query.sql import generate

UNITS = ((86_400, "DAY"), (3_600, "HOUR"), (60, "MINUTE"), (1, "SECOND"))
NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)  # seconds
ZONES = 1000  # wanted over the span of a stream
USUAL = 60  # seconds, where the span is unknown


def suggested_granularity(span: int | None) -> str:
    """About a thousandth of a span in microseconds, rounded up to a usual one between a second and a day.

    >>> suggested_granularity(None), suggested_granularity(0), suggested_granularity(2 * 365 * 86_400 * 1_000_000)
    ('1 MINUTE', '1 SECOND', '1 DAY')
    """
    wanted = USUAL if span is None else span / ZONES / 1e6
    seconds = next((nice for nice in NICE if nice >= wanted), NICE[-1])
    size, unit = next((size, unit) for size, unit in UNITS if seconds % size == 0)
    many = seconds // size
    return f"{many} {unit}{'S' if many > 1 else ''}"


def suggested_summary(stream: Stream, column: str) -> str:
    """A statement that creates a summary on a column; its name is one that the stream does not use."""
    with stream.reading() as log:
        _, _, earliest, latest = log.spans()
    span = int(latest.max()) - int(earliest.min()) if len(latest) else None
    taken = {name.lower() for name in stream.summaries}
    name = base = f"{stream.name}_{column}"
    number = 1
    while name.lower() in taken:
        number += 1
        name = f"{base}_{number}"
    named, on, key = (generate(exp.to_identifier(text)) for text in (name, stream.name, column))
    granularity = suggested_granularity(span)
    return f"CREATE SUMMARY {named} ON {on} ({key}) WITH GRANULARITY {granularity} AND COLLAPSE (4, 5)"
