"""`create-stream` and `create-summary`; and helpers for generated statements."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from promising.cli.choices import Structure
from promising.cli.common_options import flag, pairs, span
from promising.cli.context import State, state
from promising.cli.durations import as_sql, micros
from promising.errors import BadCounts, BadMeasure, DefinitionError, StatementError

if TYPE_CHECKING:
    import pyarrow as pa

    from promising.client.session import RemoteSession, Result

IfNotExists = Annotated[bool, flag("--if-not-exists", "Do nothing if it exists.")]


def name_sql(name: str) -> str:
    """A name as SQL text, quoted unless it is already.

    >>> name_sql("my store"), name_sql('"x"')
    ('"my store"', '"x"')
    """
    return name if len(name) > 2 and name[0] == name[-1] == '"' else '"' + name.replace('"', '""') + '"'


def create_stream(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new stream.", show_default=False)],
    column: Annotated[
        list[str],
        typer.Option(metavar='"NAME TYPE"', help="A column, such as 'price DOUBLE'; repeatable.", show_default=False),
    ],
    time: Annotated[str, typer.Option(metavar="COLUMN", help="Event time column.", show_default=False)],
    lateness: Annotated[int | None, span(micros, "Watermark delay behind the latest event time, such as 5m.")] = None,
    max_jump: Annotated[
        int | None, span(micros, "A tuple further ahead of the watermark does not move it alone, such as 1h.")
    ] = None,
    keep: Annotated[
        int | None, span(micros, "How long tuples are retained, such as 30d; without it, for ever.")
    ] = None,
    if_not_exists: IfNotExists = False,
) -> None:
    """Create a stream.

    Types are BIGINT, DOUBLE, VARCHAR, BOOLEAN and TIMESTAMP.
    """
    columns = []
    for given in column:
        found = re.fullmatch(r'\s*("(?:[^"]|"")+"|\S+)\s+(\S.*?)\s*', given, re.DOTALL)
        if found is None:
            raise typer.BadParameter(f"--column {given!r}: write a name and a type, such as 'price DOUBLE'")
        columns.append(f"{name_sql(found[1])} {found[2]}")
    late = f" LATENESS {as_sql(lateness)}" if lateness else ""
    jump = f" MAX JUMP {as_sql(max_jump)}" if max_jump is not None else ""
    kept = "" if keep is None else f" KEEP {as_sql(keep)}"
    exists = "IF NOT EXISTS " if if_not_exists else ""
    given = f"({', '.join(columns)}) TIMESTAMP BY {name_sql(time)}{late}{kept}{jump}"
    _execute(state(ctx), f"CREATE STREAM {exists}{name_sql(name)} {given}")


def create_summary(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new summary.", show_default=False)],
    on: Annotated[str, typer.Option(metavar="STREAM", help="The stream to summarise.", show_default=False)],
    key: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column to summarise: integers or strings.", show_default=False)
    ],
    granularity: Annotated[int, span(micros, "Span of the finest granularity, such as 60s.")],
    collapse: Annotated[
        str,
        typer.Option(metavar="RATE,DEPTH", help="Length ratio of successive granularities, and their number."),
    ] = "4,5",
    structure: Annotated[Structure, typer.Option(help="Structure of the summary.")] = Structure.ADAPTIVE,
    using: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="How its cells count the key: COUNT_SKETCH (default), COUNT_MIN or EXACT."),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(metavar='"KIND(COLUMN)"', help="A measure, such as 'MOMENTS(price)'; repeatable."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option, such as postings=off; repeatable.")
    ] = None,
    if_not_exists: IfNotExists = False,
) -> None:
    """Summarise a column of a stream, for queries with a preference."""
    parts = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", collapse)
    if parts is None:
        raise typer.BadParameter(f"--collapse {collapse!r}: write a rate and a depth, such as 4,5")
    options = ", ".join(f"{name_sql(n)} = {value}" for n, value in pairs(option, "--option").items())
    exists = "IF NOT EXISTS " if if_not_exists else ""
    measures = f" MEASURES ({', '.join(map(_measure_sql, measure))})" if measure else ""
    counts = "" if using is None else f" USING {_counts_sql(using)}"
    _execute(
        state(ctx),
        f"CREATE SUMMARY {exists}{name_sql(name)} ON {name_sql(on)} ({name_sql(key)}){counts}{measures}"
        f" WITH GRANULARITY {as_sql(granularity)} AND COLLAPSE ({parts[1]}, {parts[2]})"
        f" STRUCTURE {structure.value}" + (f" OPTIONS ({options})" if options else ""),
    )


def _measure_sql(text: str) -> str:
    from promising.summaries.cells import Measure  # noqa: PLC0415  # numpy: not for `--help`

    try:
        return Measure.read(text).sql
    except BadMeasure as problem:
        raise typer.BadParameter(f"--measure {problem}") from None


def _counts_sql(name: str) -> str:
    from promising.summaries.counts import counts_kind  # noqa: PLC0415  # numpy: not for `--help`

    try:
        return counts_kind(name).name.upper()
    except BadCounts as problem:
        raise typer.BadParameter(f"--using: {problem}") from None


def _execute(asked: State, sql: str) -> None:
    from promising.cli.statement_result import show_result  # noqa: PLC0415  # Arrow: not for `--help`

    with asked.connect() as session:
        show_result(asked, execute(session, sql))


def execute(session: "RemoteSession", sql: str) -> "Result":
    """Run a generated statement: its errors do not show it."""
    try:
        return session.execute(sql)
    except (StatementError, DefinitionError) as problem:
        raise type(problem)(str(problem).partition("\nline ")[0]) from None


def table_of(session: "RemoteSession", sql: str) -> "pa.Table":
    """The table of a SHOW or a DESCRIBE."""
    import pyarrow as pa  # noqa: PLC0415  # slow to load: not for `--help`

    table = session.execute(sql)
    assert isinstance(table, pa.Table)
    return table


def rows_of(session: "RemoteSession", sql: str) -> list[dict[str, Any]]:
    """The rows of a SHOW or a DESCRIBE."""
    from promising.cli.formats import python_rows  # noqa: PLC0415  # Arrow: not for `--help`

    return python_rows(table_of(session, sql))
