"""Subscriptions of a client: views stay right when connections break, and errors are raised where they belong."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import promising
from promising.client import aio, subscription_state
from promising.errors import BadToken, InternalError, NoSuchName, PromisingError, Unavailable
from promising.settings import Settings, Standing
from promising.testing.service import running
from tests.promising.cli.running import Serving
from tests.promising.client.proxy import Proxy
from tests.promising.server.serving import WAIT, stocked
from tests.promising.server.standing import Engine, View


@contextmanager
def served(*names: str) -> Iterator[tuple[str, Engine]]:
    """A service whose standing queries the test moves, and these."""
    session = stocked()
    engine = Engine(*names)
    session.standing = engine  # type: ignore[assignment]  # it has all that is asked for here
    with running(session=session) as target:
        yield target, engine


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def _holds(items: list[int], item: int) -> bool:
    return item in items


def rows(found: Any) -> list[str]:
    return sorted(map(str, found))


def right(subscription: Any, view: View) -> bool:
    return subscription.watermark is not None and rows(subscription.snapshot().to_pylist()) == rows(view.live())


def sees(subscription: Any, view: View) -> list[Any]:
    """Take changes until the view is right; these."""
    end, taken = time.monotonic() + WAIT, []
    while not right(subscription, view):
        assert time.monotonic() < end
        delta = subscription.poll(0.5)
        if delta is not None:
            taken.append(delta)
    return taken


# --- views -------------------------------------------------------------------------------------------------------


def test_subscriptions_share_a_call_and_keep_their_views():
    with served("a", "b") as (target, engine), promising.connect(target) as session:
        engine.put("a", 1, 2)
        first, second = session.subscribe("a"), session.subscribe("b")
        sees(first, engine.views["a"])
        engine.put("a", 3, end=40)
        engine.put("b", 9)
        sees(first, engine.views["a"])
        sees(second, engine.views["b"])
        assert session.admin.stats().subscriptions == 2
        assert (first.name, first.schema.names, len(first), first.interrupted) == ("a", ["item", "name"], 3, None)
        engine.at("a", 40)
        (delta,) = sees(first, engine.views["a"])
        assert (delta.inserts.num_rows, delta.watermark, first.watermark) == (0, 40, 40)
        engine.retract("a", 0)
        (delta,) = sees(first, engine.views["a"])
        assert delta.retractions.tolist() == [[0, 0]]
        assert first.poll() is None
        assert first.poll(0.05) is None
        second.close()
        assert list(second) == []
        until(lambda: len(engine.feeds) == 1)
        first.close()
        until(lambda: not engine.feeds)
        with session.subscribe("b") as third:  # the call has ended; another one begins
            sees(third, engine.views["b"])
        until(lambda: not engine.feeds)


def test_iterating_waits_for_changes_until_it_is_closed():
    with served("q") as (target, engine), promising.connect(target) as session:
        subscription = session.subscribe("q")
        seen: list[int] = []

        def iterate() -> None:
            for delta in subscription:
                seen.extend(delta.inserts["item"].to_pylist())

        thread = threading.Thread(target=iterate)
        thread.start()
        for item in range(5):
            engine.put("q", item)
            until(partial(_holds, seen, item))
        subscription.close()
        thread.join(WAIT)
        assert not thread.is_alive()
        assert seen == [0, 1, 2, 3, 4]


def test_a_token_goes_on_in_another_session():
    with served("q") as (target, engine):
        with promising.connect(target) as session:
            first = session.subscribe("q")
            engine.put("q", 1)
            sees(first, engine.views["q"])
        engine.put("q", 2)
        with promising.connect(target) as session, session.subscribe("q", first.token) as second:
            delta: Any = second.poll(None)
            assert (delta.reset, delta.inserts["item"].to_pylist()) == (False, [2])


def test_a_token_stands_for_what_was_looked_at_and_not_for_what_has_come():
    with served("q") as (target, engine), promising.connect(target) as session, session.subscribe("q") as first:
        engine.put("q", 1)
        until(lambda: first._watched.token is not None)
        assert first.token is None
        delta = first.poll(None)
        assert delta is not None
        assert first.token == delta.token


def test_what_cannot_be_read_is_an_error_and_no_silence(monkeypatch):
    with served("q") as (target, _), promising.connect(target) as session:
        monkeypatch.setattr(subscription_state.Board, "add", lambda *_: 1 / 0)
        with pytest.raises(InternalError, match="ZeroDivisionError"):
            session.subscribe("q")


@pytest.mark.deep("waits for slow readers")
def test_one_that_nobody_looks_at_holds_little_and_goes_on_when_somebody_does(monkeypatch):
    monkeypatch.setattr(subscription_state, "MANY", 100)
    with served("idle", "busy") as (target, engine), promising.connect(target) as session:
        idle, busy = session.subscribe("idle"), session.subscribe("busy")
        for item in range(30):
            engine.put("idle", *range(item * 50, item * 50 + 50))
            engine.put("busy", item)
            sees(busy, engine.views["busy"])
        until(lambda: len(engine.feeds) == 1)
        assert idle._watched._rows < 30 * 50
        taken = sees(idle, engine.views["idle"])
        assert [delta.reset for delta in taken] == [True] + [False] * (len(taken) - 1)
        assert sum(delta.inserts.num_rows for delta in taken) == 30 * 50, "nothing came twice"
        engine.put("idle", 7)
        sees(idle, engine.views["idle"])


def test_one_that_is_forgotten_is_left():
    with served("a", "b") as (target, engine), promising.connect(target) as session:
        kept, gone = session.subscribe("a"), session.subscribe("b")
        assert len(engine.feeds) == 2
        del gone
        gc.collect()
        until(lambda: len(engine.feeds) == 1)
        engine.put("a", 1)
        sees(kept, engine.views["a"])


# --- what goes wrong ---------------------------------------------------------------------------------------------


def test_permanent_errors_are_raised_and_concern_no_other():
    with served("a", "b") as (target, engine), promising.connect(target) as session:
        with pytest.raises(NoSuchName, match="no continuous query 'c'"):
            session.subscribe("c")
        with pytest.raises(NoSuchName):
            session.subscribe("\udcff")
        with pytest.raises(BadToken):
            session.subscribe("a", 7)  # type: ignore[arg-type]
        first, second = session.subscribe("a"), session.subscribe("b")
        sees(second, engine.views["b"])
        engine.put("b", 5)
        del engine.views["a"]
        with pytest.raises(NoSuchName):
            for _ in first:
                pass
        sees(second, engine.views["b"])
    with pytest.raises(Unavailable, match="the session is closed"):
        second.poll(None)
    with pytest.raises(Unavailable, match="the session is closed"):
        session.subscribe("b")


def test_connections_that_break_again_and_again_lose_nothing_and_repeat_nothing():
    with (
        served("a", "b") as (target, engine),
        Proxy(target) as proxy,
        promising.connect(proxy.target) as session,
    ):
        subscriptions = {name: session.subscribe(name) for name in ("a", "b")}
        ids: dict[str, list[Any]] = {"a": [], "b": []}
        stop = threading.Event()

        def change() -> None:
            item = 0
            while not stop.wait(0.02):
                item += 1
                for name in ids:
                    numbers = engine.put(name, *range(item, item + 20), text="t" * 200)
                    engine.retract(name, *numbers[::3])

        def look() -> None:
            for name, subscription in subscriptions.items():
                delta = subscription.poll(0.1)
                if delta is not None:
                    ids[name] += map(tuple, delta.ids.tolist())

        def connected(before: int) -> bool:
            look()
            return proxy.connections > before

        def more(before: int) -> bool:
            look()
            return len(ids["a"]) > before

        changing = threading.Thread(target=change)
        changing.start()
        try:
            for _ in range(6):
                before = proxy.connections
                proxy.cut()
                until(partial(connected, before))
                until(partial(more, len(ids["a"])))
        finally:
            stop.set()
            changing.join()
        for name, subscription in subscriptions.items():
            for delta in sees(subscription, engine.views[name]):
                ids[name] += map(tuple, delta.ids.tolist())
            assert len(ids[name]) == len(set(ids[name])), "nothing came twice"


def test_while_there_is_no_connection_it_says_so_and_tries_for_as_long_as_it_takes(monkeypatch):
    monkeypatch.setattr("promising.client.retries.SHORTEST_WAIT", 0.001)
    with (
        served("q") as (target, engine),
        Proxy(target) as proxy,
        promising.connect(proxy.target, retries=1) as session,
    ):
        subscription = session.subscribe("q")
        sees(subscription, engine.views["q"])
        proxy.shut()
        proxy.cut()
        until(lambda: isinstance(subscription.interrupted, Unavailable))
        assert subscription.poll(0.2) is None
        engine.put("q", 1)
        proxy.shut(False)
        sees(subscription, engine.views["q"])
        assert subscription.interrupted is None


def test_without_retries_a_connection_that_breaks_is_an_error():
    with (
        served("q") as (target, engine),
        Proxy(target) as proxy,
        promising.connect(proxy.target, retries=0) as session,
    ):
        subscription = session.subscribe("q")
        sees(subscription, engine.views["q"])
        proxy.cut()
        with pytest.raises(Unavailable):
            subscription.poll(None)
        with session.subscribe("q", subscription.token) as another:
            engine.put("q", 1)
            sees(another, View(rows={1: (1, "x", 1, 1)}))
    with promising.connect("127.0.0.1:1", retries=0) as session, pytest.raises(Unavailable, match="cannot reach"):
        session.subscribe("q")


# --- in an event loop --------------------------------------------------------------------------------------------


def test_in_an_event_loop():
    async def body(target: str, engine: Engine, proxy: Proxy) -> None:
        async with aio.connect(proxy.target) as session, asyncio.timeout(WAIT):
            with pytest.raises(NoSuchName):
                await session.subscribe("c")
            first, second = await session.subscribe("a"), await session.subscribe("b")

            async def seen(subscription: Any, view: View) -> None:
                while not right(subscription, view):
                    await subscription.poll(0.2)

            engine.put("a", 1, 2)
            await seen(first, engine.views["a"])
            await seen(second, engine.views["b"])
            assert (first.name, first.schema.names, len(first)) == ("a", ["item", "name"], 2)
            for item in range(3):
                proxy.cut()
                engine.put("a", 10 + item)
                engine.put("b", 20 + item)
                await seen(first, engine.views["a"])
                await seen(second, engine.views["b"])
            assert first.interrupted is None
            assert await first.poll() is None
            del engine.views["b"]
            with pytest.raises(NoSuchName):
                async for _ in second:
                    pass
            engine.put("a", 5)
            async for delta in first:
                assert delta.inserts["item"].to_pylist() == [5]
                break
            token = first.token
            await first.close()
            assert await first.poll(None) is None
            async with await session.subscribe("a", token) as third:
                engine.put("a", 6)
                await seen(third, View(rows={1: (6, "x", 1, 1)}))
            last = await session.subscribe("a", third.token)
            waiting = asyncio.ensure_future(last.poll(None))
            await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="the session is closed"):
            await waiting
        with pytest.raises(Unavailable, match="the session is closed"):
            await session.subscribe("a")

    with served("a", "b") as (target, engine), Proxy(target) as proxy:
        asyncio.run(body(target, engine, proxy))
        until(lambda: not engine.feeds)


# --- a service that ends -----------------------------------------------------------------------------------------

STREAM = "CREATE STREAM s (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts"
STANDING = {
    "plain": "SELECT item, price FROM s WHERE price > 50 WINDOW 20 SECONDS",
    "grouped": "SELECT item, count(*) AS n, max(price) AS top FROM s GROUP BY item WINDOW 20 SECONDS",
    "pairs": "SELECT a.price, b.item FROM s AS a JOIN s AS b ON a.item = b.item WHERE a.price < 3 WINDOW 2 SECONDS",
}


@pytest.mark.deep("waits for the clock")
def test_rows_of_a_silent_stream_end_by_the_clock():
    """Whatever the selectivity: nothing comes any more, and the views become empty all the same."""
    settings = Settings(listen="127.0.0.1:0", standing=Standing(tick_seconds=0.02, silence_seconds=0.1))
    with running(settings) as target, promising.connect(target) as session:
        session.execute(STREAM)
        queries = {
            "few": "SELECT item FROM s WHERE price > 98 WINDOW 2 SECONDS",
            "many": "SELECT item, price FROM s WINDOW 2 SECONDS",
            "grouped": "SELECT item, count(*) AS n FROM s GROUP BY item WINDOW 2 SECONDS",
            "pairs": "SELECT a.item FROM s AS a JOIN s AS b ON a.item = b.item WHERE a.price > 95 WINDOW 2 SECONDS",
        }
        for name, select in queries.items():
            session.execute(f"CREATE CONTINUOUS QUERY {name} AS {select}")
        watched = {name: session.subscribe(name) for name in queries}
        at = range(100)
        session.ingest("s", {"ts": [number * 10_000 for number in at], "item": [5] * 100, "price": [*map(float, at)]})

        def over(subscription: Any) -> bool:
            subscription.poll(0.02)
            return (subscription.watermark or 0) >= 2_990_000 and len(subscription) == 0

        until(lambda: all([over(subscription) for subscription in watched.values()]))


@pytest.mark.deep("starts and ends services under load")
@pytest.mark.parametrize("kill", [True, False], ids=["killed", "drained"])
def test_a_service_that_ends_under_load_and_comes_back_leaves_views_right(tmp_path, kill):
    flags = ("--data", str(tmp_path / "data"), "--set", "standing.silence_seconds=100000")
    server = Serving(tmp_path / "log1", *flags)
    stop, sent = threading.Event(), [0]
    try:
        with Proxy(server.target()) as proxy, promising.connect(proxy.target, retries=1000) as session:
            session.execute(STREAM)
            for name, select in STANDING.items():
                session.execute(f"CREATE CONTINUOUS QUERY {name} AS {select}")
            watched = {name: session.subscribe(name) for name in STANDING}

            def send() -> None:
                while not stop.is_set():
                    at = range(sent[0], sent[0] + 50)
                    columns = {
                        "ts": [1_000_000_000 + number * 10_000 for number in at],
                        "item": [number % 37 for number in at],
                        "price": [float(number * 7 % 101) for number in at],
                    }
                    try:
                        session.ingest("s", columns)
                    except PromisingError:  # it may be in or not: the query below tells
                        stop.wait(0.05)
                    sent[0] += 50

            def look(more: int) -> None:
                wanted = sent[0] + more
                until(lambda: [w.poll(0.02) for w in watched.values()] != [] and sent[0] >= wanted)

            sending = threading.Thread(target=send)
            sending.start()
            try:
                look(500)
                if kill:
                    server.process.kill()
                    server.process.wait(WAIT)
                else:
                    assert server.stop() == 0
                server = Serving(tmp_path / "log2", *flags)
                proxy.to(server.target())
                look(500)
            finally:
                stop.set()
                sending.join()
            for name, subscription in watched.items():
                wanted = rows(session.query(STANDING[name]).to_arrow().to_pylist())
                assert wanted
                end = time.monotonic() + WAIT
                while rows(subscription.snapshot().to_pylist()) != wanted:
                    assert time.monotonic() < end, name
                    subscription.poll(0.2)
    finally:
        server.process.kill()
        server.process.wait()
