"""`load-table`: write a file to a reference table, atomically."""

import time as clock
from typing import TYPE_CHECKING, Annotated

import typer

from promising.cli.choices import Format, LoadMode, Unit
from promising.cli.common_options import pairs
from promising.cli.console import clean
from promising.cli.context import state
from promising.cli.streams import name_sql, rows_of
from promising.cli.text_output import count, print_text, write_facts
from promising.errors import EmptyBatch, NoSuchName

if TYPE_CHECKING:
    from promising.client.session import RemoteSession
    from promising.index.table import Changed


def load_table(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table.", show_default=False)],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="CSV, JSON lines or Parquet; - is stdin.", show_default=False)
    ],
    mode: Annotated[
        LoadMode, typer.Option(help="insert: new rows; update: existing rows; upsert: both.")
    ] = LoadMode.UPSERT,
    format: Annotated[Format | None, typer.Option(help="File format. Default: by the file name.")] = None,
    map: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=FIELD", help="Read a column from a field of another name; repeatable."),
    ] = None,
    time_unit: Annotated[Unit | None, typer.Option(help="Unit of integers in time columns, since 1970.")] = None,
) -> None:
    """Write the rows of a file to a reference table: all of them or none.

    Columns are matched by name, in any case; columns that an update leaves out are unchanged.
    """
    asked, given = state(ctx), pairs(map, "--map")
    import pyarrow as pa  # noqa: PLC0415  # slow to load: not for `--help`

    from promising.cli.column_mapping import match, tables_of  # noqa: PLC0415  # as above
    from promising.cli.files import FileSource, format_for  # noqa: PLC0415  # as above

    source = FileSource(file, format_for(file, format))
    began = clock.monotonic()
    try:
        with asked.connect() as session:
            kinds = _columns(session, name)
            if mode is LoadMode.UPDATE:  # columns that are left out are unchanged
                there = {field.lower() for field in source.fields} | {column.lower() for column in given}
                kinds = {column: kind for column, kind in kinds.items() if column.lower() in there}
            mapped = match(name, kinds, source.fields, given, "table")
            if mapped.unused:
                asked.say(f"Not used: {', '.join(clean(field, '') for field in mapped.unused)}.")
            tables = list(tables_of(source, mapped, time_unit))
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
    said = f"{count(changed.inserted, 'row')} into {name}, {changed.updated:,} updated, {changed.unchanged:,} unchanged"
    print_text(clean(said))


def _columns(session: "RemoteSession", name: str) -> dict[str, str]:
    """Names and types of a table's columns."""
    from promising.cli.column_mapping import near  # noqa: PLC0415  # as above

    tables = [row["name"] for row in rows_of(session, "SHOW TABLES")]
    if name.lower() not in (table.lower() for table in tables):
        raise NoSuchName(f"no table {name!r}{near(name, tables) if tables else '; there are none yet'}")
    return {row["column"]: row["type"] for row in rows_of(session, f"DESCRIBE {name_sql(name)}")}
