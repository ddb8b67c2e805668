"""`ingest`: add a file to a stream, batch by batch, with a progress bar on stderr and totals at the end."""

import time as clock
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from promising.cli.choices import Format, Unit
from promising.cli.common_options import flag, pairs
from promising.cli.console import clean
from promising.cli.context import State, state
from promising.cli.progress_bars import Rate, progress
from promising.cli.streams import execute, name_sql, rows_of
from promising.cli.text_output import count, print_text, write_facts
from promising.errors import EmptyBatch, NoSuchName, PromisingError

if TYPE_CHECKING:
    import pyarrow as pa

    from promising.cli.column_mapping import Mapped
    from promising.cli.files import FileSource
    from promising.client.session import RemoteSession
    from promising.index.regions import Appended


def ingest(
    ctx: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="CSV, JSON lines or Parquet; - is stdin.", show_default=False)
    ],
    stream: Annotated[str, typer.Option(metavar="NAME", help="Target stream.", show_default=False)],
    format: Annotated[Format | None, typer.Option(help="File format. Default: by the file name.")] = None,
    map: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=FIELD", help="Read a column from a field of another name; repeatable."),
    ] = None,
    create: Annotated[
        bool, flag("--create", "Create the stream from the file's fields, if it does not exist.")
    ] = False,
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="With --create: event time column.")] = None,
    time_unit: Annotated[Unit | None, typer.Option(help="Unit of integers in the time column, since 1970.")] = None,
    strict: Annotated[bool, flag("--strict", "Refuse batches with tuples that are too old or too far ahead.")] = False,
) -> None:
    """Add the tuples of a file to a stream, batch by batch.

    Columns are matched by name, in any case; other fields are ignored. An empty field of a CSV file is null.
    """
    if time is not None and not create:
        raise typer.BadParameter("--time goes with --create; a stream that is there knows its time column")
    asked, given = state(ctx), pairs(map, "--map")
    from promising.cli.column_mapping import tables_of  # noqa: PLC0415  # Arrow: not for `--help`
    from promising.cli.files import FileSource, format_for  # noqa: PLC0415  # as above

    source = FileSource(file, format_for(file, format))
    try:
        with asked.connect(patient=True) as session:
            mapped, event_time = _mapped(session, source, stream, given, create, time)
            if mapped.unused:
                asked.say(f"Not used: {', '.join(clean(name, '') for name in mapped.unused)}.")
            tables = tables_of(source, mapped, time_unit)
            first = next(tables, None)  # an unreadable file creates no stream
            if first is None:
                raise EmptyBatch(f"{source.name} has no tuples")
            if event_time is not None:
                _create(asked, session, stream, mapped, event_time)
            _send(asked, session, source, stream, chain((first,), tables), strict)
    finally:
        source.close()


def _columns(session: "RemoteSession", stream: str) -> dict[str, str]:
    """Names and types of a stream's columns."""
    from promising.cli.column_mapping import near  # noqa: PLC0415  # as above

    try:
        rows = rows_of(session, f"DESCRIBE {name_sql(stream)}")
    except NoSuchName:
        known = sorted(row["name"] for row in rows_of(session, "SHOW STREAMS"))
        raise NoSuchName(f"no stream {stream!r}{near(stream, known) if known else '; there are none yet'}") from None
    if not rows or "type" not in rows[0]:
        raise NoSuchName(f"{stream} is no stream")
    return {row["column"]: row["type"] for row in rows}


def _mapped(
    session: "RemoteSession",
    source: "FileSource",
    stream: str,
    given: dict[str, str],
    create: bool,
    time: str | None,
) -> "tuple[Mapped, str | None]":
    """The column mapping; and the time column if the stream is to be created."""
    from promising.cli.column_mapping import columns_of, match  # noqa: PLC0415  # as above

    try:
        return match(stream, _columns(session, stream), source.fields, given), None
    except NoSuchName as problem:
        if not create:
            raise NoSuchName(
                f"{problem.problem}\nCreate it with `promising create-stream`, or let --create do so from the file"
            ) from None
    return columns_of(source.fields, given, time)


def _create(asked: State, session: "RemoteSession", stream: str, mapped: "Mapped", time: str) -> None:
    from promising.cli.column_mapping import SQL_TYPES  # noqa: PLC0415  # as above

    listed = ", ".join(f"{name_sql(column)} {SQL_TYPES[kind]}" for column, kind in mapped.kinds.items())
    execute(session, f"CREATE STREAM IF NOT EXISTS {name_sql(stream)} ({listed}) TIMESTAMP BY {name_sql(time)}")
    told = ", ".join(f"{clean(column, '')} {SQL_TYPES[kind]}" for column, kind in mapped.kinds.items())
    asked.say(f"Created stream {stream} ({told}), event time {time}.")


def _send(
    asked: State,
    session: "RemoteSession",
    source: "FileSource",
    stream: str,
    tables: "Iterator[pa.Table]",
    strict: bool,
) -> None:
    refused: Counter[str] = Counter()
    accepted = 0
    named = TextColumn("{task.description}", markup=False)
    began = clock.monotonic()
    with progress(asked, named, BarColumn(20), TaskProgressColumn(), Rate(), TimeRemainingColumn()) as bar:
        task = bar.add_task(clean(source.name.rpartition("/")[2], "")[:24], total=source.size, rows=0)

        def acknowledged(added: "Appended") -> None:
            nonlocal accepted
            accepted += added.accepted
            refused.update(added.refused)
            bar.update(task, completed=source.done, rows=accepted + refused.total())

        try:
            session.ingest_many(stream, tables, strict=strict, on_ack=acknowledged)
        except PromisingError:
            if accepted:
                asked.say(f"{count(accepted, 'tuple')} had been added before the error; they stay.")
            raise
    seconds = clock.monotonic() - began
    facts = {"stream": stream, "accepted": accepted, "refused": dict(refused), "seconds": round(seconds, 3)}
    write_facts(asked.output, facts, lambda: _tell(stream, accepted, refused, seconds))


def _tell(stream: str, accepted: int, refused: Counter[str], seconds: float) -> None:
    rate = f"{accepted / seconds:,.0f} a second" if seconds > 0 else ""
    print_text(f"{count(accepted, 'tuple')} into {stream} in {seconds:.1f} s, {rate}")
    for reason, number in sorted(refused.items(), key=lambda part: (-part[1], part[0])):
        print_text(f"{count(number, 'tuple')} left out: {reason}")
