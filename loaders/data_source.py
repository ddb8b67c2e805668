"""The Spark data source `promising`: its options, its schema, and the checks before any task runs.

Common options: `address` (host:port) and `stream`, both required; `token`, `ca`, `certificate` and `key` as for
`promising.connect`, whose files are read on the driver.

Writing: `strict` (true: rows that are too old or too far ahead of the clock fail the job; else they are dropped and
counted); `job` (a name for a batch job, which makes it idempotent: running it again adds only what is missing).

Reading: `columns` (names separated by commas); `start` and `end` (event times, inclusive and exclusive: ISO 8601, by
default in UTC); `keys` (values of columns, as JSON: `{"item_id": [7, 9]}`); `limit` (rows to stop after); `preference`
(desc, asc or weighted, followed by the key if several have summaries: `desc item_id`): with `limit`, the rows are those
of `WITH PREFERENCE DESC SUMMARY.Estimate.Count(item_id) LIMIT n`, from the service; without, it decides what is read
first, not which rows there are. Only regions that can hold matching rows are read.

`pushdown` (true: the query's filters on times, integers and keys have the same effect) is for a DataFrame that is used
for one query only: Spark 4.3 applies the filters of the first query to every other one, and so loses rows.

A DataFrame shows the stream as of when Spark first planned a query over it; load it again to see later tuples.

Timestamps of a stream are microseconds in UTC. Spark's TIMESTAMP is an instant, whatever the session's time zone, and
is preserved. TIMESTAMP_NTZ, a local time, is taken as UTC; to read it, request it with `spark.read.schema(...)`.
"""

import json
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark.sql import types
from pyspark.sql.datasource import DataSource

from promising.errors import BadSettings, DuplicateColumn, MissingColumn, UnknownColumn, WrongType
from promising.loaders.scan_reader import Scanning
from promising.loaders.sink import Ingesting, StreamWriter, Target, Writer
from promising.loaders.stream_reader import DIRECTIONS, Condition, PushingReader, Question, Reader, quoted

if TYPE_CHECKING:  # compiles on import: not for tasks that only send rows
    from promising.index.load_plan import LoadPlan

FITTING: dict[str, tuple[type[types.DataType], ...]] = {
    "int": (types.LongType, types.IntegerType, types.ShortType, types.ByteType),
    "float": (types.DoubleType, types.FloatType),
    "string": (types.StringType,),
    "bool": (types.BooleanType,),
    "timestamp": (types.TimestampType, types.TimestampNTZType),
}
"""Spark types that a column of each stream type can be written from; it is read as the first."""
CONNECTING = ("address", "stream", "token", "ca", "certificate", "key")
WRITING = (*CONNECTING, "strict", "job")
READING = (*CONNECTING, "columns", "start", "end", "keys", "preference", "limit", "pushdown")
SPARKS = ("checkpointlocation", "queryname")  # which Spark itself adds to the options

T = TypeVar("T")


class ServiceOptions(Ingesting, Scanning, Protocol):
    def load_plan(self, stream: str) -> "LoadPlan": ...

    def execute(self, sql: str) -> Any: ...


@dataclass(frozen=True)
class Shape:
    """A stream as seen by a reader: types by column, the event time, the columns with summaries."""

    types: dict[str, str]
    time: str
    keys: tuple[str, ...]


