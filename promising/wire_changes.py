"""Conversion of changes of standing queries to and from messages, for the server and the clients."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising import wire, wire_errors, wire_times
from promising.errors import PromisingError
from promising.index import instants
from promising.query.standing.subscription import Delta
from promising.v1 import common_pb2, queries_pb2

BEGINNING = instants.BEGINNING
"""The watermark of views before the first tuple: absent on the wire."""
ID, END = "id", "end"
LONGEST_MESSAGE = 2000  # maximum characters of an error message


class Opened(NamedTuple):
    """A query's properties, known before its rows: columns, number of id columns, whether rows are groups, and whether
    it has no view.
    """

    schema: pa.Schema
    id_columns: int
    keyed: bool
    endless: bool


def opened_to(opened: Opened) -> queries_pb2.SubscriptionOpened:
    schema = wire.ipc(opened.schema.empty_table())
    return queries_pb2.SubscriptionOpened(
        schema=schema, id_columns=opened.id_columns, keyed=opened.keyed, endless=opened.endless
    )


def opened_from(told: queries_pb2.SubscriptionOpened) -> Opened:
    return Opened(wire.table(told.schema).schema, told.id_columns, told.keyed, told.endless)


def refused(number: int, problem: PromisingError) -> queries_pb2.SubscriptionSection:
    """The end of a subscription."""
    refusal = common_pb2.Refusal(reason=wire_errors.reason_of(type(problem)), message=str(problem)[:LONGEST_MESSAGE])
    return queries_pb2.SubscriptionSection(number=number, error=refusal)


def is_time(delta: Delta) -> bool:
    """Whether a change has only a watermark."""
    return not (delta.reset or delta.inserts.num_rows or len(delta.retractions))


def section_parts(number: int, delta: Delta, most: int = wire.PART) -> Iterator[queries_pb2.SubscriptionSection]:
    """A change as sections of about `most` bytes each."""
    part = queries_pb2.SubscriptionSection(number=number, reset=delta.reset)
    held = 0
    for name, data in _pieces(delta, most):
        if held and (held + len(data) > most or getattr(part, name)):
            part.continued = True
            yield part
            part, held = queries_pb2.SubscriptionSection(number=number), 0
        setattr(part, name, data)
        held += len(data)
    if delta.watermark > BEGINNING:
        part.watermark.CopyFrom(wire_times.timestamp(delta.watermark))
    part.resume_token = delta.token
    part.shed = delta.shed
    part.lag.CopyFrom(wire_times.duration_of(delta.lag))
    yield part


def _pieces(delta: Delta, most: int) -> Iterator[tuple[str, bytes]]:
    if len(delta.retractions):
        gone = pa.table(_columns(delta.retractions))
        for first, count in wire.slices(gone, most):
            yield "retractions", wire.ipc(gone.slice(first, count))
    if delta.inserts.num_rows:
        rows = delta.inserts
        for name, column in (_columns(delta.ids) | {END: pa.array(delta.exp, pa.int64())}).items():
            rows = rows.append_column(name, column)
        for first, count in wire.slices(rows, most):
            yield "rows", wire.ipc(rows.slice(first, count))


def _columns(ids: NDArray[np.int64]) -> dict[str, pa.Array]:
    return {f"{ID}{at}": pa.array(np.ascontiguousarray(ids[:, at])) for at in range(ids.shape[1])}


@dataclass
class Sections:
    """Reassembles the sections of one subscription from their parts."""

    opened: Opened
    _reset: bool = False
    _gone: list[NDArray[np.int64]] = field(default_factory=list)
    _rows: list[pa.Table] = field(default_factory=list)

    def add(self, tick: int, part: queries_pb2.SubscriptionSection) -> Delta | None:
        """The change that this part completes; None if more parts follow, or if there is none."""
        self._reset |= part.reset
        if part.retractions:
            self._gone.append(_ids(wire.table(part.retractions), self.opened.id_columns))
        if part.rows:
            self._rows.append(wire.table(part.rows))
        if part.continued or not part.resume_token:
            return None
        columns, width = len(self.opened.schema), self.opened.id_columns
        rows = pa.concat_tables(self._rows) if self._rows else None
        nothing = np.empty((0, width), np.int64)
        delta = Delta(
            tick=tick,
            watermark=wire_times.micros(part.watermark) if part.HasField("watermark") else BEGINNING,
            reset=self._reset,
            inserts=self.opened.schema.empty_table() if rows is None else rows.select(list(range(columns))),
            ids=nothing if rows is None else _ids(rows.select(list(range(columns, columns + width))), width),
            exp=np.empty(0, np.int64) if rows is None else rows.column(columns + width).to_numpy(),
            retractions=np.concatenate(self._gone) if self._gone else nothing,
            token=part.resume_token,
            shed=part.shed,
            lag=wire_times.span_micros(part.lag),
        )
        self.forget()
        return delta

    def time(self, tick: int, watermark: int, last: Delta) -> Delta:
        """A change of the watermark only, after the last one."""
        return Delta(
            tick=tick,
            watermark=watermark,
            reset=False,
            inserts=self.opened.schema.empty_table(),
            ids=np.empty((0, self.opened.id_columns), np.int64),
            exp=np.empty(0, np.int64),
            retractions=np.empty((0, self.opened.id_columns), np.int64),
            token=last.token,
            shed=last.shed,
            lag=last.lag,
        )

    def forget(self) -> None:
        """Drop parts of a lost call."""
        self._reset, self._gone, self._rows = False, [], []


def _ids(columns: pa.Table, width: int) -> NDArray[np.int64]:
    out = np.empty((columns.num_rows, width), np.int64)
    for at in range(width):
        out[:, at] = columns.column(at).to_numpy()
    return out
