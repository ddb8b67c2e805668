"""The demo in order: the service, the log, queries during ingest, the zones, the page."""

import io
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent, shorten

import pyarrow as pa
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from promising.cli.coverage_meter import covered, percent
from promising.client import RemoteSession, connect
from promising.demo import journey, page, progress_picture
from promising.demo.local_service import LocalService
from promising.demo.progress_picture import JOIN, LINES, WINDOW, Curve
from promising.demo.replay import CREATE, STORES, LogParts, Replay, create, load
from promising.demo.running_sum import Sums, sums
from promising.grid import picture
from promising.grid.text import grid_text
from promising.index.regions import Description, Story
from promising.index.time_text import instant

BUDGET = 0.2  # seconds of CPU time for each preference
SHOWN = 4  # rows of each
NAME = 14  # characters of an item's name
MARKS = 4  # items marked in the picture
COUNTED = 1000  # rows per preference whose items are counted
PREFERENCES = {"DESC": "the most frequent items", "WEIGHTED": "none: a random sample", "ASC": "the rarest items"}
MOST = "SELECT ItemID, count(*) AS n FROM {} GROUP BY ItemID ORDER BY n DESC, ItemID LIMIT {}"
SELECT = """
    SELECT TimeStamp, StoreID, Price FROM even
    WHERE ItemID = {} AND Price >= 2 WINDOW 7 DAYS LIMIT 4
"""
INDENT = (0, 0, 0, 4)
QUICK = 6.0  # seconds: a service that starts slower is compiling


@dataclass
class Sample:
    """A preference's result within its budget: its first rows, their distinct items, and its progress."""

    rows: list[tuple[str, float, float]]
    items: int
    among: int
    total: int
    coverage: str
    cpu: float
    ended: str


@dataclass
class Seen:
    """Everything shown, for the page."""

    rows: int = 0
    seconds: float = 0.0
    samples: dict[str, Sample] = field(default_factory=dict)
    asked_at: int = 0
    curves: dict[str, Curve] = field(default_factory=dict)
    answer: int = 0
    sums: Sums | None = None
    told: Description | None = None
    stories: list[Story] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)


def tour(out: Path, rows: int | None, stay: bool) -> None:
    """Run the demo on the log, or on its first `rows` rows; write the page to `out`."""
    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
    began = time.perf_counter()
    head(console, "Service", "promising serve, as a process of its own, on a free port of this machine")
    with LocalService() as service:
        address = started(console, service)
        with connect(address) as session:
            seen = Seen()
            parts = LogParts.of(journey.transactions(rows))
            tell_load(console, session, parts, seen)
            replay = Replay(session, parts)
            replay.start()
            try:
                tell_selection(console, session, replay)
                tell_join(console, session, replay, seen)
                tell_coverage(console, session, replay, parts, seen)
                replay.finish()
            finally:
                replay.stop()
            say(console, f"The last row came after {replay.seconds:.0f} s: {instant(replay.now)[:16]} in the log.")
            tell_sums(console, session, seen)
            tell_zones(console, session, seen)
            tell_page(console, out, seen, parts)
            tell_next(console, address, stay, time.perf_counter() - began)
            if stay:
                wait(console)


def head(console: Console, title: str, text: str) -> None:
    """Begin a section."""
    console.print(f"\n[bold]{title}[/bold]: {text}")


def say(console: Console, text: str) -> None:
    """Print a paragraph."""
    console.print(text, markup=False)


def code(console: Console, sql: str) -> None:
    """Print a statement."""
    console.print(Padding(Text(dedent(sql).strip(), "cyan"), INDENT, expand=False))


