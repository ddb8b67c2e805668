"""Search: the flat scan of the sliced filters against a pyramid over the same zones, few keys and many, warm and cold.

Both find the same zones. Cold: the filters are out of the processor's caches, and the pyramid's nodes are built.
"""

import numpy as np
from numpy.typing import NDArray

from benchmarks import data
from benchmarks.harness import Contender, Effort, Figure, Report, Run, alternate
from benchmarks.pyramid import Pyramid
from promising.index import Options
from promising.index.fine import Fine
from promising.index.kernels.probe import survivors
from promising.index.options import Sizes
from promising.index.summary import SummaryState
from promising.summaries.hashing import hash_keys

LENGTH = 256  # tuples of a zone: short, so that many zones are soon made
OPTIONS = Options(maxlength=LENGTH, depth=3, width=16, filter_bits=1 << 12)
BLOCK = 1 << 45
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


def run(report: Report, effort: Effort) -> None:
    ranked = data.ranked()
    asked = {
        "rare keys": ranked[20_000:20_200],
        "absent keys": ranked[:200] + 1,
        "mid keys": ranked[1000:1020],
        "10,000 rare keys": ranked[20_000:30_000],
    }
    figures = []
    for zones in (64, 512, 2048) if effort.quick else (64, 512, 4096, 16384):
        made, summary = data.stream(zones * LENGTH, "grid", granularity=BLOCK, collapse=(2, 1), options=OPTIONS)
        data.fill(made, data.zipf(zones * LENGTH, 5))
        state = summary.state
        assert isinstance(state, SummaryState)
        built, evicting = Pyramid(state.fine), np.zeros(1 << 22, np.int64)
        for name, keys in asked.items():
            hashes = hash_keys(keys, made.seed).view(np.int64)
            _check(state, built, hashes)
            contenders = {
                "flat": _searching(state, hashes),
                "pyramid": _descending(built, hashes),
                "flat, cold": _searching(state, hashes, evicting),
                "pyramid, cold": _descending(None, hashes, evicting, state.fine),
            }
            took = alternate(contenders, effort.rounds)
            sizes: dict[str, int | float | str] = {"zones": zones, "probes": len(keys)}
            us = {s: t / len(keys) / 1000 for s, t in took.items()}
            for how in ("", ", cold"):
                ours, theirs = us["flat" + how], us["pyramid" + how]
                figures.append(Figure(f"zones, {name}{how}", ours, theirs, "pyramid", "us/probe", sizes=sizes))
    report.part("search", "flat scan against a pyramid", figures)


def flat(state: SummaryState, hashes: NDArray[np.int64]) -> Pairs:
    """The sealed zones that may hold each key, as `Reader.regions` finds them: (index of the key, slot)."""
    sizes, pool = state.identity.sizes, state.fine.pool
    wanted = (pool.sealed > 0).astype(np.uint8)
    groups = np.array([group for block in state.fine.blocks.values() for group in block.groups], np.int64)
    args = (pool.sliced, groups, hashes, sizes.shift, sizes.probes, Sizes.lg(sizes.slots), wanted)
    none = np.empty(0, np.int64)
    found = survivors(*args, none, none)
    key, slot = np.empty(found, np.int64), np.empty(found, np.int64)
    survivors(*args, key, slot)
    return key, slot


def _searching(state: SummaryState, hashes: NDArray[np.int64], evicting: NDArray[np.int64] | None = None) -> Contender:
    def prepare() -> Run:
        _evict(evicting)
        return lambda: flat(state, hashes)

    return prepare


def _descending(
    built: Pyramid | None,
    hashes: NDArray[np.int64],
    evicting: NDArray[np.int64] | None = None,
    fine: Fine | None = None,
) -> Contender:
    def prepare() -> Run:
        _evict(evicting)
        if built is not None:
            return lambda: built.find(hashes)
        assert fine is not None
        return lambda: Pyramid(fine).find(hashes)

    return prepare


def _evict(evicting: NDArray[np.int64] | None) -> None:
    if evicting is not None:
        evicting += 1


def _check(state: SummaryState, built: Pyramid, hashes: NDArray[np.int64]) -> None:
    """The same zones, and the pyramid built."""
    for ours, theirs in zip(flat(state, hashes), built.find(hashes), strict=True):
        assert np.array_equal(ours, theirs)
