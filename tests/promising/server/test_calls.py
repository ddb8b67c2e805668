"""Calls that are wrong, cut short, repeated or left alone: each ends as it should, and leaves nothing behind."""

import asyncio
import subprocess
import sys
import threading
from contextlib import closing
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from promising import wire, wire_errors
from promising.errors import StatementError, Unavailable
from promising.index import ledger
from promising.query import resume_tokens
from promising.server.access_tokens import TokenStore
from promising.server.queries import QueryService
from promising.server.read_ahead import EACH, ENOUGH, Ahead
from promising.v1 import common_pb2, queries_pb2, streams_pb2, summaries_pb2
from tests.promising.server.serving import (
    EOF,
    MANY,
    NONE,
    WAIT,
    batch,
    details,
    failed,
    frames,
    much,
    run,
    serving,
    stocked,
    table,
    until,
)

CANCELLED, DEADLINE = "cancelled", "deadline"


def query(**fields):
    return queries_pb2.QueryRequest(**fields)


def reasons(told):
    return [one.refusal.reason or ("DUPLICATE" if one.appended.duplicate else one.appended.accepted) for one in told]


# --- tuples in ----------------------------------------------------------------------------------------------------


def test_numbers_that_cannot_be_are_refused_and_the_call_goes_on():
    async def body(remote):
        told = await remote.ingest(
            batch(1, sequence=1),
            batch(1, producer_id="a"),
            batch(1, producer_id="a", sequence=1 << 63),
            batch(1, producer_id="x" * 257, sequence=1),
            batch(1, producer_id="x" * 60_000, sequence=1),
            batch(1, stream="nope"),
            batch(1, stream=""),
            batch(1, producer_id="a", sequence=(1 << 63) - 1),
        )
        assert reasons(told) == ["BAD_SEQUENCE"] * 5 + ["NO_SUCH_NAME"] * 2 + [1]
        assert [one.sequence for one in told] == [1, 0, 1 << 63, 1, 1, 0, 0, (1 << 63) - 1]
        assert all(len(one.refusal.message) < 300 for one in told)
        assert remote.stream.count == 11
        await remote.well()

    run(body)


def test_an_acknowledged_number_is_answered_as_it_was_whatever_comes_under_it():
    async def body(remote):
        broken = streams_pb2.IngestRequest(stream="s", producer_id="a", sequence=1, arrow=b"no Arrow")
        told = await remote.ingest(broken, batch(2, producer_id="a", sequence=1), broken)
        assert reasons(told) == ["BAD_ARROW", 2, "DUPLICATE"]
        assert told[-1].appended.accepted == 2

    run(body)


def test_a_number_is_taken_once_whatever_the_order(monkeypatch):
    monkeypatch.setattr(ledger, "BATCHES", 3)

    async def body(remote):
        numbers = [5, 4, 5, 6, 4, 7, 4, 3, 8]
        told = await remote.ingest(*(batch(n, producer_id="a", sequence=n) for n in numbers))
        assert reasons(told) == [5, 4, "DUPLICATE", 6, "DUPLICATE", 7, "SEQUENCE_TOO_OLD", "SEQUENCE_TOO_OLD", 8]
        assert told[2].appended.accepted == 5
        assert remote.stream.count == 10 + 5 + 4 + 6 + 7 + 8
        # A number that was refused may come again.
        bad, good = batch(b"", producer_id="b", sequence=1), batch(2, producer_id="b", sequence=1)
        assert reasons(await remote.ingest(bad, good, good)) == ["BAD_ARROW", 2, "DUPLICATE"]
        await remote.well()

    run(body)


def test_half_closed_calls_end_well():
    async def body(remote):
        assert await remote.ingest() == []
        call = remote.streams.Ingest(timeout=WAIT)
        for number in (1, 2, 3):
            await call.write(batch(number))
        await call.done_writing()  # before anything was read
        assert [(await call.read()).appended.accepted for _ in range(3)] == [1, 2, 3]
        assert await call.read() is EOF
        assert await call.code() == grpc.StatusCode.OK
        await remote.well()

    run(body)


async def idle(remote):
    """Nothing is open any more."""

    async def none():
        told = await remote.stats()
        return told.ingesting == 0 and told.queries == 0

    await until(none)


