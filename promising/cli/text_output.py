"""Text on stdout that needs no Arrow: columns, counts, sizes, and one thing with many sides."""

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
    """Lines for people; a terminal breaks them where it ends."""
    out().print(Text(text), soft_wrap=True)


def print_columns(columns: Sequence[Sequence[str]], rights: Sequence[bool]) -> None:
    """Columns of text, the first of each its heading, side by side."""
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
    """Columns of text, the first of each its heading, to show on a terminal."""
    made = plain_table()
    for column, is_right in zip(columns, rights, strict=True):
        made.add_column(Text(column[0]), justify="right" if is_right else "left", overflow="fold")
    for row in zip(*(column[1:] for column in columns), strict=True):
        made.add_row(*map(Text, row))
    return made


def plain_table() -> Table:
    """A table as all commands draw it."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def count(number: float, one: str, many: str | None = None) -> str:
    """How many of something.

    >>> count(1, "row"), count(1234, "row"), count(2, "summary", "summaries")
    ('1 row', '1,234 rows', '2 summaries')
    """
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


def size(number: float) -> str:
    """Bytes for people.

    >>> size(512), size(1_500_000)
    ('512 B', '1.5 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}" if number < 100 else f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def print_damages(found: list[str]) -> None:
    """What cannot be read, and what to do about it."""
    for what in found:
        out().print(Text.assemble(("damaged    ", "bold red"), clean(what)), soft_wrap=True)
    if found:
        print_text("Answers leave that out. See `promising verify` and `promising repair`.")


def write_facts(output: Output, facts: dict[str, Any], show: Callable[[], None]) -> None:
    """One thing with many sides: shown to people, an object in JSON, one row in CSV and Arrow."""
    if output is Output.TABLE:
        show()
    elif output is Output.JSON:
        print_json(facts)
    else:
        flat = {
            name: json.dumps(jsonable(value)) if isinstance(value, dict | list | tuple) else value
            for name, value in facts.items()
        }
        import pyarrow as pa  # noqa: PLC0415  # slow to load, and not for people

        from promising.cli.formats import write_table  # noqa: PLC0415  # as above

        write_table(output, pa.Table.from_pylist([flat]))


def print_json(value: Any) -> None:
    """One JSON value on a line of its own."""
    sys.stdout.write(json.dumps(jsonable(value), ensure_ascii=False, allow_nan=False) + "\n")


def jsonable(value: Any) -> Any:
    """A value as JSON has it: times in ISO 8601, spans in seconds, numbers that are none as strings."""
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
