"""The subscriber's side: a stream of changes, and the view that they add up to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import Unsupported
from promising.query.standing.deltas import Ids, Times

ELSEWHERE = "a subscription of another session; each session polls its own"
CHUNKS = 64  # chunks of a view before they are concatenated


class Delta(NamedTuple):
    """The changes of a view since the previous delta.

    Retractions apply before inserts; retracting an absent result has no effect. In the view of a GROUP BY, column 0 of
    `ids` is the group: an insert replaces the group's row.
    """

    tick: int
    watermark: int
    """The view is current as of this time: results that end at or before it have expired."""
    reset: bool
    """Discard the view first."""
    inserts: pa.Table
    ids: Ids
    exp: Times
    """When each insert expires."""
    retractions: Ids
    token: str
    """Resumes after this change."""
    shed: float = 0.0
    """Expected number of results dropped so far for lack of CPU."""
    lag: int = 0
    """Microseconds of event time that have arrived and are not yet in the view."""


def keys_of(ids: Ids) -> NDArray[np.generic]:
    """Ids as one comparable column."""
    if ids.shape[1] == 1:
        return np.ascontiguousarray(ids[:, 0])
    rows = np.ascontiguousarray(ids)
    return rows.view(np.dtype((np.void, 8 * ids.shape[1]))).ravel()


@dataclass
class LiveView:
    """The rows of a standing query, built from its changes.

    >>> view = LiveView(pa.schema([("item", pa.int64())]), keyed=False)
    >>> ids, exp = np.array([[1], [2]]), np.array([30, 50])
    >>> gone = np.empty((0, 1), np.int64)
    >>> view.apply(Delta(1, 20, True, pa.table({"item": [7, 9]}), ids, exp, gone, ""))
    >>> view.snapshot()["item"].to_pylist()
    [7, 9]
    >>> view.apply(Delta(2, 40, False, view.schema.empty_table(), ids[:0], exp[:0], gone, ""))
    >>> view.snapshot()["item"].to_pylist(), len(view)
    ([9], 1)
    """

    schema: pa.Schema
    keyed: bool
    endless: bool = False  # nothing ever expires, so no view is stored
    watermark: int | None = None
    _rows: list[pa.Table] = field(default_factory=list)
    _ids: list[Ids] = field(default_factory=list)
    _exp: list[Times] = field(default_factory=list)

    def apply(self, delta: Delta) -> None:
        if delta.reset:
            self._rows, self._ids, self._exp = [], [], []
        self.watermark = delta.watermark
        if self.endless:
            return
        gone = [delta.retractions] if len(delta.retractions) else []
        if self.keyed and len(delta.ids):
            gone.append(delta.ids)
        if gone and self._rows:
            self._remove(np.concatenate(gone))
        if len(delta.ids):
            self._rows.append(delta.inserts)
            self._ids.append(delta.ids)
            self._exp.append(delta.exp)
        if len(self._rows) > CHUNKS:
            self._gather()

    def _remove(self, gone: Ids) -> None:
        self._gather()
        width = 1 if self.keyed else gone.shape[1]
        left = ~np.isin(keys_of(self._ids[0][:, :width]), keys_of(gone[:, :width]))
        if not left.all():
            self._keep(left)

    def _gather(self) -> None:
        """Concatenate the chunks, without expired rows."""
        if not self._rows:
            return
        if len(self._rows) > 1:
            self._rows = [pa.concat_tables(self._rows).combine_chunks()]
            self._ids = [np.concatenate(self._ids)]
            self._exp = [np.concatenate(self._exp)]
        assert self.watermark is not None
        live = self._exp[0] > self.watermark
        if not live.all():
            self._keep(live)

    def _keep(self, which: NDArray[np.bool_]) -> None:
        self._rows = [self._rows[0].filter(pa.array(which))]
        self._ids, self._exp = [self._ids[0][which]], [self._exp[0][which]]

    def snapshot(self) -> pa.Table:
        """The rows as of the watermark, in no particular order."""
        if self.endless:
            raise Unsupported(
                "a query without WINDOW has no view, since nothing leaves it; read its changes, or give it a WINDOW"
            )
        self._gather()
        return self._rows[0] if self._rows else self.schema.empty_table()

    def __len__(self) -> int:
        return sum(int((exp > (self.watermark or 0)).sum()) for exp in self._exp)


class Subscription:
    """A subscription: iterate over its changes, or read the view. `take` returns None on timeout."""

    def __init__(self, view: LiveView, take: Callable[[float | None], Delta | None], close: Callable[[], None]) -> None:
        self._view = view
        self._take = take
        self._close = close
        self.token: str | None = None  # the position: `subscribe` with it resumes there

    @property
    def schema(self) -> pa.Schema:
        return self._view.schema

    @property
    def watermark(self) -> int | None:
        """The time as of which the view is current; None before the first change."""
        return self._view.watermark

    def poll(self, timeout: float | None = 0.0) -> Delta | None:
        """Apply the next change to the view; None if there is none within `timeout` seconds (None: no limit)."""
        delta = self._take(timeout)
        return None if delta is None else self.told(delta)

    def told(self, delta: Delta) -> Delta:
        self._view.apply(delta)
        self.token = delta.token
        return delta

    def snapshot(self) -> pa.Table:
        """The rows of the view after the last change."""
        return self._view.snapshot()

    def __len__(self) -> int:
        return len(self._view)

    def __iter__(self) -> Iterator[Delta]:
        return self

    def __next__(self) -> Delta:
        delta = self.poll(None)
        if delta is None:
            raise StopIteration
        return delta

    def close(self) -> None:
        self._close()

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
