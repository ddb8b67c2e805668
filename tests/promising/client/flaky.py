"""A service that fails on purpose, at the places where a test says so."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pyarrow as pa

from promising import wire, wire_errors
from promising.errors import PromisingError, Unavailable
from promising.index.regions import Guess
from promising.query import Session
from promising.query.answers import Done, Frame, Progress
from promising.v1 import (
    queries_pb2,
    queries_pb2_grpc,
    streams_pb2,
    streams_pb2_grpc,
    summaries_pb2,
    summaries_pb2_grpc,
)

NOTHING = Progress(0, Guess(0, 0, 0), Guess(0, 0, 0), False, None, 0.0, (), 0, 0, 0)
SCHEMA = pa.schema([("n", pa.int64())])


@dataclass
class Flaky(
    queries_pb2_grpc.QueryServiceServicer,
    streams_pb2_grpc.StreamServiceServicer,
    summaries_pb2_grpc.SummaryServiceServicer,
):
    """Adds batches to a real session, and answers everything else with next to nothing.

    problems: how the next calls end, in order; when there are none left, calls go well.
    losing: says for each batch whether the call is lost before it is added, after it, or not ("").
    """

    session: Session = field(default_factory=Session)
    problems: list[PromisingError] = field(default_factory=list)
    losing: Callable[[], str] = lambda: ""
    calls: list[str] = field(default_factory=list)
    batches: list[tuple[str, int]] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    deadlines: list[float | None] = field(default_factory=list)
    frames: int = 1
    after: PromisingError | None = None  # how a query ends after its frames
    closing: PromisingError | None = None  # how an ingest call ends after its last batch
    stay: bool = False  # a query waits after its frames until it is ended
    ended: threading.Event = field(default_factory=threading.Event)

    def begin(self, method: str, context: grpc.ServicerContext) -> None:
        self.calls.append(method)
        self.metadata = {key: str(value) for key, value in context.invocation_metadata()}
        self.deadlines.append(context.time_remaining())
        if self.problems:
            end(context, self.problems.pop(0))

    # --- tuples in -----------------------------------------------------------------------------------------------

    def Ingest(self, requests: Any, context: Any) -> Iterator[streams_pb2.IngestResponse]:
        self.begin("Ingest", context)
        for request in requests:
            lost = self.losing()
            if lost == "before":
                end(context, Unavailable("lost before it was added"))
            self.batches.append((request.producer_id, request.sequence))
            response = streams_pb2.IngestResponse(sequence=request.sequence)
            try:
                added = self.session.ingest(
                    request.stream,
                    wire.table(request.arrow),
                    strict=request.strict,
                    producer=request.producer_id,
                    sequence=request.sequence,
                )
                response.appended.CopyFrom(wire.appended_to(added))
            except PromisingError as problem:
                response.refusal.reason = wire_errors.reason_of(type(problem))
                response.refusal.message = str(problem)
            if lost == "after":
                end(context, Unavailable("lost before it was acknowledged"))
            yield response
        if self.closing is not None:
            end(context, self.closing)

    # --- everything else -----------------------------------------------------------------------------------------

    def Estimate(self, request: Any, context: Any) -> summaries_pb2.EstimateResponse:
        self.begin("Estimate", context)
        return summaries_pb2.EstimateResponse(value=[1.0], lower=[1.0], upper=[1.0])

    def Execute(self, request: Any, context: Any) -> queries_pb2.ExecuteResponse:
        self.begin("Execute", context)
        return queries_pb2.ExecuteResponse(done=wire.done_to(Done("done", True)))

    def Query(self, request: Any, context: Any) -> Iterator[queries_pb2.QueryResponse]:
        self.begin("Query", context)
        context.add_callback(self.ended.set)
        opened = queries_pb2.QueryOpened(
            query_id="q", schema=wire.ipc(SCHEMA.empty_table()), progress=wire.progress_to(NOTHING)
        )
        yield queries_pb2.QueryResponse(opened=opened)
        for number in range(self.frames):
            frame = Frame(pa.table({"n": [number]}), "append", NOTHING)
            for part in wire.frame_parts(frame):
                yield queries_pb2.QueryResponse(frame=part)
        if self.stay:
            self.ended.wait(60)
        if self.after is not None:
            end(context, self.after)

    def Probe(self, request: Any, context: Any) -> Iterator[queries_pb2.ProbeResponse]:
        self.begin("Probe", context)
        yield queries_pb2.ProbeResponse(rows=wire.ipc(pa.table({"probe": [0]})))
        if self.after is not None:
            problem, self.after = self.after, None
            end(context, problem)


def flaky_service(**how: Any) -> Flaky:
    return Flaky(**how)  # type: ignore[abstract]  # calls that no test makes are left out


def end(context: Any, problem: PromisingError) -> None:
    """End a call as the service does."""
    status = wire_errors.to_status(problem)
    context.set_trailing_metadata(((wire_errors.DETAILS, status.SerializeToString()),))
    context.abort(wire_errors.code_of(problem), status.message)


@contextmanager
def serving(flaky: Flaky) -> Iterator[str]:
    """The target of a server with this service."""
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool)
        queries_pb2_grpc.add_QueryServiceServicer_to_server(flaky, server)
        streams_pb2_grpc.add_StreamServiceServicer_to_server(flaky, server)
        summaries_pb2_grpc.add_SummaryServiceServicer_to_server(flaky, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(0).wait()


def lossy(seed: int, share: float = 0.3) -> Callable[[], str]:
    """Loses a share of the batches, before or after they are added."""
    rng = random.Random(seed)
    return lambda: rng.choice(("before", "after")) if rng.random() < share else ""
