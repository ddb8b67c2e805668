"""Map fields of a file to columns of a stream."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from promising.cli.choices import Unit
from promising.cli.console import clean
from promising.cli.files import FileSource
from promising.errors import BadSchema, BatchError, MissingColumn, UnknownColumn

EARLY = 100_000_000_000_000  # microseconds: March 1973. Seconds or milliseconds read as microseconds are before it.
SQL_TYPES = {"int": "BIGINT", "float": "DOUBLE", "string": "VARCHAR", "bool": "BOOLEAN", "timestamp": "TIMESTAMP"}
ARROW_TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us"),
}


def kind_of(kind: pa.DataType) -> str | None:
    """The column type for values of an Arrow type; None if there is none."""
    kinds: dict[str, Callable[[pa.DataType], bool]] = {
        "int": pa.types.is_integer,
        "float": lambda t: pa.types.is_floating(t) or pa.types.is_decimal(t),
        "bool": pa.types.is_boolean,
        "timestamp": lambda t: pa.types.is_timestamp(t) or pa.types.is_date(t),
        "string": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_null(t),
    }
    if pa.types.is_dictionary(kind):
        return kind_of(kind.value_type)
    return next((name for name, fits in kinds.items() if fits(kind)), None)


@dataclass(frozen=True)
class Mapped:
    """A mapping: `fields` by column, `kinds` the types of the columns, `unused` the other fields."""

    fields: dict[str, str]
    kinds: dict[str, str]
    unused: list[str]


def match(
    stream: str,
    kinds: Mapping[str, str],
    fields: Mapping[str, pa.DataType],
    given: Mapping[str, str],
    what: str = "stream",
) -> Mapped:
    """The field of each column of a stream, or of `what` it is: as `given`, else by name in any case.

    Raises an error that names what does not match, and the nearest names.
    """
    columns = {name.lower(): name for name in kinds}
    said: dict[str, str] = {}
    for column, field in given.items():
        if column.lower() not in columns:
            raise UnknownColumn(f"--map {column}={field}: {stream} has no column {column!r}{near(column, list(kinds))}")
        if field not in fields:
            raise MissingColumn(f"--map {column}={field}: the file has no field {field!r}{near(field, list(fields))}")
        said[columns[column.lower()]] = field
    found: dict[str, str] = {}
    missing: list[str] = []
    for column in kinds:
        if (meant := said.get(column) or _by_name(column, fields)) is None:
            missing.append(column)
        else:
            found[column] = meant
    unused = [field for field in fields if field not in found.values()]
    if missing:
        free = unused or list(fields)
        hints = [
            f"--map {column}={(difflib.get_close_matches(column, free, 1, 0.5) or ['FIELD'])[0]}" for column in missing
        ]
        raise MissingColumn(
            f"the file has no field for {_listed(missing)} of {what} {stream}.\n"
            f"It has {_listed(list(fields))}. Say which one it is: {' '.join(hints)}"
        )
    return Mapped(found, dict(kinds), unused)


def columns_of(fields: Mapping[str, pa.DataType], given: Mapping[str, str], time: str | None) -> tuple[Mapped, str]:
    """The columns of a new stream for a file, and its time column. Fields of unsupported types are skipped."""
    for column, field in given.items():
        if field not in fields:
            raise MissingColumn(f"--map {column}={field}: the file has no field {field!r}{near(field, list(fields))}")
    names = {field: column for column, field in given.items()}
    found = {names.get(field, field): field for field in fields}
    kinds = {column: kind for column, field in found.items() if (kind := kind_of(fields[field])) is not None}
    if time is None:
        times = [column for column, kind in kinds.items() if kind == "timestamp"]
        if len(times) != 1:
            raise BadSchema(f"say which column has the event time: --time COLUMN, one of {_listed(list(kinds))}")
        time = times[0]
    by_name = {column.lower(): column for column in kinds}
    if time.lower() not in by_name:
        raise BadSchema(f"--time {time}: the file has no such field{near(time, list(kinds))}")
    time = by_name[time.lower()]
    kinds[time] = "timestamp"
    used = {column: found[column] for column in kinds}
    return Mapped(used, kinds, [field for field in fields if field not in used.values()]), time


def types_of(mapped: Mapped, fields: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The type to parse each field of a text file as: that of its column, unless the inferred one is more specific."""
    out: dict[str, pa.DataType] = {}
    for column, field in mapped.fields.items():
        kind, found = mapped.kinds[column], fields[field]
        if kind == "int" and pa.types.is_floating(found):
            out[field] = found  # 12.0 is an integer, too; 12.5 is refused by the service, with its row
        elif kind == "timestamp" and pa.types.is_integer(found):
            out[field] = pa.int64()
        elif kind == "timestamp" and pa.types.is_timestamp(found):
            out[field] = pa.timestamp("us", found.tz)
        else:
            out[field] = ARROW_TYPES[kind]
    return out


