"""`status` and `top`: the state of a service, once, or in samples with rates."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from promising.cli.common_options import flag, span
from promising.cli.console import clean, interactive, out
from promising.cli.context import Output, State, state
from promising.cli.coverage_meter import bar, percent
from promising.cli.durations import seconds, short
from promising.cli.text_output import count, plain_table, print_columns, print_damages, print_text, size, write_facts
from promising.errors import Forbidden

if TYPE_CHECKING:
    from promising.client.admin import Admin, RunningQuery, StandingQuery, Stats
    from promising.client.connection import Connection

LISTED = 40  # continuous queries in a table
NARROW = 8  # characters of a bar in a row
ENDS = {"error": "error target"}  # how queries end, where the name alone would mislead


def status(ctx: typer.Context) -> None:
    """Show service status: uptime, memory, streams, summaries."""
    with state(ctx).dial() as connection:
        _show_status(state(ctx), connection)


def top(
    ctx: typer.Context,
    once: Annotated[bool, flag("--once", "Print one sample and exit.")] = False,
    every: Annotated[float | None, span(seconds, "Interval between samples. Default: 1s.")] = None,
) -> None:
    """Watch rates and queries live; q or Ctrl-C ends it.

    Without a terminal it prints one sample, as with --once. Running queries are shown to the role admin only.
    """
    with state(ctx).dial() as connection:
        _show_top(state(ctx), _admin(connection), once, 1.0 if every is None else max(every, 0.05))


def _admin(connection: "Connection") -> "Admin":
    from promising.client.admin import Admin  # noqa: PLC0415  # gRPC: not for `--help`

    return Admin(connection.ask)


def _show_status(asked: State, connection: "Connection") -> None:
    from promising.client.listings import list_streams, list_summaries  # noqa: PLC0415  # as above

    admin = _admin(connection)
    version, stats = admin.version(), admin.stats()
    streams, standing = connection.ask(list_streams()), _standing(admin)
    if asked.output is Output.TABLE:
        _print_status(asked, version.version, stats, streams, standing)
        return
    from promising.index.time_text import instant  # noqa: PLC0415  # numpy: not for people

    facts = {
        "target": asked.target,
        "version": version.version,
        "python": version.python,
        **asdict(stats),
        "started": instant(stats.started),
        "uptime": stats.uptime / 1e6,
        "checkpoint": None if stats.checkpoint is None else instant(stats.checkpoint),
        "streams": [stream | {"summaries": len(stream["summaries"])} for stream in streams],
        "summaries": connection.ask(list_summaries()),
        "standing": standing if standing is None else [_standing_facts(query) for query in standing],
    }
    write_facts(asked.output, facts, lambda: None)


def _standing(admin: "Admin") -> "list[StandingQuery] | None":
    """Status of continuous queries; None without the role for it."""
    try:
        return admin.standing()
    except Forbidden:
        return None


def _standing_facts(query: "StandingQuery") -> dict[str, Any]:
    from promising.index.time_text import instant  # noqa: PLC0415  # as above

    mark = None if query.watermark is None else instant(query.watermark)
    return {**asdict(query), "watermark": mark, "lag": query.lag / 1e6}


def _print_status(
    asked: State,
    version: str,
    stats: "Stats",
    streams: list[dict[str, Any]],
    standing: "list[StandingQuery] | None",
) -> None:
    said = [
        f"promising {version} at {asked.target}, up {short(stats.uptime)}" + (", DRAINING" if stats.draining else ""),
        f"memory     {size(stats.resident_bytes)} resident, {size(stats.bytes)} of it tuples and summaries,"
        f" {size(stats.query_bytes)} queries",
        f"tuples     {stats.tuples:,} retained; {stats.accepted:,} accepted in"
        f" {count(stats.batches, 'batch', 'batches')}, {_parts(stats.refused, 'refused')}",
        f"queries    {stats.queries:,} open; {_parts(stats.answered, 'answered')}; {count(stats.rows, 'row')},"
        f" {short(round(stats.query_cpu_seconds * 1e6))} of CPU",
        f"storage    {_stored(stats)}",
    ]
    if stats.standing:
        said.insert(4, f"standing   {_stand(stats, standing or [])}")
    print_text(clean("\n".join(said)))
    print_damages([f"{stream}: {what}" for stream, found in stats.damages.items() for what in found])
    if streams:
        columns = [
            ["stream", *(clean(s["name"], "") for s in streams)],
            ["tuples", *(f"{s['tuples']:,}" for s in streams)],
            ["refused", *(f"{s['refused']:,}" for s in streams)],
            ["memory", *(size(s["bytes"]) for s in streams)],
            ["watermark", *("" if s["watermark"] is None else str(s["watermark"])[:19] for s in streams)],
            ["keep", *("all" if s["keep"] is None else short(s["keep"] // timedelta(microseconds=1)) for s in streams)],
            ["summaries", *(clean(", ".join(s["summaries"]), "") for s in streams)],
        ]
        out().print()
        print_columns(columns, [False, True, True, True, False, False, False])
        if standing:
            out().print()
            print_columns(*_standing_columns(standing))
    else:
        out().print("There are no streams yet: `promising create-stream`, or `promising ingest FILE --create`.")


def _stand(stats: "Stats", standing: "list[StandingQuery]") -> str:
    said = f"{count(stats.standing, 'continuous query', 'continuous queries')}, "
    said += f"{count(stats.subscriptions, 'subscription')}"
    if standing:
        behind = max(query.lag for query in standing)
        said += f"; {count(sum(query.view_rows for query in standing), 'row')} in views, at most {short(behind)} behind"
    failed = sum(bool(query.failure) for query in standing)
    return said + (f"; {failed:,} FAILED" if failed else "")


def _standing_columns(standing: "list[StandingQuery]") -> tuple[list[list[str]], list[bool]]:
    """A table of the continuous queries with the greatest lag, at most a page."""
    shown = sorted(standing, key=lambda query: (not query.failure, -query.lag, query.name.lower()))[:LISTED]
    columns = [
        ["continuous query", *(clean(query.name, "") for query in shown)],
        ["rows", *(f"{query.view_rows:,}" for query in shown)],
        ["lag", *("failed" if query.failure else short(query.lag) for query in shown)],
        ["shed", *(f"{query.shed:,.0f}" for query in shown)],
        ["late", *(f"{query.late:,}" for query in shown)],
        ["CPU", *(short(round(query.cpu_seconds * 1e6)) for query in shown)],
        ["memory", *(size(query.bytes) for query in shown)],
        ["read by", *(f"{query.subscribers:,}" for query in shown)],
        ["view", *(f"{query.label}, {query.store}" if query.label else "" for query in shown)],
    ]
    if len(standing) > LISTED:
        for column in columns:
            column.append("")
        columns[0][-1] = f"... {len(standing) - LISTED:,} more"
    return columns, [False, True, True, True, True, True, True, True, False]


def _stored(stats: "Stats") -> str:
    if not stats.durable:
        return "none: everything is in memory, and lost when the service ends"
    said = stats.data or "on disk"
    if stats.checkpoint is None:
        return said
    return f"{said}; last checkpoint {short(max(stats.started + stats.uptime - stats.checkpoint, 0))} ago"


def _parts(counts: dict[str, int], what: str) -> str:
    total = sum(counts.values())
    parts = ", ".join(f"{number:,} {ENDS.get(name, name)}" for name, number in counts.items() if number)
    return f"{total:,} {what}" + (f" ({parts})" if parts else "")


# --- top ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StatusSample:
    """Two consecutive readings of a service's counters."""

    before: "Stats"
    now: "Stats"
    seconds: float
    queries: "list[RunningQuery] | None"
    """None without the role for it."""
    standing: "list[StandingQuery] | None" = None
    stood: "dict[str, StandingQuery]" = field(default_factory=dict)
    """Continuous queries at the previous reading, by name."""

    def grown(self, query: "StandingQuery", name: str) -> float:
        """Growth of a counter of a continuous query, per second."""
        before = self.stood.get(query.name)
        grown = getattr(query, name) - (0 if before is None else getattr(before, name))
        return max(float(grown), 0.0) / max(self.seconds, 1e-9)

    def rate(self, name: str) -> float:
        """Growth of a counter, per second."""
        return float(getattr(self.now, name) - getattr(self.before, name)) / max(self.seconds, 1e-9)

    def rate_of(self, name: str) -> float:
        """Growth of a sum of counters, per second."""
        grown = sum(getattr(self.now, name).values()) - sum(getattr(self.before, name).values())
        return float(grown) / max(self.seconds, 1e-9)