class Source(DataSource):
    """Implements Spark's interface; `connection` is abstract."""

    @classmethod
    def name(cls) -> str:
        return "promising"

    @abstractmethod
    def connection(self) -> Callable[[], AbstractContextManager[ServiceOptions]]:
        """Opens a session on the service, here or, pickled, in a task."""

    def schema(self) -> types.StructType:
        self._known(READING, "read")
        shape = self._shape(self.connection())
        return types.StructType([types.StructField(n, FITTING[shape.types[n]][0]()) for n in self._columns(shape)])

    def reader(self, schema: types.StructType) -> Reader:
        self._known(READING, "read")
        connect = self.connection()
        shape = self._shape(connect)
        names = _matched(schema, shape.types, self._stream)
        for own, given in names.items():
            _fit(schema[given], own, shape.types[own], read=True)
        question = Question(
            self._stream,
            shape.types,
            names,
            shape.keys,
            (*self._times(shape), *self._keys(shape)),
            self._preference(shape),
            self._limit(),
        )
        pushing = self._choice("pushdown", ("true", "false")) == "true"
        return PushingReader(connect, question, schema) if pushing else Reader(connect, question, schema)

    def writer(self, schema: types.StructType, overwrite: bool) -> Writer:
        target = self._target(schema, overwrite)
        return Writer(target, self._option("job") or uuid.uuid4().hex)

    def streamWriter(self, schema: types.StructType, overwrite: bool) -> StreamWriter:
        if "job" in self.options:
            raise BadSettings("the option `job` is for batch jobs; a streaming query is known by its checkpoint")
        return StreamWriter(self._target(schema, overwrite))

    def _target(self, schema: types.StructType, overwrite: bool) -> Target:
        self._known(WRITING, "write")
        if overwrite:
            raise BadSettings(
                "a stream cannot be overwritten: tuples are added and age out; write with .mode('append'), or in "
                "output mode append"
            )
        strict = self._choice("strict", ("true", "false")) == "true"
        connect = self.connection()
        with connect() as service:
            plan = service.load_plan(self._stream)
        names = _matched(schema, plan.types, self._stream)
        for own, kind in plan.types.items():
            if own not in names:
                raise MissingColumn(
                    f"the stream {self._stream} has a column {own} ({kind}), the DataFrame has not; its columns are "
                    f"{', '.join(schema.names)}"
                )
            _fit(schema[names[own]], own, kind, read=False)
        columns = {own: (kind, names[own]) for own, kind in plan.types.items()}
        required = tuple(dict.fromkeys((plan.time, *plan.keys)))
        return Target(connect, self._stream, columns, plan.time, required, strict)

    # --- options -------------------------------------------------------------------------------------------------

    def _option(self, name: str) -> str | None:
        found = self.options.get(name)
        return None if found is None or not str(found).strip() else str(found).strip()

    def _needed(self, name: str, example: str) -> str:
        found = self._option(name)
        if found is None:
            raise BadSettings(f"the option `{name}` is missing: .option('{name}', '{example}')")
        return found

    @property
    def _stream(self) -> str:
        return self._needed("stream", "store1")

    def _known(self, names: Iterable[str], what: str) -> None:
        for given in self.options:
            if given.lower() not in (*names, *SPARKS):
                raise BadSettings(f"no option `{given}` to {what} by; there are {', '.join(names)}")

    def _choice(self, name: str, choices: tuple[str, ...]) -> str | None:
        found = self._option(name)
        if found is not None and found.lower() not in choices:
            raise BadSettings(f"the option `{name}` is one of {', '.join(choices)}, not {found!r}")
        return None if found is None else found.lower()

    def _limit(self) -> int | None:
        found = self._option("limit")
        if found is None:
            return None
        if not found.isdecimal():
            raise BadSettings(f"the option `limit` is a number of rows, not {found!r}")
        return int(found)

    def _columns(self, shape: Shape) -> list[str]:
        found = self._option("columns")
        if found is None:
            return list(shape.types)
        names = [_named(name.strip(), shape.types, self._stream) for name in found.split(",")]
        if len(set(names)) < len(names):
            raise DuplicateColumn(f"the option `columns` has a column twice: {found}")
        return names

    def _times(self, shape: Shape) -> Iterator[Condition]:
        for name, sign in (("start", ">="), ("end", "<")):
            found = self._option(name)
            if found is None:
                continue
            try:
                yield Condition(shape.time, sign, (datetime.fromisoformat(found),))
            except ValueError:
                raise BadSettings(f"the option `{name}` is a time as 2024-01-31T12:00:00Z, not {found!r}") from None

    def _keys(self, shape: Shape) -> Iterator[Condition]:
        found = self._option("keys")
        if found is None:
            return
        with suppress(ValueError):
            given = json.loads(found)
            if isinstance(given, dict) and all(isinstance(values, list) for values in given.values()):
                for name, values in given.items():
                    own = _named(name, shape.types, self._stream)
                    wanted = {"int": int, "string": str}.get(shape.types[own])
                    if wanted is None or not values or any(type(value) is not wanted for value in values):
                        raise WrongType(
                            f"the option `keys` has a list of whole numbers or of strings for a column of such, not "
                            f"{values} for {own} ({shape.types[own]})"
                        )
                    yield Condition(own, "IN", tuple(values))
                return
        raise BadSettings(f'the option `keys` is JSON as {{"item_id": [7, 9]}}, not {found!r}')

    def _preference(self, shape: Shape) -> tuple[str, str] | None:
        found = self._option("preference")
        if found is None:
            return None
        direction, _, key = found.partition(" ")
        if direction.lower() not in DIRECTIONS:
            raise BadSettings(
                f"the option `preference` begins with one of {', '.join(DIRECTIONS)}, not with {direction!r}"
            )
        if key.strip():
            own = _named(key.strip(), shape.types, self._stream)
        elif len(shape.keys) == 1:
            own = shape.keys[0]
        elif shape.keys:
            raise BadSettings(
                f"several columns of {self._stream} have summaries; say which one the preference is about: "
                f".option('preference', '{direction} {shape.keys[0]}')"
            )
        else:
            own = ""
        if own not in shape.keys:
            what = own or f"a column of {self._stream}"
            raise BadSettings(f"a preference needs a summary on {what}, which there is not; see CREATE SUMMARY")
        return direction.lower(), own

    def _shape(self, connect: Callable[[], AbstractContextManager[ServiceOptions]]) -> Shape:
        with connect() as service:
            told = service.execute(f"DESCRIBE {quoted(self._stream)}").to_pylist()
        if not told or "column" not in told[0]:
            raise BadSettings(f"{self._stream} is no stream; the option `stream` names one, as SHOW STREAMS lists them")
        kinds = {row["column"]: row["type"] for row in told}
        (time,) = (row["column"] for row in told if row["time"])
        return Shape(kinds, time, tuple(row["column"] for row in told if row["summary"] is not None))


def _matched(schema: types.StructType, columns: Mapping[str, T], stream: str) -> dict[str, str]:
    """The stream's columns in a schema, in its order, each with its name there."""
    names: dict[str, str] = {}
    for given in schema.names:
        own = _named(given, columns, stream)
        if own in names:
            raise DuplicateColumn(f"the columns {names[own]} and {given} are one column of the stream {stream}")
        names[own] = given
    return names


def _named(given: str, columns: Mapping[str, T], stream: str) -> str:
    """The stream's column of that name, case-insensitive."""
    for own in columns:
        if own.lower() == given.lower():
            return own
    raise UnknownColumn(f"the stream {stream} has no column {given!r}; its columns are {', '.join(columns)}")


def _fit(field: types.StructField, own: str, kind: str, *, read: bool) -> None:
    fitting = FITTING[kind] if kind == "timestamp" or not read else FITTING[kind][:1]
    if not isinstance(field.dataType, fitting):
        wanted = " or ".join(one().simpleString() for one in fitting)
        raise WrongType(
            f"column {field.name} is {field.dataType.simpleString()}, but the stream has {own} as {kind}: {wanted} is "
            f"wanted; use col('{field.name}').cast('{fitting[0]().simpleString()}')"
        )
