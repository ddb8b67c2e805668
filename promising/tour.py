"""What the demo shows, in order: the log, the zones, the busiest items and where they are, the picture."""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from textwrap import shorten

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from index import Description, Options, Region, Regions, Stream, SummaryIndex
from promising import journey, picture
from promising.picture import readable

DAY = 86_400_000_000
GRANULARITY = 7 * DAY
COLLAPSE = (4, 3)
LATENESS = DAY
# At most T_1 + T_2 + 2 T_3 = 259 days and the lateness are kept, of about 4,000 tuples each.
MAX_TUPLES = 1_250_000
# A zone of about 4,500 tuples of this log has a standard error of 2; with the default of 32 every zone would fill up.
OPTIONS = Options(tolerance=2.0)
BATCH = 1 << 14
TOP = 8  # items shown
MARKS = 4  # of them marked in the picture


def tour(out: Path, rows: int | None) -> None:
    """Load the log, or its first `rows` rows; tell about its summary on stdout; write the picture to `out`."""
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    log = journey.transactions(rows)
    stream = Stream("journey", journey.SCHEMA, journey.TIME, lateness=LATENESS, max_tuples=MAX_TUPLES)
    summary = stream.create_summary("by_item", journey.KEY, granularity=GRANULARITY, collapse=COLLAPSE, options=OPTIONS)
    seconds = load(stream, log)
    tell_load(console, stream, log, seconds)
    told = summary.describe()
    tell_zones(console, told)
    items = pc.unique(log[journey.KEY]).to_numpy()
    marks = tell_items(console, summary, items)
    tell_memory(console, stream, told)
    first, last = _ends(log)
    title = f"Grocery shopping from {day(first)} to {day(last)}, as its summary index sees it"
    picture.save(picture.draw(summary, title, began=first, marks=marks), out)
    say(console, f"\n[bold]Picture[/bold]  the value x time grid is in {out}")
    say(console, "\n[bold]Next[/bold]     make test            everything that must hold")
    say(console, "         README.md            the shortest real use, to paste into .venv/bin/python")
    say(console, "         docs/onboarding.md   one tuple and one estimate on their way through the house")


def say(console: Console, text: str) -> None:
    """Print text whose lines are short enough already; a narrow terminal may break them."""
    console.print(text, soft_wrap=True)


def _ends(log: pa.Table) -> tuple[int, int]:
    """Event times of the first and the last tuple of a log that is in order."""
    return log[journey.TIME][0].value, log[journey.TIME][-1].value


