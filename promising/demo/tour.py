"""The demo in order: the service, the log, standing selections, the join beside a plain engine, the page."""

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from promising.client import RemoteSession, connect
from promising.demo import journey, page, questions
from promising.demo.charts import duration
from promising.demo.findings import Findings
from promising.demo.local_service import LocalService
from promising.demo.plain_engine import PlainEngine
from promising.demo.questions import BEST, RAREST, SAMPLE
from promising.demo.replay import CREATE, STORES, LogParts, create, load, of_stores
from promising.demo.watches import watch
from promising.grid import picture
from promising.index.time_text import instant

INDENT = (0, 0, 0, 4)
QUICK = 6.0  # seconds: a service that starts slower is compiling
SIMPLE = "SELECT KindID, count(*) AS n, sum(Price) AS paid FROM even GROUP BY KindID"


def tour(out: Path, rows: int | None, stay: bool) -> None:
    """Run the demo on the log, or on its first `rows` rows; write the page to `out`."""
    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
    began = time.perf_counter()
    head(console, "Service", "promising serve, as a process of its own, on a free port of this machine")
    with LocalService() as service:
        parts = LogParts.of(journey.sales(rows))
        plain = beside(console, parts)
        address = started(console, service)
        with connect(address) as session:
            tell_load(console, session, parts)
            found = ask(console, session, service, parts, plain)
            tell_table(console, found)
            tell_page(console, out, found, parts)
            tell_next(console, address, stay, time.perf_counter() - began)
            if stay:
                wait(console)


def beside(console: Console, parts: LogParts) -> PlainEngine | None:
    """The plain engine with the past in it; None if it is not installed."""
    if not PlainEngine.installed():
        say(console, "DuckDB is not installed: nothing is compared with it. pip install duckdb")
        return None
    plain = PlainEngine()
    for name, rest in STORES.items():
        plain.put(name, of_stores(parts.log.slice(0, parts.past), rest))
    return plain


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ask(
    console: Console, session: RemoteSession, service: LocalService, parts: LogParts, plain: PlainEngine | None
) -> Findings:
    """Run all questions, one engine at a time."""
    head(console, "Questions", "a thousand standing selections during a replay, then a join of all sales")
    code(console, questions.pairs_sql(SAMPLE))
    latest = parts.time(parts.log.num_rows - 1)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with bars(*columns) as progress:
        replayed = progress.add_task("replay under 1,000 selections", total=parts.live)
        watched = watch(session, service, parts, plain, lambda n: progress.update(replayed, advance=n))
        asked = progress.add_task("questions", total=7)
        questions.warm(session)
        pairs = {}
        for direction in (BEST, SAMPLE, RAREST):
            pairs[direction] = questions.ask_pairs(session, direction, plain)
            progress.update(asked, advance=1)
        year = questions.ask_average(session, None, latest, plain)
        month = questions.ask_average(session, questions.MONTH, latest, plain)
        progress.update(asked, advance=2)
        simple = min(_seconds(lambda: session.query(SIMPLE).to_arrow()) for _ in range(3))
        progress.update(asked, advance=1)
        whole = None if plain is None else plain.fetch(questions.PAIRS, questions.LIMIT_WHOLE)
        progress.update(asked, advance=1)
    told = max((session.describe(f"{name}_kinds", cells=True) for name in STORES), key=lambda d: d.tuples)
    total = year.pairs if plain is None else plain.read(questions.TOTAL)[0][0] or 0
    simple_plain = None
    if plain is not None:
        simple_plain = min(plain.ask(SIMPLE, questions.LIMIT)[0].seconds for _ in range(3))
    return Findings(parts.log.num_rows, total, pairs, year, month, watched, whole, simple, simple_plain, told)


def tell_table(console: Console, found: Findings) -> None:
    """The figures of the run, in a short table."""
    head(console, "Figures", f"{found.rows:,} sales, {found.total:,} pairs; seconds that the caller waited")
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("", "promising", "DuckDB, 1 thread"):
        table.add_column(name)
    for race in page.races(found):
        plain = "not installed" if race.plain is None else duration(race.plain)
        if not race.done:
            plain = f"not done after {plain}" + (f", about {duration(race.whole)} in all" if race.whole else "")
        table.add_row(race.label, duration(race.ours), plain)
    w = found.watched
    polled = (
        "not installed" if w.polled is None else f"{duration(w.polled)}; as one join by hand {duration(w.merged or 0)}"
    )
    table.add_row(f"{w.selections:,} selections, CPU a day", duration(w.cpu), polled)
    plain = "not installed" if found.simple_plain is None else duration(found.simple_plain)
    table.add_row("a plain aggregate", duration(found.simple), plain)
    console.print(table)
    coverage = ", ".join(f"{d} {page.coverage_text(p.coverage)}" for d, p in found.pairs.items())
    say(console, f"Coverage, of the rows asked for: {coverage}.")
    say(console, f"{w.delivered:,} of {w.expected:,} rows of the selections were delivered.")


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


def tell_load(console: Console, session: RemoteSession, parts: LogParts) -> None:
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

        seconds = load(session, parts, advance)
    first, last = (instant(parts.time(row))[:10] for row in (0, parts.past - 1))
    say(
        console,
        f"Loaded {parts.past:,} rows, {first} to {last}, in {seconds:.1f} s: {parts.past / seconds:,.0f} rows"
        " a second, over gRPC, with the summaries and exact postings built on the way.",
    )


def tell_page(console: Console, out: Path, found: Findings, parts: LogParts) -> None:
    first, last = (instant(parts.time(row))[:10] for row in (0, parts.log.num_rows - 1))
    title = f"Grocery shopping from {first} to {last}, as the summary {found.told.name} sees it"
    grid = picture.draw(found.told, title, began=parts.time(0))
    html = page.Page(found, journey.kind_names(), png(grid)).html()
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
