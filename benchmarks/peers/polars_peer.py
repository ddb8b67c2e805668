"""Polars: frames in memory; lazy queries for the history, a lazy query for each batch of what is streamed."""

import importlib
import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.checks import checksum
from benchmarks.peers.protocol import Answer, Job, Peer, Tally, run

SETTINGS: dict[str, Any] = {
    "history": "frames in memory, read from the files, in one piece; lazy queries, default engine",
    "join": "what is new against the window of the other side, as slices; one collect_all a batch",
    "selections": "one select with arg_where for each selection, a batch at a time",
    "top, rare": "counts by item of both sides; as many items as the rows need; of these the tuples, joined, in order",
    "sampled": "the join, then sample(n)",
    "sum, sum-join": "exact: Polars has no sampled aggregate, and a sample of a frame reads as much as its sum",
}


@dataclass(frozen=True)
class Loaded:
    pl: Any
    frames: dict[str, Any]


def load(pl: Any, job: Job) -> Loaded:
    return Loaded(pl, {name: pl.read_parquet(job.file(name)).rechunk() for name in ("a", "b")})


def pairs(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    pl, a, b = loaded.pl, loaded.frames["a"].lazy(), loaded.frames["b"].lazy()
    rows = job.sizes["top"]
    tally.start()
    if task == "sampled":
        left, right = a.select("item", pl.col("id").alias("a")), b.select("item", pl.col("id").alias("b"))
        found = left.join(right, on="item").select("a", "b").collect().sample(job.sizes["sample"], seed=job.seed)
    else:
        down = task == "top"
        counted = a.group_by("item").len("na").join(b.group_by("item").len("nb"), on="item")
        best = counted.select("item", (pl.col("na").cast(pl.Int64) * pl.col("nb")).alias("pairs"))
        best = best.sort("pairs", "item", descending=[down, False]).head(rows)
        needed = best.filter(pl.col("pairs").cum_sum() - pl.col("pairs") < rows).collect().lazy()
        x = a.join(needed, on="item").select("item", "pairs", pl.col("id").alias("a"))
        y = b.join(needed, on="item").select("item", pl.col("id").alias("b"))
        joined = x.join(y, on="item").sort("pairs", "item", descending=[down, False]).head(rows)
        found = joined.select("a", "b").collect()
    tally.rows(len(found))
    tally.stop()
    return {"rows": len(found), "a": found["a"].to_list(), "b": found["b"].to_list()}


def total(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    pl, a, b = loaded.pl, loaded.frames["a"].lazy(), loaded.frames["b"].lazy()
    tally.start()
    if task == "sum":
        value = a.select(pl.col("amount").sum()).collect().item()
    else:
        counted = b.group_by("item").len("n")
        value = a.join(counted, on="item").select((pl.col("amount") * pl.col("n")).sum()).collect().item()
    tally.rows(1)
    tally.stop()
    return {"rows": 1, "value": value}


def join(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    """A pair is found when the later of both comes: new of a with all of b that is held, old of a with new of b."""
    pl, window = loaded.pl, job.sizes["window_us"]
    reach = -(-window // 100)
    a = loaded.frames["a"].select("item", pl.col("ts").to_physical().alias("ta"), pl.col("id").alias("a"))
    b = loaded.frames["b"].select("item", pl.col("ts").to_physical().alias("tb"), pl.col("id").alias("b"))
    near = (pl.col("ta") - pl.col("tb")).is_between(-window, window)

    def matched(left: Any, right: Any) -> Any:
        return left.lazy().join(right.lazy(), on="item").filter(near).select("a", "b")

    found: list[Any] = []
    rows = 0
    tally.start()
    for first in range(0, job.tuples, job.batch):
        size, low = min(job.batch, job.tuples - first), max(first - reach, 0)
        parts = pl.collect_all(
            [
                matched(a.slice(first, size), b.slice(low, first - low + size)),
                matched(a.slice(low, first - low), b.slice(first, size)),
            ]
        )
        found += parts
        rows += sum(map(len, parts))
        tally.rows(rows)
    tally.stop()
    return {"rows": rows, "checksum": sum(checksum(part["a"].to_numpy(), part["b"].to_numpy()) for part in found)}


def selections(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    pl, frame = loaded.pl, loaded.frames["a"]
    lists = []
    for number, (low, high, first, last) in enumerate(job.selections(task)):
        kept = pl.col("price").is_between(low, high)
        if first:
            kept = kept & pl.col("item").is_between(first, last)
        lists.append(pl.arg_where(kept).implode().alias(str(number)))
    found: list[tuple[int, Any]] = []
    rows = 0
    tally.start()
    for start in range(0, job.tuples, job.batch):
        part = frame.slice(start, min(job.batch, job.tuples - start)).select(lists)
        rows += sum(len(column[0]) for column in part.iter_columns())
        found.append((start, part))
        tally.rows(rows)
    tally.stop()
    check = 0
    for start, part in found:
        for number, column in enumerate(part.iter_columns()):
            check += checksum(number, column[0].to_numpy().astype(np.int64) + start)
    return {"rows": rows, "checksum": check}


def make(threads: int) -> Peer:
    os.environ["POLARS_MAX_THREADS"] = str(threads)  # asked once, when it is loaded
    pl: Any = importlib.import_module("polars")
    return Peer(
        "polars",
        pl.__version__,
        {"threads": pl.thread_pool_size(), **SETTINGS},
        partial(load, pl),
        {
            "join": {"": join},
            "selections": {"": selections},
            "top": {"": pairs},
            "rare": {"": pairs},
            "sampled": {"": pairs},
            "sum": {"exact": total},
            "sum-join": {"exact": total},
        },
    )


if __name__ == "__main__":
    run(make)
