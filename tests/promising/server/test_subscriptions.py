"""Subscribe: frames with all queries of a call, readers that stop, and what goes wrong with one query alone."""

import asyncio
import contextlib
import threading
from typing import Any

import grpc
import pyarrow as pa
import pytest

from promising import wire, wire_changes, wire_times
from promising.client.subscription_state import view_of
from promising.errors import DivisionByZero
from promising.query.standing.subscription import LiveView
from promising.server import subscriptions
from promising.server.access_tokens import TokenStore
from promising.server.subscriptions import Subscriber
from promising.v1 import admin_pb2, queries_pb2
from tests.promising.server.serving import (
    EOF,
    WAIT,
    ReaderClock,
    details,
    failed,
    run,
    stocked,
    until,
)
from tests.promising.server.standing import SCHEMA, Engine


@pytest.fixture(autouse=True)
def no_heartbeat(monkeypatch):
    """On a busy machine it may come at any time."""
    monkeypatch.setattr(subscriptions, "HEARTBEAT", 10.0 * WAIT)


class Watcher:
    """A raw Subscribe call, and the views that it adds up to."""

    def __init__(self, remote: Any, **metadata: str) -> None:
        self.call = remote.queries.Subscribe(timeout=WAIT, metadata=tuple(metadata.items()))
        self.parts: dict[int, wire_changes.Sections] = {}
        self.views: dict[int, LiveView] = {}
        self.tokens: dict[int, str] = {}
        self.errors: dict[int, Any] = {}
        self.messages = 0
        self.times = 0
        self.last: Any = None

    async def add(self, number: int, query: str, token: str = "") -> None:
        add = queries_pb2.Subscription(number=number, query=query, resume_token=token)
        await self.call.write(queries_pb2.SubscribeRequest(add=add))

    async def remove(self, number: int) -> None:
        await self.call.write(queries_pb2.SubscribeRequest(remove=number))

    async def read(self) -> None:
        message = self.last = await self.call.read()
        assert message is not EOF
        self.messages += 1
        for part in message.sections:
            if part.HasField("error"):
                self.errors[part.number] = part.error
                continue
            if part.HasField("opened"):
                opened = wire_changes.opened_from(part.opened)
                self.parts[part.number] = wire_changes.Sections(opened)
                self.views.setdefault(part.number, view_of(opened))
            delta = self.parts[part.number].add(message.tick, part)
            if delta is not None:
                self.views[part.number].apply(delta)
                self.tokens[part.number] = delta.token
        for times in message.times:
            self.times += 1
            for number in times.numbers:
                self.views[number].watermark = wire_times.micros(times.watermark)

    def rows(self, number: int) -> Any:
        """The view, once it is known."""
        view = self.views.get(number)
        return None if view is None or view.watermark is None else view.snapshot().to_pylist()

    async def sees(self, number: int, view: Any) -> None:
        """Read until a view is as it should be."""
        while (rows := self.rows(number)) is None or by_item(rows) != by_item(view.live()):
            await self.read()


def by_item(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=str)


def served(body: Any, *names: str, engine: Engine | None = None, **how: Any) -> None:
    """Run a test's body with a server whose standing queries the test moves."""
    session = stocked()
    moved = Engine(*names) if engine is None else engine
    session.standing = moved  # type: ignore[assignment]  # it has all that is asked for here

    async def inside(remote: Any) -> None:
        await body(remote, moved)

    run(inside, session=session, **how)


# --- frames ------------------------------------------------------------------------------------------------------


def test_the_view_comes_first_and_then_what_changes_in_it():
    async def body(remote, engine):
        engine.put("q", 1, 2)
        watcher = Watcher(remote)
        await watcher.add(7, "q")
        await watcher.sees(7, engine.views["q"])
        assert watcher.views[7].schema == SCHEMA
        more = engine.put("q", 3, 4, end=50)
        await watcher.sees(7, engine.views["q"])
        engine.retract("q", more[0])
        await watcher.sees(7, engine.views["q"])
        assert len(watcher.rows(7)) == 3
        engine.at("q", 50)  # the last one ends: only the time is told
        await watcher.sees(7, engine.views["q"])
        assert len(watcher.rows(7)) == 2
        assert watcher.times == 1
        assert [list(times.numbers) for times in watcher.last.times] == [[7]]
        assert watcher.views[7].watermark == 50
        assert engine.idle[0] is not None

    served(body, "q")


