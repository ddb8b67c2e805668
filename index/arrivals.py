"""The tuples of a stream by arrival number."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from promising.errors import BadQuestion, TokenExpired
from promising.index.stream import Stream

FETCHED = 1 << 14  # tuples read under one lock of the stream


def fetch(stream: Stream, first: int, last: int, columns: list[str]) -> Iterator[pa.Table]:
    """The tuples from arrival `first` up to `last`, exclusive, in order of arrival.

    The stream advances between slices. Tuples that become cold are read from disk; an evicted one raises TokenExpired.
    """
    if not columns:
        raise BadQuestion("no columns are asked for")
    if not 0 <= first <= last:
        raise BadQuestion(f"arrivals go from a first to a last, not from {first!r} to {last!r}")
    with stream.reading() as log:
        names = log.names(columns)
        if last > log.arrived:
            raise BadQuestion(f"stream {stream.name!r} has had {log.arrived:,} arrivals, and not yet {last:,}")
    at = first
    while at < last:
        with stream.reading() as log:
            starts, used, _, _ = log.spans()
            bases, _, _ = log.homes()
            slot = int(np.searchsorted(bases, at, side="right")) - 1
            if slot < 0 or at >= bases[slot] + used[slot]:
                raise TokenExpired(
                    f"stream {stream.name!r} has removed the tuple that arrived as number {at}; plan the scan again"
                )
            row = int(starts[slot] + at - bases[slot])
            size = min(last - at, int(bases[slot] + used[slot]) - at, FETCHED)
            table = log.take(np.arange(row, row + size, dtype=np.int32), names)
        yield table
        at += size
