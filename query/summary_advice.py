"""The CREATE SUMMARY statement that an error suggests: it fits the span of its stream, and can be pasted."""

from sqlglot import exp

from promising.index import Stream
from promising.index.geometry import SHARE
from promising.index.time_text import SECOND, readable
from promising.query.catalog import Catalog
from promising.query.sql import generate

NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)  # seconds
ZONES = 1000  # wanted over the span of a stream
USUAL = 60  # seconds, where the span is unknown
BLOCKS = 1 << 15  # of LATENESS at most


def suggested_granularity(span: int | None, keep: int | None = None, lateness: int = 0) -> str:
    """About a thousandth of a span in microseconds, rounded up to a usual one between a second and a day.

    It is one that a stream of this KEEP and LATENESS accepts.

    >>> suggested_granularity(None), suggested_granularity(0), suggested_granularity(2 * 365 * 86_400 * 1_000_000)
    ('1 MINUTE', '1 SECOND', '1 DAY')
    >>> suggested_granularity(None, keep=100_000_000), suggested_granularity(None, keep=100)
    ('10 SECONDS', '12 MICROSECONDS')
    """
    most = NICE[-1] * SECOND if keep is None else keep // SHARE
    if most < SECOND:
        return readable(most).upper()
    wanted = max(USUAL if span is None else span / ZONES / SECOND, lateness / BLOCKS / SECOND)
    usual = [nice for nice in NICE if nice * SECOND <= most]
    return readable(next((nice for nice in usual if nice >= wanted), usual[-1]) * SECOND).upper()


def suggested_summary(catalog: Catalog, stream: Stream, column: str) -> str:
    """A statement that creates a summary on a column, under a name that is free."""
    with stream.reading() as log:
        _, _, earliest, latest = log.spans()
    span = int(latest.max()) - int(earliest.min()) if len(latest) else None
    name = base = f"{stream.name}_{column}"
    number = 1
    while catalog.what(name) is not None:
        number += 1
        name = f"{base}_{number}"
    named, on, key = (generate(exp.to_identifier(text)) for text in (name, stream.name, column))
    granularity = suggested_granularity(span, stream.keep, stream.lateness)
    return f"CREATE SUMMARY {named} ON {on} ({key}) WITH GRANULARITY {granularity} AND COLLAPSE (4, 5)"
