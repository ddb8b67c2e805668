"""`subscribe`: the view of a continuous query, redrawn with each change, or its changes."""

from dataclasses import dataclass
from itertools import count as numbers
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from promising.cli.common_options import flag
from promising.cli.console import clean, interactive, out
from promising.cli.context import SHOWN, Output, State, state
from promising.cli.durations import short
from promising.cli.text_output import count, jsonable, print_json, print_text
from promising.errors import NoSuchName, Unsupported

if TYPE_CHECKING:
    import pyarrow as pa

    from promising.client.session import RemoteSession
    from promising.client.subscriptions import RemoteSubscription
    from promising.query.standing.subscription import Delta

LOOK = 0.25  # seconds between two checks of the connection
FOREVER = 1 << 60  # ends after this count as none


def subscribe(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A continuous query.", show_default=False)],
    deltas: Annotated[bool, flag("--deltas", "Print changes, one line per row, instead of the view.")] = False,
    once: Annotated[bool, flag("--once", "Print the current view and exit.")] = False,
    changes: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Exit after this many changes of the view.")
    ] = None,
    rows: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="Rows of the view to show.")] = SHOWN,
    order_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN[:asc]", help="Order the view by a column, the greatest first; :asc the least."),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="NUMBER", min=1, help="Only so many rows of the view.")] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="With --deltas: resume after the change with this token.")
    ] = None,
) -> None:
    """Watch the view of a continuous query live; Ctrl-C ends it.

    Without a terminal it prints changes, as with --deltas; with --output json one object per change.
    """
    asked = state(ctx)
    if once and (deltas or changes is not None):
        raise typer.BadParameter("--once prints the view, and no changes: leave out --deltas and --changes")
    if resume is not None and not deltas:
        raise typer.BadParameter("--resume needs --deltas: a view needs all earlier changes")
    if deltas and (order_by is not None or limit is not None):
        raise typer.BadParameter("--order-by and --limit are for the view: leave out --deltas")
    shown = _Shown.of(order_by, limit)
    if not once and asked.output in (Output.CSV, Output.ARROW):
        raise typer.BadParameter(f"changes have no form in {asked.output.value}; use --output json, or --once")
    with asked.connect(patient=True) as session:
        if once:
            _show_once(asked, session, query, shown)
        elif deltas or not _show_view(asked, session, query, shown, rows, changes):
            if not deltas and shown != _Shown():
                raise typer.BadParameter("--order-by and --limit are for the view: give --once, or use a terminal")
            _show_changes(asked, session, query, changes, resume)


@dataclass(frozen=True)
class _Shown:
    """Which rows of a view are shown: ordered by a column, and only so many; nulls come last."""

    column: str | None = None
    rising: bool = False
    limit: int | None = None

    @classmethod
    def of(cls, order_by: str | None, limit: int | None) -> "_Shown":
        if order_by is None:
            return cls(limit=limit)
        column, colon, way = order_by.rpartition(":")
        if not colon or way.lower() not in ("asc", "desc"):
            column, way = order_by, "desc"
        return cls(column, way.lower() == "asc", limit)

    def of_view(self, view: "pa.Table") -> "pa.Table":
        if self.column is not None:
            found = [name for name in view.column_names if name.lower() == self.column.lower()]
            if not found:
                from promising.cli.column_mapping import near  # noqa: PLC0415  # Arrow: not for `--help`

                said = near(self.column, view.column_names)
                raise NoSuchName(f"--order-by: the view has no column {self.column!r}{said}")
            view = view.sort_by([(found[0], "ascending" if self.rising else "descending")])
        return view if self.limit is None else view.slice(0, self.limit)


def _show_once(asked: State, session: "RemoteSession", query: str, shown: _Shown) -> None:
    """Print the current view."""
    from promising.cli.formats import write_table  # noqa: PLC0415  # Arrow: not for `--help`

    with session.subscribe(query) as subscription:
        subscription.poll(None)
        write_table(asked.output, shown.of_view(subscription.snapshot()))


def _show_view(
    asked: State, session: "RemoteSession", query: str, shown: _Shown, rows: int, changes: int | None
) -> bool:
    """Show the view on a terminal, redrawn with each change; False without a terminal or a view."""
    if not interactive() or asked.output is Output.JSON:
        return False
    with session.subscribe(query) as subscription:
        subscription.poll(None)
        try:
            shown.of_view(subscription.snapshot())
        except Unsupported as problem:
            asked.say(clean(str(problem)))
            return False
        screen = _ViewScreen(subscription, rows, shown)
        with Live(screen, console=out(), auto_refresh=False, vertical_overflow="ellipsis") as live:
            try:
                for seen in numbers(1):
                    live.refresh()
                    if seen == changes:
                        break
                    while (delta := subscription.poll(LOOK)) is None:
                        live.refresh()
                    screen.take(delta)
            except KeyboardInterrupt:
                pass
    return True


