"""Requests with fields, translated to SQL statements: so there is one path for definitions."""

from collections.abc import Mapping, Sequence

from google.protobuf.duration_pb2 import Duration

from promising import wire, wire_times
from promising.errors import BadCounts, BadMeasure, BadRequest
from promising.summaries.cells import Measure
from promising.summaries.counts import counts_kind
from promising.v1 import streams_pb2, summaries_pb2

SQL_TYPES = {
    streams_pb2.COLUMN_TYPE_INT: "BIGINT",
    streams_pb2.COLUMN_TYPE_FLOAT: "DOUBLE",
    streams_pb2.COLUMN_TYPE_STRING: "VARCHAR",
    streams_pb2.COLUMN_TYPE_BOOL: "BOOLEAN",
    streams_pb2.COLUMN_TYPE_TIMESTAMP: "TIMESTAMP",
}


def create_stream(request: streams_pb2.CreateStreamRequest) -> str:
    """CREATE STREAM, or `BadRequest` naming the missing field."""
    if not request.columns:
        raise BadRequest("columns is missing: a stream has at least one, of type timestamp", "columns")
    columns = []
    for at, column in enumerate(request.columns):
        kind = SQL_TYPES.get(column.type)
        if kind is None:
            raise BadRequest(f"columns[{at}].type is missing or unknown ({column.name!r})", f"columns[{at}].type")
        columns.append(f"{_name(column.name, f'columns[{at}].name')} {kind}")
    options = {}
    if request.HasField("max_tuples"):
        options["max_tuples"] = str(request.max_tuples)
    if request.HasField("max_string_bytes"):
        options["max_string_bytes"] = str(request.max_string_bytes)
    if request.HasField("max_future"):
        options["max_future_seconds"] = _number(wire_times.seconds(request.max_future))
    lateness = f" LATENESS {_span(request.lateness)}" if request.HasField("lateness") else ""
    jump = f" MAX JUMP {_span(request.max_jump)}" if request.HasField("max_jump") else ""
    keep = f" KEEP {_span(request.keep)}" if request.HasField("keep") else ""
    return (
        f"CREATE STREAM {_if_not_exists(request.if_not_exists)}{_name(request.name, 'name')} ({', '.join(columns)})"
        f" TIMESTAMP BY {_name(request.time_column, 'time_column')}{lateness}{keep}{jump}{_options(options)}"
    )


def create_summary(request: summaries_pb2.CreateSummaryRequest) -> str:
    """CREATE SUMMARY, or `BadRequest` naming the missing field."""
    if not request.HasField("granularity"):
        raise BadRequest("granularity is missing: the span of the finest granularity", "granularity")
    rate = request.collapse_rate if request.HasField("collapse_rate") else 4
    depth = request.collapse_depth if request.HasField("collapse_depth") else 5
    structure = next((name for name, value in wire.STRUCTURES.items() if value == request.structure), None)
    if structure is None and request.structure != summaries_pb2.STRUCTURE_UNSPECIFIED:
        raise BadRequest(f"structure {request.structure} is unknown", "structure")
    return (
        f"CREATE SUMMARY {_if_not_exists(request.if_not_exists)}{_name(request.name, 'name')}"
        f" ON {_name(request.stream, 'stream')} ({_name(request.key, 'key')})"
        f"{_counted(request)} WITH GRANULARITY {_span(request.granularity)} AND COLLAPSE ({rate}, {depth})"
        + (f" STRUCTURE {structure}" if structure else "")
        + _options({name: _number(value) for name, value in request.options.items()} | _switches(request))
    )


def _counted(request: summaries_pb2.CreateSummaryRequest) -> str:
    return _using(request.using) + _measures(request.measures)


def _using(using: str) -> str:
    """USING of a text; one that is no kind is refused here, for it would be read as SQL."""
    if not using:
        return ""
    try:
        return f" USING {counts_kind(using).name.upper()}"
    except BadCounts as problem:
        raise BadRequest(f"using: {problem}", "using") from None


def _switches(request: summaries_pb2.CreateSummaryRequest) -> dict[str, str]:
    if "postings" in request.options:
        raise BadRequest("options are numbers; postings is a field of its own", "options")
    return {"postings": "on" if request.postings else "off"} if request.HasField("postings") else {}


def _measures(measures: Sequence[str]) -> str:
    """MEASURES of texts; text that is no measure is refused here, for it would be read as SQL."""
    found = []
    for at, text in enumerate(measures):
        try:
            found.append(Measure.read(text).sql)
        except BadMeasure as problem:
            raise BadRequest(f"measures[{at}]: {problem}", f"measures[{at}]") from None
    return f" MEASURES ({', '.join(found)})" if found else ""


def drop(kind: str, name: str, if_exists: bool, cascade: bool) -> str:
    return f"DROP {kind} {'IF EXISTS ' if if_exists else ''}{_name(name, 'name')}{' CASCADE' if cascade else ''}"


def _if_not_exists(asked: bool) -> str:
    return "IF NOT EXISTS " if asked else ""


def _name(name: str, field: str) -> str:
    if not name:
        raise BadRequest(f"{field} is missing", field)
    return '"' + name.replace('"', '""') + '"'


def _span(span: Duration) -> str:
    return f"{wire_times.span_micros(span)} MICROSECONDS"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _options(options: Mapping[str, str]) -> str:
    if not options:
        return ""
    return " OPTIONS (" + ", ".join(f"{_name(n, 'options')} = {v}" for n, v in options.items()) + ")"