def test_what_was_missed_comes_in_one_frame_and_a_token_goes_on_from_there():
    async def body(remote, engine):
        engine.put("q", 1, 2)
        first = Watcher(remote)
        await first.add(1, "q")
        await first.sees(1, engine.views["q"])
        first.call.cancel()
        for item in range(10, 20):
            engine.put("q", item)
        engine.retract("q", 0)
        second = Watcher(remote)
        await second.add(5, "q", first.tokens[1])
        second.views[5] = first.views[1]
        await second.sees(5, engine.views["q"])
        assert not any(part.reset for part in second.last.sections)
        assert second.messages == 1

    served(body, "q")


def test_one_frame_tells_of_all_queries_that_have_something_to_say():
    async def body(remote, engine):
        watcher = Watcher(remote)
        for number, name in enumerate(engine.views):
            engine.put(name, number)
            await watcher.add(number, name)
        for number, name in enumerate(engine.views):
            await watcher.sees(number, engine.views[name])
        now, told = 0, None
        while told != ([0, 2], [[1]]):  # a frame that is under way may have one of the changes, and the next the others
            now += 1
            with engine.lock:
                engine.put("a", 10)
                engine.put("c", 30)
                engine.at("b", now)
            while (watcher.views[1].watermark or 0) < now:
                await watcher.read()
                told = (
                    [part.number for part in watcher.last.sections],
                    [list(times.numbers) for times in watcher.last.times],
                )
            for number in (0, 2):
                await watcher.sees(number, engine.views["abc"[number]])
        await watcher.remove(0)
        await until(lambda: _is(len(engine.feeds) == 2))
        seen = len(watcher.rows(0))
        engine.put("a", 11)
        engine.put("b", 20)
        await watcher.sees(1, engine.views["b"])
        assert len(watcher.rows(0)) == seen, "nothing more is told of it"

    served(body, "a", "b", "c")


async def _is(true: bool) -> bool:
    return true


def test_a_thousand_queries_share_a_call():
    names = [f"q{number}" for number in range(1000)]

    async def body(remote, engine):
        watcher = Watcher(remote)
        for number, name in enumerate(names):
            engine.put(name, number)
            await watcher.add(number, name)
        for number, name in enumerate(names):
            await watcher.sees(number, engine.views[name])
        assert watcher.rows(999) == [{"item": 999, "name": "x"}]
        now, told = 0, [0]
        while told != [1000]:  # a frame that is under way may have some of them, and the next the others
            now += 1
            with engine.lock:
                for name in names:
                    engine.at(name, now)
            while any((view.watermark or 0) < now for view in watcher.views.values()):
                await watcher.read()
                told = [len(times.numbers) for times in watcher.last.times]
        stats = await remote.stats()
        assert stats.subscriptions == 1000

    served(body, *names)


def test_a_large_view_comes_in_parts():
    async def body(remote, engine):
        text = "y" * 100
        with engine.lock:
            engine.put("q", *range(20_000), text=text)
            engine.put("small", 1)
        watcher = Watcher(remote)
        await watcher.add(1, "q")
        await watcher.add(2, "small")
        await watcher.sees(1, engine.views["q"])
        assert watcher.messages > 5
        await watcher.sees(2, engine.views["small"])
        engine.retract("q", *range(0, 20_000, 2))
        await watcher.sees(1, engine.views["q"])
        assert len(watcher.views[1]) == 10_000

    served(body, "q", "small")


def test_a_query_that_is_made_anew_with_other_columns_says_so():
    async def body(remote, engine):
        engine.put("q", 1)
        watcher = Watcher(remote)
        await watcher.add(1, "q")
        await watcher.sees(1, engine.views["q"])
        with engine.lock:
            view = engine.views["q"]
            view.schema = SCHEMA.set(0, SCHEMA.field(0).with_name("other"))
            engine.put("q", 2)
        watcher.views.clear()
        await watcher.read()
        assert by_item(watcher.rows(1)) == by_item(view.live())
        assert "other" in watcher.rows(1)[0]

    served(body, "q")


def test_whoever_is_told_nothing_is_told_that_and_keeps_a_fresh_token(monkeypatch):
    monkeypatch.setattr(subscriptions, "HEARTBEAT", 0.05)

    async def body(remote, engine):
        engine.put("q", 1)
        watcher = Watcher(remote)
        await watcher.add(1, "q")
        await watcher.sees(1, engine.views["q"])
        await watcher.read()
        assert not watcher.last.sections and not watcher.last.times
        token = watcher.tokens[1]
        engine.at("q", 3)
        while watcher.tokens[1] == token:
            await watcher.read()
        assert watcher.views[1].watermark == 3

    served(body, "q")


