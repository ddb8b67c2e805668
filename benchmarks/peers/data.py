"""What all peers get, the same bytes for each, and the truth that their answers are held to.

Two streams of sales; a tuple's number is its `id`, its time follows from that. For `history` items are drawn from a law
under which a join has about three pairs a tuple, and the most frequent items some thousands of pairs each. For `join`
and `selections` there are fewer items, so that a tuple finds some partners within the window.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.peers.checks import checksum

Ints = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]

STREAMS = ("a", "b")
START = 1_700_000_000_000_000
STEP = 100
"""Microseconds between two tuples of a stream."""
ERROR = 0.01
WILD = 0.03
"""Where an error of 1 % is kept in 95 of 100 cases, one of three times that is no bad luck."""
BINS = 20
UNFAIR = 60.0
"""A chi-square of 20 bins, 19 degrees of freedom, is above this once in 200,000 fair samples."""

FULL = {
    "history": 1_000_000,
    "join": 200_000,
    "selections": 200_000,
    "batch": 4_096,
    "window_us": 500_000,
    "top": 100_000,
    "sample": 10_000,
    "queries": 1_000,
}
QUICK = {
    "history": 20_000,
    "join": 10_000,
    "selections": 10_000,
    "batch": 1_024,
    "window_us": 50_000,
    "top": 5_000,
    "sample": 2_000,
    "queries": 50,
}


def sizes_of(quick: bool, rows: int | None) -> dict[str, int]:
    """rows: tuples a side of the history; what is streamed has a fifth of them."""
    made = dict(QUICK if quick else FULL)
    if rows is not None:
        made |= {"history": rows, "join": max(rows // 5, 1), "selections": max(rows // 5, 1)}
        made["top"] = min(made["top"], rows // 4)
        made["sample"] = min(made["sample"], rows // 10)
    return made


def _law(n: int, items: int, exponent: float, rng: np.random.Generator) -> Ints:
    """The item of rank r in proportion to about r ** -exponent; which item has which rank is shuffled."""
    names = np.random.default_rng(0).permutation(items).astype(np.int64) + 1
    rank = (((items + 1.0) ** (1 - exponent) - 1) * rng.random(n) + 1) ** (1 / (1 - exponent)) - 1
    return np.asarray(names[np.minimum(rank.astype(np.int64), items - 1)])


def drawn(group: str, n: int, seed: int) -> Columns:
    """One stream."""
    rng = np.random.default_rng([seed, len(group)])
    items, exponent = (max(n * 2 // 5, 1), 0.3) if group == "history" else (2_000, 0.5)
    ids = np.arange(n, dtype=np.int64)
    return {
        "id": ids,
        "ts": START + ids * STEP,
        "item": _law(n, items, exponent, rng),
        "price": rng.random(n) * 100.0,
        "amount": rng.lognormal(0.0, 1.0, n),
    }


def selections(number: int) -> list[tuple[float, float, int, int]]:
    """Each keeps one tuple in a hundred or so: by price alone, or, every fifth, by price and item."""
    rng = np.random.default_rng(11)
    made = []
    for i in range(number):
        both = i % 5 == 4
        width = 10.0 if both else 1.0
        low = float(rng.random() * (100.0 - width))
        first = int(rng.integers(1, 1_800)) if both else 0
        made.append((low, low + width, first, first + 200 if both else 1 << 30))
    return made


@dataclass(frozen=True)
class World:
    """All streams, by group and name."""

    sizes: dict[str, int]
    streams: dict[str, dict[str, Columns]]

    def write(self, folder: Path) -> None:
        """Files for the peers: groups of rows of a usual size, no compression that one reads better than another."""
        for group, streams in self.streams.items():
            for name, columns in streams.items():
                table = pa.table({n: c.view("datetime64[us]") if n == "ts" else c for n, c in columns.items()})
                pq.write_table(table, folder / f"{group}-{name}.parquet", row_group_size=1 << 17, compression="snappy")
        text = json.dumps(selections(self.sizes["queries"]))
        (folder / "selections.json").write_text(text, encoding="ascii")


def world(sizes: dict[str, int]) -> World:
    streams = {
        group: {name: drawn(group, sizes[group], seed) for seed, name in enumerate(STREAMS, 1)}
        for group in ("history", "join", "selections")
    }
    return World(sizes, streams)


# --- the truth -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and if not, in which way; how far it is off where that is allowed."""

    right: bool
    why: str = ""
    error: float = 0.0


