"""A file into a reference table: all of it at once."""

import time as clock
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.text import Text

from promising.cli.choices import Format, LoadMode, Unit
from promising.cli.column_mapping import match, near
from promising.cli.console import clean, out
from promising.cli.context import State
from promising.cli.files import FileSource
from promising.cli.formats import count, write_facts
from promising.cli.ingest import format_for, tables_of
from promising.cli.inspect_view import rows_of
from promising.cli.streams import name_sql
from promising.errors import EmptyBatch, NoSuchName

if TYPE_CHECKING:
    from promising.client.session import RemoteSession
    from promising.index.table import Changed


def load(
    asked: State,
    path: str,
    name: str,
    *,
    mode: LoadMode,
    format: Format | None,
    given: dict[str, str],
    unit: Unit | None,
) -> None:
    """Put all rows of a file into a table."""
    source = FileSource(path, format_for(path, format))
    began = clock.monotonic()
    try:
        with asked.connect() as session:
            kinds = _columns(session, name)
            if mode is LoadMode.UPDATE:  # columns that are left out stay as they are
                there = {field.lower() for field in source.fields} | {column.lower() for column in given}
                kinds = {column: kind for column, kind in kinds.items() if column.lower() in there}
            mapped = match(name, kinds, source.fields, given, "table")
            if mapped.unused:
                asked.say(f"Not used: {', '.join(clean(field, '') for field in mapped.unused)}.")
            tables = list(tables_of(source, mapped, unit))
            if not tables:
                raise EmptyBatch(f"{source.name} has no rows")
            changed = session.load_table(name, pa.concat_tables(tables), mode.value)
    finally:
        source.close()
    facts = {
        "table": name,
        "inserted": changed.inserted,
        "updated": changed.updated,
        "unchanged": changed.unchanged,
        "change": changed.change,
        "seconds": round(clock.monotonic() - began, 3),
    }
    write_facts(asked.output, facts, lambda: _tell(name, changed))


def _tell(name: str, changed: "Changed") -> None:
    said = f"{count(changed.inserted, 'row')} into {name}, {changed.updated:,} updated, {changed.unchanged:,} as before"
    out().print(Text(clean(said)), soft_wrap=True)


def _columns(session: "RemoteSession", name: str) -> dict[str, str]:
    """Names and types of a table's columns."""
    tables = [row["name"] for row in rows_of(session, "SHOW TABLES")]
    if name.lower() not in (table.lower() for table in tables):
        raise NoSuchName(f"no table {name!r}{near(name, tables) if tables else '; there are none yet'}")
    return {row["column"]: row["type"] for row in rows_of(session, f"DESCRIBE {name_sql(name)}")}
