"""EXPLAIN: the plan as text and the most promising regions; with ANALYZE, also the outcome of running it."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from promising.query.answers import Explanation, Progress
from promising.query.cells import Cells
from promising.query.cursor import Cursor
from promising.query.operators.entry_plan import EntryPlan
from promising.query.operators.guided import Guided
from promising.query.operators.random_order import Drawing
from promising.query.operators.region_join import RegionJoin
from promising.query.planner import Plan

ENTRIES = 10  # entries of the promising set shown
REGIONS = 30
PLANNING = 1_000_000_000  # CPU nanoseconds after which the plan is shown without its regions

SCHEMA = pa.schema(
    [
        ("rank", pa.int64()),
        ("stream", pa.string()),
        ("key", pa.string()),
        ("granularity", pa.int64()),
        ("zone", pa.int64()),
        ("bucket", pa.int64()),
        ("estimate", pa.float64()),
        ("lower", pa.float64()),
        ("upper", pa.float64()),
        ("tuples", pa.int64()),
        ("fade", pa.float64()),
        ("priority", pa.float64()),
        ("start", pa.timestamp("us")),
        ("end", pa.timestamp("us")),
    ]
)


def explaining(cursor: Cursor, analyze: bool, budget: int | None) -> Iterator[Explanation | None]:
    """Explain the query of a fresh cursor; `analyze` also runs it. Yields None per slice, the explanation last."""
    for _ in cursor.prepare():
        yield None
    promising = _promising(cursor)
    made = Explanation(cursor.plan.words(), cursor.progress().total, tuple(cursor.plan.warnings), SCHEMA.empty_table())
    if promising is not None and promising.preference is not None:
        shown = promising.again()  # a copy, so that the query itself loses none of its best entries
        began = cursor.clock()
        spent = 0
        for _ in shown.best(ENTRIES):
            spent += cursor.clock() - began
            if spent > PLANNING:
                break
            yield None
            began = cursor.clock()
        else:
            made.regions, made.considered, made.pruned = _regions(shown)
    made.cells = cursor.plan.cells
    if analyze:
        for frame in cursor.run(budget, threading.Event()):
            if frame is not None:
                made.progress = frame.progress
            yield None
        made.listed = 0 if promising is None else promising.listed
        made.cold = _cold(cursor.plan)
    made.lines = _lines(made)
    yield made


def _promising(cursor: Cursor) -> EntryPlan | None:
    worker = cursor.plan.worker
    return worker.plan if isinstance(worker, Drawing | Guided) else None


def _regions(shown: EntryPlan) -> tuple[pa.Table, int, int]:
    rows: list[dict[str, Any]] = []
    considered = pruned = 0
    preference = shown.preference
    asc = preference is not None and preference.direction == "ASC"
    fade = None if preference is None else preference.fade
    for rank, entry in enumerate(shown.top.tolist(), 1):
        for number, side in enumerate(shown.sides):
            if side.summary is None:
                continue
            key = shown.key_of(number, entry)
            if key is None:
                continue
            found = side.summary.regions(pa.array([key]), side.window)
            considered, pruned = considered + found.considered, pruned + found.pruned
            band = int(shown.set.bands[number][entry])
            for region in found:
                newest, oldest = (band, band) if fade is None else fade.bands(side.snapshot, region)
                if band and not newest <= band <= oldest:
                    continue
                rows.append(
                    {
                        "rank": rank,
                        "stream": side.snapshot.stream.name,
                        "key": str(key),
                        "granularity": region.granularity,
                        "zone": region.zone,
                        "bucket": region.bucket,
                        "estimate": region.estimate,
                        "lower": region.lower,
                        "upper": region.upper,
                        "tuples": region.tuples,
                        "fade": 1.0 if fade is None else float(fade.factor([np.array(band or newest)])),
                        "priority": float(shown.set.priority[entry]) * (-1 if asc else 1),
                        "start": region.start,
                        "end": region.end,
                    }
                )
    rows.sort(key=lambda r: (r["rank"], -r["estimate"] * r["fade"]))
    return pa.Table.from_pylist(rows[: REGIONS * 10], schema=SCHEMA), considered, pruned


def _cells(cells: Cells) -> str:
    """What cells spared, by reason: the column of a condition."""
    parts = [f"answered {cells.answered:,} cells of {cells.tuples:,} tuples"]
    parts += [f"pruned by {name} {spans:,} of {tuples:,}" for name, (spans, tuples) in cells.pruned.items()]
    return f"cells: {', '.join(parts)}, read {len(cells.starts):,}"


def _cold(plan: Plan) -> list[str]:
    """What was read of the regions of cold tuples, and what was pruned, by reason."""
    lines = []
    joined = plan.worker.sides if isinstance(plan.worker, RegionJoin) else []
    for number, source in enumerate(plan.bound.sources):
        reasons: dict[str, tuple[int, int]] = {}
        parts = []
        if joined:
            regions = joined[number].regions
            parts.append(f"{len(regions):,} regions of {int(regions.tuples.sum()):,} tuples to read")
            reasons |= regions.pruned
        pruning = plan.pipeline.pruning[number]
        if pruning is not None:
            reasons |= {f"bounds of {name}": found for name, found in pruning.pruned.items()}
        parts += [f"pruned by {why} {groups:,} of {tuples:,}" for why, (groups, tuples) in reasons.items()]
        if parts:
            lines.append(f"cold tuples of {source.alias}: {', '.join(parts)}")
    return lines


def _lines(made: Explanation) -> list[str]:
    lines = [("  " * depth) + step for depth, step in enumerate(made.steps)]
    total = made.total
    value = f"{total.value:,.0f}" if total.known else "unknown"
    lines.append(f"expected rows: {value}, between {total.lower:,.0f} and {total.upper:,.0f}")
    lines += [f"warning: {w}" for w in made.warnings]
    if made.regions.num_rows:
        lines += ["", "the most promising regions:", *_table(made.regions)]
        lines.append(
            f"pairs of key and zone considered: {made.considered:,}, ruled out without a look: {made.pruned:,}"
        )
    if made.progress is not None:
        lines += ["", *_analysis(made, made.progress)]
    return lines


def _table(regions: pa.Table) -> list[str]:
    names = ["rank", "stream", "key", "granularity", "zone", "bucket", "estimate", "lower", "upper", "fade", "priority"]
    rows = [names]
    for row in regions.slice(0, REGIONS).select(names).to_pylist():
        rows.append([f"{row[n]:,.6g}" if isinstance(row[n], float) else str(row[n]) for n in names])
    widths = [max(len(r[i]) for r in rows) for i in range(len(names))]
    out = ["  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)) for r in rows]
    if regions.num_rows > REGIONS:
        out.append(f"... and {regions.num_rows - REGIONS} more")
    return out


def _analysis(made: Explanation, progress: Progress) -> list[str]:
    ended = {
        None: "nothing was left",
        "budget": "the budget was spent",
        "limit": "the LIMIT was reached",
        "error": "the error target was reached",
        "cancelled": "it was cancelled",
        "deadline": "the deadline was near",
        "memory": "the limit of memory was reached",
    }[progress.cut]
    share = f"{progress.coverage.value:.1%}" if progress.coverage.known else "unknown"
    out = [
        f"emitted: {progress.rows:,} rows from {progress.read:,} tuples read, in {progress.cpu_seconds * 1e3:,.1f} ms"
        " of CPU time",
        f"visited: granularities {', '.join(map(str, progress.granularities)) or 'none'};"
        f" coverage {share} ({progress.coverage.lower:.1%} to {progress.coverage.upper:.1%})",
    ]
    if made.cells is not None:
        out.append(_cells(made.cells))
    out += made.cold
    if progress.entries:
        out.append(
            f"promising set: {made.listed:,} keys looked at, {progress.entries:,} entries,"
            f" {progress.entries - min(progress.rank, progress.entries):,} never needed"
        )
        out.append(f"ended at rank {progress.rank:,} of {progress.entries:,}: {ended}")
    else:
        out.append(f"ended: {ended}")
    return out
