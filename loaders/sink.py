"""Rows of a DataFrame into a stream: what a task sends, so that every row is in once, whatever is tried again.

A task gathers the rows of its partition, sorts them by all their columns and cuts them into numbered batches. Another
attempt, later or at the same time, has the same rows, and so the same batches under the same numbers, in whatever order
a shuffle gave them. A number that the service knows it answers with what became of it, and adds nothing.

The size of the first batch is taken from a digest of all rows of the partition. An attempt that has other rows, because
the plan does not give the same rows twice, is mostly noticed by its first batch, before it adds anything: of
a hundred rows or more nearly always, of a handful often not. So a plan has to give the same rows again.
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
BATCHES = 32  # of a partition: with GROUP as many as a service remembers of one producer
PRODUCERS = 512  # half of those that a stream remembers
SMALL, LARGE = 4 << 20, 12 << 20  # bytes of a batch: as many as it has if it may, and at most
ROW = 16  # bytes that a row counts for at least: so that a batch has fewer than 2^20 rows

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # what Spark tells the tasks of a streaming query

log = logging.getLogger(__name__)


class Ingesting(Protocol):
    """What a sink needs of a service."""

    def ingest(
        self, stream: str, table: pa.Table, *, strict: bool, producer: str | None, sequence: int | None
    ) -> Appended: ...


Connect = Callable[[], AbstractContextManager[Ingesting]]


class OtherRows(BatchError):
    """A partition that was tried again has other rows than the first time."""

    reason = "other_rows"


@dataclass(frozen=True)
class Target:
    """Where rows go.

    columns: of the stream, each with its type and the name that the DataFrame has it under. required: those that must
    not be null. strict: whether a row that is too old, or too far ahead, fails the job.
    """

    connect: Connect
    stream: str
    columns: dict[str, tuple[str, str]]
    time: str
    required: tuple[str, ...]
    strict: bool


@dataclass(frozen=True)
class Place:
    """Which rows they are: of a job or streaming query, of a batch of it, of a partition of that."""

    job: str
    batch: int
    partition: int

    def __post_init__(self) -> None:
        if self.partition >= GROUP * PRODUCERS:
            raise BatchError(
                f"partition {self.partition}: a service can tell at most {GROUP * PRODUCERS:,} partitions apart when "
                f"they are tried again; write df.coalesce({GROUP * PRODUCERS // 4}), or load by `bulk_load`"
            )

    @property
    def producer(self) -> str:
        """Under which name the batches go."""
        return f"spark:{_short(self.job)}:{self.partition // GROUP}"

    def sequence(self, number: int) -> int:
        """The number of a batch; they rise from one batch of a streaming query to the next."""
        return 1 + (self.batch * GROUP + self.partition % GROUP) * BATCHES + number


@dataclass
class Sent(WriterCommitMessage):
    """What became of the rows of a partition. known: rows that an attempt before this one had sent."""

    partition: int
    rows: int = 0
    known: int = 0
    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def send(target: Target, place: Place, batches: Iterable[pa.RecordBatch]) -> Sent:
    """Add the rows of a partition, once."""
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
    """All rows, with the names and types of the stream, in the one order that they have whichever way they came."""
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
    """The batches of a partition, about as large as each other but for the first, whose size tells the content."""
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
    """A number that hardly two different tables have in common."""
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
    """The sums of all partitions, with a word in the log if rows were refused."""
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
    """`df.write`: a job, which a rerun under the same name finishes."""

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
    """`df.writeStream`: the query's name is that of its checkpoint, so a query that is started again goes on."""

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
            column = column.cast(pa.int64())  # of an instant what it is in UTC, of a wall clock what it shows
        columns[name] = column.cast(TYPES[kind])
    return pa.table(columns)


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers as their bits: zeros of both signs and all that is no number have an order, too."""
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
    """A name that leaves room for a number after it."""
    if len(job) <= LONGEST_NAME - 32:
        return job
    return hashlib.blake2b(job.encode(), digest_size=16).hexdigest()
