"""`bench`: what this machine makes of a file, without a service."""

from pathlib import Path
from typing import Annotated

import typer

from promising.cli.choices import Format, Unit
from promising.cli.common_options import pairs, span
from promising.cli.context import state
from promising.cli.durations import seconds

BUDGET = 2.0  # seconds


def bench(
    ctx: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE", help="CSV, JSON lines or Parquet; - is stdin. Without it: a log of a shop, made up."
        ),
    ] = None,
    format: Annotated[Format | None, typer.Option(help="If the name of the file does not tell.")] = None,
    map: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=FIELD", help="Which field of the file is which column; once for each."),
    ] = None,
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that has the event time.")] = None,
    time_unit: Annotated[
        Unit | None, typer.Option(help="What whole numbers in the time column count since 1970.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column to join on; else one whose values repeat."),
    ] = None,
    value: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column to average; else the first with fractions.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Rows of every other value make the second store; else every other row."),
    ] = None,
    rows: Annotated[int, typer.Option(min=2, metavar="N", help="The first so many rows.")] = 200_000,
    budget: Annotated[
        float | None, span(seconds, f"CPU time after which a run is broken off; {BUDGET:g}s if not given.")
    ] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write how the join grew as a picture, too.")] = None,
) -> None:
    """Measure how fast rows go in and joins come out, on this machine.

    In this process, no service needed. Rows are cut into two stores that are joined on a key: \
the most promising keys first, with no preference, and by DuckDB if that is installed.
    """
    given = pairs(map, "--map")
    if file is None and (given or format or time or time_unit or key or value or split):
        raise typer.BadParameter("--map, --format, --time, --time-unit, --key, --value and --split go with a FILE")
    if budget is not None and budget <= 0:
        raise typer.BadParameter("--budget must be more than nothing")
    from promising.cli.bench_view import Wanted, show_bench  # noqa: PLC0415  # Arrow and numba: not for `--help`

    show_bench(state(ctx), Wanted(file, format, given, time, time_unit, key, value, split, rows, budget or BUDGET, png))
