"""Calls of every service: what is no message, names that are statements, lists that change meanwhile."""

import grpc
import pytest

from promising.v1 import queries_pb2, streams_pb2, summaries_pb2
from tests.promising.server.serving import WAIT, batch, details, failed, reasons, run, stocked

SECOND = "CREATE SUMMARY named ON s (name) WITH GRANULARITY 1 HOUR AND COLLAPSE (4, 5)"


def test_what_is_no_message_is_refused_and_unknown_fields_are_ignored():
    odd = b"\xfa\x3f\x03abc"  # field 1023, "abc"

    async def body(remote):
        for method, good in (
            ("/promising.v1.QueryService/Explain", queries_pb2.ExplainRequest(sql="SELECT * FROM s")),
            ("/promising.v1.StreamService/DescribeStream", streams_pb2.DescribeStreamRequest(name="s")),
        ):
            call = remote.channel.unary_unary(method)
            for junk in (b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\xff\xfe", bytes(100)):
                problem = await failed(call(junk, timeout=WAIT))
                assert problem.code() == grpc.StatusCode.INVALID_ARGUMENT, junk
                assert details(problem).info.reason == "BAD_REQUEST"
            assert await call(good.SerializeToString() + odd, timeout=WAIT)
        told = await remote.ingest(streams_pb2.IngestRequest.FromString(batch(2).SerializeToString() + odd))
        assert reasons(told) == [2]
        asked = remote.channel.unary_stream("/promising.v1.QueryService/Query")
        assert [
            one
            async for one in asked(
                queries_pb2.QueryRequest(sql="SELECT * FROM s").SerializeToString() + odd, timeout=WAIT
            )
        ]
        await remote.well()

    run(body)


def test_calls_that_there_are_not_and_metadata_that_is_too_large():
    async def body(remote):
        for method in ("/promising.v1.QueryService/Nope", "/nope.Nope/Nope", "/"):
            problem = await failed(remote.channel.unary_unary(method)(b"", timeout=WAIT))
            assert problem.code() == grpc.StatusCode.UNIMPLEMENTED
        big = (("x-much", "y" * 100_000),)
        problem = await failed(remote.streams.DescribeStream(streams_pb2.DescribeStreamRequest(name="s"), metadata=big))
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "metadata" in problem.details()
        await remote.well()

    run(body)


def test_the_session_is_not_reached_by_names_that_are_statements():
    """Requests with fields become statements; no name of one can become another statement."""

    async def body(remote):
        name = 's"; DROP STREAM s; --'
        column = streams_pb2.Column(name='ts" TIMESTAMP) --', type=streams_pb2.COLUMN_TYPE_TIMESTAMP)
        request = streams_pb2.CreateStreamRequest(name=name, columns=[column], time_column=column.name)
        assert (await remote.streams.CreateStream(request)).done.changed
        told = (await remote.streams.DescribeStream(streams_pb2.DescribeStreamRequest(name=name))).stream
        assert (told.name, told.time_column) == (name, column.name)
        assert (await remote.streams.DropStream(streams_pb2.DropStreamRequest(name=name))).done.changed
        await remote.well()

    run(body, session=stocked())


@pytest.mark.parametrize("kind", ["STREAM", "SUMMARY"])
def test_a_list_goes_on_when_something_in_it_is_dropped(monkeypatch, kind):
    session = stocked()
    session.execute(SECOND)
    session.execute("CREATE STREAM t (ts TIMESTAMP) TIMESTAMP BY ts")
    sql = {"STREAM": "DROP STREAM t", "SUMMARY": "DROP SUMMARY named"}[kind]
    lock = session.catalog.lock
    left: list[str] = []

    class Dropping:
        """As soon as the names are known, one of them is not there any more."""

        def __enter__(self):
            return lock.__enter__()

        def __exit__(self, *how):
            lock.__exit__(*how)
            if not left:
                left.append(sql)
                session.execute(sql)

    async def body(remote):
        monkeypatch.setattr(session.catalog, "lock", Dropping())
        if kind == "STREAM":
            found = await remote.streams.ListStreams(streams_pb2.ListStreamsRequest(), timeout=WAIT)
            assert "s" in [stream.name for stream in found.streams]
        else:
            asked = summaries_pb2.ListSummariesRequest()
            found = await remote.summaries.ListSummaries(asked, timeout=WAIT)
            assert [summary.name for summary in found.summaries] == ["items"]
        assert left == [sql]

    run(body, session=session)
