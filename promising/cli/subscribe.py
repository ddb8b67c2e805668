"""`subscribe` and `load-table`: views of continuous queries, and rows of the tables that they read."""

from typing import Annotated

import typer

from promising.cli.choices import Format, LoadMode, Unit
from promising.cli.common_options import flag, pairs
from promising.cli.context import SHOWN, Output, state


def subscribe(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A continuous query.", show_default=False)],
    deltas: Annotated[bool, flag("--deltas", "Print what changes, a line for each row, instead of the view.")] = False,
    once: Annotated[bool, flag("--once", "Print the view as it stands, and end.")] = False,
    changes: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="End after so many changes of the view.")
    ] = None,
    rows: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="Rows of the view to show.")] = SHOWN,
    resume: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="With --deltas: go on after the change that it came with.")
    ] = None,
) -> None:
    """Watch the view of a continuous query live; Ctrl-C ends it.

    Without a terminal it prints what changes, as with --deltas; with --output json an object for each change.
    """
    asked = state(ctx)
    if once and (deltas or changes is not None):
        raise typer.BadParameter("--once prints the view, and no changes: leave out --deltas and --changes")
    if resume is not None and not deltas:
        raise typer.BadParameter("--resume goes with --deltas: a view needs all that came before")
    if not once and asked.output in (Output.CSV, Output.ARROW):
        raise typer.BadParameter(f"changes have no form in {asked.output.value}; use --output json, or --once")
    from promising.cli.subscribe_view import show_changes, show_once, show_view  # noqa: PLC0415  # Arrow: not for `--help`

    with asked.connect(patient=True) as session:
        if once:
            show_once(asked, session, query)
        elif deltas or not show_view(asked, session, query, rows, changes):
            show_changes(asked, session, query, changes, resume)


def load_table(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table.", show_default=False)],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="CSV, JSON lines or Parquet; - is stdin.", show_default=False)
    ],
    mode: Annotated[
        LoadMode, typer.Option(help="insert: new rows; update: those that are there; upsert: either.")
    ] = LoadMode.UPSERT,
    format: Annotated[Format | None, typer.Option(help="If the name of the file does not tell.")] = None,
    map: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=FIELD", help="Which field of the file is which column; once for each."),
    ] = None,
    time_unit: Annotated[Unit | None, typer.Option(help="What whole numbers in time columns count since 1970.")] = None,
) -> None:
    """Put the rows of a file into a reference table: all of them or none.

    Columns are found by name, in any case; an update may leave out columns, which stay as they are.
    """
    from promising.cli.load_table import load  # noqa: PLC0415  # Arrow: not for `--help`

    load(state(ctx), file, name, mode=mode, format=format, given=pairs(map, "--map"), unit=time_unit)