def load(stream: Stream, log: pa.Table) -> float:
    """Append the log in batches; returns the seconds that took."""
    console = Console(stderr=True)
    columns = (TextColumn("Inserting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=log.num_rows)
        began = time.perf_counter()
        for start in range(0, log.num_rows, BATCH):
            batch = log.slice(start, BATCH)
            stream.append(batch)
            progress.advance(task, batch.num_rows)
        return time.perf_counter() - began


def day(time: int) -> str:
    """An event time as a date."""
    return f"{datetime.fromtimestamp(time / 1_000_000, UTC):%Y-%m-%d}"


def hour(time: int) -> str:
    """An event time as a date and time of day."""
    return f"{datetime.fromtimestamp(time / 1_000_000, UTC):%a %d %b %H:%M}"


def tell_load(console: Console, stream: Stream, log: pa.Table, seconds: float) -> None:
    first, last = _ends(log)
    rate = stream.accepted / seconds / 1e6
    say(
        console,
        f"\n[bold]Loaded[/bold]   {stream.accepted:,} tuples of the Complete Journey retail log,"
        f" {day(first)} to {day(last)},\n         in batches of {BATCH:,}: {rate:.1f} million a second,"
        f" summary and exact postings included.\n         {journey.REMARK}",
    )
    if stream.refused:
        say(console, "         Refused: " + ", ".join(f"{count:,} {why}" for why, count in stream.refused.items()))


def tell_zones(console: Console, told: Description) -> None:
    rate, depth = COLLAPSE
    say(
        console,
        f"\n[bold]Zones[/bold]    summary {told.name} on {told.key}, GRANULARITY {readable(GRANULARITY)}"
        f" AND COLLAPSE({rate}, {depth}), lateness {readable(LATENESS)}."
        f"\n         {told.tuples:,} tuples are kept;"
        f" {told.expired:,} became older than G_{depth} reaches and have expired.",
    )
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("granularity", "zone", "from", "to"):
        table.add_column(name)
    table.add_column("tuples", justify="right")
    table.add_column("ends by")
    for granularity in range(1, len(told.spans) + 1):
        zones = sorted((z for z in told.zones if z.granularity == granularity), key=lambda z: (z.start, z.zone))
        for at, zone in enumerate(zones):
            place = (f"G_{granularity}" if at == 0 else "", str(zone.zone), hour(zone.start), hour(zone.end))
            table.add_row(*place, f"{zone.tuples:,}", zone.reason)
        table.add_section()
    console.print(table)
    seen = [r for r in picture.REASONS if r in told.cuts or any(z.reason == r for z in told.zones)]
    say(console, "         " + "\n         ".join(f"{r:<10} {picture.REASONS[r][1]}" for r in seen))
    cuts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(told.cuts.items(), key=lambda c: -c[1]))
    say(console, f"\n         All cuts of G_1 so far: {cuts or 'none'}.")


def tell_items(console: Console, summary: SummaryIndex, items: NDArray[np.int64]) -> dict[str, int]:
    """The busiest items by estimate, with the exact count beside it; returns labels for their buckets."""
    guess = summary.estimate(items)
    exact = np.bincount(summary.probe(items).probe, minlength=len(items))
    best = np.argsort(-guess.value, kind="stable")[:TOP]
    names = journey.product_names(items[best].tolist())
    regions = summary.regions(items[best])
    say(
        console,
        f"\n[bold]Items[/bold]    the busiest of {len(items):,} by estimate, which comes from the cells' summaries"
        "\n         and is no more than the postings hold; beside it the exact count. The busiest region of an item"
        "\n         is the cell (zone, bucket) that has the most of its tuples a day, by estimate.",
    )
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("item")
    for name in ("estimate", "bounds", "exact"):
        table.add_column(name, justify="right")
    table.add_column("busiest region")
    table.add_column("when")
    table.add_column("a day", justify="right")
    marks: dict[str, int] = {}
    for at, which in enumerate(best.tolist()):
        region, rate = _busiest(regions, at)
        name = names.get(int(items[which]), str(items[which]))
        table.add_row(
            f"{items[which]} {_short(name, 16)}",
            f"{guess.value[which]:,.0f}",
            f"{guess.lower[which]:,.0f} - {guess.upper[which]:,.0f}",
            f"{exact[which]:,}",
            f"G_{region.granularity} {region.zone}, {region.bucket}",
            _stay(region),
            f"{rate:,.0f}",
        )
        if len(marks) < MARKS and all(abs(region.bucket - m) > 1 for m in marks.values()):  # labels would overlap
            marks.setdefault(_short(name, 14), region.bucket)
    console.print(table)
    kept = exact > 0
    within = kept & (exact >= guess.lower) & (exact <= guess.upper)
    say(
        console,
        f"         Of all {kept.sum():,} items kept, {within.sum():,} have their exact count within the bounds.",
    )
    _tell_pruning(console, summary, items[exact == 1])
    return marks


def _short(name: str, most: int) -> str:
    """The first words of a name."""
    return shorten(name.replace("/", " / "), most, placeholder="").rstrip(" -/") or name[:most]


def _busiest(regions: Regions, key: int) -> tuple[Region, float]:
    """The region with the most tuples of a key a day, and how many; less than a day counts as a day."""
    mine = np.flatnonzero(regions.key == key)
    rates = regions.estimate[mine] * DAY / np.maximum(regions.end[mine] - regions.start[mine], DAY)
    best = int(np.argmax(rates))
    return regions[int(mine[best])], float(rates[best])


def _stay(region: Region) -> str:
    first, last = (datetime.fromtimestamp(t / 1_000_000, UTC) for t in (region.start, region.end - 1))
    return f"{first:%d %b} - {last:%d %b}"


def _tell_pruning(console: Console, summary: SummaryIndex, rare: NDArray[np.int64]) -> None:
    """What the filters save a question about rare items."""
    if len(rare):
        regions = summary.regions(rare)
        zones = regions.considered // len(rare)
        say(
            console,
            f"         {len(rare):,} items occur once. To find one, there are {zones} zones to consider; the filters"
            f" leave {len(regions) / len(rare):.1f} to visit.",
        )


def tell_memory(console: Console, stream: Stream, told: Description) -> None:
    used, ceiling = told.bytes / 1e6, told.ceiling / 1e6
    say(
        console,
        f"\n[bold]Memory[/bold]   the summary takes {used:,.1f} MB of a ceiling of {ceiling:,.1f} MB, worked out for"
        f" {MAX_TUPLES:,} tuples;\n         the log, which all summaries of a stream share,"
        f" {stream.nbytes / 1e6:,.1f} MB.",
    )
