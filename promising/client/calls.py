"""Requests and response parsing of each session method, without I/O.

Arguments are checked here as far as the wire format requires, by the code of a local session; the service checks
the rest.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from promising import wire, wire_times
from promising.client.connection import Ask
from promising.errors import BadQuestion, BadRequest, BadToken, NoSuchName, UnknownName, WrongType
from promising.index.instants import FARTHEST
from promising.index.regions import Description, Regions, Story, check_window
from promising.index.scan_plan import ScanPlan
from promising.index.schema import Schema
from promising.query.answers import Done, Explanation
from promising.query.budgets import Budget, nanoseconds
from promising.summaries.adt import Estimates
from promising.summaries.keys import as_keys
from promising.v1 import queries_pb2, streams_pb2, summaries_pb2

if TYPE_CHECKING:
    from promising.index.load_plan import LoadPlan
    from promising.index.prepared_load import Attached

Window = tuple[int, int] | None

KINDS: dict[streams_pb2.ColumnType.ValueType, str] = {
    streams_pb2.COLUMN_TYPE_INT: "int",
    streams_pb2.COLUMN_TYPE_FLOAT: "float",
    streams_pb2.COLUMN_TYPE_STRING: "string",
    streams_pb2.COLUMN_TYPE_BOOL: "bool",
    streams_pb2.COLUMN_TYPE_TIMESTAMP: "timestamp",
}


# --- streams -----------------------------------------------------------------------------------------------------


def advance(stream: str, watermark: int) -> Ask[None]:
    if not isinstance(watermark, int | np.integer) or not -FARTHEST <= watermark <= FARTHEST:
        raise WrongType(f"watermark {watermark!r} is no date; times are whole microseconds")
    request = streams_pb2.AdvanceRequest(
        stream=name_of("stream", stream), watermark=wire_times.timestamp(int(watermark))
    )
    return Ask("streams", "Advance", request, lambda _: None)


def stream_schema(stream: str) -> Ask[Schema]:
    request = streams_pb2.DescribeStreamRequest(name=name_of("stream", stream))

    def read(told: streams_pb2.DescribeStreamResponse) -> Schema:
        return Schema({c.name: KINDS[c.type] for c in told.stream.columns}, told.stream.time_column)

    return Ask("streams", "DescribeStream", request, read)


def stream_keys(stream: str) -> Ask[frozenset[str]]:
    """The columns of a stream that are keys of summaries."""

    def read(told: summaries_pb2.ListSummariesResponse) -> frozenset[str]:
        return frozenset(s.key for s in told.summaries if s.stream.casefold() == stream.casefold())

    return Ask("summaries", "ListSummaries", summaries_pb2.ListSummariesRequest(), read)


def load_plan(stream: str) -> "Ask[LoadPlan]":
    request = streams_pb2.PlanLoadRequest(stream=name_of("stream", stream))
    from promising.index.load_plan import LoadPlan  # noqa: PLC0415  # compiles on import: only for loaders

    return Ask("streams", "PlanLoad", request, lambda told: LoadPlan.from_json(told.plan))


def attach(stream: str, path: str, token: str) -> "Ask[Attached]":
    """Safe to retry: a package is added exactly once per token."""
    for what, text in (("path", path), ("token", token)):
        if not isinstance(text, str) or not _encodable(text):
            raise BadRequest(f"{what} is a text in UTF-8, not {text!r}", what)
    request = streams_pb2.AttachRequest(stream=name_of("stream", stream), path=path, token=token)
    return Ask("streams", "Attach", request, wire.attached_from)


# --- summaries ---------------------------------------------------------------------------------------------------


def estimate(summary: str, keys: Any, window: Window) -> Ask[Estimates]:
    request = summaries_pb2.EstimateRequest(**_keyed(summary, keys, window))
    return Ask("summaries", "Estimate", request, wire.estimates_from)


def regions(summary: str, keys: Any, window: Window, search: str) -> Ask[Regions]:
    request = summaries_pb2.RegionsRequest(**_keyed(summary, keys, window), search=search)
    return Ask("summaries", "Regions", request, wire.regions_from)


def probe(summary: str, keys: Any, window: Window, columns: Sequence[str] | None) -> Ask[pa.Table]:
    if columns is not None and not columns:
        raise BadQuestion("no columns are asked for; leave them out to have all of them")
    _check_columns(columns or ())
    request = queries_pb2.ProbeRequest(**_keyed(summary, keys, window), columns=columns)

    def read(parts: list[queries_pb2.ProbeResponse]) -> pa.Table:
        rows = pa.concat_tables([wire.table(part.rows) for part in parts])
        places = rows["probe"].to_numpy()
        if (places[1:] >= places[:-1]).all():
            return rows
        return rows.take(np.argsort(places, kind="stable"))  # the copies of keys that are asked for repeatedly

    return Ask("queries", "Probe", request, read)


def describe(summary: str, cells: bool, show: str | None) -> Ask[Description]:
    request = summaries_pb2.DescribeSummaryRequest(name=name_of("summary", summary), cells=cells, show=show or "")
    return Ask("summaries", "DescribeSummary", request, lambda told: wire.description_from(told.summary, cells))


def story(summary: str, granularity: int, zone: int) -> Ask[Story]:
    if not isinstance(granularity, int) or not 0 <= granularity < 1 << 32:
        raise BadQuestion(f"granularities count from 1, so there is no {granularity!r}")
    if not isinstance(zone, int) or not -(1 << 63) <= zone < 1 << 63:
        raise UnknownName(f"no zone {zone} in G_{granularity}: never there, or aged since")
    request = summaries_pb2.StoryRequest(summary=name_of("summary", summary), granularity=granularity, zone=zone)
    return Ask("summaries", "Story", request, wire.story_from)


def _keyed(summary: str, keys: Any, window: Window) -> dict[str, Any]:
    asked = as_keys(keys)
    stretch = None if window is None else wire.window_to(check_window(window))
    return {"summary": name_of("summary", summary), "keys": wire.keys_to(asked), "window": stretch}


# --- queries -----------------------------------------------------------------------------------------------------


def execute(sql: str, again: bool) -> Ask[Done | pa.Table | Explanation]:
    """A statement other than SELECT."""

    def read(told: queries_pb2.ExecuteResponse) -> Done | pa.Table | Explanation:
        if told.HasField("done"):
            return wire.done_from(told.done)
        return wire.explanation_from(told.explanation) if told.HasField("explanation") else wire.table(told.table)

    return Ask("queries", "Execute", queries_pb2.ExecuteRequest(sql=sql), read, again)


def query(sql: str, budget: Budget, seed: int | None) -> queries_pb2.QueryRequest:
    return _budgeted(queries_pb2.QueryRequest(sql=text_of(sql), seed=_seed(seed)), budget)


def resume(token: str, budget: Budget) -> queries_pb2.QueryRequest:
    nanoseconds(budget)
    if not isinstance(token, str) or not _encodable(token):
        raise BadToken("no resume token of this session: it was changed, or made elsewhere")
    return _budgeted(queries_pb2.QueryRequest(resume_token=token), budget)


def cancel(query_id: str) -> Ask[None]:
    return Ask("queries", "CancelQuery", queries_pb2.CancelQueryRequest(query_id=query_id), lambda _: None)


def query_many(statements: Iterable[str]) -> Ask[list[pa.Table]]:
    asked = [text_of(sql) for sql in statements]

    def read(parts: list[queries_pb2.QueryBatchResponse]) -> list[pa.Table]:
        found: list[list[pa.Table]] = [[] for _ in asked]
        for part in parts:
            found[part.statement].append(wire.table(part.rows))
        return [pa.concat_tables(tables) for tables in found]

    return Ask("queries", "QueryBatch", queries_pb2.QueryBatchRequest(sql=asked), read)


def explain(sql: str, analyze: bool, budget: Budget, seed: int | None) -> Ask[Explanation]:
    request = queries_pb2.ExplainRequest(sql=text_of(sql), analyze=analyze, seed=_seed(seed))
    return Ask("queries", "Explain", _budgeted(request, budget), lambda told: wire.explanation_from(told.explanation))


def plan_scan(sql: str, share: float) -> Ask[ScanPlan]:
    request = queries_pb2.PlanScanRequest(sql=text_of(sql), share=share)

    def read(parts: list[queries_pb2.PlanScanResponse]) -> ScanPlan:
        return ScanPlan.from_json("".join(part.plan for part in parts))

    return Ask("queries", "PlanScan", request, read)


def fetch(stream: str, first: int, last: int, columns: Sequence[str]) -> queries_pb2.FetchRequest:
    if not 0 <= first <= last < 1 << 63:
        raise BadQuestion(f"arrivals go from a first to a last, not from {first!r} to {last!r}")
    _check_columns(columns)
    return queries_pb2.FetchRequest(stream=name_of("stream", stream), first=first, last=last, columns=columns)


def read_table(name: str) -> Ask[pa.Table]:
    def read(parts: list[queries_pb2.ReadTableResponse]) -> pa.Table:
        return pa.concat_tables([wire.table(part.rows) for part in parts])

    return Ask("queries", "ReadTable", queries_pb2.ReadTableRequest(table=name_of("table", name)), read)


# --- arguments ---------------------------------------------------------------------------------------------------

Budgeted = TypeVar("Budgeted", queries_pb2.QueryRequest, queries_pb2.ExplainRequest)


def _budgeted(request: Budgeted, budget: Budget) -> Budgeted:
    limit = nanoseconds(budget)
    if limit is not None:
        request.budget.seconds, request.budget.nanos = divmod(limit, 1_000_000_000)
    return request


def _seed(seed: int | None) -> int | None:
    if seed is not None and (not isinstance(seed, int | np.integer) or not -(1 << 63) <= seed < 1 << 63):
        raise BadRequest(f"a seed is a whole number of 64 bits, signed, not {seed!r}", "seed")
    return None if seed is None else int(seed)


def text_of(sql: str) -> str:
    """The text, if it can be encoded; otherwise it is not a valid statement either."""
    if not isinstance(sql, str) or not _encodable(sql):
        from promising.query.sql import parse  # noqa: PLC0415  # sqlglot: only for its error

        parse(sql)
    return sql


def name_of(kind: str, name: str) -> str:
    """The name, if it can be encoded; otherwise nothing has that name."""
    if isinstance(name, str) and not _encodable(name):
        raise NoSuchName(f"no {kind} {name!r}")
    return name


def _check_columns(names: Sequence[str]) -> None:
    for name in names:
        if not isinstance(name, str) or not _encodable(name):
            raise UnknownName(f"no column {name!r}")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