class Truth:
    """Brute force over arrays, worked out once for each task."""

    def __init__(self, of: World) -> None:
        self._world = of
        self._kept: dict[str, Any] = {}

    def expected(self, task: str) -> int:
        """Rows of the right answer."""
        sizes = self._world.sizes
        if task in ("sum", "sum-join"):
            return 1
        if task in ("top", "rare"):
            return min(sizes["top"], self._pairs())
        if task == "sampled":
            return min(sizes["sample"], self._pairs())
        return int(self._exact(task)[0])

    def judge(self, task: str, answer: dict[str, Any]) -> Verdict:
        if task in ("sum", "sum-join"):
            true = self._sum(task)
            error = abs(float(answer["value"]) - true) / abs(true)
            return Verdict(error <= WILD, f"off by {error:.2%}" if error > WILD else "", error)
        if task in ("top", "rare", "sampled"):
            return self._judge_pairs(task, answer)
        rows, total = self._exact(task)
        if (answer["rows"], answer["checksum"]) == (rows, total):
            return Verdict(True)
        return Verdict(False, f"{answer['rows']:,} rows of {rows:,}, checksum {answer['checksum']} for {total}")

    # --- exact ----------------------------------------------------------------------------------------------------

    def _exact(self, task: str) -> tuple[int, int]:
        if task not in self._kept:
            self._kept[task] = self._window_join() if task == "join" else self._selected(task)
        rows, total = self._kept[task]
        return int(rows), int(total)

    def _window_join(self) -> tuple[int, int]:
        """Pairs of one item whose times differ by no more than the window."""
        a, b = (self._world.streams["join"][name] for name in STREAMS)
        reach = self._world.sizes["window_us"] // STEP
        rows = total = 0
        for item in np.intersect1d(a["item"], b["item"]):
            left, right = np.flatnonzero(a["item"] == item), np.flatnonzero(b["item"] == item)
            low = np.searchsorted(right, left - reach, side="left")
            many = np.searchsorted(right, left + reach, side="right") - low
            first = np.repeat(left, many)
            place = np.arange(len(first)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(low, many)
            rows += len(first)
            total += checksum(first, right[place])
        return rows, total

    def _selected(self, task: str) -> tuple[int, int]:
        stream = self._world.streams["selections"]["a"]
        rows = total = 0
        for number, (low, high, first, last) in enumerate(selections(int(task.rsplit("-", 1)[1]))):
            kept = (stream["price"] >= low) & (stream["price"] <= high)
            kept &= (stream["item"] >= first) & (stream["item"] <= last)
            found = stream["id"][kept]
            rows += len(found)
            total += checksum(number, found)
        return rows, total

    # --- pairs of the history --------------------------------------------------------------------------------------

    def _counts(self) -> tuple[Ints, Ints]:
        if "counts" not in self._kept:
            both = self._world.streams["history"]
            most = 1 + max(int(both[name]["item"].max()) for name in STREAMS)
            self._kept["counts"] = tuple(np.bincount(both[name]["item"], minlength=most) for name in STREAMS)
        a, b = self._kept["counts"]
        return a, b

    def _pairs(self) -> int:
        a, b = self._counts()
        return int(a @ b)

    def _sum(self, task: str) -> float:
        a = self._world.streams["history"]["a"]
        if task == "sum":
            return float(a["amount"].sum())
        return float(a["amount"] @ self._counts()[1][a["item"]])

    def _judge_pairs(self, task: str, answer: dict[str, Any]) -> Verdict:
        """True pairs, none twice, as many as asked; of the right items in order, ties being free, or a fair sample."""
        first, second = (np.asarray(answer[name], np.int64) for name in STREAMS)
        want = self.expected(task)
        if len(first) != want or len(second) != want:
            return Verdict(False, f"{len(first):,} rows of {want:,}")
        a, b = (self._world.streams["history"][name]["item"] for name in STREAMS)
        true = a[first] == b[second]
        if not true.all():
            return Verdict(False, f"{int((~true).sum()):,} rows are no pairs")
        if len(np.unique(first * len(b) + second)) != want:
            return Verdict(False, "a pair came twice")
        of_a, of_b = self._counts()
        product = of_a * of_b
        if task == "sampled":
            return self._fair(product, a[first])
        order = np.sort(product[product > 0])
        order = order[::-1] if task == "top" else order
        best = np.repeat(order[: want + 1], np.minimum(order[: want + 1], want))[:want]
        found = product[a[first]]
        precision = float((found == best).mean())
        return Verdict(precision == 1.0, "" if precision == 1.0 else f"precision {precision:.4f}", 1 - precision)

    def _fair(self, product: Ints, items: Ints) -> Verdict:
        """Items in order of their pairs, in bins of about as many pairs each: a sample falls into all alike."""
        order = np.argsort(product, kind="stable")
        place = np.empty(len(product), np.int64)
        edges = np.cumsum(product[order]) - product[order]
        place[order] = edges * BINS // self._pairs()
        share = np.bincount(place, weights=product, minlength=BINS) / self._pairs()
        expected = share * len(items)
        found = np.bincount(place[items], minlength=BINS)
        chi = float(((found - expected) ** 2 / np.maximum(expected, 1e-9))[expected > 0].sum())
        return Verdict(chi <= UNFAIR, "" if chi <= UNFAIR else f"chi-square {chi:.0f} over {BINS} bins", 0.0)
