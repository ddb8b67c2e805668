"""Answers of a service as a stream: frames of a query, and tuples by arrival."""

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa

from promising import wire
from promising.client import calls, progress_bar
from promising.client.connection import Connection, first_of
from promising.errors import NoSuchName, PromisingError
from promising.query.answers import Answer, Frame
from promising.v1 import queries_pb2


def answered(connection: Connection, request: queries_pb2.QueryRequest, bar: bool) -> Answer:
    """The answer to a query, with a bar on stderr while it is read. Errors in the statement are raised here."""

    def once() -> tuple[Any, queries_pb2.QueryOpened]:
        call = connection.start(connection.stubs.queries.Query, request, connection.timeout)
        return call, first_of(call, "a query").opened

    call, opened = connection.tried(once)
    gone = threading.Event()

    def stop(keep: bool) -> None:
        if not keep:
            gone.set()
            call.cancel()
            return
        with contextlib.suppress(NoSuchName):  # it has ended
            connection.ask(calls.cancel(opened.query_id))

    schema = wire.table(opened.schema).schema
    first = wire.progress_from(opened.progress)
    frames = _frames(connection, call, wire.Frames(schema), gone)
    answer = Answer(progress_bar.shown(frames) if bar else frames, lambda: first, schema, stop)
    # An abandoned answer must not keep its call, and with it the query, open.
    weakref.finalize(answer, call.cancel).atexit = False
    return answer


def _frames(connection: Connection, call: Any, parts: wire.Frames, gone: threading.Event) -> Iterator[Frame]:
    last: Frame | None = None
    problem: PromisingError | None = None
    try:
        for response in call:
            frame = parts.add(response.frame)
            if frame is not None and frame.progress.token is not None:
                last = frame  # yielded after the call has ended: a caller that drops an open call loses its token
            elif frame is not None:
                yield frame
    except grpc.RpcError as error:
        if gone.is_set():
            return
        problem = connection.problem(error)
    if last is not None:
        yield last
    if problem is not None:
        raise problem


def fetched(connection: Connection, request: queries_pb2.FetchRequest) -> Iterator[pa.Table]:
    """Tuples by arrival. After a lost connection it resumes with those that have not arrived."""
    tries = 0
    while True:
        call = connection.start(connection.stubs.queries.Fetch, request, connection.timeout)
        try:
            for part in call:
                table = wire.table(part.rows)
                request.first += table.num_rows
                tries = 0
                yield table
            return
        except grpc.RpcError as error:
            problem = connection.problem(error)
        finally:
            call.cancel()
        tries += 1
        connection.wait(tries, problem)
