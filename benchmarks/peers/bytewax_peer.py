"""Bytewax: a dataflow of tuples keyed by item for the join, of whole batches for selections and sums."""

import importlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.peers.checks import checksum
from benchmarks.peers.protocol import Answer, Job, Peer, Tally, run

SETTINGS: dict[str, Any] = {
    "workers": 1,
    "why one worker": "workers of one process are threads that take turns at Python code",
    "join": "key by item, stateful_batch with the tuples of the window in order of time; fed with ready Python objects",
    "selections": "a batch is an item of the dataflow; numpy compares it with each selection",
    "sum": "exact: a batch is an item; numpy adds it up, reduce_final adds up the parts",
    "epoch_interval": "10 s, the default",
}
NO_TABLES = "a dataflow has no stored tables, no order and no sample; each question would be a separate program"


@dataclass(frozen=True)
class Bytewax:
    """The parts of the package that are needed."""

    op: Any
    dataflow: Any
    testing: Any
    outputs: Any


@dataclass(frozen=True)
class Loaded:
    kit: Bytewax
    columns: dict[str, dict[str, Any]]


def load(kit: Bytewax, job: Job) -> Loaded:
    columns = {}
    for name in ("a", "b"):
        table = pq.read_table(job.file(name))
        columns[name] = {n: table[n].to_numpy() for n in ("id", "item", "price", "amount")}
        columns[name]["ts"] = table["ts"].cast("int64").to_numpy()
    return Loaded(kit, columns)


def _run(kit: Bytewax, flow: Any, tally: Tally) -> None:
    tally.start()
    kit.testing.run_main(flow, epoch_interval=timedelta(seconds=10))
    tally.stop()


def _sink(kit: Bytewax, take: Any) -> Any:
    """Hands each batch of results to `take`."""

    class Partition(kit.outputs.StatelessSinkPartition):  # type: ignore[misc, name-defined]  # known when it runs
        def write_batch(self, items: list[Any]) -> None:
            take(items)

    class Sink(kit.outputs.DynamicSink):  # type: ignore[misc, name-defined]  # likewise
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Any:
            return Partition()

    return Sink()


class Held:
    """The tuples of one item within the window, of both sides, in order of time; made for each key."""

    def __init__(self, window: int, slack: int) -> None:
        self._window, self._slack = window, slack
        self._times: tuple[list[int], list[int]] = ([], [])
        self._ids: tuple[list[int], list[int]] = ([], [])

    def on_batch(self, values: Sequence[tuple[int, int, int]]) -> tuple[Iterable[tuple[int, int]], bool]:
        window, found = self._window, []
        for side, ts, number in values:
            times, ids = self._times[1 - side], self._ids[1 - side]
            low = bisect_left(times, ts - window)
            others = ids[low : bisect_right(times, ts + window, low)]
            found += [(number, other) for other in others] if side == 0 else [(other, number) for other in others]
            self._times[side].append(ts)
            self._ids[side].append(number)
        horizon = values[-1][1] - window - self._slack
        for side in (0, 1):
            gone = bisect_left(self._times[side], horizon)
            if gone:
                del self._times[side][:gone], self._ids[side][:gone]
        return found, False


def join(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    kit, window = loaded.kit, job.sizes["window_us"]
    slack = 2 * job.batch * 100

    class Logic(kit.op.StatefulBatchLogic):  # type: ignore[misc, name-defined]  # known when it runs
        def __init__(self) -> None:
            self._held = Held(window, slack)

        def on_batch(self, values: Any) -> Any:
            return self._held.on_batch(values)

        def snapshot(self) -> Any:  # nothing is recovered here
            return None

    fed: list[tuple[str, tuple[int, int, int]]] = []
    for first in range(0, job.tuples, job.batch):
        end = min(first + job.batch, job.tuples)
        for side, name in enumerate(("a", "b")):
            part = {n: c[first:end].tolist() for n, c in loaded.columns[name].items()}
            keyed = zip(map(str, part["item"]), part["ts"], part["id"], strict=True)
            fed += [(item, (side, ts, number)) for item, ts, number in keyed]
    found: list[tuple[str, tuple[int, int]]] = []

    def take(items: list[tuple[str, tuple[int, int]]]) -> None:
        found.extend(items)
        tally.rows(len(found))

    flow = kit.dataflow.Dataflow("join")
    tuples = kit.op.input("in", flow, kit.testing.TestingSource(fed, batch_size=2 * job.batch))
    pairs = kit.op.stateful_batch("join", tuples, lambda state: Logic())
    kit.op.output("out", pairs, _sink(kit, take))
    _run(kit, flow, tally)
    ids = np.array([pair for _, pair in found], np.int64).reshape(-1, 2)
    return {"rows": len(ids), "checksum": checksum(ids[:, 0], ids[:, 1])}


def selections(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    kit, columns, asked = loaded.kit, loaded.columns["a"], job.selections(task)

    def chosen(batch: tuple[Any, Any, Any]) -> list[tuple[int, Any]]:
        ids, items, prices = batch
        made = []
        for number, (low, high, first, last) in enumerate(asked):
            kept = (prices >= low) & (prices <= high)
            if first:
                kept &= (items >= first) & (items <= last)
            made.append((number, ids[kept]))
        return made

    fed = [
        tuple(columns[n][first : min(first + job.batch, job.tuples)] for n in ("id", "item", "price"))
        for first in range(0, job.tuples, job.batch)
    ]
    found: list[tuple[int, Any]] = []
    rows = 0

    def take(items: list[tuple[int, Any]]) -> None:
        nonlocal rows
        found.extend(items)
        rows += sum(len(ids) for _, ids in items)
        tally.rows(rows)

    flow = kit.dataflow.Dataflow("selections")
    batches = kit.op.input("in", flow, kit.testing.TestingSource(fed, batch_size=1))
    kit.op.output("out", kit.op.flat_map("select", batches, chosen), _sink(kit, take))
    _run(kit, flow, tally)
    return {"rows": rows, "checksum": sum(checksum(number, ids) for number, ids in found)}


def total(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    kit, amounts = loaded.kit, loaded.columns["a"]["amount"]
    fed = [amounts[first : first + (1 << 16)] for first in range(0, len(amounts), 1 << 16)]
    found: list[tuple[str, float]] = []

    def take(items: list[tuple[str, float]]) -> None:
        found.extend(items)
        tally.rows(1)

    flow = kit.dataflow.Dataflow("sum")
    batches = kit.op.input("in", flow, kit.testing.TestingSource(fed, batch_size=1))
    parts = kit.op.map("add", batches, lambda batch: ("all", float(batch.sum())))
    kit.op.output("out", kit.op.reduce_final("sum", parts, lambda x, y: x + y), _sink(kit, take))
    _run(kit, flow, tally)
    return {"rows": 1, "value": found[0][1]}


def make(threads: int) -> Peer:
    kit = Bytewax(
        importlib.import_module("bytewax.operators"),
        importlib.import_module("bytewax.dataflow"),
        importlib.import_module("bytewax.testing"),
        importlib.import_module("bytewax.outputs"),
    )
    return Peer(
        "bytewax",
        version("bytewax"),
        SETTINGS,
        partial(load, kit),
        {"join": {"": join}, "selections": {"": selections}, "sum": {"exact": total}},
        dict.fromkeys(("top", "rare", "sampled", "sum-join"), NO_TABLES),
    )


if __name__ == "__main__":
    run(make)