def test_a_client_that_cancels_can_send_all_again_and_nothing_is_in_twice():
    async def body(remote):
        sent = [batch(5, producer_id="a", sequence=n) for n in range(1, 101)]
        call = remote.streams.Ingest(timeout=WAIT)
        for one in sent:
            await call.write(one)
        assert (await call.read()).sequence == 1
        call.cancel()
        await idle(remote)
        before = remote.stream.count
        assert (before - 10) % 5 == 0
        told = await remote.ingest(*sent)
        # What was being added when the call ended has come in since.
        assert sum(one.appended.duplicate for one in told) >= (before - 10) // 5 >= 1
        assert remote.stream.count == 10 + 500
        await remote.well()

    run(body)


ENDLESS = """
import itertools, sys, grpc
from promising.v1 import streams_pb2, streams_pb2_grpc
channel = grpc.insecure_channel(sys.argv[1])
data = sys.stdin.buffer.read()
requests = (streams_pb2.IngestRequest(stream="s", producer_id="a", sequence=n, arrow=data) for n in itertools.count(1))
for response in streams_pb2_grpc.StreamServiceStub(channel).Ingest(requests):
    print(response.sequence, response.appended.accepted, flush=True)
"""


def test_a_client_that_is_killed_leaves_nothing_open():
    async def body(remote):
        made: Any = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            ENDLESS,
            f"127.0.0.1:{remote.service.port}",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        made.stdin.write(wire.ipc(table(7)))
        made.stdin.close()
        for number in range(1, 4):
            assert await made.stdout.readline() == b"%d 7\n" % number
        made.kill()
        rest, _ = await made.communicate()
        acknowledged = 3 + len([line for line in rest.split(b"\n")[:-1] if line])
        await idle(remote)
        assert remote.stream.count >= 10 + 7 * acknowledged
        assert (remote.stream.count - 10) % 7 == 0
        await remote.well()

    run(body)


def test_two_calls_of_one_producer_add_each_number_once():
    async def body(remote):
        sent = [batch(n, producer_id="a", sequence=n) for n in range(1, 41)]
        first, second = await asyncio.gather(remote.ingest(*sent), remote.ingest(*sent))
        pairs = list(zip(first, second, strict=True))
        assert all(a.appended.duplicate != b.appended.duplicate for a, b in pairs)
        assert all(a.appended.accepted == b.appended.accepted == a.sequence for a, b in pairs)
        assert remote.stream.count == 10 + sum(range(1, 41))

    run(body)


def test_a_message_that_is_none_ends_the_call_after_those_before_it():
    async def body(remote):
        raw = remote.channel.stream_stream("/promising.v1.StreamService/Ingest")
        call = raw(timeout=WAIT)
        await call.write(batch(4).SerializeToString())
        await call.write(b"\xff\xff\xff")
        told = streams_pb2.IngestResponse.FromString(await call.read())
        assert told.appended.accepted == 4
        problem = await failed(call.read())
        assert problem.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert details(problem).info.reason == "BAD_REQUEST"
        assert remote.stream.count == 14
        await remote.well()

    run(body)


class _Sender:
    """The context of a call whose client sends and sends."""

    def __init__(self, request):
        self.request, self.read_so_far = request, 0

    async def read(self):
        await asyncio.sleep(0)
        self.read_so_far += 1
        return streams_pb2.IngestRequest.FromString(self.request)


