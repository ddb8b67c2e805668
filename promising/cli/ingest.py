"""A file into a stream: batch by batch, with a bar on stderr, and an account at the end."""

import time as clock
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import typer
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from promising.cli.choices import Format, Unit
from promising.cli.column_mapping import SQL_TYPES, Mapped, columns_of, match, near, shaped, types_of
from promising.cli.console import clean, err, out
from promising.cli.context import State
from promising.cli.files import SUFFIXES, FileSource, format_of
from promising.cli.formats import count, write_facts
from promising.cli.inspect_view import rows_of
from promising.cli.streams import execute, name_sql
from promising.errors import EmptyBatch, NoSuchName, PromisingError
from promising.index.regions import Appended

if TYPE_CHECKING:
    from promising.client.session import RemoteSession


def load(
    asked: State,
    path: str,
    stream: str,
    *,
    format: Format | None,
    given: dict[str, str],
    create: bool,
    time: str | None,
    unit: Unit | None,
    strict: bool,
) -> None:
    """Add all tuples of a file. If that fails midway, what is in is told, and stays in."""
    source = FileSource(path, format_for(path, format))
    try:
        with asked.connect(patient=True) as session:
            mapped, event_time = _mapped(session, source, stream, given, create, time)
            if mapped.unused:
                asked.say(f"Not used: {', '.join(clean(name, '') for name in mapped.unused)}.")
            tables = tables_of(source, mapped, unit)
            first = next(tables, None)  # a file that cannot be read makes no stream
            if first is None:
                raise EmptyBatch(f"{source.name} has no tuples")
            if event_time is not None:
                _create(asked, session, stream, mapped, event_time)
            _send(asked, session, source, stream, chain((first,), tables), strict)
    finally:
        source.close()


def tables_of(source: FileSource, mapped: Mapped, unit: Unit | None) -> Iterator[pa.Table]:
    """What a file holds, with the names and types of the columns it is for."""
    for batch in source.batches(types_of(mapped, source.fields)):
        yield shaped(batch, mapped, unit)


def format_for(path: str, said: Format | None) -> Format:
    """The format of a file: as said, or as its name tells."""
    found = said or format_of(path)
    if found is None:
        known = ", ".join(SUFFIXES)
        raise typer.BadParameter(
            f"{path}: the name does not tell what it holds ({known}); say --format csv, jsonl or parquet"
        )
    if path == "-" and found is Format.PARQUET:
        raise typer.BadParameter("Parquet is read from its end, so stdin will not do; give a file")
    return found


def columns(session: "RemoteSession", stream: str) -> dict[str, str]:
    """Names and types of a stream's columns."""
    try:
        table = session.execute(f"DESCRIBE {name_sql(stream)}")
    except NoSuchName:
        known = sorted(row["name"] for row in rows_of(session, "SHOW STREAMS"))
        raise NoSuchName(f"no stream {stream!r}{near(stream, known) if known else '; there are none yet'}") from None
    if not isinstance(table, pa.Table) or "type" not in table.column_names:
        raise NoSuchName(f"{stream} is no stream")
    return dict(zip(table["column"].to_pylist(), table["type"].to_pylist(), strict=True))


def _mapped(
    session: "RemoteSession",
    source: FileSource,
    stream: str,
    given: dict[str, str],
    create: bool,
    time: str | None,
) -> tuple[Mapped, str | None]:
    """Which field is which column; and the time column of the stream, if that is to be created first."""
    try:
        return match(stream, columns(session, stream), source.fields, given), None
    except NoSuchName as problem:
        if not create:
            raise NoSuchName(
                f"{problem.problem}\nCreate it with `promising create-stream`, or let --create do so from the file"
            ) from None
    return columns_of(source.fields, given, time)


def _create(asked: State, session: "RemoteSession", stream: str, mapped: Mapped, time: str) -> None:
    listed = ", ".join(f"{name_sql(column)} {SQL_TYPES[kind]}" for column, kind in mapped.kinds.items())
    execute(session, f"CREATE STREAM IF NOT EXISTS {name_sql(stream)} ({listed}) TIMESTAMP BY {name_sql(time)}")
    told = ", ".join(f"{clean(column, '')} {SQL_TYPES[kind]}" for column, kind in mapped.kinds.items())
    asked.say(f"Created stream {stream} ({told}), event time {time}.")


class Rate(ProgressColumn):
    """Rows in, and how many a second."""

    def render(self, task: Task) -> Text:
        rows = task.fields["rows"]
        return Text(f"{rows:,} rows, {rows / max(task.elapsed or 0.0, 0.001):,.0f} rows/s", no_wrap=True)


def _send(
    asked: State,
    session: "RemoteSession",
    source: FileSource,
    stream: str,
    tables: Iterator[pa.Table],
    strict: bool,
) -> None:
    refused: Counter[str] = Counter()
    accepted = 0
    named = TextColumn("{task.description}", markup=False)
    bars = (named, BarColumn(20), TaskProgressColumn(), Rate(), TimeRemainingColumn())
    hidden = asked.quiet or not err().is_terminal
    began = clock.monotonic()
    with Progress(*bars, console=err(), transient=True, disable=hidden) as progress:
        task = progress.add_task(clean(source.name.rpartition("/")[2], "")[:24], total=source.size, rows=0)

        def acknowledged(added: Appended) -> None:
            nonlocal accepted
            accepted += added.accepted
            refused.update(added.refused)
            progress.update(task, completed=source.done, rows=accepted + refused.total())

        try:
            session.ingest_many(stream, tables, strict=strict, on_ack=acknowledged)
        except PromisingError:
            if accepted:
                asked.say(f"Before the error {count(accepted, 'tuple')} went in, and stay in.")
            raise
    seconds = clock.monotonic() - began
    facts = {"stream": stream, "accepted": accepted, "refused": dict(refused), "seconds": round(seconds, 3)}
    write_facts(asked.output, facts, lambda: _tell(stream, accepted, refused, seconds))


def _tell(stream: str, accepted: int, refused: Counter[str], seconds: float) -> None:
    rate = f"{accepted / seconds:,.0f} a second" if seconds > 0 else ""
    console = out()
    console.print(Text(f"{count(accepted, 'tuple')} into {stream} in {seconds:.1f} s, {rate}"), soft_wrap=True)
    for reason, number in sorted(refused.items(), key=lambda part: (-part[1], part[0])):
        console.print(Text(f"{count(number, 'tuple')} left out: {reason}"), soft_wrap=True)