def test_a_query_that_is_asked_for_while_a_frame_is_made_waits_for_a_tick(monkeypatch):
    """So that what was acknowledged before is in its view."""
    engine, happened = Engine("q"), []
    change, step, tick, subscribe = Subscriber.change, Subscriber.step, engine.tick, engine.subscribe
    begun = threading.Event()

    def changed(connection, request):
        happened.append("asked")
        change(connection, request)
        begun.set()

    def late(connection, messages):
        assert begun.wait(WAIT)  # the first frame is being made until then
        return step(connection, messages)

    def ticked(**how):
        happened.append("tick")
        return tick(**how)

    def subscribed(*given):
        happened.append("subscribed")
        return subscribe(*given)

    monkeypatch.setattr(Subscriber, "change", changed)
    monkeypatch.setattr(Subscriber, "step", late)
    monkeypatch.setattr(engine, "tick", ticked)
    monkeypatch.setattr(engine, "subscribe", subscribed)

    async def body(remote, engine):
        engine.put("q", 1)
        watcher = Watcher(remote)
        await until(lambda: _is(len(remote.service._parts.subscriptions) == 1))
        await watcher.add(1, "q")
        await watcher.sees(1, engine.views["q"])
        assert "tick" in happened[happened.index("asked") : happened.index("subscribed")]

    served(body, engine=engine)


# --- what goes wrong ---------------------------------------------------------------------------------------------


def test_what_is_wrong_with_one_query_concerns_no_other():
    async def body(remote, engine):
        engine.put("good", 1)
        watcher = Watcher(remote)
        for number, name in enumerate(("good", "none", "dropped", "failing", "faulty")):
            await watcher.add(number, name)
        await watcher.sees(0, engine.views["good"])
        while 1 not in watcher.errors:
            await watcher.read()
        assert watcher.errors[1].reason == "NO_SUCH_NAME"
        del engine.views["dropped"]
        engine.views["failing"].problem = DivisionByZero("division by zero")
        engine.views["faulty"].problem = ZeroDivisionError("secret")
        while len(watcher.errors) < 4:
            await watcher.read()
        reasons = {number: error.reason for number, error in watcher.errors.items()}
        assert reasons == {1: "NO_SUCH_NAME", 2: "NO_SUCH_NAME", 3: "DIVISION_BY_ZERO", 4: "INTERNAL_ERROR"}
        assert "secret" not in watcher.errors[4].message
        engine.put("good", 2)
        await watcher.sees(0, engine.views["good"])
        assert len(engine.feeds) == 1

    served(body, "good", "dropped", "failing", "faulty")


@pytest.mark.parametrize(
    ("requests", "field"),
    [
        ([queries_pb2.SubscribeRequest()], "add"),
        ([queries_pb2.SubscribeRequest(add=queries_pb2.Subscription(number=1, query="q"))] * 2, "add.number"),
        ([queries_pb2.SubscribeRequest(add=queries_pb2.Subscription(number=1, query="q" * 70_000))], "add"),
    ],
)
def test_requests_that_make_no_sense_end_the_call(requests, field):
    async def body(remote, engine):
        call = remote.queries.Subscribe(iter(requests), timeout=WAIT)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            while await call.read() is not EOF:
                pass
        assert ended.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert list(details(ended.value).violations) == [field]
        await until(lambda: _is(not engine.feeds))

    served(body, "q")


def test_a_call_that_asks_for_nothing_more_and_has_nothing_left_ends():
    async def body(remote, engine):
        requests = [queries_pb2.SubscribeRequest(add=queries_pb2.Subscription(number=1, query="none"))]
        messages = [message async for message in remote.queries.Subscribe(iter(requests), timeout=WAIT)]
        assert [part.error.reason for message in messages for part in message.sections] == ["NO_SUCH_NAME"]

    served(body)


def test_a_fault_of_a_tick_is_not_the_last_one(monkeypatch):
    engine = Engine("q")
    real, left = engine.tick, [1, 2, 3]

    def tick(**how):
        if left:
            left.pop()
            raise ZeroDivisionError
        return real(**how)

    monkeypatch.setattr(engine, "tick", tick)

    async def body(remote, engine):
        watcher = Watcher(remote)
        await watcher.add(1, "q")
        await until(lambda: _is(not left))
        engine.put("q", 1)
        await watcher.sees(1, engine.views["q"])

    served(body, engine=engine)


