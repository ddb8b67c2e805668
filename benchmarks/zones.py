"""Zones: what an edge of a window costs, whether cuts pay, cuts without a cause, and how soon a change is seen.

The error is that of what zones are for, to say how often a key occurs in a stretch of time: for random stretches and
keys seen around them, the difference of `estimate(keys, window)` from the true count. A zone that lies across an edge
of the stretch gives its share of tuples; if it mixes two behaviours it is wrong about both. Equal bytes are as many
sealed zones over the same tuples.
"""

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from benchmarks.harness import Effort, Figure, Report
from promising.bench.estimates import Errors, window_errors
from promising.demo import journey
from promising.index import Options, Stream
from promising.index.summary_index import SummaryIndex
from promising.testing import streams

FOREVER = 1 << 45  # one block of G_1 holds the whole stream
SPAN = 2000
WINDOWS = 100
PARTS = (0.01, 0.05, 0.2)
"""Lengths of windows, as parts of a log."""


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
    """Popularity drifts from Zipf to its mirror image within `spell` tuples, and back, and so on; from any point on."""
    parts = []
    start = 0
    for number in range(n // spell + 2):
        part = streams.drift(spell, 2000, 1.1, seed=seed * 1000 + number, start=start)
        if number % 2:
            part["item_id"] = part["item_id"][::-1].copy()
        parts.append(part)
        start = int(part["ts"][-1])
    skipped = int(np.random.default_rng(seed).integers(spell))
    return {name: np.concatenate([p[name] for p in parts])[skipped : skipped + n] for name in parts[0]}


MAKERS: dict[str, Callable[[int, int], streams.Columns]] = {
    "rotations": lambda n, seed: rotations(n, 2000, 1.1, n // 15_000, seed),
    "bursts": bursts,
    "fast drift": lambda n, seed: spells_of_drift(n, 15_000, seed),
    "slow drift": lambda n, seed: streams.drift(n, 2000, 1.1, seed=seed),
    "no drift": lambda n, seed: streams.zipf(n, 2000, 1.1, seed=seed),
}
JUMPS = ("rotations", "bursts")


def uneven(n: int, seed: int) -> streams.Columns:
    """A stationary stream of thirty days, each of which ends with a night a hundred times slower."""
    night = np.arange(n) % (n // 30) > n // 40
    gaps = np.random.default_rng(seed).exponential(1000.0, n) * np.where(night, 100, 1)
    return {**streams.zipf(n, 2000, 1.0, seed=seed), "ts": np.cumsum(gaps).astype(np.int64)}


def journey_year(rows: int) -> streams.Columns:
    """Complete Journey at its own times, not played back: shops open and close."""
    table = journey.transactions()
    ts, items = (table[name].to_numpy() for name in ("TimeStamp", "ItemID"))
    order = np.argsort(ts, kind="stable")[:rows]
    return {"ts": ts[order].view(np.int64), "item_id": items[order].astype(np.int64)}


def edges(columns: streams.Columns, zones: int, seed: int) -> dict[float, Errors]:
    """The errors in windows of each length, over so many fixed zones."""
    n = len(columns["ts"])
    summary = summarised(columns, "grid", Options(maxlength=min(-(-n // zones), 32767)))
    asked = (summary, columns["ts"], columns["item_id"])
    return {part: window_errors(*asked, int(n * part), WINDOWS, seed) for part in PARTS}


def against_fixed(columns: streams.Columns, seed: int) -> tuple[float, float, int, int]:
    """(squared error of adaptive zones, of fixed ones, number of the former, of the latter), over the same tuples."""
    adaptive = summarised(columns)
    sealed = [zone.tuples for zone in adaptive.describe().zones if zone.reason != "open"]
    upto, zones = sum(sealed), len(sealed)
    fixed = summarised(columns, "grid", Options(maxlength=-(-upto // zones)))
    ts, items = columns["ts"], columns["item_id"]
    many = sum(zone.start < ts[upto - 1] for zone in fixed.describe().zones)
    ours, theirs = (window_errors(s, ts, items, SPAN, WINDOWS, seed, upto).squared for s in (adaptive, fixed))
    return ours, theirs, zones, many


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
    figures: list[Figure] = []
    logs = {"generated, uneven": uneven(200_000, 1)}
    if find_spec(journey.PACKAGE) is not None:
        logs["Complete Journey"] = journey_year(300_000 if effort.quick else 600_000)
    for name, columns in logs.items():
        for zones in (27, 105):
            for part, errors in edges(columns, zones, 1).items():
                sizes: dict[str, int | float | str] = {"log": name, "zones": zones, "window": f"{part:.0%}"}
                figures += [
                    Figure("error of a count", errors.absolute, errors.by_time, "by time", "tuples", "<= 0.9", sizes),
                    Figure("within its bounds", errors.held, unit="share", goal=">= 0.95", sizes=sizes),
                ]
    report.part("zones", "zones across an edge by their share of tuples, against by their share of time", figures)
    n = 150_000 if effort.quick else 450_000
    figures = []
    for name, make in MAKERS.items():
        runs = [against_fixed(make(n, seed), seed) for seed in range(effort.rounds)]
        ours, fixed, own, many = np.mean(runs, axis=0).tolist()
        sizes = {"tuples": n, "zones": f"{own:.0f} vs {many:.0f}", "seeds": len(runs)}
        goal = "<= 0.5" if name in JUMPS else "<= 1.02"
        figures.append(Figure(f"error, {name}", ours, fixed, "fixed zones", "tuples^2", goal, sizes))
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
