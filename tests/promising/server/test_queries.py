"""Queries of the service: broken ones, deadlines, tokens, cancelled ones, and what is counted of them."""

import asyncio
import threading
from contextlib import closing

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from promising import wire, wire_errors, wire_times
from promising.errors import StatementError
from promising.query import Session, resume_tokens
from promising.query.cursor import Cursor
from promising.server import queries
from promising.server.access_tokens import TokenStore
from promising.server.open_calls import Call
from promising.server.queries import QueryService
from promising.server.service import Service
from promising.settings import Limits, Settings
from promising.v1 import common_pb2, queries_pb2, streams_pb2, summaries_pb2
from tests.promising.server.serving import (
    EOF,
    MANY,
    NONE,
    WAIT,
    details,
    failed,
    frames,
    idle,
    much,
    run,
    serving,
    stocked,
)
from tests.query.stores import MS, Ticking

CANCELLED, DEADLINE = "cancelled", "deadline"


def query(**fields):
    return queries_pb2.QueryRequest(**fields)


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

    run(body, session=patient())


def patient() -> Session:
    """A session that parses queries of any length."""
    session = stocked()
    session.max_sql_tokens = 1 << 20
    return session


def test_a_query_of_too_many_tokens_is_refused():
    async def body(remote):
        problem = await failed(remote.query("SELECT " + "+".join(["1"] * 3000) + " FROM s"))
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "4,096 tokens" in problem.details()
        await remote.well()

    run(body)
    assert Service(Settings(limits=Limits(max_sql_tokens=77))).session.max_sql_tokens == 77


@pytest.mark.parametrize("sql", ["SELECT price FROM s ORDER BY price", "SELECT ts, count(*) FROM s GROUP BY ts"])
def test_a_last_frame_that_the_deadline_does_not_allow_is_left_for_later(monkeypatch, sql):
    async def body(remote):
        with monkeypatch.context() as patch:
            patch.setattr(Call, "left", lambda call: 0.0)
            last = (await remote.query(sql))[-1]
        assert (last.progress.cut, last.progress.complete, last.rows.num_rows) == (DEADLINE, False, 0)
        whole = (await remote.query(resume_token=last.progress.token))[-1]
        assert (whole.progress.complete, whole.rows.num_rows) == (True, 60_000)
        await remote.well()

    run(body, session=much())


def test_what_sending_costs_is_told_beside_the_budget():
    async def body(remote):
        found = [frame.progress for frame in await remote.query("SELECT * FROM s")]
        assert [p.send_seconds for p in found] == sorted(p.send_seconds for p in found)
        assert found[-1].send_seconds > 0

    run(body, session=much())


def test_a_select_list_of_one_column_many_times_is_planned_in_time():
    async def body(remote):
        (frame, *_) = await remote.query("SELECT " + ",".join(["item"] * 5000) + " FROM s")
        assert frame.rows.num_columns == len(set(frame.rows.column_names)) == 5000

    run(body, session=patient())


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
            (
                remote.summaries.CreateSummary(
                    summaries_pb2.CreateSummaryRequest(
                        name="t",
                        stream="s",
                        key="k",
                        granularity=Duration(seconds=60),
                        measures=["SAMPLE(8)", "NONE) WITH"],
                    )
                ),
                "measures[1]",
            ),
            (
                remote.summaries.CreateSummary(
                    summaries_pb2.CreateSummaryRequest(
                        name="t", stream="s", key="k", granularity=Duration(seconds=60), using="EXACT WITH"
                    )
                ),
                "using",
            ),
            (
                remote.summaries.CreateSummary(
                    summaries_pb2.CreateSummaryRequest(
                        name="t",
                        stream="s",
                        key="k",
                        granularity=Duration(seconds=60),
                        options={"postings": 0},
                        postings=False,
                    )
                ),
                "options",
            ),
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
        more = {} if budget is None else {"budget": wire_times.duration(budget)}
        last = (await remote.query(sql, **more))[-1].progress
        assert (last.cut, bool(last.token)) == ("budget", True)
        assert any("the most that this service gives" in told for told in last.warnings) == warned

    run(body, session=much(), max_budget_seconds=0.05)


@pytest.mark.deep("waits for deadlines")
def test_a_deadline_cuts_the_answer_and_it_can_go_on(monkeypatch):
    near = queries._near

    def once_it_has_worked(call):
        """However slow the machine is, its time is over when some work is done, and not before."""
        if call.progress is not None and call.progress.cpu_seconds > call.before:
            near(call)
        elif not call.closed:
            asyncio.get_running_loop().call_later(0.01, once_it_has_worked, call)

    monkeypatch.setattr(queries, "_near", once_it_has_worked)
    monkeypatch.setattr(QueryService, "_allowed", lambda *_: 0.0)

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
            return (await remote.query(NONE, budget=wire_times.duration(0.001)))[-1].progress.token

        def resume(told):
            return remote.query(resume_token=told, budget=wire_times.duration(0.001))

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
        assert not len(remote.session._shelf)
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
        last = got[-1].progress
        while last.rows == got[-1].progress.rows:  # a slow machine may need some budgets for the first of them
            last = (await remote.query(resume_token=last.token, budget=wire_times.duration(0.01)))[-1].progress
        assert last.rows > got[-1].progress.rows
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
    plan = session.asking

    def slowly(*given, **named):
        planning.set()
        assert go.wait(WAIT)
        yield from plan(*given, **named)

    monkeypatch.setattr(session, "asking", slowly)

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


def test_what_to_expect_is_not_worked_out_on_the_event_loop(monkeypatch):
    """It asks the summaries, under the lock of a stream that a large batch may hold for long."""
    threads = []
    progress = Cursor.progress

    def noted(*given):
        threads.append(threading.current_thread())
        return progress(*given)

    monkeypatch.setattr(Cursor, "progress", noted)

    async def body(remote):
        await remote.query("SELECT count(*) AS n FROM s")
        assert len(threads) > 1
        assert threading.current_thread() not in threads

    run(body)


def test_an_answer_that_is_resumed_is_counted_once():
    async def body(remote):
        rows, token = 0, ""
        for _ in range(4):
            *_, last = found = await remote.query(
                **({"resume_token": token} if token else {"sql": MANY}), budget=wire_times.duration(0.05)
            )
            rows += sum(frame.rows.num_rows for frame in found)
            token = last.progress.token
        told = await remote.stats()
        assert rows > 0
        assert told.rows == rows == last.progress.rows
        assert told.query_cpu_seconds == pytest.approx(last.progress.cpu_seconds, rel=0.05)

    session = much()
    session._cpu = Ticking(MS // 2)  # a busy machine would tell other times
    run(body, session=session)


def test_a_batch_leaves_nothing_to_resume():
    async def body(remote):
        request = queries_pb2.QueryBatchRequest(sql=[f"{NONE} BUDGET 1 MILLISECOND"] * 3)
        assert len([part async for part in remote.queries.QueryBatch(request, timeout=WAIT)]) >= 3
        assert not len(remote.session._shelf)

    run(body, session=much())


def test_a_summary_without_postings_by_its_field():
    async def body(remote):
        for name, postings in (("off", False), ("on", True), ("usual", None)):
            made = summaries_pb2.CreateSummaryRequest(
                name=name, stream="s", key="item", granularity=Duration(seconds=60), postings=postings
            )
            await remote.summaries.CreateSummary(made)
            told = (await remote.summaries.DescribeSummary(summaries_pb2.DescribeSummaryRequest(name=name))).summary
            assert told.HasField("postings") and told.postings == (name != "off")
            assert ("postings = off" in told.statement) == (name == "off")

    run(body)
