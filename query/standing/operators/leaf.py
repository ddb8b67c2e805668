"""Leaves: where tuples of a stream enter a plan."""

import numpy as np
from numpy.typing import NDArray

from promising.index.instants import NEVER
from promising.query.standing.deltas import NEG_EXP, POS, Deltas, Mode, Times, joined, nothing
from promising.query.standing.operators.entry_store import Entries, slot_width
from promising.query.standing.operators.step import Body, Rows, Tick, handed, rows_of


class Leaf(Body):
    """The tuples of a window. Only `nta` stores them, to report their expiry."""

    width = 1

    def __init__(self, rows: Rows, length: int | None, mode: Mode = Mode.PIGGYBACK, place: int = 0) -> None:
        self.rows = rows
        self.length = self.span = length
        self.mode = mode
        self.at(place)
        self._arrived: list[tuple[NDArray[np.int64], Times]] = []
        self._held = Entries(1, slot_width(length), False) if mode is Mode.NTA else None

    def at(self, place: int) -> None:
        """Bind inputs of this source to its columns."""
        self.place = place
        self.sources = {place: (self.rows, 0)}

    def arrive(self, seqs: NDArray[np.int64], ts: Times) -> None:
        """Queue tuples for the next tick."""
        if len(seqs):
            self._arrived.append((seqs, ts))

    def step(self, tick: Tick) -> Deltas:
        if tick.forced:
            return nothing(1, tick.now)
        parts: list[Deltas] = []
        if self._held is not None:
            ended = self._held.expire(tick.now)
            if len(ended):
                times = self._held.times[ended]
                parts.append(rows_of(self._held.ids[ended], times[:, 0].copy(), times[:, 1].copy(), NEG_EXP))
        came = self._take(tick.now)
        if came is not None:
            parts.append(came)
            if self._held is not None:
                self._held.insert(came.ids, came.ts, came.exp, np.zeros(len(came), np.int32))
        if self.mode is not Mode.ITA:
            time: int | None = tick.now
        elif came is None:
            time = None
        else:
            newest = int(came.ts.max())
            self.clock = newest if self.clock is None else max(newest, self.clock)
            time = self.clock
        return handed(tick, joined(parts, time) if parts else nothing(1, time))

    def _take(self, now: int) -> Deltas | None:
        if not self._arrived:
            return None
        arrived, self._arrived = self._arrived, []
        seqs, ts = arrived[0] if len(arrived) == 1 else (np.concatenate(part) for part in zip(*arrived, strict=True))
        exp = np.full(len(ts), NEVER, np.int64) if self.length is None else ts + self.length
        dead = exp <= now
        if dead.any():
            seqs, ts, exp = seqs[~dead], ts[~dead], exp[~dead]
        if not len(seqs):
            return None
        return rows_of(np.ascontiguousarray(seqs).reshape(-1, 1), np.ascontiguousarray(ts), exp, POS)

    def own_bytes(self) -> int:
        return 0 if self._held is None else self._held.nbytes

    def own_entries(self) -> int:
        return 0 if self._held is None else len(self._held)
