"""The asyncio session: the same methods, awaited, in one event loop with others."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import promising.errors as e
from promising.client.aio import AsyncSession, connect
from promising.client.async_answer import AsyncAnswer
from promising.client.session import RemoteSession
from promising.index import Appended
from promising.query import Session
from promising.query.answers import Done, Explanation
from promising.server.service import Service
from promising.settings import Settings
from tests.promising.client.flaky import Flaky, flaky_service, lossy, serving

LARGE = 300_000
Scenario = Callable[[AsyncSession], Awaitable[None]]


def filled() -> Session:
    made = Session(seed=3)
    made.execute("CREATE STREAM s (ts TIMESTAMP, k INT, name VARCHAR) TIMESTAMP BY ts")
    made.execute("CREATE SUMMARY m ON s (k) WITH GRANULARITY 60 SECONDS AND COLLAPSE (2, 3)")
    rows = np.arange(LARGE)
    made.ingest("s", {"ts": rows * 100, "k": rows % 100, "name": pa.array(rows).cast(pa.string())})
    return made


def run(scenario: Scenario, session: Session | None = None) -> None:
    """A scenario with a service in the same event loop."""

    async def whole() -> None:
        service = Service(Settings(listen="127.0.0.1:0"), filled() if session is None else session)
        port = await service.start()
        try:
            async with connect(f"127.0.0.1:{port}", retries=0) as made:
                await scenario(made)
        finally:
            await service.stop()

    asyncio.run(whole())


def test_it_has_the_methods_of_the_other():
    there = {name for name in vars(RemoteSession) if not name.startswith("_")} - {"admin"}
    assert there == {name for name in vars(AsyncSession) if not name.startswith("_")}
    assert there >= {name for name in vars(Session) if not name.startswith("_")} - NOT_OFFERED


NOT_OFFERED = {
    "asking",
    "query_each",
    "execute_parsed",
    "explaining",
    "stream",
    "summary",
    "probing",
    "query_bytes",
    "tidy",
}
"""Steps of a session in process, for the service itself."""


def test_a_round_of_everything():
    async def scenario(session: AsyncSession) -> None:
        done = await session.execute("CREATE STREAM t (ts TIMESTAMP, k INT) TIMESTAMP BY ts")
        assert isinstance(done, Done) and str(done) == "stream t created"
        made = await session.execute_many(
            "CREATE SUMMARY by_k ON t (k) WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 2); SHOW STREAMS;"
            "EXPLAIN SELECT k FROM t; SELECT count(*) AS n FROM s"
        )
        assert [type(m) for m in made] == [Done, pa.Table, Explanation, AsyncAnswer]
        assert (await made[3].to_arrow()).to_pydict() == {"n": [LARGE]}  # type: ignore[union-attr]  # see above
        assert await session.ingest("t", {"ts": [1, 2], "k": [7, 7]}) == Appended(2)
        assert await session.ingest("t", {"ts": [1], "k": [7]}, producer="p", sequence=1) == Appended(1)
        assert (await session.ingest("t", {"ts": [1], "k": [7]}, producer="p", sequence=1)).duplicate
        await session.advance("t", 5_000_000)
        assert (await session.describe("by_k", cells=True)).watermark == 5_000_000
        assert (await session.estimate("m", [1, 1000])).value.tolist()[1] == 0.0
        assert len(await session.regions("m", [1])) > 0
        assert (await session.probe("m", [1, 2], columns=["name"])).num_rows == 2 * LARGE // 100
        assert (await session.story("m", 1, 1)).lines
        tables = await session.query_many(["SELECT count(*) AS n FROM s", "SELECT k FROM s WHERE k < 0"])
        assert [t.num_rows for t in tables] == [1, 0]
        assert "read s" in str(await session.explain("SELECT k FROM s", analyze=True, budget=1))

    run(scenario)


def test_errors_are_those_of_the_other():
    async def scenario(session: AsyncSession) -> None:
        calls: list[tuple[Awaitable[Any], type[Exception], str]] = [
            (session.query("SELECT kk FROM s"), e.NoSuchName, "did you mean k"),
            (session.query("SELECT k FROM s", budget=-1), e.BadClause, "budget"),
            (session.resume("made.up"), e.BadToken, "made elsewhere"),
            (session.execute("SELEC"), e.BadSyntax, "expected a statement"),
            (session.ingest("s", {"ts": [1], "k": ["x"], "name": ["y"]}), e.MixedKeys, "column 'k', row 0: 'x'"),
            (session.ingest("s", {"ts": [1, 2], "k": [1, 2.5], "name": ["y", "z"]}), e.WrongType, "row 1: 2.5"),
            (session.ingest("s", {"ts": [1]}, producer="p"), e.BadSequence, "a sequence is"),
            (session.ingest("nothing", {"ts": [1]}), e.NoSuchName, "no stream"),
            (session.estimate("m", [1.5]), e.WrongType, "no key"),
            (session.regions("m", [1], (5, 1)), e.BadWindow, "ends at 1"),
            (session.story("m", 99, 1), e.BadQuestion, "granularities 1 to"),
            (session.execute_many("SHOW STREAMS;\n DROP STREAM nothing"), e.NoSuchName, "line 2, column 14"),
        ]
        for call, kind, message in calls:
            with pytest.raises(kind) as found:
                await call
            assert message in str(found.value)
        answer = await session.query("SELECT 1 / (k - 5) FROM s")
        for _ in range(2):
            with pytest.raises(e.DivisionByZero) as late:
                await answer.run()
        assert (late.value.line, late.value.column) == (1, 8)

    run(scenario)


def test_frames_and_what_can_be_made_of_them():
    async def scenario(session: AsyncSession) -> None:
        answer = await session.query("SELECT k, name FROM s")
        before = answer.last
        assert answer.progress.rows == 0 and before is None
        rows = [frame.rows.num_rows async for frame in answer]
        assert len(rows) > 2 and sum(rows) == LARGE
        assert answer.last is not None and answer.progress.complete
        assert (await answer.to_arrow())["name"].to_pylist() == [str(i) for i in range(LARGE)]
        assert [frame async for frame in answer] == []
        grouped = "SELECT k, count(*) AS n FROM s GROUP BY k ORDER BY k LIMIT 2"
        assert (await (await session.query(grouped)).to_pandas())["n"].tolist() == [LARGE // 100] * 2
        assert (await (await session.query(grouped)).to_polars())["k"].to_list() == [0, 1]
        bounds = await (await session.query("SELECT count(*) AS n FROM s")).bounds()
        assert bounds is not None and bounds[0].to_pydict() == {"n": [LARGE]}
        assert await (await session.query("SELECT k FROM s LIMIT 1")).bounds() is None
        empty = await session.query("SELECT k FROM s WHERE k < 0")
        assert (await empty.to_arrow()).schema == empty.schema
        streamed = await session.query("SELECT k FROM s")
        assert sum([frame.rows.num_rows async for frame in streamed.stream()]) == LARGE
        assert (await streamed.to_arrow()).num_rows == 0

    run(scenario)


def test_cancel_and_resume():
    async def scenario(session: AsyncSession) -> None:
        answer = await session.query("SELECT name FROM s")
        async for _ in answer:
            await answer.cancel()
        assert answer.progress.cut == "cancelled" and answer.progress.token is not None
        rest = await session.resume(answer.progress.token)
        names = (await answer.to_arrow())["name"].to_pylist() + (await rest.to_arrow())["name"].to_pylist()
        assert names == [str(i) for i in range(LARGE)]
        await rest.cancel()  # it has ended: nothing to do

    run(scenario)


def test_close_ends_the_reading():
    async def scenario(session: AsyncSession) -> None:
        answer = await session.query("SELECT name FROM s")
        rows = (await anext(aiter(answer))).rows.num_rows
        await answer.close()
        await answer.close()
        assert [frame async for frame in answer] == []
        assert (await answer.to_arrow()).num_rows == rows

    run(scenario)


def test_a_task_that_is_cancelled_ends_as_tasks_do():
    async def scenario(session: AsyncSession) -> None:
        reading = asyncio.Event()

        async def read() -> None:
            answer = await session.query("SELECT a.k FROM s a, s b WHERE a.k = b.k")
            async for _ in answer:
                reading.set()

        task = asyncio.create_task(read())
        await reading.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await (await session.query("SELECT count(*) AS n FROM s")).to_arrow() is not None

    run(scenario)


def test_a_table_larger_than_a_batch():
    async def scenario(session: AsyncSession) -> None:
        n = (1 << 20) + 5
        await session.execute("CREATE STREAM t (ts TIMESTAMP, k INT) TIMESTAMP BY ts")
        assert await session.ingest("t", {"ts": np.full(n, 5), "k": np.arange(n)}) == Appended(n)
        found = await (await session.query("SELECT k FROM t")).to_arrow()
        assert (found["k"].to_numpy() == np.arange(n)).all()

    run(scenario)


def test_many_at_one_time():
    async def scenario(session: AsyncSession) -> None:
        async def count(k: int) -> int:
            table = await (await session.query(f"SELECT count(*) AS n FROM s WHERE k < {k}")).to_arrow()
            return int(table["n"][0].as_py())

        assert await asyncio.gather(*(count(k) for k in range(30))) == [k * LARGE // 100 for k in range(30)]

    run(scenario)


def test_a_closed_session_says_so():
    async def scenario(session: AsyncSession) -> None:
        answer = await session.query("SELECT a.k FROM s a, s b WHERE a.k = b.k")
        await anext(aiter(answer))
        await session.close()
        with pytest.raises(e.Unavailable, match="the session is closed"):
            await answer.run()
        for call in (session.estimate("m", [1]), session.query("SELECT k FROM s"), session.execute("SHOW STREAMS")):
            with pytest.raises(e.Unavailable, match="the session is closed"):
                await call

    run(scenario)


# --- losses ------------------------------------------------------------------------------------------------------


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> Iterator[Flaky]:
    monkeypatch.setattr("promising.client.retries.SHORTEST_WAIT", 0.001)
    made = flaky_service()
    made.session.execute("CREATE STREAM s (ts TIMESTAMP, n INT) TIMESTAMP BY ts")
    yield made


def lossily(flaky: Flaky, scenario: Scenario, retries: int = 3) -> None:
    async def whole(target: str) -> None:
        async with connect(target, retries=retries) as session:
            await scenario(session)

    with serving(flaky) as target:
        asyncio.run(whole(target))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_lost_every_tuple_is_in_once(seed: int, flaky: Flaky):
    flaky.losing = lossy(seed)
    told: list[Appended] = []

    async def tables() -> AsyncIterator[dict[str, Any]]:
        for number in range(40):
            await asyncio.sleep(0)
            yield {"ts": [number], "n": [number]}

    async def scenario(session: AsyncSession) -> None:
        assert await session.ingest_many("s", tables(), on_ack=told.append) == Appended(40)

    lossily(flaky, scenario, retries=50)
    assert flaky.session.query("SELECT n FROM s").to_arrow()["n"].to_pylist() == list(range(40))
    assert told == [Appended(1)] * 40


def test_what_is_asked_again_and_what_is_not(flaky: Flaky):
    gone = e.Unavailable("not now")

    async def scenario(session: AsyncSession) -> None:
        flaky.problems = [gone, e.LimitReached("busy", retry_seconds=0.001)]
        assert (await session.estimate("m", [1])).value.tolist() == [1.0]
        flaky.problems = [gone]
        assert (await (await session.query("SELECT n FROM s")).to_arrow()).num_rows == 1
        flaky.problems = [gone]
        with pytest.raises(e.Unavailable):
            await session.execute("DROP STREAM s")
        flaky.problems = [gone] * 9
        with pytest.raises(e.Unavailable, match="not now"):
            await session.probe("m", [1])
        flaky.problems = []
        flaky.losing = lambda: "before"
        with pytest.raises(e.Unavailable, match="lost"):
            await session.ingest("s", {"ts": [1], "n": [1]})

    lossily(flaky, scenario)
    assert flaky.calls == ["Estimate"] * 3 + ["Query"] * 2 + ["Execute"] + ["Probe"] * 4 + ["Ingest"] * 4


def test_what_is_acknowledged_is_in_however_the_call_ends(flaky: Flaky):
    flaky.closing = e.Unavailable("not now")

    async def scenario(session: AsyncSession) -> None:
        assert await session.ingest("s", {"ts": [1], "n": [1]}) == Appended(1)
        assert await session.ingest_many("s", [{"ts": [2], "n": [2]}] * 2) == Appended(2)

    lossily(flaky, scenario)
    assert flaky.calls == ["Ingest"] * 2


def test_the_ends_of_a_feed(flaky: Flaky):
    flaky.session.execute("CREATE SUMMARY m ON s (n) WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 3)")
    rng = random.Random(1)

    async def scenario(session: AsyncSession) -> None:
        assert await session.ingest_many("s", []) == Appended(0)
        with pytest.raises(e.NullKey):
            await session.ingest_many(
                "s", ({"ts": [1], "n": pa.array([None if i == 3 else i], pa.int64())} for i in range(99))
            )
        assert 3 < len(flaky.batches) < 20

        async def broken() -> AsyncIterator[dict[str, Any]]:
            yield {"ts": [1], "n": [rng.randrange(5)]}
            raise OSError("the file ends here")

        with pytest.raises(OSError, match="the file ends here"):
            await session.ingest_many("s", broken())

    lossily(flaky, scenario)
