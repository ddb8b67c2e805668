"""What the producers send: batch `number` of producer `p` is a pure function of the seed, so that everybody knows it.

A producer sends to one stream. Its batches go forward in event time by `STEP`, with tuples that are late by up to some
granularities among them, and every seventh batch, once time has passed, has one that is too old for any summary.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import promising.index.log
import promising.index.storage.wal_journal
from promising.index import Options, Stream
from promising.index.storage.store import Store

SCHEMA = {"ts": "timestamp", "k": "int", "s": "string", "id": "int", "x": "float"}
STREAMS = ("left", "right")
PRODUCERS = 4
KEYS = list(range(40))
STEP = 1_000
GRANULARITY = 4 * STEP
COLLAPSE = (2, 4)
KEEP = 16 * GRANULARITY
LATENESS = GRANULARITY // 2
AHEAD = 8  # batches that a producer may be before the slowest
SMALL = Options(buckets=4, depth=3, width=8, maxlength=300, tolerance=4.0, filter_bits=256, coarse_bits=512)
ROOM = 1 << 17

CHUNK = 128
"""Rows that a log hands out together: few, so that some go cold, and are given back, all the time."""

Columns = dict[str, Any]


def small_chunks() -> None:
    """For this process and those it forks; and small batches are synced ahead, as large ones are."""
    promising.index.log.CHUNK = CHUNK
    promising.index.storage.wal_journal.AHEAD = 32


def stream_of(producer: int) -> str:
    return STREAMS[producer % len(STREAMS)]


def name_of(producer: int) -> str:
    return f"till {producer}"


def batch(seed: int, producer: int, number: int) -> Columns:
    """The tuples of one batch, from 10 to 60; numbers count from 1."""
    rng = np.random.default_rng([seed, producer, number])
    n = int(rng.integers(10, 60))
    times = number * STEP + np.sort(rng.integers(0, STEP, n))
    late = rng.random(n) < 0.1
    times[late] -= rng.integers(0, 8 * GRANULARITY, int(late.sum()))
    if number % 7 == 0 and number > 2 * AHEAD:
        times[n // 2] = -(10**9)
    ids = (producer << 48) + (number << 16) + np.arange(n)
    return {"ts": times, "id": ids, **values(ids)}


def values(ids: NDArray[np.int64]) -> Columns:
    """The other columns, which follow from the id: whoever reads a tuple can tell whether it is whole."""
    k = (ids * 0x9E3779B1 >> 12) % len(KEYS)
    k = np.minimum(k, (ids * 0x85EBCA6B >> 9) % len(KEYS))  # low keys are popular
    return {
        "k": k,
        "s": [f"item {key}" if key % 3 else f"{key} " + "é" * int(key) for key in k.tolist()],
        "x": [None if i % 5 == 0 else float(i % 1000) / 8 for i in ids.tolist()],
    }


def sender(ids: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Which producer's which batch each tuple is from."""
    return list(zip((ids >> 48).tolist(), (ids >> 16 & 0xFFFFFFFF).tolist(), strict=True))


def make(name: str, seed: int) -> Stream:
    """A stream in memory like those of the store, with its summaries."""
    stream = Stream(name, SCHEMA, "ts", lateness=LATENESS, keep=KEEP, clock=lambda: 1 << 60, max_tuples=ROOM, seed=seed)
    for summary in SUMMARIES:
        summarise(stream, summary)
    return stream


def make_durable(store: Store, name: str) -> Stream:
    return store.create_stream(name, SCHEMA, "ts", lateness=LATENESS, keep=KEEP, max_tuples=ROOM)


SUMMARIES = {"adaptive": ("k", "adaptive"), "words": ("s", "grid"), "bare": ("k", "none")}
PASSING = "passing"
"""A summary that comes and goes."""


def summarise(stream: Stream, name: str) -> None:
    key, structure = SUMMARIES.get(name, ("k", "time"))
    stream.create_summary(name, key, granularity=GRANULARITY, collapse=COLLAPSE, structure=structure, options=SMALL)