# --- limits ------------------------------------------------------------------------------------------------------


def test_calls_and_queries_are_limited():
    async def body(remote, engine):
        first = Watcher(remote)
        for number in range(3):
            await first.add(number, "q")
        while 2 not in first.errors:
            await first.read()
        assert first.errors[2].reason == "LIMIT_REACHED"
        await first.remove(0)
        await first.add(3, "q")
        await first.sees(3, engine.views["q"])
        problem = await failed(Watcher(remote).call.read())
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1 subscriptions are open" in problem.details()
        first.call.cancel()
        await until(lambda: _is(not engine.feeds and not len(remote.service._parts.subscriptions)))

    served(body, "q", max_subscriptions=1, max_subscribed_queries=2)


def test_who_stops_reading_is_cut_holds_little_and_goes_on_from_its_token(monkeypatch):
    clock = ReaderClock(monkeypatch)
    text = "z" * 1000

    async def body(remote, engine):
        engine.put("q", 0)
        slow = Watcher(remote)
        await slow.add(1, "q")
        await slow.sees(1, engine.views["q"])
        item = 0

        async def cut_off():
            nonlocal item
            item += 1
            engine.put("q", *range(item * 100, item * 100 + 100), text=text)
            clock.tick()
            return not engine.feeds

        await until(cut_off)
        assert len(remote.service._parts.subscriptions) == 0
        await remote.well()
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            while True:
                await slow.read()
        problem: Any = ended.value
        assert problem.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details(problem).retry is not None
        assert "nothing was read" in problem.details()
        again = Watcher(remote)
        again.views[1] = slow.views[1]
        await again.add(1, "q", slow.tokens[1])
        await again.sees(1, engine.views["q"])

    served(body, "q", slow_reader_seconds=0.2)


def test_the_end_of_the_service_is_told():
    async def body(remote, engine):
        watcher = Watcher(remote)
        await watcher.add(1, "q")
        await watcher.sees(1, engine.views["q"])
        stopping = asyncio.ensure_future(remote.service.stop(grace=WAIT))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            while True:
                await watcher.read()
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "subscribe again" in str(ended.value.details())
        await stopping
        assert not engine.feeds

    served(body, "q")


def test_subscribing_needs_the_role_query(tmp_path):
    path = tmp_path / "tokens"
    with contextlib.closing(TokenStore(path)) as store:
        secret = store.create("till", ["ingest"])

    async def body(remote, engine):
        problem = await failed(Watcher(remote, authorization=f"Bearer {secret}").call.read())
        assert problem.code() == grpc.StatusCode.PERMISSION_DENIED

    served(body, "q", tokens=path)


# --- how they fare -----------------------------------------------------------------------------------------------


def test_standing_queries_are_listed_and_measured():
    async def body(remote, engine):
        engine.put("b", 1, 2)
        engine.views["a"].shed = 1.5
        engine.views["a"].problem = DivisionByZero("division by zero")
        watcher = Watcher(remote)
        await watcher.add(1, "b")
        await watcher.sees(1, engine.views["b"])
        told = (await remote.admin.ListStanding(admin_pb2.ListStandingRequest(), timeout=WAIT)).queries
        assert [query.name for query in told] == ["a", "b"]
        assert told[0].failure == "division by zero"
        assert (told[1].view_rows, told[1].subscribers, wire_times.seconds(told[1].lag)) == (2, 1, 2.5)
        assert wire_times.seconds(told[1].budget) == 0.5
        read = remote.service.metrics.registry.get_sample_value
        assert read("promising_standing_lag_seconds") == 2.5
        assert read("promising_standing_shed_results") == 1.5
        assert read("promising_standing_view_rows") == 2
        assert read("promising_standing_state_bytes") == 7
        assert read("promising_subscribers") == read("promising_subscriptions") == 1
        await until(lambda: _is(read("promising_standing_ticks_total") > 0))
        assert read("promising_standing_tick_seconds_count") > 0
        stats = await remote.stats()
        assert (stats.subscriptions, stats.standing) == (1, 0)
        assert stats.ticks > 0

    served(body, "a", "b")


# --- tables ------------------------------------------------------------------------------------------------------

TABLE = "CREATE TABLE names (item BIGINT, name VARCHAR, PRIMARY KEY (item))"


def parts(*tables: Any, mode: Any = queries_pb2.LOAD_MODE_INSERT) -> list[Any]:
    return [
        queries_pb2.LoadTableRequest(table="" if at else "names", mode=mode, arrow=wire.ipc(table))
        for at, table in enumerate(tables)
    ]


