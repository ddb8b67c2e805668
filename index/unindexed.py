"""`STRUCTURE none`: no zones, no summaries, no postings. Every query reads the log."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import UnknownName
from promising.index.asked_keys import check_keys
from promising.index.instants import BEGINNING
from promising.index.log import TupleLog
from promising.index.prepared_load import Sum
from promising.index.regions import Matches, Region, Regions, Window, check_window
from promising.index.summary import Identity
from promising.summaries.adt import Estimates
from promising.summaries.hashing import hash_checked
from promising.summaries.keys import Keys


class BareState:
    """Retains tuples by the same horizons as any other structure."""

    def __init__(self, identity: Identity, log: TupleLog, seed: int) -> None:
        self.identity = identity
        self.log = log
        self.seed = seed
        self.horizons: tuple[int, ...] = ()
        self.floor: int | None = None
        self.watermark: int | None = None
        self.accepted = 0

    @property
    def oldest(self) -> int:
        oldest = self.horizons[-1] if self.horizons else BEGINNING
        return oldest if self.floor is None else max(oldest, self.floor)

    @property
    def count(self) -> int:
        return self.log.count_from(self.oldest)

    @property
    def expired(self) -> int:
        return self.accepted - self.count

    def hashes(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """The hashes of the key at these rows."""
        return self.log.hashes(self.identity.key, rows, self.seed)

    def extended_by(self, watermark: int, least: int, greatest: int) -> bool:
        """Whatever there is: tuples are only counted, and horizons follow from the watermark."""
        return True

    def advance(self, watermark: int) -> None:
        self.watermark = watermark
        self.horizons = self.identity.geometry.horizons(watermark)

    def insert(
        self,
        hashes: NDArray[np.int64],
        rows: NDArray[np.int32],
        times: NDArray[np.int64],
        least: int,
        greatest: int,
    ) -> None:
        """Only counted: the log has the tuples."""
        self.accepted += len(rows)

    def attach(
        self, hashes: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int64], sums: list[Sum] | None
    ) -> None:
        self.accepted += len(rows)

    def image(self) -> dict[str, Any]:
        return {"floor": self.floor, "watermark": self.watermark, "accepted": self.accepted}

    def restore(self, image: dict[str, Any]) -> None:
        self.floor, self.accepted = image["floor"], image["accepted"]
        if image["watermark"] is not None:
            self.advance(image["watermark"])

    def forget(self, rows: NDArray[np.int32]) -> None:
        """Nothing is stored for them."""

    @property
    def nbytes(self) -> int:
        return 0


class BareReader:
    """One region holds everything; its estimate is between none and all."""

    def __init__(self, state: BareState) -> None:
        self.state = state

    def hashes(self, keys: Any) -> NDArray[np.int64]:
        return self._hash(self._keys(keys))

    def _keys(self, keys: Any) -> Keys:
        return check_keys(keys, self.state.identity.key, self.state.log.schema)

    def _hash(self, keys: Keys) -> NDArray[np.int64]:
        return hash_checked(keys, self.state.seed).view(np.int64)

    def _rows(self, window: Window) -> NDArray[np.int32]:
        start, end = check_window(window)
        rows = self.state.log.rows()
        return rows[self.state.log.between(rows, max(start, self.state.oldest), end)]

    def probe(self, keys: Any, window: Window) -> Matches:
        asked = self._keys(keys)
        wanted = self._hash(asked)
        rows = self._rows(window)
        hashes = self.state.log.hashes(self.state.identity.key, rows, self.state.seed)
        order = np.argsort(wanted, kind="stable")
        low = np.searchsorted(wanted[order], hashes, side="left")
        high = np.searchsorted(wanted[order], hashes, side="right")
        counts = high - low
        which = np.repeat(np.arange(len(rows)), counts)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        probe = order[np.repeat(low, counts) + within].astype(np.int32)
        by_key = np.argsort(probe, kind="stable")
        probe, rows = probe[by_key], rows[which][by_key]
        same = self.state.log.same(self.state.identity.key, rows, asked, probe)
        return Matches(probe, rows) if same is None else Matches(probe[same], rows[same])

    def fetch(self, keys: Any, window: Window, columns: list[str] | None) -> tuple[NDArray[np.int32], pa.Table]:
        matches = self.probe(keys, window)
        return matches.probe, self.state.log.take(matches.rows, columns)

    def visit(self, region: Region | tuple[int, int, int], window: Window) -> NDArray[np.int32]:
        place = (region.granularity, region.zone, region.bucket) if isinstance(region, Region) else region
        if place != (1, 0, 0):
            raise UnknownName(f"no region {place}; without structure there is one, (1, 0, 0)")
        return self._rows(window)

    def regions(self, keys: Any, window: Window, search: str) -> Regions:
        if search not in ("flat", "pyramid"):
            raise UnknownName(f"no search {search!r}; there are flat and pyramid")
        n = len(self.hashes(keys))
        rows = self._rows(window)
        n = n if len(rows) else 0
        first, last = self.state.log.span(rows) if len(rows) else (0, -1)
        ones, zeros = np.ones(n, np.int64), np.zeros(n, np.int64)
        all_of_them = np.full(n, len(rows), np.int64)
        start = np.full(n, first, np.int64)
        end = np.full(n, last + 1, np.int64)
        key = np.arange(n, dtype=np.int64)
        most = all_of_them.astype(np.float64)
        return Regions(key, ones, zeros, zeros, most, np.zeros(n, np.float64), most, all_of_them, start, end, n, 0, 0)

    def estimate(self, keys: Any, window: Window) -> Estimates:
        return self.estimate_hashed(self.hashes(keys), window)

    def estimate_hashed(self, hashes: NDArray[np.int64], window: Window) -> Estimates:
        n = len(hashes)
        most = np.full(n, float(len(self._rows(window))))
        return Estimates(most, np.zeros(n), most)
