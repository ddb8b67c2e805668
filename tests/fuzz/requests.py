"""Damaged requests of every call to a running service: a documented status that changes nothing, or an answer."""

import random
import tempfile
from contextlib import ExitStack
from typing import Any, ClassVar, NamedTuple

import grpc
import pyarrow as pa
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2, status_pb2

from promising import wire, wire_errors
from promising.settings import Limits, Settings, Standing
from promising.testing.service import running
from promising.v1 import admin_pb2, common_pb2, queries_pb2, streams_pb2, summaries_pb2
from tests.fuzz import world
from tests.fuzz.cases import LONGEST, Broken, Subject, differs
from tests.fuzz.message_mutations import damaged
from tests.fuzz.sql import OURS, SELECTS

WAIT = 120  # seconds, so that a call that hangs ends
MOST_RESPONSES = 2_000
FAULTS = ("INTERNAL", "UNKNOWN", "CANCELLED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "DATA_LOSS", "ABORTED")
STATUSES = {code.name for code in wire_errors.CODES.values()} - {*FAULTS}
LIMITS = Limits(max_message_bytes=1 << 20, max_batch_rows=1000, max_keys=1000, max_rows=10_000, workers=1)
KEYS, WORDS = common_pb2.Keys(ints=[1, 2, 99]), common_pb2.Keys(strings=["n1é", "x"])
WINDOW = common_pb2.Window(start=Timestamp(seconds=5), end=Timestamp(seconds=40))
SECOND = Duration(seconds=1)
INT, TIME = streams_pb2.COLUMN_TYPE_INT, streams_pb2.COLUMN_TYPE_TIMESTAMP
COLUMNS = [streams_pb2.Column(name="ts", type=TIME), streams_pb2.Column(name="k", type=INT)]
TABLE = wire.ipc(pa.table({"item_id": [1, 7], "name": ["a", None], "price": [0.5, 1.5]}))


def _rows() -> bytes:
    given = world.columns(40, 3)
    ts = pa.array([60_000_000 + i for i in range(3)], pa.timestamp("us"))
    return wire.ipc(pa.table({name: ts if name == "ts" else pa.array(column) for name, column in given.items()}))


ROWS = _rows()
MODULES = {"Stream": streams_pb2, "Summary": summaries_pb2, "Query": queries_pb2, "Admin": admin_pb2}
VALID: dict[str, list[Message]] = {
    "CreateStream": [
        streams_pb2.CreateStreamRequest(name="u", columns=COLUMNS, time_column="ts", lateness=SECOND, max_tuples=99),
        streams_pb2.CreateStreamRequest(name="s", columns=COLUMNS, time_column="ts", if_not_exists=True, keep=SECOND),
    ],
    "DescribeStream": [streams_pb2.DescribeStreamRequest(name="s")],
    "DropStream": [streams_pb2.DropStreamRequest(name="store1", cascade=True)],
    "Advance": [streams_pb2.AdvanceRequest(stream="s", watermark=Timestamp(seconds=59))],
    "Ingest": [
        streams_pb2.IngestRequest(stream="s", producer_id="p", sequence=1, arrow=ROWS),
        streams_pb2.IngestRequest(stream="t", arrow=ROWS, strict=True),
    ],
    "PlanLoad": [streams_pb2.PlanLoadRequest(stream="s")],
    "Attach": [streams_pb2.AttachRequest(stream="s", path="{load_paths}/package", token="1")],
    "CreateSummary": [
        summaries_pb2.CreateSummaryRequest(
            name="more", stream="s", key="b", granularity=SECOND, options={"buckets": 4, "width": 8}, collapse_rate=2
        ),
        summaries_pb2.CreateSummaryRequest(
            name="more", stream="s", key="b", granularity=SECOND, measures=["MOMENTS(price)", 'distinct( "name" )']
        ),
        summaries_pb2.CreateSummaryRequest(name="more", stream="s", key="b", granularity=SECOND, using="COUNT_MIN"),
    ],
    "DescribeSummary": [
        summaries_pb2.DescribeSummaryRequest(name="s_k", cells=True),
        summaries_pb2.DescribeSummaryRequest(name="s_k", show="avg(price)"),
    ],
    "DropSummary": [summaries_pb2.DropSummaryRequest(name="t_k", if_exists=True)],
    "Estimate": [summaries_pb2.EstimateRequest(summary="s_k", keys=KEYS, window=WINDOW)],
    "Regions": [summaries_pb2.RegionsRequest(summary="s_k", keys=KEYS, window=WINDOW)],
    "Story": [summaries_pb2.StoryRequest(summary="s_k", granularity=1, zone=2)],
    "Execute": [queries_pb2.ExecuteRequest(sql=sql) for sql in OURS if not sql.startswith("SELECT")],
    "Query": [
        *(queries_pb2.QueryRequest(sql=sql, budget=SECOND, seed=7) for sql in SELECTS),
        queries_pb2.QueryRequest(resume_token="0.0"),
    ],
    "CancelQuery": [queries_pb2.CancelQueryRequest(query_id="1")],
    "QueryBatch": [queries_pb2.QueryBatchRequest(sql=SELECTS[:3])],
    "Probe": [queries_pb2.ProbeRequest(summary="s_k", keys=KEYS, window=WINDOW, columns=["k", "name"])],
    "Explain": [queries_pb2.ExplainRequest(sql=sql, analyze=True, budget=SECOND) for sql in SELECTS],
    "PlanScan": [queries_pb2.PlanScanRequest(sql=sql, share=0.5) for sql in SELECTS],
    "Fetch": [queries_pb2.FetchRequest(stream="s", first=3, last=9, columns=["k", "name"])],
    "Subscribe": [
        queries_pb2.SubscribeRequest(add=queries_pb2.Subscription(number=1, query="watch")),
        queries_pb2.SubscribeRequest(add=queries_pb2.Subscription(number=2, query="pairs", resume_token="WyJh")),
        queries_pb2.SubscribeRequest(remove=1),
    ],
    "LoadTable": [queries_pb2.LoadTableRequest(table="names", mode=queries_pb2.LOAD_MODE_UPSERT, arrow=TABLE)],
    "ReadTable": [queries_pb2.ReadTableRequest(table="names")],
}
"""By method; one without an entry has an empty request."""


class Method(NamedTuple):
    """A call of the contract."""

    path: str
    name: str
    request: type[Message]
    response: type[Message]
    streams_in: bool
    streams_out: bool


def methods() -> list[Method]:
    """Every call, as the descriptors have it."""
    found = []
    for name, module in MODULES.items():
        service = module.DESCRIPTOR.services_by_name[f"{name}Service"]
        for method in service.methods:
            request, response = (getattr(module, kind.name) for kind in (method.input_type, method.output_type))
            path = f"/{service.full_name}/{method.name}"
            streams = (method.client_streaming, method.server_streaming)
            found.append(Method(path, method.name, request, response, *streams))
    return found


METHODS = methods()


class Given(NamedTuple):
    """The messages of one call."""

    method: Method
    messages: list[bytes]

    def __repr__(self) -> str:
        return f"{self.method.path} {self.messages!r}"


class Requests(Subject):
    """Over loopback, as raw bytes."""

    name: ClassVar[str] = "protobuf"
    verdicts: ClassVar[dict[str, float]] = {"OK": 0.1, "changed": 0.02, "INVALID_ARGUMENT": 0.15, "NOT_FOUND": 0.03}

    def __init__(self) -> None:
        self._session = world.session()
        self._open = ExitStack()
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="promising-fuzz-"))
        standing = Standing(silence_seconds=1e6)
        settings = Settings(listen="127.0.0.1:0", limits=LIMITS, load_paths=(folder,), standing=standing)
        self._folder = folder.encode()
        target = self._open.enter_context(running(settings, self._session))
        self._channel = self._open.enter_context(grpc.insecure_channel(target))

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self._session.close()

    def input(self, rng: random.Random) -> Given:
        method = rng.choice(METHODS)
        valid = VALID.get(method.name) or [method.request()]
        count = rng.choice((1, 1, 2, 3)) if method.streams_in else 1
        return Given(method, [damaged(rng, rng.choice(valid), rng.choice(valid)) for _ in range(count)])

    def judge(self, given: Given) -> str:
        before = world.state(self._session)
        code, responses = self._called(given)
        if code == "OK":
            self._check(given, responses)
        if world.state(self._session) == before:
            return code
        if code != "OK" and not given.method.streams_in:
            differs(before, world.state(self._session), "a refused call")
        self._fresh()
        return "changed"

    def _fresh(self) -> None:
        world.clear(self._session)
        world.stock(self._session)

    def _called(self, given: Given) -> tuple[str, list[Message]]:
        """The status of a call, and what came before it."""
        method = given.method
        messages = [message.replace(b"{load_paths}", self._folder) for message in given.messages]
        if method.name == "Subscribe":
            messages += _ends(messages)
        ways = ["stream" if streams else "unary" for streams in (method.streams_in, method.streams_out)]
        call = getattr(self._channel, "_".join(ways))(method.path)  # without a serializer: bytes
        sent: Any = iter(messages) if method.streams_in else messages[0]
        responses: list[Message] = []
        try:
            answer = call(sent, timeout=WAIT)
            for data in answer if method.streams_out else [answer]:
                responses.append(method.response.FromString(data))
                if len(responses) > MOST_RESPONSES:
                    raise Broken(f"more than {MOST_RESPONSES:,} responses")
        except grpc.RpcError as problem:
            return _status(problem), responses
        return "OK", responses

    def _check(self, given: Given, responses: list[Message]) -> None:
        """That the answer is right, where that is quick to tell."""
        request = given.method.request.FromString(given.messages[-1])
        for response in responses:
            _check_within(response)
        if isinstance(request, queries_pb2.QueryRequest) and request.WhichOneof("ask") == "sql":
            self._check_rows(request, responses)
        if isinstance(request, summaries_pb2.EstimateRequest):
            (found,) = responses
            assert isinstance(found, summaries_pb2.EstimateResponse)
            window = wire.window_from(request.window) if request.HasField("window") else None
            right = self._session.estimate(request.summary, wire.keys_from(request.keys), window)
            differs(right.value.tolist(), list(found.value), "an estimate over the wire")

    def _check_rows(self, request: queries_pb2.QueryRequest, responses: list[Any]) -> None:
        if not responses or not responses[-1].frame.progress.complete:
            return
        frames = wire.Frames(wire.table(responses[0].opened.schema).schema)
        rows: list[pa.Table] = []
        for response in responses[1:]:
            if (frame := frames.add(response.frame)) is not None:
                rows = [frame.rows] if frame.mode == "replace" else [*rows, frame.rows]
        seed = request.seed if request.HasField("seed") else None
        right = self._session.query(request.sql, seed=seed).to_arrow()
        ours, theirs = (sorted(map(repr, table.to_pylist())) for table in (right, pa.concat_tables(rows)))
        differs(ours, theirs, "an answer over the wire")


