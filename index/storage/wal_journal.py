"""A stream's journal in a write-ahead log, and its replay."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, NamedTuple

from promising.errors import DataDamaged, PromisingError, StorageError, StorageFull, StorageUnavailable
from promising.index.ledger import check_sender
from promising.index.progress import Progress
from promising.index.regions import Appended
from promising.index.schema import Column
from promising.index.storage import records
from promising.index.storage.wal import Record, Wal
from promising.index.stream import Stream

KINDS = {"int": "int64", "timestamp": "int64", "float": "float64", "bool": "uint8", "string": None}
"""What the values of a column are in a record, by its type."""
AHEAD = 1 << 10  # tuples from which on syncing the log ahead pays off
GROUP = 4 << 20  # bytes of records that are replayed together


class WalJournal:
    """Logs every change of a stream before it is made.

    syncers: threads that sync the log of a large batch while its tuples are added in memory; None: no sync ahead.
    pace: returns when the next batch may proceed.
    """

    def __init__(self, wal: Wal, syncers: Executor | None = None, pace: Callable[[], None] = lambda: None) -> None:
        self._wal = wal
        self._pace = pace
        self._syncers = syncers
        self._asked = False

    def appended(
        self,
        columns: dict[str, Column],
        tuples: int,
        added: Appended,
        producer: str | None,
        sequence: int | None,
        progress: Progress,
        epoch: int,
        at: int,
    ) -> None:
        packed = records.pack_append(columns, tuples, added, producer, sequence, progress, epoch, at)
        self._wal.append(records.APPEND, packed)
        if self._syncers is not None and tuples >= AHEAD and not self._asked:
            self._asked = True
            with suppress(RuntimeError):  # the store is closing: waiters sync themselves
                self._syncers.submit(self._sync)

    def opened(self, producer: str, epoch: int, at: int) -> None:
        self._wal.append(records.OPEN, records.pack_json({"producer": producer, "epoch": epoch, "at": at}))

    def advanced(self, progress: Progress) -> None:
        told = {"watermark": progress.watermark, "progress": list(progress)}
        self._wal.append(records.ADVANCE, records.pack_json(told))

    def created(self, definition: dict[str, Any]) -> None:
        self._wal.append(records.CREATE_SUMMARY, records.pack_json(definition))

    def dropped(self, summary: str) -> None:
        self._wal.append(records.DROP_SUMMARY, records.pack_json({"name": summary}))

    def altered(self, settings: dict[str, Any]) -> None:
        self._wal.append(records.ALTER, records.pack_json(settings))

    def wait(self) -> None:
        self._wal.wait(self._wal.last)
        self._pace()

    def _sync(self) -> None:
        self._asked = False
        with suppress(StorageError):  # the next waiter retries, and gets the error
            self._wal.sync()


class Gone:
    """The journal of a dropped stream: it refuses everything."""

    def __init__(self, stream: str) -> None:
        self._stream = stream

    def _refuse(self, *_: object) -> None:
        raise StorageUnavailable(f"stream {self._stream!r} has been dropped")

    appended = opened = advanced = created = dropped = altered = _refuse

    def wait(self) -> None:
        """Nothing was logged."""


class Change(NamedTuple):
    """A record of the log, read; `content` is the error if it cannot be."""

    lsn: int
    kind: int
    content: records.Batch | dict[str, Any] | PromisingError


def changes(log: Iterable[Record]) -> Generator[list[Change]]:
    """The changes of a log in groups, for `make_again`."""
    group: list[Change] = []
    held = 0
    for record in log:
        group.append(_read(record))
        held += len(record.payload)
        if held >= GROUP:
            yield group
            group, held = [], 0
    yield group


def _read(record: Record) -> Change:
    try:
        unpack = records.unpack_append if record.kind == records.APPEND else records.unpack_json
        return Change(record.lsn, record.kind, unpack(record.payload))
    except PromisingError as problem:
        return Change(record.lsn, record.kind, problem)


def make_again(stream: Stream, group: Sequence[Change]) -> Iterator[tuple[int, PromisingError]]:
    """Replay changes on a stream that has no journal yet; yields those that cannot be used, and why."""
    at = 0
    while at < len(group):
        try:
            at += _make(stream, group, at)
        except (StorageUnavailable, StorageFull):  # temporary, and so are the missing data
            raise
        except PromisingError as problem:
            yield group[at].lsn, problem
            at += 1


def _make(stream: Stream, group: Sequence[Change], at: int) -> int:
    """Replay the change at `at`, with the next ones if all are batches; returns how many."""
    kind, content = group[at].kind, group[at].content
    if isinstance(content, PromisingError):
        raise content
    if isinstance(content, records.Batch):
        misfit = _misfit(stream, content)
        if misfit is not None:
            raise DataDamaged(misfit)
        return stream.again(content, _batches(stream, group, at + 1))
    try:
        _define(stream, kind, content)
    except (KeyError, TypeError, ValueError) as problem:
        raise DataDamaged(f"a record of the log does not say what it should ({problem!r})") from problem
    return 1


def _define(stream: Stream, kind: int, content: dict[str, Any]) -> None:
    if kind == records.BEGIN:
        return
    if kind == records.ADVANCE:
        known, watermark = content.get("progress"), content["watermark"]
        if not isinstance(watermark, int):
            raise TypeError(f"the watermark {watermark!r}")
        stream.advance_again(watermark, None if known is None else Progress.of(known))
    elif kind == records.OPEN:
        if not isinstance(content["at"], int):
            raise TypeError(f"the time {content['at']!r}")
        check_sender(content["producer"], 1, content["epoch"])
        stream.open_again(content["producer"], content["epoch"], content["at"])
    elif kind == records.ALTER:
        stream.alter(content)
    elif kind == records.CREATE_SUMMARY:
        if content["name"] not in stream.summaries:
            stream.remake(content)
    elif content["name"] in stream.summaries:
        stream.drop_summary(content["name"])


def _batches(stream: Stream, group: Sequence[Change], at: int) -> Iterator[records.Batch]:
    """From `at` on, up to the first change that is no batch of the stream."""
    for number in range(at, len(group)):
        content = group[number].content
        if not isinstance(content, records.Batch) or _misfit(stream, content) is not None:
            return
        yield content


def _misfit(stream: Stream, batch: records.Batch) -> str | None:
    """Why a batch cannot be one of this stream; None if it can."""
    for name, kind in stream.schema.types.items():
        column = batch.columns.get(name)
        if column is None or KINDS[kind] != (None if column.values is None else column.values.dtype.name):
            return f"a batch in the log has no column {name!r} of type {kind}, as the stream has"
    if len(batch.columns) > len(stream.schema.types):
        return "a batch in the log has more columns than the stream"
    return None
