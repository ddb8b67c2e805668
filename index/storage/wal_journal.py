"""A stream's journal in a write-ahead log, and its replay."""

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

from promising.errors import DataDamaged, StorageError, StorageUnavailable
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


def make_again(stream: Stream, record: Record) -> None:
    """Replay one change, on a stream that has no journal yet. `DataDamaged` for one that is not of this stream."""
    if record.kind == records.APPEND:
        batch = records.unpack_append(record.payload)
        for name, kind in stream.schema.types.items():
            column = batch.columns.get(name)
            if column is None or KINDS[kind] != (None if column.values is None else column.values.dtype.name):
                raise DataDamaged(f"a batch in the log has no column {name!r} of type {kind}, as the stream has")
        if len(batch.columns) > len(stream.schema.types):
            raise DataDamaged("a batch in the log has more columns than the stream")
        stream.again(batch.columns, batch.added, batch.producer, batch.sequence, batch.progress, batch.epoch, batch.at)
        return
    told = records.unpack_json(record.payload)
    try:
        _make_again(stream, record.kind, told)
    except (KeyError, TypeError, ValueError) as problem:
        raise DataDamaged(f"a record of the log does not say what it should ({problem!r})") from problem


def _make_again(stream: Stream, kind: int, told: dict[str, Any]) -> None:
    if kind == records.BEGIN:
        return
    if kind == records.ADVANCE:
        known, watermark = told.get("progress"), told["watermark"]
        if not isinstance(watermark, int):
            raise TypeError(f"the watermark {watermark!r}")
        stream.advance_again(watermark, None if known is None else Progress.of(known))
    elif kind == records.OPEN:
        if not isinstance(told["at"], int):
            raise TypeError(f"the time {told['at']!r}")
        check_sender(told["producer"], 1, told["epoch"])
        stream.open_again(told["producer"], told["epoch"], told["at"])
    elif kind == records.ALTER:
        stream.alter(told)
    elif kind == records.CREATE_SUMMARY:
        if told["name"] not in stream.summaries:
            stream.remake(told)
    elif told["name"] in stream.summaries:
        stream.drop_summary(told["name"])
