"""Pathway: tables that follow a Python connector, an interval join, and reductions that say what has come so far."""

import importlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.peers.protocol import CHECK, FIRST, SECOND, Answer, Job, Peer, Tally, run

SETTINGS: dict[str, Any] = {
    "monitoring_level": "NONE",
    "input": "a Python connector without deletions, rows by next(), a commit for each batch",
    "join": "interval_join on item, with a cutoff past the window so that old tuples are released; pairs are counted"
    " and summed inside, as a callback for each would take longer than the join",
    "selections": "a function over columns of up to 4,096 tuples gives the selections of each, then flatten",
    "sum, sum-join": "exact: reductions over static tables; Pathway has no sampled aggregate",
    "clock": "from the start of the run to its end",
}
SIDES = ((0, "a"), (1, "b"))
NO_ORDER = "no order with a limit and no sample over a join of stored tables"


@dataclass(frozen=True)
class Loaded:
    pw: Any
    columns: dict[str, dict[str, Any]]


def load(pw: Any, job: Job) -> Loaded:
    columns = {}
    for name in ("a", "b"):
        table = pq.read_table(job.file(name))
        columns[name] = {n: table[n].to_numpy() for n in ("item", "price", "amount")}
        columns[name]["number"] = table["id"].to_numpy()  # `id` is a name of Pathway's own
        columns[name]["ts"] = table["ts"].cast("int64").to_numpy()
    return Loaded(pw, columns)


def _source(pw: Any, batches: list[list[dict[str, Any]]], types: dict[str, Any]) -> Any:
    """A table that gets these rows, batch by batch."""

    class Subject(pw.io.python.ConnectorSubject):  # type: ignore[misc]  # known when it runs
        @property
        def _deletions_enabled(self) -> bool:
            return False

        def run(self) -> None:
            for batch in batches:
                for row in batch:
                    self.next(**row)
                self.commit()

    schema = pw.schema_from_types(**types)
    return pw.io.python.read(Subject(), schema=schema, autocommit_duration_ms=None)


def _run(pw: Any, reduced: Any, tally: Tally, seen: Callable[[dict[str, Any]], None]) -> None:
    """Run all that is defined, tell each new value of a table of one row, and forget it."""

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            seen(row)

    pw.io.subscribe(reduced, on_change=on_change)
    tally.start()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    tally.stop()
    importlib.import_module("pathway.internals.parse_graph").G.clear()


def _counted(pw: Any, rows: Any, first: str, second: str, tally: Tally) -> Answer:
    """How many rows there are, and their checksum."""
    each = rows.select(part=(rows[first] * FIRST + rows[second] * SECOND) % CHECK)
    last = {"n": 0, "total": 0}

    def seen(row: dict[str, Any]) -> None:
        last.update(row)
        tally.rows(row["n"])

    _run(pw, each.reduce(n=pw.reducers.count(), total=pw.reducers.sum(pw.this.part)), tally, seen)
    return {"rows": last["n"], "checksum": last["total"]}


def _rows(columns: dict[str, Any], names: Iterable[str], first: int, end: int, **more: Any) -> list[dict[str, Any]]:
    names = tuple(names)
    parts = [columns[name][first:end].tolist() for name in names]
    return [dict(zip(names, row, strict=True), **more) for row in zip(*parts, strict=True)]


def join(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    pw, window = loaded.pw, job.sizes["window_us"]
    batches = []
    for first in range(0, job.tuples, job.batch):
        end = min(first + job.batch, job.tuples)
        both = [_rows(loaded.columns[name], ("number", "ts", "item"), first, end, side=side) for side, name in SIDES]
        batches.append(both[0] + both[1])
    fed = _source(pw, batches, {"number": int, "ts": int, "item": int, "side": int})
    a, b = fed.filter(fed.side == 0), fed.filter(fed.side == 1)
    behavior = pw.temporal.common_behavior(cutoff=2 * window + 2 * job.batch * 100)
    near = pw.temporal.interval(-window, window)
    joined = a.interval_join(b, a.ts, b.ts, near, a.item == b.item, behavior=behavior)
    return _counted(pw, joined.select(a=a.number, b=b.number), "a", "b", tally)


def selections(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    pw = loaded.pw
    low, high, start, last = (np.array(column) for column in zip(*job.selections(task), strict=True))

    @pw.udf(max_batch_size=4096, deterministic=True, return_type=list[int])  # type: ignore[untyped-decorator]  # Any
    def chosen(prices: list[float], items: list[int]) -> list[list[int]]:
        price, item = np.array(prices)[:, None], np.array(items)[:, None]
        kept = (price >= low) & (price <= high) & (item >= start) & (item <= last)
        rows, queries = np.nonzero(kept)
        return [part.tolist() for part in np.split(queries, np.searchsorted(rows, np.arange(1, len(prices))))]

    names, columns = ("number", "item", "price"), loaded.columns["a"]
    batches = [
        _rows(columns, names, first, min(first + job.batch, job.tuples)) for first in range(0, job.tuples, job.batch)
    ]
    fed = _source(pw, batches, {"number": int, "item": int, "price": float})
    found = fed.select(fed.number, query=chosen(fed.price, fed.item))
    return _counted(pw, found.flatten(pw.this.query), "query", "number", tally)


def total(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    pw = loaded.pw
    pandas: Any = importlib.import_module("pandas")
    frames = {
        name: pandas.DataFrame({"item": columns["item"], "amount": columns["amount"]})
        for name, columns in loaded.columns.items()
    }
    a = pw.debug.table_from_pandas(frames["a"])
    if task == "sum":
        reduced = a.reduce(s=pw.reducers.sum(pw.this.amount))
    else:
        b = pw.debug.table_from_pandas(frames["b"])
        counted = b.groupby(b.item).reduce(b.item, n=pw.reducers.count())
        each = a.join(counted, a.item == counted.item).select(part=a.amount * counted.n)
        reduced = each.reduce(s=pw.reducers.sum(pw.this.part))
    last: dict[str, Any] = {}

    def seen(row: dict[str, Any]) -> None:
        last.update(row)
        tally.rows(1)

    _run(pw, reduced, tally, seen)
    return {"rows": 1, "value": last["s"]}


def make(threads: int) -> Peer:
    os.environ["PATHWAY_THREADS"] = str(threads)
    pw: Any = importlib.import_module("pathway")
    return Peer(
        "pathway",
        pw.__version__,
        {"PATHWAY_THREADS": threads, **SETTINGS},
        partial(load, pw),
        {"join": {"": join}, "selections": {"": selections}, "sum": {"exact": total}, "sum-join": {"exact": total}},
        dict.fromkeys(("top", "rare", "sampled"), NO_ORDER),
    )


if __name__ == "__main__":
    run(make)
