"""`bench`: measure this machine on a file, without a service."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from promising.cli.choices import Format, Unit
from promising.cli.common_options import pairs, span
from promising.cli.console import clean, out
from promising.cli.context import State, state
from promising.cli.durations import seconds
from promising.cli.text_output import count, print_columns, print_text, size, write_facts
from promising.errors import BadQuestion, EmptyBatch, PromisingError, UnknownColumn, Unsupported

if TYPE_CHECKING:
    from promising.bench.measurement import Data, Result

BUDGET = 2.0  # seconds


def bench(
    ctx: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="CSV, JSON lines or Parquet; - is stdin. Default: a generated shop log."),
    ] = None,
    format: Annotated[Format | None, typer.Option(help="File format. Default: by the file name.")] = None,
    map: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=FIELD", help="Read a column from a field of another name; repeatable."),
    ] = None,
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="Event time column.")] = None,
    time_unit: Annotated[Unit | None, typer.Option(help="Unit of integers in the time column, since 1970.")] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Join key. Default: a column whose values repeat."),
    ] = None,
    value: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column to average. Default: the first of floats.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Split into two stores by this column's values. Default: every other row."),
    ] = None,
    rows: Annotated[int, typer.Option(min=2, metavar="N", help="Number of rows to read.")] = 200_000,
    budget: Annotated[float | None, span(seconds, f"CPU time limit of a run. Default: {BUDGET:g}s.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a plot of the join's progress.")] = None,
) -> None:
    """Measure ingest and join speed on this machine.

    Runs in this process, without a service. The rows are split into two stores that are joined on a key: \