def names(*items: int) -> pa.Table:
    return pa.table({"item": pa.array(items, pa.int64()), "name": [f"n{item}" for item in items]})


def test_the_parts_of_a_load_are_one_change():
    async def body(remote):
        remote.session.execute(TABLE)
        told = await remote.queries.LoadTable(iter(parts(names(1, 2), names(3))), timeout=WAIT)
        assert (told.change, told.inserted, told.updated, told.unchanged) == (1, 3, 0, 0)
        problem = await failed(remote.queries.LoadTable(iter(parts(names(4), names(1))), timeout=WAIT))
        assert problem.code() == grpc.StatusCode.ALREADY_EXISTS
        assert details(problem).info.reason == "DUPLICATE_KEY"
        update = parts(names(9), mode=queries_pb2.LOAD_MODE_UPDATE)
        problem = await failed(remote.queries.LoadTable(iter(update), timeout=WAIT))
        assert problem.code() == grpc.StatusCode.NOT_FOUND
        told = await remote.queries.LoadTable(iter(parts(names(3, 4), mode=0)), timeout=WAIT)
        assert (told.change, told.inserted, told.unchanged) == (2, 1, 1)
        assert remote.session.table("names")["item"].to_pylist() == [1, 2, 3, 4]

    run(body)


@pytest.mark.parametrize(
    ("requests", "code", "said"),
    [
        ([], grpc.StatusCode.INVALID_ARGUMENT, "no part has come"),
        (parts(names(1), mode=77), grpc.StatusCode.INVALID_ARGUMENT, "mode 77 is unknown"),
        (parts(names(1), names(2).drop(["name"])), grpc.StatusCode.INVALID_ARGUMENT, "different columns"),
        ([queries_pb2.LoadTableRequest(table="names", arrow=b"no")], grpc.StatusCode.INVALID_ARGUMENT, "no Arrow"),
        ([queries_pb2.LoadTableRequest(table="x", arrow=wire.ipc(names(1)))], grpc.StatusCode.NOT_FOUND, "'x'"),
        (parts(*[names(*range(1000))] * 9), grpc.StatusCode.RESOURCE_EXHAUSTED, "100,000 bytes"),
    ],
)
def test_loads_that_are_refused_change_nothing(requests, code, said):
    async def body(remote):
        remote.session.execute(TABLE)
        problem = await failed(remote.queries.LoadTable(iter(requests), timeout=WAIT))
        assert (problem.code(), said in problem.details()) == (code, True), problem.details()
        assert remote.session.table("names").num_rows == 0

    run(body, max_table_bytes=100_000)


@pytest.mark.parametrize(
    ("sql", "role"),
    [
        ("CREATE TABLE t (item BIGINT, PRIMARY KEY (item))", "admin"),
        ("CREATE CONTINUOUS QUERY q AS SELECT item FROM s WINDOW 1 HOUR", "admin"),
        ("ALTER CONTINUOUS QUERY there SET BUDGET 5 MILLISECONDS", "admin"),
        ("DROP CONTINUOUS QUERY there", "admin"),
        ("INSERT INTO names (item, name) VALUES (1, 'x')", "ingest"),
        ("UPSERT INTO names (item, name) VALUES (1, 'x')", "ingest"),
        ("DELETE FROM names WHERE item = 0", "ingest"),
        ("UPDATE names SET name = 'y' WHERE item = 0", "ingest"),
        ("SHOW TABLES", "query"),
        ("DESCRIBE names", "query"),
    ],
)
def test_a_statement_needs_its_role(tmp_path, sql, role):
    path = tmp_path / "tokens"
    with contextlib.closing(TokenStore(path)) as store:
        secrets = {name: store.create(name, [name]) for name in ("admin", "ingest", "query")}

    async def body(remote):
        remote.session.execute(TABLE)
        remote.session.load_table("names", names(0))
        remote.session.execute("CREATE CONTINUOUS QUERY there AS SELECT item FROM s WINDOW 1 HOUR")

        async def ask(who):
            metadata = (("authorization", f"Bearer {secrets[who]}"),)
            return await remote.queries.Execute(queries_pb2.ExecuteRequest(sql=sql), metadata=metadata, timeout=WAIT)

        for other in {"ingest", "query"} - {role}:
            problem = await failed(ask(other))
            assert problem.code() == grpc.StatusCode.PERMISSION_DENIED, other
        await ask(role)

    run(body, tokens=path)