@pytest.mark.parametrize(
    "request_",
    [
        streams_pb2.IngestRequest(),
        streams_pb2.IngestRequest(arrow=bytes(100_000)),
        streams_pb2.IngestRequest(producer_id="x" * 100_000),
        streams_pb2.IngestRequest(stream="x" * 100_000),
        streams_pb2.AdvanceRequest(stream="s"),
    ],
    ids=["empty", "arrow", "producer", "stream", "other"],
)
def test_so_much_is_read_ahead_and_no_more(request_):
    async def body():
        data = request_.SerializeToString()
        sender = _Sender(data)
        ahead = Ahead(sender)
        for _ in range(3 * ENOUGH // EACH):
            await asyncio.sleep(0)
        waiting = await ahead.take()
        assert len(waiting) == sender.read_so_far == -(-ENOUGH // (EACH + len(data))) or len(data) < 10
        assert len(waiting) <= ENOUGH // EACH
        assert await ahead.take()  # there is room again
        ahead.stop()
        while True:
            try:
                await ahead.take()
            except Unavailable:
                break

    asyncio.run(body())


def test_unknown_fields_are_not_kept():
    """A newer client may send them. They must not wait in memory, uncounted."""

    async def body():
        request = streams_pb2.IngestRequest(stream="s").SerializeToString()
        odd = b"\xfa\x3f" + b"\xa0\x8d\x06" + bytes(100_000)  # field 1023
        ahead = Ahead(_Sender(request + odd))
        (first, *_) = await ahead.take()
        assert first.request.SerializeToString() == request
        ahead.stop()

    asyncio.run(body())


# --- queries ------------------------------------------------------------------------------------------------------

BROKEN = {
    "": "BAD_SYNTAX",
    ";": "BAD_SYNTAX",
    "\0": "BAD_SYNTAX",
    "'": "BAD_SYNTAX",
    '"': "BAD_SYNTAX",
    "/*": "BAD_SYNTAX",
    "SELECT": "BAD_SYNTAX",
    "SELECT * FROM s WHERE": "BAD_SYNTAX",
    "SELECT * FROM s; DROP STREAM s": "BAD_SYNTAX",
    "SELECT " + "(" * 5000 + "1" + ")" * 5000 + " FROM s": "BAD_SYNTAX",
    "SELECT " + "NOT " * 10_000 + "true FROM s": "BAD_SYNTAX",
    "SELECT " + "+".join("1" * 10_000) + " FROM s": "BAD_SYNTAX",
    "SELECT * FROM nope": "NO_SUCH_NAME",
    "SELECT nope FROM s": "NO_SUCH_NAME",
    "SELECT * FROM " + "x" * 60_000: "NO_SUCH_NAME",
    "SELECT * FROM " + "é" * 30_000: "NO_SUCH_NAME",
    "SELECT * FROM s WHERE item = 'x'": "TYPE_MISMATCH",
    "SELECT * FROM s LIMIT -1": "BAD_CLAUSE",
    "SELECT " + ",".join("*" * 5000) + " FROM s": "BAD_CLAUSE",
    "SELECT item / 0 FROM s": "DIVISION_BY_ZERO",
    "SELECT 9223372036854775807 + item FROM s": "OVERFLOW",
    "SELECT CAST(name AS BIGINT) FROM s": "BAD_CAST",
    "DROP STREAM s": "UNSUPPORTED",
    "INSERT INTO s VALUES (1)": "UNSUPPORTED",
    "SELECT * FROM read_csv('x')": "UNSUPPORTED",
}


def test_broken_statements_are_told_where_they_are():
    async def body(remote):
        for sql, reason in BROKEN.items():
            for call in (
                remote.queries.Explain(queries_pb2.ExplainRequest(sql=sql, analyze=True), timeout=WAIT),
                frames(remote.queries.Query(query(sql=sql), timeout=WAIT)),
            ):
                problem = await failed(call)
                told = details(problem)
                kind = wire_errors.CLASSES[told.info.reason]
                assert issubclass(kind, StatementError)
                assert problem.code() == wire_errors.code_of(kind("")), sql[:50]
                assert told.violations.keys() == {"sql"}
                assert int(told.info.metadata["line"]) == 1
                assert int(told.info.metadata["column"]) <= len(sql) + 1
            assert told.info.reason == reason, sql[:50]
        assert (await remote.stats()).answered["failed"] == len(BROKEN)
        assert "s" in remote.session.catalog.streams
        await remote.well()

    run(body)


def test_a_select_list_of_one_column_many_times_is_planned_in_time():
    async def body(remote):
        (frame, *_) = await remote.query("SELECT " + ",".join(["item"] * 5000) + " FROM s")
        assert frame.rows.num_columns == len(set(frame.rows.column_names)) == 5000

    run(body)


def test_requests_without_what_they_need_name_the_field():
    async def body(remote):
        negative = Duration(seconds=-1)
        keys = common_pb2.Keys(ints=[1], strings=["a"])
        for call, field in (
            (remote.query(), "sql"),
            (remote.query("SELECT * FROM s", budget=negative), "budget"),
            (remote.queries.Explain(queries_pb2.ExplainRequest(sql=MANY, budget=negative)), "budget"),
            (remote.streams.Advance(streams_pb2.AdvanceRequest(stream="s")), "watermark"),
            (remote.summaries.Estimate(summaries_pb2.EstimateRequest(summary="items", keys=keys)), "keys"),
            (remote.streams.CreateStream(streams_pb2.CreateStreamRequest(name="t")), "columns"),
            (remote.summaries.CreateSummary(summaries_pb2.CreateSummaryRequest(name="t")), "granularity"),
            (remote.streams.DropStream(streams_pb2.DropStreamRequest()), "name"),
        ):
            problem = await failed(call)
            assert problem.code() == grpc.StatusCode.INVALID_ARGUMENT
            told = details(problem)
            assert told.violations == {field: problem.details()}
            assert (told.info.reason, told.info.metadata["field"]) == ("BAD_REQUEST", field)
        await remote.well()

    run(body)


def test_budgets_and_seeds_at_their_ends():
    async def body(remote):
        for budget in (Duration(nanos=1), Duration(seconds=1 << 60), Duration(nanos=(1 << 31) - 1), None):
            more = {} if budget is None else {"budget": budget}
            last = (await remote.query("SELECT * FROM s", **more))[-1].progress
            assert last.cut in (None, "budget")
        for seed in (-(1 << 63), (1 << 63) - 1, 0, -1):
            found = await remote.query("SELECT sum(price) AS total FROM s WITH ERROR 0.1", seed=seed)
            assert found[-1].rows["total"].to_pylist() == [45.0]
        await remote.well()

    run(body)


@pytest.mark.parametrize(
    "sql, budget, warned",
    [(NONE, None, True), (NONE, 999, True), (NONE, 0.01, False), (f"{NONE} BUDGET 10 MILLISECONDS", None, False)],
    ids=["none", "huge", "small", "of the statement"],
)
def test_a_budget_that_is_cut_is_told_so_and_only_then(sql, budget, warned):
    async def body(remote):
        more = {} if budget is None else {"budget": wire.duration(budget)}
        last = (await remote.query(sql, **more))[-1].progress
        assert (last.cut, bool(last.token)) == ("budget", True)
        assert any("the most that this service gives" in told for told in last.warnings) == warned

    run(body, session=much(), max_budget_seconds=0.05)


def test_a_deadline_cuts_the_answer_and_it_can_go_on(monkeypatch):
    # A second after it has begun, and not half a one before its time is over, in which a busy machine sends nothing.
    monkeypatch.setattr(QueryService, "_allowed", lambda _, context: context.time_remaining() - WAIT + 1.0)

    async def body(remote):
        first = (await frames(remote.queries.Query(query(sql=NONE), timeout=WAIT)))[-1].progress
        assert first.cut == DEADLINE
        again = (await frames(remote.queries.Query(query(resume_token=first.token), timeout=WAIT)))[-1].progress
        assert again.cut == DEADLINE
        assert again.cpu_seconds > first.cpu_seconds
        problem = await failed(frames(remote.queries.Query(query(sql=NONE), timeout=0)))
        assert problem.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await idle(remote)
        assert (await remote.stats()).answered[DEADLINE] == 2
        await remote.well()

    run(body, session=much())


@pytest.mark.parametrize(
    "left, allowed", [(None, 99.5), (1e6, 99.5), (3.0, 2.5), (2.0, 1.5), (0.4, 0.3), (0.0, 0.0), (-1.0, 0.0)]
)
def test_half_a_second_of_a_deadline_or_a_quarter_of_it_is_for_the_last_frame(left, allowed):
    class Context:
        def time_remaining(self):
            return left

    async def body(remote):
        assert QueryService(remote.service._parts)._allowed(Context()) == pytest.approx(allowed)

    run(body, max_deadline_seconds=100.0)


def test_the_longest_deadline_holds_for_who_has_none():
    async def body(remote):
        got = await frames(remote.queries.Query(query(sql=NONE)))
        assert got[-1].progress.cut == DEADLINE
        assert got[-1].progress.token

    run(body, session=much(), max_deadline_seconds=0.5)


def test_tokens_are_good_once(monkeypatch):
    async def body(remote):
        async def token():
            return (await remote.query(NONE, budget=wire.duration(0.001)))[-1].progress.token

        def resume(told):
            return remote.query(resume_token=told, budget=wire.duration(0.001))

        good = await token()
        for forged in (
            "",
            "x",
            good + "0",
            good[:-1],
            ("1" if good[0] == "0" else "0") + good[1:],
            good.upper(),
            "é" * 9,
            "." * 50_000,
            good.split(".")[0],
        ):
            problem = await failed(resume(forged))
            assert problem.code() == grpc.StatusCode.INVALID_ARGUMENT, forged
            assert details(problem).info.reason == "BAD_TOKEN"
        assert (await resume(good))[-1].progress.token != good
        problem = await failed(resume(good))
        assert problem.code() == grpc.StatusCode.OUT_OF_RANGE
        assert details(problem).info.reason == "TOKEN_EXPIRED"
        # Of two at once one has it.
        both = await token()
        got = await asyncio.gather(resume(both), resume(both), return_exceptions=True)
        assert sorted(type(one).__name__ for one in got) == ["AioRpcError", "list"]
        monkeypatch.setattr(resume_tokens, "KEPT", -1)
        problem = await failed(resume(await token()))
        assert details(problem).info.reason == "TOKEN_EXPIRED"
        await remote.well()

    run(body, session=much())


def test_whoever_goes_away_stops_the_work():
    async def body(remote):
        for sql in (MANY, NONE):
            call = remote.queries.Query(query(sql=sql), timeout=WAIT)
            assert (await call.read()).opened.query_id
            call.cancel()
        await idle(remote)
        told = await remote.stats()
        assert dict(told.answered) == {"abandoned": 2}
        assert not await remote.open_queries()
        assert not remote.session._shelf._cursors
        await remote.well()

    run(body, session=much())


def test_a_query_is_cancelled_and_goes_on():
    async def body(remote):
        call = remote.queries.Query(query(sql=MANY), timeout=WAIT)
        opened = (await call.read()).opened
        await remote.queries.CancelQuery(queries_pb2.CancelQueryRequest(query_id=opened.query_id))
        parts = wire.Frames(wire.table(opened.schema).schema)
        got = []
        while (event := await call.read()) is not EOF:
            got += [frame] if (frame := parts.add(event.frame)) is not None else []
        assert got[-1].progress.cut == CANCELLED
        assert got[-1].progress.rows == sum(frame.rows.num_rows for frame in got)
        again = await remote.query(resume_token=got[-1].progress.token, budget=wire.duration(0.01))
        assert again[-1].progress.rows > got[-1].progress.rows
        await idle(remote)
        for name in (opened.query_id, "", "nope", "x" * 10_000):
            problem = await failed(remote.queries.CancelQuery(queries_pb2.CancelQueryRequest(query_id=name)))
            assert problem.code() == grpc.StatusCode.NOT_FOUND
            assert "is open; it may have ended" in problem.details()
            assert details(problem).violations == {}
        await remote.well()

    run(body, session=much())


def test_a_query_that_is_still_planned_can_be_cancelled(monkeypatch):
    session = much()
    planning, go = threading.Event(), threading.Event()
    plan = session.query

    def slowly(*given, **named):
        planning.set()
        assert go.wait(WAIT)
        return plan(*given, **named)

    monkeypatch.setattr(session, "query", slowly)

    async def body(remote):
        asking = asyncio.ensure_future(remote.query(NONE))
        await asyncio.to_thread(planning.wait, WAIT)
        (told,) = await remote.open_queries()
        await remote.queries.CancelQuery(queries_pb2.CancelQueryRequest(query_id=told.query_id))
        go.set()
        (last,) = await asking
        assert (last.progress.cut, bool(last.progress.token)) == (CANCELLED, True)

    run(body, session=session)


def test_only_its_owner_and_admins_can_cancel_a_query(tmp_path):
    file = tmp_path / "tokens.db"
    with closing(TokenStore(file)) as store:
        secrets = {name: store.create(name, [role]) for name, role in (("a", "query"), ("b", "query"), ("c", "admin"))}

    def metadata(name):
        return (("authorization", f"Bearer {secrets[name]}"),)

    async def body():
        async with serving(much(), tokens=file) as remote:
            for who in ("a", "c"):
                call = remote.queries.Query(query(sql=NONE), timeout=WAIT, metadata=metadata("a"))
                asked = queries_pb2.CancelQueryRequest(query_id=(await call.read()).opened.query_id)
                problem = await failed(remote.queries.CancelQuery(asked, metadata=metadata("b")))
                assert problem.code() == grpc.StatusCode.NOT_FOUND  # not even that there is one
                await remote.queries.CancelQuery(asked, metadata=metadata(who))
                while (event := await call.read()) is not EOF:
                    last = event.frame.progress
                assert last.cut == common_pb2.CUT_CANCELLED

    asyncio.run(body())


def test_execute_takes_everything_but_a_select():
    async def body(remote):
        def execute(sql):
            return remote.queries.Execute(queries_pb2.ExecuteRequest(sql=sql), timeout=WAIT)

        problem = await failed(execute("SELECT * FROM s"))
        assert problem.code() == grpc.StatusCode.UNIMPLEMENTED
        assert "which Query takes" in problem.details()
        assert wire.table((await execute("SHOW STREAMS")).table).num_rows == 1
        assert (await execute("EXPLAIN ANALYZE SELECT * FROM s")).explanation.progress.complete
        for sql in ("", "SHOW STREAMS; SHOW STREAMS", "CREATE STREAM s", "DESCRIBE nope", "DROP STREAM nope"):
            problem = await failed(execute(sql))
            assert problem.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
            assert details(problem).violations.keys() == {"sql"}
        await remote.well()

    run(body)


# --- the wire -----------------------------------------------------------------------------------------------------


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
        assert [one async for one in asked(query(sql="SELECT * FROM s").SerializeToString() + odd, timeout=WAIT)]
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