def _ends(messages: list[bytes]) -> list[bytes]:
    """Requests that end every subscription of these, so that the call ends."""
    numbers = set()
    for message in messages:
        try:
            numbers.add(queries_pb2.SubscribeRequest.FromString(message).add.number)
        except DecodeError:
            break
    return [queries_pb2.SubscribeRequest(remove=number).SerializeToString() for number in sorted(numbers)]


def _check_within(response: Message) -> None:
    """Errors of a part of a call are for clients as well."""
    refusals = []
    if isinstance(response, streams_pb2.IngestResponse) and response.HasField("refusal"):
        refusals.append(response.refusal)
    if isinstance(response, queries_pb2.SubscribeResponse):
        refusals += [section.error for section in response.sections if section.HasField("error")]
    for refusal in refusals:
        if refusal.reason not in wire_errors.CLASSES or refusal.reason == "INTERNAL_ERROR":
            raise Broken(f"refused by {refusal}")


def _status(problem: Any) -> str:
    """The name of a status that a client may be given, with the details that say why."""
    name: str = problem.code().name
    if name not in STATUSES:
        raise Broken(f"{name}: {problem.details()}") from problem
    if len(problem.details()) > LONGEST:
        raise Broken(f"{name} has a message of {len(problem.details()):,} characters") from problem
    packed = [value for key, value in problem.trailing_metadata() or () if key == wire_errors.DETAILS]
    if not packed and name == "RESOURCE_EXHAUSTED":  # of gRPC itself: a message over the limit
        return name
    status = status_pb2.Status.FromString(packed[0]) if packed else status_pb2.Status()
    info = error_details_pb2.ErrorInfo()
    if not any(detail.Unpack(info) for detail in status.details) or info.reason not in wire_errors.CLASSES:
        raise Broken(f"{name} without a reason: {problem.details()}") from problem
    return name