def shaped(batch: pa.Table, mapped: Mapped, unit: Unit | None) -> pa.Table:
    """A batch of a file with the names and types of the stream."""
    return pa.table(
        {
            column: _shaped(column, batch.column(field), mapped.kinds[column], unit)
            for column, field in mapped.fields.items()
        }
    )


def tables_of(source: FileSource, mapped: Mapped, unit: Unit | None) -> Iterator[pa.Table]:
    """The batches of a file, with the names and types of the target columns."""
    for batch in source.batches(types_of(mapped, source.fields)):
        yield shaped(batch, mapped, unit)


def _shaped(column: str, values: pa.ChunkedArray, kind: str, unit: Unit | None) -> pa.ChunkedArray:
    source = values.type
    if pa.types.is_dictionary(source):
        return _shaped(column, values.cast(source.value_type), kind, unit)
    try:
        if kind == "timestamp":
            return _times(column, values, unit)
        if kind == "float" and pa.types.is_decimal(source):
            return values.cast(pa.float64())
    except pa.ArrowInvalid as problem:
        raise BatchError(f"column {column!r}: {str(problem).splitlines()[0]}") from None
    return values


def _times(column: str, values: pa.ChunkedArray, unit: Unit | None) -> pa.ChunkedArray:
    source = values.type
    if pa.types.is_integer(source):
        least = pc.min(pc.abs(values)).as_py()
        if unit is None and least is not None and least < EARLY:
            raise BatchError(
                f"column {column!r} has the number {least}: say what it counts since 1970, --time-unit s, ms, us or ns"
            )
        stamps = values.cast(pa.int64()).cast(pa.timestamp((unit or Unit.US).value))
        return stamps.cast(pa.timestamp("us"), safe=unit is not Unit.NS)
    if pa.types.is_string(source) or pa.types.is_large_string(source):
        first = next((text for text in values.to_pylist() if text is not None), "")
        zoned = first.endswith(("Z", "z")) or first[-6:-5] in ("+", "-") or first[-5:-4] == "+"
        return values.cast(pa.timestamp("us", "UTC" if zoned else None))
    if pa.types.is_date(source):
        return values.cast(pa.timestamp("us"))
    return values


def _by_name(name: str, fields: Mapping[str, pa.DataType]) -> str | None:
    if name in fields:
        return name
    alike = [field for field in fields if field.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def near(name: str, known: list[str]) -> str:
    """The end of a message: the known name nearest to `name`, or all known names."""
    alike = difflib.get_close_matches(name.lower(), [k.lower() for k in known], 1)
    if alike:
        meant = next(k for k in known if k.lower() == alike[0])
        return f"; did you mean {clean(meant, '')}?"
    return f"; there are {_listed(known)}"


def _listed(names: list[str]) -> str:
    return ", ".join(clean(name, "") for name in names[:20]) + (", ..." if len(names) > 20 else "")
