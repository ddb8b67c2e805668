"""Zones: do they follow the stream? Error against fixed zones, cuts without a cause, and how soon a change is seen.

The error is that of what zones are for, to say how often a key occurs in a stretch of time: for random stretches of
`SPAN` tuples and keys seen around them, the mean squared difference of `estimate(keys, window)` from the true count. A
zone that lies across an edge of the stretch gives its share by time; if it mixes two behaviours it is wrong about both.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Effort, Figure, Report
from promising.index import Options, Stream
from promising.index.summary_index import SummaryIndex
from promising.testing import streams

FOREVER = 1 << 45  # one block of G_1 holds the whole stream
SPAN = 2000
KEYS_ASKED = 40
WINDOWS = 60


def summarised(
    columns: streams.Columns, structure: str = "adaptive", options: Options | None = None, room: int = 1 << 22
) -> SummaryIndex:
    """A summary of the items, in one block of `G_1`."""
    made = Stream("zones", {"ts": "timestamp", "item_id": "int"}, time="ts", clock=lambda: 1 << 60, max_tuples=room)
    summary = made.create_summary(
        "s", key="item_id", granularity=FOREVER, collapse=(2, 1), structure=structure, options=options
    )
    for start in range(0, len(columns["ts"]), 1 << 16):
        made.append({name: columns[name][start : start + (1 << 16)] for name in ("ts", "item_id")})
    return summary


def rotations(n: int, items: int, exponent: float, count: int, seed: int) -> streams.Columns:
    """`count` changes of the popular items, anywhere."""
    rng = np.random.default_rng(seed)
    at = rng.choice(np.arange(2000, n - 2000), count, replace=False)
    return streams.rotation(n, items, exponent, at=sorted(at.tolist()), seed=seed)


def bursts(n: int, seed: int) -> streams.Columns:
    """One item takes 30 % of the tuples for 4,000 of them, once in 30,000."""
    rng = np.random.default_rng(seed)
    starts = np.arange(0, n - 30_000, 30_000) + rng.integers(0, 20_000, (n - 1) // 30_000)
    during = [(int(s), int(s) + 4000) for s in starts]
    return streams.bursts(n, 2000, 1.0, key=1500, share=0.3, during=during, seed=seed)


def spells_of_drift(n: int, spell: int, seed: int) -> streams.Columns:
    """Popularity drifts from Zipf to its mirror image within `spell` tuples, and back, and so on."""
    parts = []
    start = 0
    for number in range(n // spell):
        part = streams.drift(spell, 2000, 1.1, seed=seed * 1000 + number, start=start)
        if number % 2:
            part["item_id"] = part["item_id"][::-1].copy()
        parts.append(part)
        start = int(part["ts"][-1])
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


MAKERS: dict[str, Callable[[int, int], streams.Columns]] = {
    "rotations": lambda n, seed: rotations(n, 2000, 1.1, n // 15_000, seed),
    "bursts": bursts,
    "fast drift": lambda n, seed: spells_of_drift(n, 15_000, seed),
    "slow drift": lambda n, seed: streams.drift(n, 2000, 1.1, seed=seed),
}


def window_error(columns: streams.Columns, summary: SummaryIndex, seed: int) -> float:
    """Mean squared error of counts of single keys in random stretches of `SPAN` tuples."""
    rng = np.random.default_rng(seed)
    ts, items = columns["ts"], columns["item_id"]
    total, asked = 0.0, 0
    for _ in range(WINDOWS):
        first = int(rng.integers(0, len(ts) - SPAN))
        window = (int(ts[first]), int(ts[first + SPAN]))
        low, high = np.searchsorted(ts, window)
        around = items[max(0, first - 2 * SPAN) : first + 3 * SPAN]
        keys: NDArray[np.int64] = np.unique(rng.choice(around, KEYS_ASKED))
        truth = (items[low:high, None] == keys).sum(axis=0)
        total += float(((summary.estimate(keys, window).value - truth) ** 2).sum())
        asked += len(keys)
    return total / asked


def against_fixed(columns: streams.Columns, seed: int) -> tuple[float, float, int, int]:
    """(error of adaptive zones, error of fixed ones, number of the former, of the latter); the latter is no smaller."""
    adaptive = summarised(columns)
    zones = len(adaptive.describe().zones)
    fixed = summarised(columns, "grid", Options(maxlength=len(columns["ts"]) // zones))
    many = len(fixed.describe().zones)
    return window_error(columns, adaptive, seed), window_error(columns, fixed, seed), zones, many


def false_cuts(n: int, items: int, exponent: float, maxlength: int, seed: int) -> tuple[int, int]:
    """(cuts for behaviour, all cuts) on a stationary stream: each of the former is an error."""
    columns = streams.zipf(n, items, exponent, seed=seed)
    cuts = summarised(columns, options=Options(maxlength=maxlength)).describe().cuts
    return cuts.get("behaviour", 0), sum(cuts.values())


def delay(items: int, exponent: float, seed: int, patience: int = 1024) -> int | None:
    """Tuples from a rotation, anywhere in the stream, to the cut for behaviour that it causes; None if none comes."""
    at = int(np.random.default_rng(seed).integers(1024, 30_000))
    columns = streams.rotation(at + patience, items, exponent, at=[at], seed=seed)
    made = Stream("delay", {"ts": "timestamp", "item_id": "int"}, time="ts", clock=lambda: 1 << 60, max_tuples=1 << 16)
    summary = made.create_summary("s", key="item_id", granularity=FOREVER, collapse=(2, 1))

    def send(start: int, stop: int) -> int:
        made.append({name: columns[name][start:stop] for name in ("ts", "item_id")})
        return summary.describe().cuts.get("behaviour", 0)

    before = send(0, at)
    for start in range(at, at + patience, 8):
        if send(start, start + 8) > before:
            return start + 8 - at
    return None


def run(report: Report, effort: Effort) -> None:
    n = 150_000 if effort.quick else 450_000
    figures = []
    for name, make in MAKERS.items():
        runs = [against_fixed(make(n, seed), seed) for seed in range(effort.rounds)]
        adaptive, fixed, zones, many = np.mean(runs, axis=0).tolist()
        sizes: dict[str, int | float | str] = {"tuples": n, "zones": f"{zones:.0f} vs {many:.0f}", "seeds": len(runs)}
        goal = "" if name == "slow drift" else "<= 1"
        figures.append(Figure(f"error, {name}", adaptive, fixed, "fixed zones", "tuples^2", goal, sizes))
    report.part("zones", "error of adaptive zones against as many fixed ones", figures)
    figures = []
    for exponent in (0.8, 1.0, 1.1, 1.3):
        found = [false_cuts(2 * n, items, exponent, 2048, items) for items in (100, 2000, 40_000)]
        false, cuts = (sum(c) for c in zip(*found, strict=True))
        sizes = {"exponent": exponent, "cuts": cuts}
        figures.append(Figure("false cuts", false / cuts, unit="share", goal="<= 0.01", sizes=sizes))
    report.part("zones", "cuts for behaviour on a stationary stream", figures)
    trials = 20 if effort.quick else 100
    figures = []
    for items, exponent in ((100, 1.1), (2000, 0.8), (2000, 1.1), (40_000, 0.8), (40_000, 1.1), (40_000, 1.3)):
        delays = [delay(items, exponent, seed) for seed in range(trials)]
        seen = np.array([np.inf if d is None else d for d in delays])
        sizes = {"items": items, "exponent": exponent, "trials": trials}
        figures.append(
            Figure("cut within 512 tuples", float((seen <= 512).mean()), unit="share", goal=">= 0.95", sizes=sizes)
        )
        for name, share in (("median", 0.5), ("95th percentile", 0.95)):
            worst = float(np.quantile(seen, share, method="inverted_cdf"))
            if np.isfinite(worst):
                figures.append(Figure(f"delay, {name}", worst, unit="tuples", sizes=sizes))
    report.part("zones", "how soon a rotation of the popular items is cut", figures)