def bars(*columns: TextColumn | BarColumn | MofNCompleteColumn | TaskProgressColumn) -> Progress:
    """Progress on stderr, on a terminal only."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, disable=not console.is_terminal)


# --- the service and its streams ---------------------------------------------------------------------------------


def started(console: Console, service: LocalService) -> str:
    """Wait for the service. Only its first start on a machine is slow."""
    began = time.perf_counter()
    address = service.address(QUICK)
    if address is None:
        say(console, "On a fresh machine it is compiling kernels now, once: about a minute.")
        with console.status("compiling kernels, once"):
            while address is None:
                address = service.address(0.2)
    say(console, f"It takes calls at {address}, after {time.perf_counter() - began:.1f} s.")
    return address


def tell_load(console: Console, session: RemoteSession, parts: LogParts, seen: Seen) -> None:
    head(console, "Streams", "a retail log, by the number of the store; and for each a summary")
    create(session)
    for statement in CREATE:
        code(console, statement.format("even"))
    say(console, "and the same for odd.")
    say(console, f"About the log: {journey.REMARK}")
    columns = (TextColumn("loading"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with bars(*columns) as progress:
        task = progress.add_task("", total=parts.past, rate="")
        began = time.perf_counter()

        def advance(accepted: int) -> None:
            done = progress.tasks[0].completed + accepted
            progress.update(task, completed=done, rate=f"{done / (time.perf_counter() - began):,.0f} rows/s")

        seen.seconds = load(session, parts, advance)
    seen.rows = parts.past
    first, last = (instant(parts.time(row))[:10] for row in (0, parts.past - 1))
    say(
        console,
        f"Loaded {parts.past:,} rows, {first} to {last}, in {seen.seconds:.1f} s: {parts.past / seen.seconds:,.0f} rows"
        " a second, over gRPC, with the summaries and exact postings made on the way.",
    )


# --- queries during ingest ---------------------------------------------------------------------------------------


def tell_selection(console: Console, session: RemoteSession, replay: Replay) -> None:
    head(console, "Live", f"the other {replay.total:,} rows are replayed from now on, while these questions are asked")
    most = session.query(MOST.format("even", 1)).to_arrow()["ItemID"].to_pylist()
    if not most:
        return
    item = most[0]
    sql = SELECT.format(item)
    answer = session.query(sql)
    table, p = answer.to_arrow(), answer.progress
    name = journey.product_names([item]).get(item, str(item))
    say(console, f"A selection: the item sold most is {name}. Its dearer sales of the last week:")
    code(console, sql)
    for row in table.to_pylist():
        say(console, f"    {row['TimeStamp']:%Y-%m-%d %H:%M}  store {row['StoreID']:>5}  {row['Price']:7.2f}")
    say(
        console,
        f"{p.rows} rows, {covered(p)} of the answer; {p.read:,} tuples read, {p.cpu_seconds * 1000:.1f} ms of CPU time."
        f" The replay was at {instant(replay.now)[:16]}.",
    )


def tell_join(console: Console, session: RemoteSession, replay: Replay, seen: Seen) -> None:
    head(
        console,
        "Join",
        f"what was sold in both kinds of stores, {BUDGET * 1000:.0f} ms of CPU time for each preference",
    )
    code(console, JOIN.format("DESC"))
    say(console, "and the same with WEIGHTED and with ASC:")
    seen.asked_at = replay.now
    for direction in PREFERENCES:
        seen.samples[direction] = sample(session, direction)
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("")
    for direction in PREFERENCES:
        table.add_column(direction)
    table.add_row("prefers", *PREFERENCES.values())
    for line in join_lines(seen.samples, min((console.width - 57) // 3, NAME)):
        table.add_row(*line)
    console.print(table)
    say(console, f"An answer holds what was there when it was asked; the replay was at {instant(seen.asked_at)[:16]}.")


def short(name: str, most: int) -> str:
    """The first words of a name.

    >>> short("fluid milk white only", 14), short("gasoline-reg unleaded", 14), short("uninterrupted", 6)
    ('fluid milk', 'gasoline-reg', 'uninte')
    """
    return shorten(name, most, placeholder="").rstrip(" -/") or name[:most]


def join_lines(samples: dict[str, Sample], name: int) -> list[tuple[str, ...]]:
    """The samples side by side: a heading, then one line each; names of items have `name` characters."""
    name = max(name, 6)
    out: list[tuple[str, ...]] = []
    for at in range(SHOWN):
        rows = [s.rows[at] if at < len(s.rows) else None for s in samples.values()]
        shown = ("" if row is None else f"{short(row[0], name):<{name}} {row[1]:5.2f} {row[2]:5.2f}" for row in rows)
        out.append(("first rows" if at == 0 else "", *shown))
    out.append(("items", *(f"{s.items:,} in the first {s.among:,}" for s in samples.values())))
    out.append(("rows", *(f"{s.total:,}" for s in samples.values())))
    out.append(("coverage", *(s.coverage for s in samples.values())))
    out.append(("CPU time", *(f"{s.cpu * 1000:.0f} ms, {s.ended}" for s in samples.values())))
    return out


def sample(session: RemoteSession, direction: str) -> Sample:
    """Query with the budget, and retain the first rows."""
    answer = session.query(JOIN.format(direction), budget=BUDGET, seed=1)
    first: list[pa.Table] = []
    kept = 0
    for frame in answer.stream():
        if kept < COUNTED and frame.rows.num_rows:
            first.append(frame.rows.slice(0, COUNTED - kept))
            kept += first[-1].num_rows
    rows = (pa.concat_tables(first) if first else answer.schema.empty_table()).rename_columns(
        ["item", "price", "other"]
    )
    p = answer.progress
    shown = rows.slice(0, SHOWN).to_pylist()
    names = journey.product_names([row["item"] for row in shown])
    return Sample(
        [(names.get(row["item"], str(row["item"])), row["price"], row["other"]) for row in shown],
        len(rows["item"].unique()),
        kept,
        p.rows,
        percent(p.coverage.value),
        p.cpu_seconds,
        "complete" if p.complete else "cut",
    )


def tell_coverage(console: Console, session: RemoteSession, replay: Replay, parts: LogParts, seen: Seen) -> None:
    head(console, "Coverage", "each to its end, while the replay goes on. CPU time for how much of the answer:")
    columns = (TextColumn("{task.description:<9}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[now]}"))
    with bars(*columns) as progress:
        live = progress.add_task("replay", total=max(parts.live, 1), now="")
        for direction in LINES:
            task = progress.add_task(direction, total=1.0, now="")
            answer = session.query(JOIN.format(direction))
            curve = seen.curves[direction] = []
            for frame in answer.stream():
                p = frame.progress
                if p.coverage.known:
                    curve.append((p.cpu_seconds, p.coverage.value))
                progress.update(task, completed=p.coverage.lower, now=f"{p.cpu_seconds:.2f} s, {p.rows:,} rows")
                progress.update(live, completed=replay.rows, now=instant(replay.now)[:16])
            seen.answer = max(seen.answer, answer.progress.rows)
        while replay.is_alive():
            progress.update(live, completed=replay.rows, now=instant(replay.now)[:16])
            time.sleep(0.05)
        progress.update(live, completed=max(replay.rows, 1), now=instant(replay.now)[:16])
    for direction, curve in seen.curves.items():
        marks = [f"{share:.0%} after {cpu * 1000:,.0f} ms".replace("%", " %") for share, cpu in reached(curve)]
        say(console, f"    {direction:<9} {', '.join(marks)}")


def reached(curve: Curve) -> list[tuple[float, float]]:
    """Shares of the answer, and the CPU time to reach each."""
    shares = (0.1, 0.5, 0.9, 1.0)
    top = max((c for _, c in curve), default=0.0)
    return [(share, next(cpu for cpu, c in curve if c >= share)) for share in shares if share <= top]


def tell_sums(console: Console, session: RemoteSession, seen: Seen) -> None:
    head(console, "Aggregate", "a sum over all pairs, until it is known within 2 %")
    found = seen.sums = sums(session)
    code(console, found.sql)
    for step in found.steps:
        say(console, f"    {step.cpu * 1000:8.1f} ms   {step.value:18,.0f}   ({step.lower:,.0f} to {step.upper:,.0f})")
    say(console, f"    {found.exact_cpu * 1000:8.1f} ms   {found.exact:18,.0f}   exact, asked without WITH ERROR")
    within = "within" if found.held else "outside"
    say(console, f"The exact sum is of {found.pairs:,} pairs. It is {within} the last bounds, which hold with 95 %.")


# --- zones -------------------------------------------------------------------------------------------------------


def tell_zones(console: Console, session: RemoteSession, seen: Seen) -> None:
    """Show the fuller of the two summaries: its grid, and the story of a zone."""
    told = seen.told = max((session.describe(f"{name}_items", cells=True) for name in STORES), key=lambda d: d.tuples)
    head(console, "Grid", "what the summary knows: value buckets up, time across, fine for what came last")
    console.print(grid_text(told, min(console.width, 100)))
    seen.stories = [session.story(told.name, z.granularity, z.zone) for z in told.zones]
    seen.marks = buckets(session, told.name)
    best = max(seen.stories, key=lambda s: (s.zone.granularity == 2, s.zone.tuples))
    head(console, "Story", f"promising story {told.name}/G{best.zone.granularity}/{best.zone.zone}")
    for line in best.lines:
        console.print(Padding(Text(line), INDENT, expand=False))


def buckets(session: RemoteSession, summary: str) -> dict[str, int]:
    """Buckets of the best-selling items, by name, as many as labels fit."""
    items = session.query(MOST.format(summary.removesuffix("_items"), MARKS)).to_arrow()["ItemID"].to_pylist()
    names, regions = journey.product_names(items), session.regions(summary, items)
    out: dict[str, int] = {}
    for at, item in enumerate(items):
        bucket = int(regions.bucket[regions.key == at][0])
        if all(abs(bucket - other) > 1 for other in out.values()):
            out.setdefault(short(names.get(item, str(item)), NAME), bucket)
    return out


def tell_page(console: Console, out: Path, seen: Seen, parts: LogParts) -> None:
    assert seen.told is not None
    assert seen.sums is not None
    first, last = (instant(parts.time(row))[:10] for row in (0, parts.log.num_rows - 1))
    title = f"Grocery shopping from {first} to {last}, as the summary {seen.told.name} sees it"
    grid = picture.draw(seen.told, title, began=parts.time(0), marks=seen.marks)
    how = "One run of each, while tuples came in; the largest answer is counted."
    curves = progress_picture.draw(seen.curves, seen.answer, how)
    html = page.Page(
        rows=parts.log.num_rows,
        first=first,
        last=last,
        rate=seen.rows / seen.seconds,
        window=WINDOW.lower(),
        budget=BUDGET,
        preferences=PREFERENCES,
        lines=join_lines(seen.samples, NAME + 4),
        sums=seen.sums,
        grid=png(grid),
        curves=png(curves),
        told=seen.told,
        stories=seen.stories,
    ).html()
    out.write_text(html, encoding="utf-8")
    head(console, "Page", f"pictures of all this are in {out}, {len(html) / 1e6:.1f} MB; open it in a browser")


def png(figure: Figure) -> bytes:
    """A figure as PNG."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def tell_next(console: Console, address: str, stay: bool, seconds: float) -> None:
    head(console, "Next", f"that was {seconds:.0f} s. What to type:")
    for command, does in page.commands(address if stay else None):
        console.print(Text(f"    {command}", "cyan"), soft_wrap=True)  # a line to be copied must not be wrapped
        say(console, f"        {does}")


def wait(console: Console) -> None:
    """Leave the service running until Ctrl-C."""
    say(console, "\nThe service stays. Ctrl-C ends it.")
    while True:
        time.sleep(3600)