most promising keys first, without preference, and by DuckDB if it is installed.
    """
    given = pairs(map, "--map")
    if file is None and (given or format or time or time_unit or key or value or split):
        raise typer.BadParameter("--map, --format, --time, --time-unit, --key, --value and --split go with a FILE")
    if budget is not None and budget <= 0:
        raise typer.BadParameter("--budget must be more than nothing")
    _bench(state(ctx), Wanted(file, format, given, time, time_unit, key, value, split, rows, budget or BUDGET, png))


@dataclass(frozen=True)
class Wanted:
    """The arguments."""

    file: str | None
    format: Format | None
    given: dict[str, str]
    time: str | None
    unit: Unit | None
    key: str | None
    value: str | None
    split: str | None
    rows: int
    budget: float
    png: Path | None


def _bench(asked: State, wanted: Wanted) -> None:
    from promising.bench import measurement  # noqa: PLC0415  # Arrow and numba: not for `--help`

    if wanted.png is not None:
        _check_picture(wanted.png)
    data = _generated(asked, wanted) if wanted.file is None else _read(asked, wanted, wanted.file)
    if data.left_out:
        asked.say(f"{count(data.left_out, 'row')} left out: no {data.plan.key} or no {data.plan.time}.")
    result = measurement.measure(data, wanted.budget, asked.say)
    write_facts(asked.output, _facts(result, wanted), lambda: _show(result, wanted))
    if wanted.png is not None:
        _draw(result, wanted, wanted.png)
        asked.say(f"Picture: {wanted.png}")


def _generated(asked: State, wanted: Wanted) -> "Data":
    from promising.bench import measurement  # noqa: PLC0415  # as above

    asked.say(f"No file: a log of a shop, {wanted.rows:,} rows, made up.")
    return measurement.cut(*measurement.generated(wanted.rows))


def _read(asked: State, wanted: Wanted, path: str) -> "Data":
    """The first rows of a file, and the roles of its columns."""
    import pyarrow as pa  # noqa: PLC0415  # as above

    from promising.bench import measurement  # noqa: PLC0415  # as above
    from promising.cli.column_mapping import columns_of, tables_of  # noqa: PLC0415  # as above
    from promising.cli.files import FileSource, format_for  # noqa: PLC0415  # as above

    source = FileSource(path, format_for(path, wanted.format))
    try:
        mapped, time = columns_of(source.fields, wanted.given, wanted.time)
        kinds = mapped.kinds
        named = {
            option: _column(option, name, kinds)
            for option, name in (("--key", wanted.key), ("--value", wanted.value), ("--split", wanted.split))
            if name is not None
        }
        _check_kinds(named, kinds, time)
        parts, rows = [], 0
        for table in tables_of(source, mapped, wanted.unit):
            parts.append(table.slice(0, wanted.rows - rows))
            rows += parts[-1].num_rows
            if rows == wanted.rows:
                break
    finally:
        source.close()
    if not rows:
        raise EmptyBatch(f"{source.name} has no rows")
    table = pa.concat_tables(parts)
    key = named.get("--key") or measurement.choose_key(table, kinds, time)
    value = named.get("--value") or measurement.choose_value(kinds)
    told = f"{source.name}: {count(rows, 'row')}, event time {time}, key {key}"
    asked.say(clean(told + (f", average of {value}" if value else ", nothing to average")) + ".")
    return measurement.cut(table, measurement.Plan(kinds, time, key, value, named.get("--split")))


def _column(option: str, name: str, kinds: dict[str, str]) -> str:
    """The column of that name, in any case."""
    from promising.cli.column_mapping import near  # noqa: PLC0415  # as above

    found = name if name in kinds else next((k for k in kinds if k.lower() == name.lower()), None)
    if found is None:
        raise UnknownColumn(f"{option} {name}: the file has no such column{near(name, list(kinds))}")
    return found


def _check_kinds(named: dict[str, str], kinds: dict[str, str], time: str) -> None:
    key, value = named.get("--key"), named.get("--value")
    if key is not None and (kinds[key] not in ("int", "string") or key == time):
        raise BadQuestion(f"--key {key} is a column of type {kinds[key]}; a key is a whole number or a string")
    if value is not None and kinds[value] not in ("int", "float"):
        raise BadQuestion(f"--value {value} is a column of type {kinds[value]}; only numbers have an average")


# --- showing -----------------------------------------------------------------------------------------------------


def _seconds(value: float | None) -> str:
    """CPU time as text.

    >>> _seconds(0.00123), _seconds(0.25), _seconds(2.5), _seconds(None)
    ('1.23 ms', '250 ms', '2.5 s', '-')
    """
    if value is None:
        return "-"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def _show(result: "Result", wanted: Wanted) -> None:
    from promising.bench import measurement  # noqa: PLC0415  # as above

    def say(text: str) -> None:
        print_text(clean(text))

    data = result.data
    rate = data.rows / result.in_seconds if result.in_seconds else 0.0
    say(
        f"in: {count(data.rows, 'row')}, {rate:,.0f} a second;"
        f" {result.bytes / data.rows:.0f} bytes a row, {result.raw / data.rows:.0f} of them the values"
        f" ({size(result.bytes)} in all)"
    )
    first, second = (f"{half.num_rows:,}" for half in data.halves)
    say(f"join: {first} x {second} rows on {data.plan.key}, {count(result.pairs, 'pair')}; CPU time until there are")
    out().print()
    headings = ["first row", *(f"{share:.0%}" for share in measurement.SHARES)]
    columns = [["", *(joined.name for joined in result.joins)]]
    for share, heading in zip((0.0, *measurement.SHARES), headings, strict=True):
        columns.append([heading, *(_seconds(joined.seconds(share)) for joined in result.joins)])
    cut = any(joined.reached < 1 for joined in result.joins)
    if cut:
        columns.append(["got to", *(f"{joined.reached:.1%}" for joined in result.joins)])
    print_columns(columns, [False] + [True] * (len(columns) - 1))
    if cut:
        say(f"\nA run was broken off after {_seconds(wanted.budget)} of CPU time; --budget gives it more.")
    if result.averages:
        out().print()
        say(f"average of {data.plan.value} over the join")
        out().print()
        rows = [(a.name, _seconds(a.seconds), f"{a.value:.6g}", f"{a.off:.2%}") for a in result.averages]
        columns = [list(column) for column in zip(("", "CPU time", "answer", "off by"), *rows, strict=True)]
        print_columns(columns, [False, True, True, True])
    if result.estimates:
        out().print()
        say(f"estimates of the rows of one {data.plan.key} in a window of {measurement.STORES[0]}")
        out().print()
        columns = [["window", "off by", "by time", "within bounds"]]
        for part, found in result.estimates.items():
            columns.append([f"{part:.0%}", f"{found.absolute:.3g}", f"{found.by_time:.3g}", f"{found.held:.1%}"])
        print_columns([list(column) for column in zip(*columns, strict=True)], [False, True, True, True])
    if importlib.util.find_spec("duckdb") is None:
        say("\nDuckDB is not installed, so there is nobody to compare with: pip install 'promising-tuples[bench]'")


def _facts(result: "Result", wanted: Wanted) -> dict[str, Any]:
    from promising.bench import measurement  # noqa: PLC0415  # as above

    data = result.data
    return {
        "rows": data.rows,
        "left_out": data.left_out,
        "key": data.plan.key,
        "time": data.plan.time,
        "rows_per_second": round(data.rows / result.in_seconds) if result.in_seconds else None,
        "bytes_per_row": round(result.bytes / data.rows, 1),
        "pairs": result.pairs,
        "budget": wanted.budget,
        "joins": [
            {
                "name": joined.name,
                "first_row": joined.seconds(0.0),
                **{f"seconds_to_{share:.0%}".rstrip("%"): joined.seconds(share) for share in measurement.SHARES},
                "reached": joined.reached,
            }
            for joined in result.joins
        ],
        "averages": [{"name": a.name, "seconds": a.seconds, "value": a.value, "off": a.off} for a in result.averages],
        "estimates": [
            {"window": part, "off": found.absolute, "off_by_time": found.by_time, "within_bounds": found.held}
            for part, found in result.estimates.items()
        ],
    }


# --- the picture -------------------------------------------------------------------------------------------------


def _check_picture(png: Path) -> None:
    """Fail before measuring if the picture cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise Unsupported("pictures need matplotlib: pip install 'promising-tuples[demo]'")
    if not png.resolve().parent.is_dir():
        raise PromisingError(f"{png}: there is no folder {png.resolve().parent}")


def _draw(result: "Result", wanted: Wanted, png: Path) -> None:
    from promising.bench import picture  # noqa: PLC0415  # matplotlib: slow to load, and optional

    name = "a log that was made up" if wanted.file is None else Path(wanted.file).name
    figure = picture.draw(result, f"How a join of {name} grows")
    try:
        figure.savefig(png, format="png")
    except OSError as problem:
        raise PromisingError(f"{png}: {problem.strerror}") from None
