"""Text on stdout without Arrow: columns, counts, sizes, and records."""

import json
import math
import sys
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from promising.cli.console import clean, out
from promising.cli.context import Output


def print_text(text: str) -> None:
    """Print lines, wrapped to the terminal."""
    out().print(Text(text), soft_wrap=True)


def print_columns(columns: Sequence[Sequence[str]], rights: Sequence[bool]) -> None:
    """Print columns of text side by side; the first entry of each is its heading."""
    console = out()
    if console.is_terminal:
        console.print(rich_columns(columns, rights))
        return
    widths = [max(map(len, column)) for column in columns]
    rows = list(zip(*columns, strict=True))
    rows.insert(1, tuple("-" * width for width in widths))
    for row in rows:
        line = "  ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, rights, strict=True)
        )
        sys.stdout.write(line.rstrip() + "\n")


def rich_columns(columns: Sequence[Sequence[str]], rights: Sequence[bool]) -> Table:
    """The same columns as a table for a terminal."""
    made = plain_table()
    for column, is_right in zip(columns, rights, strict=True):
        made.add_column(Text(column[0]), justify="right" if is_right else "left", overflow="fold")
    for row in zip(*(column[1:] for column in columns), strict=True):
        made.add_row(*map(Text, row))
    return made


def plain_table() -> Table:
    """A table in the style of all commands."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def count(number: float, one: str, many: str | None = None) -> str:
    """A count with its noun.

    >>> count(1, "row"), count(1234, "row"), count(2, "summary", "summaries")
    ('1 row', '1,234 rows', '2 summaries')
    """
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


def size(number: float) -> str:
    """Bytes as text.

    >>> size(512), size(1_500_000)
    ('512 B', '1.5 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}" if number < 100 else f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def print_damages(found: list[str]) -> None:
    """Print what is damaged, and what to do about it."""
    for what in found:
        out().print(Text.assemble(("damaged    ", "bold red"), clean(what)), soft_wrap=True)
    if found:
        print_text("Answers leave that out. See `promising verify` and `promising repair`.")


def write_facts(output: Output, facts: dict[str, Any], show: Callable[[], None]) -> None:
    """Write one record: by `show` for people, an object in JSON, one row in CSV and Arrow."""
    if output is Output.TABLE:
        show()
    elif output is Output.JSON:
        print_json(facts)
    else:
        flat = {
            name: json.dumps(jsonable(value)) if isinstance(value, dict | list | tuple) else value
            for name, value in facts.items()
        }
        import pyarrow as pa  # noqa: PLC0415  # slow to load; not needed for a table

        from promising.cli.formats import write_table  # noqa: PLC0415  # as above

        write_table(output, pa.Table.from_pylist([flat]))


def print_json(value: Any) -> None:
    """Print one JSON value on its own line."""
    sys.stdout.write(json.dumps(jsonable(value), ensure_ascii=False, allow_nan=False) + "\n")


def jsonable(value: Any) -> Any:
    """A value for JSON: times in ISO 8601, durations in seconds, NaN and infinities as strings."""
    if isinstance(value, dict):
        return {str(name): jsonable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value / timedelta(seconds=1)
    return value