def samples(admin: "Admin", every: float, wait: Any = time.sleep) -> Iterator[StatusSample]:
    """A sample after each pause; `wait` pauses, and ends the iteration by returning True."""
    allowed = True
    before, stood = admin.stats(), {query.name: query for query in _standing(admin) or ()}
    while not wait(every):
        now, standing = admin.stats(), _standing(admin)
        queries: list[RunningQuery] | None = None
        if allowed:
            try:
                queries = admin.queries()
            except Forbidden:
                allowed = False
        yield StatusSample(before, now, (now.uptime - before.uptime) / 1e6, queries, standing, stood)
        before, stood = now, {query.name: query for query in standing or ()}


def _show_top(asked: State, admin: "Admin", once: bool, every: float) -> None:
    if once or not interactive():
        sample = next(samples(admin, every))
        write_facts(asked.output, _facts(sample), lambda: out().print(_TopScreen(asked.target, sample)))
        return
    with _keys() as pressed, Live(Text("..."), console=out(), screen=True, auto_refresh=False) as live:
        try:
            for sample in samples(admin, every, pressed):
                live.update(_TopScreen(asked.target, sample), refresh=True)
        except KeyboardInterrupt:
            pass


@contextmanager
def _keys() -> Iterator[Any]:
    """A wait that returns True early if q is pressed. Keys are read unbuffered and not echoed."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def wait(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([terminal], [], [], left)[0]:
                pressed = os.read(terminal, 64)
                if not pressed or b"q" in pressed.lower():
                    return True
        return False

    tty.setcbreak(terminal)
    try:
        yield wait
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _facts(sample: StatusSample) -> dict[str, Any]:
    from promising.index.time_text import instant  # noqa: PLC0415  # as above

    now = sample.now
    return {
        "seconds": sample.seconds,
        "tuples_per_second": sample.rate("accepted"),
        "batches_per_second": sample.rate("batches"),
        "refused_per_second": sample.rate_of("refused"),
        "answers_per_second": sample.rate_of("answered"),
        "rows_per_second": sample.rate("rows"),
        "query_cpu": sample.rate("query_cpu_seconds"),
        "cpu": sample.rate("cpu_seconds"),
        "resident_bytes": now.resident_bytes,
        "tuples": now.tuples,
        "ingesting": now.ingesting,
        "queries": None
        if sample.queries is None
        else [
            {
                "query_id": q.query_id,
                "client": q.client,
                "started": instant(q.started),
                "streams": list(q.streams),
                "waiting": q.waiting,
                "rows": None if q.progress is None else q.progress.rows,
                "coverage": None if q.progress is None or not q.progress.coverage.known else q.progress.coverage.value,
                "cpu_seconds": None if q.progress is None else q.progress.cpu_seconds,
            }
            for q in sample.queries
        ],
        "open_queries": now.queries,
        "query_bytes": now.query_bytes,
        "ticks_per_second": sample.rate("ticks"),
        "subscriptions": now.subscriptions,
        "standing": None
        if sample.standing is None
        else [
            {
                **_standing_facts(query),
                "rows_per_second": sample.grown(query, "came"),
                "cpu": sample.grown(query, "cpu_seconds"),
            }
            for query in sample.standing
        ],
    }


@dataclass(frozen=True)
class _TopScreen:
    """Display of one sample."""

    target: str
    sample: StatusSample

    def __rich__(self) -> Group:
        sample, now = self.sample, self.sample.now
        head = f"promising at {self.target}, up {short(now.uptime)}" + (", DRAINING" if now.draining else "")
        grid = Table.grid(padding=(0, 2))
        grid.add_column()
        for _ in range(4):
            grid.add_column(justify="right")
        rate = sample.rate
        grid.add_row(
            "ingest",
            f"{rate('accepted'):,.0f} tuples/s",
            f"{rate('batches'):,.1f} batches/s",
            f"{sample.rate_of('refused'):,.0f} refused/s",
            f"{count(now.ingesting, 'call')} open",
        )
        grid.add_row(
            "queries",
            f"{rate('rows'):,.0f} rows/s",
            f"{sample.rate_of('answered'):,.1f} answers/s",
            f"{rate('query_cpu_seconds'):.0%} CPU",
            f"{now.queries:,} open",
        )
        if now.standing:
            grid.add_row(
                "standing",
                f"{count(now.standing, 'query', 'queries')}",
                f"{rate('ticks'):,.1f} ticks/s",
                f"{sum(sample.grown(q, 'cpu_seconds') for q in sample.standing or ()):.0%} CPU",
                f"{count(now.subscriptions, 'subscription')}",
            )
        grid.add_row(
            "process",
            f"{now.tuples:,} tuples",
            f"{size(now.resident_bytes)} memory",
            f"{rate('cpu_seconds'):.0%} CPU",
            f"{count(now.streams, 'stream')}, {count(now.summaries, 'summary', 'summaries')}",
        )
        parts: list[Text | Table] = [Text(clean(head, ""), style="bold"), grid, Text(""), self._queries()]
        if sample.standing:
            parts += [Text(""), self._standing(sample.standing)]
        return Group(*parts)

    def _standing(self, standing: "list[StandingQuery]") -> Table:
        """Continuous queries: failed ones first, then by lag, then by CPU."""
        sample = self.sample
        table = plain_table()
        table.add_column("continuous query", overflow="ellipsis", no_wrap=True)
        for name in ("rows", "rows/s", "lag", "shed", "CPU", "memory", "read by"):
            table.add_column(name, justify="right", no_wrap=True)

        def order(query: "StandingQuery") -> tuple[bool, int, float]:
            return not query.failure, -query.lag, -sample.grown(query, "cpu_seconds")

        for query in sorted(standing, key=order)[:LISTED]:
            table.add_row(
                Text(clean(query.name, "")),
                f"{query.view_rows:,}",
                f"{sample.grown(query, 'came'):,.0f}",
                Text("failed", "red") if query.failure else short(query.lag),
                f"{query.shed:,.0f}",
                f"{sample.grown(query, 'cpu_seconds'):.1%}",
                size(query.bytes),
                f"{query.subscribers:,}",
            )
        if len(standing) > LISTED:
            table.add_row(Text(f"... {len(standing) - LISTED:,} more", style="dim"))
        return table

    def _queries(self) -> Table | Text:
        if self.sample.queries is None:
            return Text("Only the role admin may see which queries run.", style="dim")
        if not self.sample.queries:
            return Text("No query is open.", style="dim")
        table = plain_table()
        table.add_column("query")
        for name in ("client", "streams"):
            table.add_column(name, overflow="ellipsis", no_wrap=True)
        for name in ("age", "rows", "CPU"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("coverage", no_wrap=True)
        end = self.sample.now.started + self.sample.now.uptime
        for query in self.sample.queries:
            known = query.progress
            share = (
                Text()
                if known is None
                else Text.assemble(bar(*known.coverage, NARROW), " ", percent(known.coverage[0]))
            )
            table.add_row(
                Text(clean(query.query_id[:8], "")),
                Text(clean(query.client, "")),
                Text(clean(",".join(query.streams), "")),
                short(max(end - query.started, 0)),
                "" if known is None else f"{known.rows:,}",
                "" if known is None else short(round(known.cpu_seconds * 1e6)),
                share.append(" unread", "yellow") if query.waiting else share,
            )
        return table