def _show_changes(
    asked: State, session: "RemoteSession", query: str, changes: int | None, token: str | None = None
) -> None:
    """Print changes as they arrive."""
    with session.subscribe(query, token) as subscription:
        try:
            for seen, delta in enumerate(subscription, 1):
                if asked.output is Output.JSON:
                    print_json(_facts(delta))
                else:
                    _print(delta)
                out().file.flush()
                if seen == changes:
                    break
        except KeyboardInterrupt:
            pass
        if subscription.token:
            repeated = f"{asked.repeated}{clean(query, '')} --deltas --resume {subscription.token}"
            asked.say(f"Go on with: promising subscribe {repeated}")


def _facts(delta: "Delta") -> dict[str, Any]:
    from promising.cli.formats import python_rows  # noqa: PLC0415  # numpy: not for `--help`
    from promising.index.time_text import instant  # noqa: PLC0415  # as above
    from promising.wire_changes import BEGINNING  # noqa: PLC0415  # as above

    return {
        "watermark": instant(delta.watermark) if delta.watermark > BEGINNING else None,
        "reset": delta.reset,
        "inserts": [
            {"id": number, "end": _end(end), "row": row}
            for number, end, row in zip(delta.ids.tolist(), delta.exp.tolist(), python_rows(delta.inserts), strict=True)
        ],
        "retractions": delta.retractions.tolist(),
        "shed": delta.shed,
        "lag": delta.lag / 1e6,
        "token": delta.token,
    }


def _end(end: int) -> Any:
    from promising.index.time_text import instant  # noqa: PLC0415  # as above

    return None if end > FOREVER else jsonable(instant(end))


def _print(delta: "Delta") -> None:
    """Print a line for the time, and one for each inserted or retracted row."""
    from promising.cli.formats import time_text  # noqa: PLC0415  # as above
    from promising.wire_changes import BEGINNING  # noqa: PLC0415  # as above

    said = time_text(delta.watermark) if delta.watermark > BEGINNING else "no tuple yet"
    if delta.reset:
        said += ", the whole view"
    if delta.lag:
        said += f", {short(delta.lag)} behind"
    if delta.shed:
        said += f", {delta.shed:,.0f} shed"
    lines = [said]
    lines += [f"- {_id(number)}" for number in delta.retractions.tolist()]
    shown = _lines(delta.inserts)
    for number, end, row in zip(delta.ids.tolist(), delta.exp.tolist(), shown, strict=True):
        lines.append(f"+ {_id(number)}  {row}" + ("" if end > FOREVER else f"  until {time_text(end)}"))
    print_text("\n".join(lines))


def _id(number: list[int]) -> str:
    return "#" + ".".join(map(str, number))


def _lines(table: "pa.Table") -> list[str]:
    from promising.cli.formats import cells  # noqa: PLC0415  # as above

    columns = [
        [f"{clean(field.name, '')}={value}" for value in cells(table, place)]
        for place, field in enumerate(table.schema)
    ]
    return [" ".join(row) for row in zip(*columns, strict=True)] if columns else [""] * table.num_rows


@dataclass
class _ViewScreen:
    """Live display of a view."""

    subscription: "RemoteSubscription"
    rows: int
    shown: _Shown = _Shown()
    last: "Delta | None" = None

    def take(self, delta: "Delta") -> None:
        """Add a change that the view includes."""
        self.last = delta

    def __rich__(self) -> Group:
        from promising.cli.formats import rich_table, time_text  # noqa: PLC0415  # as above
        from promising.wire_changes import BEGINNING  # noqa: PLC0415  # as above

        view = self.subscription.snapshot()
        mark = self.subscription.watermark
        said = [clean(self.subscription.name, ""), count(view.num_rows, "row")]
        if mark is not None and mark > BEGINNING:
            said.append(f"at {time_text(mark)} UTC")
        if self.last is not None and self.last.lag:
            said.append(f"{short(self.last.lag)} behind")
        if self.last is not None and self.last.shed:
            said.append(f"{self.last.shed:,.0f} shed")
        view = self.shown.of_view(view)
        parts: list[Any] = [Text(", ".join(said), style="bold"), rich_table(view.slice(0, self.rows))]
        if view.num_rows > self.rows:
            parts.append(Text(f"... {view.num_rows - self.rows:,} more rows", style="dim"))
        if self.subscription.interrupted is not None:
            parts.append(Text("no connection; the view is as it was", style="yellow"))
        return Group(*parts)
