"""What ingest is measured against, in the same kind of server: a handler that does nothing with what it gets, and one
that takes the same tuples row by row, as messages.
"""

import asyncio
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.service_host import retail
from promising.query.session import Session
from promising.settings import Limits
from promising.v1 import streams_pb2

EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
Context = Any  # grpc.aio.ServicerContext, whose stubs know no messages

INGEST_ROWS = "/benchmarks.Rows/Ingest"
ROWS = """
syntax = "proto3";
package benchmarks;
message Row {
  int64 store_id = 1;
  int64 transaction_id = 2;
  int64 ts = 3;
  int64 item_id = 4;
  double price = 5;
}
message Rows {
  string stream = 1;
  string producer_id = 2;
  uint64 sequence = 3;
  // A new stream of that name, for so many tuples; no rows then.
  uint64 create = 4;
  repeated Row rows = 5;
}
"""


@cache
def row_messages() -> Any:
    """The module that protoc makes of `ROWS`."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "benchmark_rows.proto")
        source.write_text(ROWS, encoding="ascii")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={folder}", source.name]
        subprocess.run(command, check=True)
        spec = importlib.util.spec_from_file_location("benchmark_rows_pb2", source.with_name("benchmark_rows_pb2.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def serve(kind: str, ready: Callable[[int], None]) -> None:
    """Serve until the process is ended."""
    asyncio.run(_serve({"empty": _add_empty, "rows": _add_rows}[kind], ready))


async def _serve(add: Callable[[grpc.aio.Server], None], ready: Callable[[int], None]) -> None:
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", Limits().max_message_bytes)])
    add(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    ready(port)
    await server.wait_for_termination()


# --- nothing ---------------------------------------------------------------------------------------------------------


async def _ignore(requests: object, context: Context) -> None:
    """The same messages in, parsed, and the same answers out."""
    while (request := await context.read()) is not EOF:
        appended = streams_pb2.Appended(accepted=1)
        await context.write(streams_pb2.IngestResponse(sequence=request.sequence, appended=appended))


def _add_empty(server: grpc.aio.Server) -> None:
    _add(server, "promising.v1.StreamService", _ignore, streams_pb2.IngestRequest)


def _add(server: grpc.aio.Server, service: str, ingest: Any, request: Any) -> None:
    handler: Any = grpc.stream_stream_rpc_method_handler(
        ingest, request.FromString, streams_pb2.IngestResponse.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Ingest": handler}),))


# --- rows ------------------------------------------------------------------------------------------------------------


class _Rows:
    """Rows become columns and go into a session like ours, off the event loop, while the next message is read."""

    def __init__(self) -> None:
        self._session = Session(seed=7)
        self._threads = ThreadPoolExecutor(1)

    async def ingest(self, requests: object, context: Context) -> None:
        loop = asyncio.get_running_loop()
        reading = asyncio.ensure_future(context.read())
        while (request := await reading) is not EOF:
            reading = asyncio.ensure_future(context.read())
            await context.write(await loop.run_in_executor(self._threads, self._add, request))

    def _add(self, request: Any) -> streams_pb2.IngestResponse:
        accepted = 0
        if request.create:
            retail(self._session, request.stream, request.create)
        else:
            columns = _columns(request.rows)
            added = self._session.ingest(
                request.stream, columns, producer=request.producer_id, sequence=request.sequence
            )
            accepted = added.accepted
        return streams_pb2.IngestResponse(sequence=request.sequence, appended=streams_pb2.Appended(accepted=accepted))


def _columns(rows: Iterable[Any]) -> dict[str, Any]:
    """Of several ways to do this in Python, the fastest."""
    rows = list(rows)
    return {
        "store_id": np.array([r.store_id for r in rows]),
        "transaction_id": np.array([r.transaction_id for r in rows]),
        "ts": np.array([r.ts for r in rows]),
        "item_id": np.array([r.item_id for r in rows]),
        "price": np.array([r.price for r in rows]),
    }


def _add_rows(server: grpc.aio.Server) -> None:
    _add(server, "benchmarks.Rows", _Rows().ingest, row_messages().Rows)
