"""`create-stream`, `create-summary`, `ingest` and `load`: what is there, and tuples into it."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from promising.cli.choices import Format, Structure, Unit
from promising.cli.common_options import flag, pairs, span
from promising.cli.context import State, state
from promising.cli.durations import as_sql, micros
from promising.cli.spark_session import Cluster, DriverMemory, Master, SparkConf
from promising.errors import DefinitionError, StatementError

if TYPE_CHECKING:
    from promising.client.session import RemoteSession, Result

IfNotExists = Annotated[bool, flag("--if-not-exists", "That it is there already is no error.")]


def name_sql(name: str) -> str:
    """A name as SQL takes it, in quotes unless it is quoted already.

    >>> name_sql("my store"), name_sql('"x"')
    ('"my store"', '"x"')
    """
    return name if len(name) > 2 and name[0] == name[-1] == '"' else '"' + name.replace('"', '""') + '"'


def create_stream(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the new stream.", show_default=False)],
    column: Annotated[
        list[str],
        typer.Option(
            metavar='"NAME TYPE"', help="A column, such as 'price DOUBLE'; once for each.", show_default=False
        ),
    ],
    time: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column that has the event time.", show_default=False)
    ],
    lateness: Annotated[
        int | None, span(micros, "How far the watermark stays behind the latest event time, such as 5m.")
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
    exists = "IF NOT EXISTS " if if_not_exists else ""
    _execute(
        state(ctx),
        f"CREATE STREAM {exists}{name_sql(name)} ({', '.join(columns)}) TIMESTAMP BY {name_sql(time)}{late}",
    )


def create_summary(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the new summary.", show_default=False)],
    on: Annotated[str, typer.Option(metavar="STREAM", help="The stream to summarise.", show_default=False)],
    key: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column to summarise: integers or strings.", show_default=False)
    ],
    granularity: Annotated[int, span(micros, "The span of the finest granularity, such as 60s.")],
    collapse: Annotated[
        str,
        typer.Option(metavar="RATE,DEPTH", help="How many times as long each further granularity is, and how many."),
    ] = "4,5",
    structure: Annotated[Structure, typer.Option(help="How it is built.")] = Structure.ADAPTIVE,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="Such as buckets=32; once for each.")
    ] = None,
    if_not_exists: IfNotExists = False,
) -> None:
    """Summarise a column of a stream, for queries with a preference."""
    parts = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", collapse)
    if parts is None:
        raise typer.BadParameter(f"--collapse {collapse!r}: write a rate and a depth, such as 4,5")
    options = ", ".join(f"{name_sql(n)} = {value}" for n, value in pairs(option, "--option").items())
    exists = "IF NOT EXISTS " if if_not_exists else ""
    _execute(
        state(ctx),
        f"CREATE SUMMARY {exists}{name_sql(name)} ON {name_sql(on)} ({name_sql(key)})"
        f" WITH GRANULARITY {as_sql(granularity)} AND COLLAPSE ({parts[1]}, {parts[2]})"
        f" STRUCTURE {structure.value}" + (f" OPTIONS ({options})" if options else ""),
    )


def _execute(asked: State, sql: str) -> None:
    from promising.cli.statement_result import show_result  # noqa: PLC0415  # Arrow: not for `--help`

    with asked.connect() as session:
        show_result(asked, execute(session, sql))


def execute(session: "RemoteSession", sql: str) -> "Result":
    """Carry out a statement that the user did not write: its errors do not show it."""
    try:
        return session.execute(sql)
    except (StatementError, DefinitionError) as problem:
        raise type(problem)(str(problem).partition("\nline ")[0]) from None


def ingest(
    ctx: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="CSV, JSON lines or Parquet; - is stdin.", show_default=False)
    ],
    stream: Annotated[str, typer.Option(metavar="NAME", help="The stream to add to.", show_default=False)],
    format: Annotated[Format | None, typer.Option(help="If the name of the file does not tell.")] = None,
    map: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=FIELD", help="Which field of the file is which column; once for each."),
    ] = None,
    create: Annotated[
        bool, flag("--create", "Create the stream from what the file holds, if it is not there.")
    ] = False,
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="With --create: the column that has the event time.")
    ] = None,
    time_unit: Annotated[
        Unit | None, typer.Option(help="What whole numbers in the time column count since 1970.")
    ] = None,
    strict: Annotated[bool, flag("--strict", "Refuse a batch with tuples that are too old or too far ahead.")] = False,
) -> None:
    """Add the tuples of a file to a stream, batch by batch.

    Columns are found by name, in any case; other fields are left out. An empty field of a CSV file is null.
    """
    if time is not None and not create:
        raise typer.BadParameter("--time goes with --create; a stream that is there knows its time column")
    from promising.cli.ingest import load  # noqa: PLC0415  # Arrow: not for `--help`

    load(
        state(ctx),
        file,
        stream,
        format=format,
        given=pairs(map, "--map"),
        create=create,
        time=time,
        unit=time_unit,
        strict=strict,
    )


def load(
    ctx: typer.Context,
    stream: Annotated[str, typer.Option(metavar="NAME", help="The stream to add to.", show_default=False)],
    source: Annotated[
        list[str],
        typer.Option(metavar="PATH", help="A file, a folder or a pattern, local or a URL.", show_default=False),
    ],
    staging: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="A folder that Spark can write to and the service can read.",
            show_default=False,
        ),
    ],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="Further sources, as a pattern of the shell lists them.")
    ] = None,
    map: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=FIELD", help="Which field of the files is which column; once for each."),
    ] = None,
    format: Annotated[Format | None, typer.Option(help="If the names of the files do not tell.")] = None,
    token: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of this load: the same one is done once. Made of the sources, if left out."),
    ] = None,
    quarantine: Annotated[
        str | None, typer.Option(metavar="PATH", help="A folder for rows that are refused, with the reason of each.")
    ] = None,
    time_unit: Annotated[
        Unit | None, typer.Option(help="What whole numbers in the time column count since 1970.")
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of times that say none, such as Europe/Berlin; else UTC.")
    ] = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    driver_memory: DriverMemory = None,
) -> None:
    """Add the history in many files to a stream, with Spark: all of it at one moment, or nothing.

    The same command given again does nothing twice: it finishes what was broken off. \
Who you are is said before the command here: promising --token TOKEN load ...
    """
    if token is not None and token.startswith("prm_"):
        raise typer.BadParameter(
            "--token is the name of this load here; who you are is said before the command, by --token-file or by"
            " PROMISING_TOKEN"
        )
    from promising.cli.load_command import bulk  # noqa: PLC0415  # Arrow: not for `--help`

    bulk(
        state(ctx),
        Cluster.of(master, spark_conf, driver_memory),
        stream,
        [*source, *(more or [])],
        mapping=pairs(map, "--map"),
        format=format,
        staging=staging,
        token=token,
        quarantine=quarantine,
        unit=time_unit,
        zone=time_zone,
    )
