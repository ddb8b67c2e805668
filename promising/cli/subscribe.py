"""`subscribe`: the view of a continuous query, redrawn with each change, or its changes."""

from dataclasses import dataclass
from itertools import count as numbers
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from promising.cli.common_options import flag, reads
from promising.cli.console import clean, interactive, out
from promising.cli.context import SHOWN, Output, State, state
from promising.cli.durations import short
from promising.cli.text_output import count, jsonable, print_json, print_text
from promising.errors import UnknownName, Unsupported

if TYPE_CHECKING:
    import pyarrow as pa

    from promising.client.session import RemoteSession
    from promising.client.subscriptions import RemoteSubscription
    from promising.query.standing.subscription import Delta

LOOK = 0.25  # seconds between two checks of the connection
FOREVER = 1 << 60  # ends after this count as none
DIRECTIONS: dict[str, Literal["ascending", "descending"]] = {"asc": "ascending", "desc": "descending"}


@dataclass(frozen=True)
class Order:
    """An order of rows by one column; NULL is last."""

    column: str
    direction: Literal["ascending", "descending"]

    @classmethod
    def read(cls, text: str) -> "Order":
        """The order that an option gives: a column, `:asc` or `:desc`; descending by default.

        >>> Order.read("n"), Order.read("n:asc")
        (Order(column='n', direction='descending'), Order(column='n', direction='ascending'))
        """
        column, colon, direction = text.rpartition(":")
        if not colon:
            column, direction = text, "desc"
        if not column or direction.lower() not in DIRECTIONS:
            raise ValueError(f"{text!r} is no order; write it like {column or 'n'} or {column or 'n'}:asc")
        return cls(column, DIRECTIONS[direction.lower()])

    def sorted(self, view: "pa.Table") -> "pa.Table":
        """The rows in this order; rows of equal values keep theirs."""
        import pyarrow.compute as pc  # noqa: PLC0415  # Arrow: not for `--help`

        from promising.cli.column_mapping import by_name, near  # noqa: PLC0415  # as above

        column = by_name(self.column, {field.name: field.type for field in view.schema})
        if column is None:
            raise UnknownName(f"the view has no column {self.column!r}{near(self.column, view.column_names)}")
        return view.take(pc.sort_indices(view.column(column), sort_keys=[("", self.direction)]))


def subscribe(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A continuous query.", show_default=False)],
    deltas: Annotated[bool, flag("--deltas", "Print changes, one line per row, instead of the view.")] = False,
    once: Annotated[bool, flag("--once", "Print the current view and exit.")] = False,
    changes: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Exit after this many changes of the view.")
    ] = None,
    order_by: Annotated[
        Order | None,
        typer.Option(
            metavar="COLUMN[:asc]", parser=reads(Order.read), help="Show the view in the order of a column, descending."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help=f"Rows of the view to show. Default: {SHOWN}.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="With --deltas: resume after the change with this token.")
    ] = None,
) -> None:
    """Watch the view of a continuous query live; Ctrl-C ends it.

    Without a terminal it prints changes, as with --deltas; with --output json one object per change. With --order-by \
or --limit it prints the view then, as with --once.
    """
    asked = state(ctx)
    if order_by is not None or limit is not None:
        if deltas:
            raise typer.BadParameter("--order-by and --limit are for the view: leave out --deltas")
        once = once or not _is_live(asked)
    if once and (deltas or changes is not None):
        raise typer.BadParameter("--once prints the view, and no changes: leave out --deltas and --changes")
    if resume is not None and not deltas:
        raise typer.BadParameter("--resume goes with --deltas: a view needs all that came before")
    if not once and asked.output in (Output.CSV, Output.ARROW):
        raise typer.BadParameter(f"changes have no form in {asked.output.value}; use --output json, or --once")
    with asked.connect(patient=True) as session:
        if once:
            _show_once(asked, session, query, order_by, limit)
        elif deltas or not _show_view(asked, session, query, order_by, limit, changes):
            _show_changes(asked, session, query, changes, resume)


def _is_live(asked: State) -> bool:
    return interactive() and asked.output is Output.TABLE


def _show_once(asked: State, session: "RemoteSession", query: str, order_by: Order | None, limit: int | None) -> None:
    """Print the current view."""
    from promising.cli.formats import write_table  # noqa: PLC0415  # Arrow: not for `--help`

    with session.subscribe(query) as subscription:
        subscription.poll(None)
        view = subscription.snapshot()
        write_table(asked.output, (view if order_by is None else order_by.sorted(view)).slice(0, limit))


def _show_view(
    asked: State,
    session: "RemoteSession",
    query: str,
    order_by: Order | None,
    limit: int | None,
    changes: int | None,
) -> bool:
    """Show the view on a terminal, redrawn with each change; False without a terminal or a view."""
    if not _is_live(asked):
        return False
    with session.subscribe(query) as subscription:
        subscription.poll(None)
        try:
            view = subscription.snapshot()
        except Unsupported as problem:
            if order_by is not None or limit is not None:
                raise
            asked.say(clean(str(problem)))
            return False
        if order_by is not None:
            order_by.sorted(view)  # a wrong name is reported before anything is drawn
        screen = _ViewScreen(subscription, order_by, limit or SHOWN)
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
    order_by: Order | None
    rows: int
    last: "Delta | None" = None

    def take(self, delta: "Delta") -> None:
        """Add a change that the view includes."""
        self.last = delta

    def __rich__(self) -> Group:
        from promising.cli.formats import rich_table, time_text  # noqa: PLC0415  # as above
        from promising.wire_changes import BEGINNING  # noqa: PLC0415  # as above

        view = self.subscription.snapshot()
        if self.order_by is not None:
            view = self.order_by.sorted(view)
        mark = self.subscription.watermark
        said = [clean(self.subscription.name, ""), count(view.num_rows, "row")]
        if mark is not None and mark > BEGINNING:
            said.append(f"at {time_text(mark)} UTC")
        if self.last is not None and self.last.lag:
            said.append(f"{short(self.last.lag)} behind")
        if self.last is not None and self.last.shed:
            said.append(f"{self.last.shed:,.0f} shed")
        parts: list[Any] = [Text(", ".join(said), style="bold"), rich_table(view.slice(0, self.rows))]
        if view.num_rows > self.rows:
            parts.append(Text(f"... {view.num_rows - self.rows:,} more rows", style="dim"))
        if self.subscription.interrupted is not None:
            parts.append(Text("no connection; the view is as it was", style="yellow"))
        return Group(*parts)
