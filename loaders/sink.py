"""Writes rows of a DataFrame to a stream, exactly once even if tasks are retried.

A task collects the rows of its partition, sorts them by all columns and splits them into numbered batches. Another
attempt, later or concurrent, has the same rows and so the same batches, whatever their order after a shuffle. For a
known number, the service returns the earlier result and adds nothing.

The size of the first batch is derived from a digest of the partition's rows. An attempt with other rows, from a
nondeterministic plan, is mostly detected by its first batch, before it adds anything: nearly always with a hundred rows
or more, often not with a handful. So a plan must be deterministic.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from promising.errors import BatchError, BatchTooLarge, NullKey, NullTime, PromisingError
from promising.index.ledger import LONGEST_NAME
from promising.index.regions import Appended
from promising.index.schema import TYPES

GROUP = 8  # partitions that share a producer
BATCHES = 32  # per partition: times GROUP, as many as a service remembers of one producer
PRODUCERS = 512  # times GROUP * BATCHES, half of the results that a stream remembers
SMALL, LARGE = 4 << 20, 12 << 20  # bytes of a batch: desired and maximum
ROW = 16  # minimum bytes counted per row, so that a batch has fewer than 2^20 rows

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # set by Spark for tasks of a streaming query

log = logging.getLogger(__name__)


class Ingesting(Protocol):
    def ingest(
        self, stream: str, table: pa.Table, *, strict: bool, producer: str | None, sequence: int | None
    ) -> Appended: ...


Connect = Callable[[], AbstractContextManager[Ingesting]]


class OtherRows(BatchError):
    """A retried partition has other rows than in its first attempt."""

    reason = "other_rows"


@dataclass(frozen=True)
class Target:
    """Where rows are written.

    columns: of the stream, with type and name in the DataFrame. required: not null. strict: late or future rows fail.
    """

    connect: Connect
    stream: str
    columns: dict[str, tuple[str, str]]
    time: str
    required: tuple[str, ...]
    strict: bool


@dataclass(frozen=True)
class Place:
    """Identifies rows by job or streaming query, batch, and partition."""

    job: str
    batch: int
    partition: int

    def __post_init__(self) -> None:
        if self.partition >= GROUP * PRODUCERS:
            raise BatchError(
                f"partition {self.partition}: a service can distinguish at most {GROUP * PRODUCERS:,} partitions when "
                f"they are retried; write df.coalesce({GROUP * PRODUCERS // 4}), or load by `bulk_load`"
            )

    @property
    def producer(self) -> str:
        return f"spark:{_short(self.job)}:{self.partition // GROUP}"

    def sequence(self, number: int) -> int:
        """The number of a batch, which increases from batch to batch of a streaming query."""
        return 1 + (self.batch * GROUP + self.partition % GROUP) * BATCHES + number


@dataclass
class Sent(WriterCommitMessage):
    """The result for a partition. known: rows that an earlier attempt had sent."""

    partition: int
    rows: int = 0
    known: int = 0
    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def send(target: Target, place: Place, batches: Iterable[pa.RecordBatch]) -> Sent:
    """Add the rows of a partition, exactly once."""
    sent = Sent(place.partition)
    table = gathered(target, batches)
    if not table.num_rows:
        return sent
    with target.connect() as service:
        for number, part in enumerate(cut(table)):
            added = service.ingest(
                target.stream,
                part,
                strict=target.strict,
                producer=place.producer,
                sequence=place.sequence(number),
            )
            if added.accepted + sum(added.refused.values()) != part.num_rows:
                raise OtherRows(
                    f"partition {place.partition} was sent before with other rows, some of which are in: the plan "
                    "does not give the same rows, or not in the same partitions, when it runs again. Take rand(), "
                    "now() and limits without an order out of it, keep the number of cores and files that it started "
                    "with or write df.repartition(8, 'a column'), or checkpoint it first"
                )
            sent.rows += part.num_rows
            sent.accepted += added.accepted
            if added.duplicate:
                sent.known += part.num_rows
            for reason, rows in added.refused.items():
                sent.refused[reason] = sent.refused.get(reason, 0) + rows
    return sent


def gathered(target: Target, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """All rows, with the names and types of the stream, in a canonical order."""
    parts = [_typed(target, batch) for batch in batches if batch.num_rows]
    if not parts:
        return pa.table({name: pa.array([], TYPES[kind]) for name, (kind, _) in target.columns.items()})
    table = pa.concat_tables(parts).combine_chunks()
    for name in target.required:
        if nulls := table[name].null_count:
            error, what = (NullTime, "the event time") if name == target.time else (NullKey, "a key")
            raise error(f"column {name!r} has {nulls:,} nulls, but {what} must have a value; leave such rows out")
    names = [target.time, *(name for name in table.column_names if name != target.time)]
    keys = pa.table({name: _bits(table[name]) for name in names})
    return table.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names])).combine_chunks()


def cut(table: pa.Table) -> Iterator[pa.Table]:
    """The batches of a partition, of similar size except the first, whose size encodes the content."""
    ends = np.cumsum(_row_bytes(table))
    each = min(max(SMALL, int(ends[-1]) // (BATCHES - 4)), LARGE)
    starts, at = [0], 0
    while (at := max(at + 1, int(np.searchsorted(ends, (ends[at - 1] if at else 0) + each, "right")))) < len(ends):
        starts.append(at)
    if len(starts) >= BATCHES:
        raise BatchTooLarge(
            f"a partition of {table.num_rows:,} rows and {int(ends[-1]) >> 20:,} MiB: at most "
            f"{LARGE * (BATCHES - 4) >> 20:,} MiB go at once; write df.repartition(n) with more partitions"
        )
    first = digest(table) % (starts[1] if len(starts) > 1 else table.num_rows)
    starts.insert(1, 1 + first)
    edges = [*dict.fromkeys(starts), table.num_rows]
    for start, end in pairwise(edges):
        if end > start:
            yield table.slice(start, end - start)


def digest(table: pa.Table) -> int:
    found = hashlib.blake2b(digest_size=8)
    for column in table.columns:
        found.update(pc.is_null(column).cast(pa.uint8()).to_numpy())
        if pa.types.is_large_string(column.type):
            found.update(pc.binary_length(column).fill_null(-1).to_numpy())
            for chunk in pc.fill_null(column, "").chunks:
                _, offsets, text = chunk.buffers()
                ends = np.frombuffer(offsets, np.int64)[chunk.offset :][: len(chunk) + 1]
                found.update(memoryview(text)[ends[0] : ends[-1]] if text is not None else b"")
        else:
            found.update(pc.fill_null(_bits(column).cast(pa.int64()), 0).to_numpy())
    return int.from_bytes(found.digest(), "little")


def tell(target: Target, messages: Sequence[Any], what: str) -> Sent:
    """The totals of all partitions; logs a warning if rows were refused."""
    total = Sent(-1)
    for sent in messages:
        total.rows += sent.rows
        total.known += sent.known
        total.accepted += sent.accepted
        for reason, rows in sent.refused.items():
            total.refused[reason] = total.refused.get(reason, 0) + rows
    if total.rows != total.accepted + sum(total.refused.values()):
        raise OtherRows(f"{what}: {total.rows:,} rows were sent, but the service has counted {total}")
    if total.refused:
        why = ", ".join(f"{rows:,} {reason.replace('_', ' ')}" for reason, rows in sorted(total.refused.items()))
        log.warning(
            "%s: of %s rows the stream %s refused %s; the option `strict` makes that an error",
            what,
            f"{total.rows:,}",
            target.stream,
            why,
        )
    log.info("%s: %s rows, %s of them sent before", what, f"{total.rows:,}", f"{total.known:,}")
    return total


class Writer(DataSourceArrowWriter):
    """`df.write`: a job, which a rerun under the same name completes."""

    def __init__(self, target: Target, job: str) -> None:
        self.target = target
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        context = TaskContext.get()
        assert context is not None
        return send(self.target, Place(self.job, 0, context.partitionId()), iterator)

    def commit(self, messages: Sequence[Any]) -> None:
        tell(self.target, messages, f"job {self.job}")

    def abort(self, messages: Sequence[Any]) -> None:
        log.warning(
            "job %s failed: what it sent is in the stream %s. The same job again with .option('job', '%s') adds the "
            "rest, and nothing twice",
            self.job,
            self.target.stream,
            self.job,
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: the query is identified by its checkpoint, so a restarted query continues."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise PromisingError(
                "Spark does not say which batch of which query this is: only queries in micro-batches can be written, "
                "with a trigger of processingTime, once or availableNow"
            )
        return send(self.target, Place(query, int(batch), context.partitionId()), iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        tell(self.target, messages, f"batch {batchId}")

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        log.warning(
            "batch %d failed: what it sent is in the stream %s. When the query starts again from its checkpoint, the "
            "rest is added, and nothing twice",
            batchId,
            self.target.stream,
        )


def _typed(target: Target, batch: pa.RecordBatch) -> pa.Table:
    columns = {}
    for name, (kind, given) in target.columns.items():
        column = batch.column(batch.schema.get_field_index(given))
        if kind == "timestamp":
            column = column.cast(pa.int64())  # an instant in UTC, or a local time as is
        columns[name] = column.cast(TYPES[kind])
    return pa.table(columns)


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as their bits, which order signed zeros and NaN, too."""
    if not pa.types.is_floating(column.type):
        return column
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())


def _row_bytes(table: pa.Table) -> NDArray[np.int64]:
    found = np.full(table.num_rows, 8 * table.num_columns, np.int64)
    for column in table.columns:
        if pa.types.is_large_string(column.type):
            found += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return np.maximum(found, ROW)


def _short(job: str) -> str:
    """A name that leaves room for a numeric suffix."""
    if len(job) <= LONGEST_NAME - 32:
        return job
    return hashlib.blake2b(job.encode(), digest_size=16).hexdigest()
