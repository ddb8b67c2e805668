"""A session on a service, for asyncio: the methods of `RemoteSession`, to be awaited."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from promising.client import calls
from promising.client import scripts as statements
from promising.client.async_answer import AsyncAnswer, answered, fetched
from promising.client.async_connection import AsyncConnection
from promising.client.async_ingest import AsyncIngest
from promising.client.async_subscriptions import AsyncSubscription, AsyncWatching
from promising.client.channels import DEFAULT_TARGET, SENT, FilePath, place
from promising.client.retries import RETRIES, Retries
from promising.errors import PromisingError
from promising.index.regions import Appended, Description, Regions, Story
from promising.index.scan_plan import ScanPlan
from promising.index.schema import Batch
from promising.query.answers import Done, Explanation
from promising.query.budgets import Budget
from promising.query.standing.subscription import Delta
from promising.summaries.adt import Estimates
from promising.v1 import queries_pb2

if TYPE_CHECKING:
    from promising.index.load_plan import LoadPlan
    from promising.index.prepared_load import Attached
    from promising.index.table import Changed, Mode


def connect(
    target: str = DEFAULT_TARGET,
    *,
    token: str | None = None,
    ca: FilePath | None = None,
    certificate: FilePath | None = None,
    key: FilePath | None = None,
    timeout: float | None = None,
    retries: int = RETRIES,
    progress: bool = False,
    max_message_bytes: int = SENT,
) -> "AsyncSession":
    """As `promising.connect`, for use in the event loop that runs now. The first call connects."""
    where = place(target, token=token, ca=ca, certificate=certificate, key=key, max_message_bytes=max_message_bytes)
    return AsyncSession(AsyncConnection(where, timeout, Retries(retries)), progress)


Result: TypeAlias = Done | pa.Table | Explanation | AsyncAnswer


class AsyncSession:
    """The session of a service, used in one event loop. Each method is that of `RemoteSession`, to be awaited."""

    def __init__(self, connection: AsyncConnection, progress: bool) -> None:
        self._connection = connection
        self._ask, self._gather = connection.ask, connection.gather
        self._progress = progress
        self._ingest = AsyncIngest(connection)
        self._watching = AsyncWatching(connection)

    # --- statements ----------------------------------------------------------------------------------------------

    async def execute(self, sql: str) -> Result:
        """Carry out one statement."""
        return await self._execute(statements.one(sql))

    async def execute_many(self, sql: str) -> list[Result]:
        """Carry out the statements between semicolons, one after the other, up to the first that fails."""
        return [await self._execute(statement) for statement in statements.many(sql)]

    async def _execute(self, statement: statements.Statement) -> Result:
        try:
            if statement.kind == "select":
                return await (await self.query(statement.sql)).run()
            return await self._ask(calls.execute(statement.sql, again=statement.kind == "read"))
        except PromisingError as problem:
            raise statement.placed(problem) from None

    async def advance(self, stream: str, watermark: int) -> None:
        """Say that nothing before `watermark` is expected any more, in microseconds of event time."""
        await self._ask(calls.advance(stream, watermark))

    # --- tuples in -----------------------------------------------------------------------------------------------

    async def ingest(
        self,
        stream: str,
        table: Batch,
        *,
        strict: bool = False,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Appended:
        """Add tuples; what holds is said at `RemoteSession.ingest`."""
        return await self._ingest.one(stream, table, strict, producer, sequence)

    async def ingest_many(
        self,
        stream: str,
        tables: Iterable[Batch] | AsyncIterable[Batch],
        *,
        strict: bool = False,
        on_ack: Callable[[Appended], None] | None = None,
    ) -> Appended:
        """Add many tables over one call, several of them under way at a time; the sums of all."""
        return await self._ingest.many(stream, tables, strict, on_ack)

    # --- packages in ---------------------------------------------------------------------------------------------

    async def load_plan(self, stream: str) -> "LoadPlan":
        """What a loader must know of a stream to build a package for it."""
        return await self._ask(calls.load_plan(stream))

    async def attach(self, stream: str, path: str, token: str) -> "Attached":
        """Add a package; what holds is said at `RemoteSession.attach`."""
        return await self._ask(calls.attach(stream, path, token))

    # --- tables in -----------------------------------------------------------------------------------------------

    async def load_table(self, name: str, rows: Batch, mode: "Mode" = "upsert") -> "Changed":
        """Put rows into a reference table; what holds is said at `RemoteSession.load_table`."""
        return await self._ingest.load_table(name, rows, mode)

    async def table(self, name: str) -> pa.Table:
        """What a reference table has now."""
        return await self._gather(calls.read_table(name))

    # --- queries -------------------------------------------------------------------------------------------------

    async def query(
        self, sql: str, budget: Budget = None, seed: int | None = None, *, progress: bool | None = None
    ) -> AsyncAnswer:
        """Ask a SELECT. Errors in the statement are raised here; the service works while the answer is read."""
        return await self._answer(calls.query(sql, budget, seed), progress)

    async def resume(self, token: str, budget: Budget = None, *, progress: bool | None = None) -> AsyncAnswer:
        """Go on with an answer that was cut."""
        return await self._answer(calls.resume(token, budget), progress)

    async def query_many(self, statements: Sequence[str]) -> list[pa.Table]:
        """The answers to many SELECTs, each exact, which share their reading where they can."""
        return await self._gather(calls.query_many(statements))

    async def explain(
        self, sql: str, *, analyze: bool = False, budget: Budget = None, seed: int | None = None
    ) -> Explanation:
        """EXPLAIN [ANALYZE] of a SELECT."""
        return await self._ask(calls.explain(sql, analyze, budget, seed))

    async def _answer(self, request: queries_pb2.QueryRequest, progress: bool | None) -> AsyncAnswer:
        return await answered(self._connection, request, self._progress if progress is None else progress)

    # --- continuous queries --------------------------------------------------------------------------------------

    async def subscribe(self, name: str, token: str | None = None) -> AsyncSubscription:
        """Watch a continuous query; what holds is said at `RemoteSession.subscribe`."""
        return await self._watching.subscribe(name, token)

    async def poll(
        self, subscriptions: Iterable[AsyncSubscription], timeout: float | None = 0.0
    ) -> dict[AsyncSubscription, Delta]:
        """The next change of each of these; what holds is said at `RemoteSession.poll`."""
        return await self._watching.poll(subscriptions, timeout)

    # --- for those who read elsewhere ----------------------------------------------------------------------------

    async def plan_scan(self, sql: str, *, share: float = 1.0) -> ScanPlan:
        """Where the tuples lie that a SELECT is about, the most promising first."""
        return await self._gather(calls.plan_scan(sql, share))

    def fetch(self, stream: str, first: int, last: int, columns: list[str]) -> AsyncIterator[pa.Table]:
        """Tuples by arrival, a part at a time, for `async for`; what holds is said at `RemoteSession.fetch`."""
        return fetched(self._connection, calls.fetch(stream, first, last, columns))

    # --- summaries -----------------------------------------------------------------------------------------------

    async def estimate(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Estimates:
        """How many tuples of each key the window holds, with bounds, from the summary."""
        return await self._ask(calls.estimate(summary, keys, window))

    async def regions(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Regions:
        """The cells that may hold tuples of each key, with an estimate and bounds."""
        return await self._ask(calls.regions(summary, keys, window))

    async def probe(
        self, summary: str, keys: Any, window: tuple[int, int] | None = None, columns: list[str] | None = None
    ) -> pa.Table:
        """The tuples that have one of the keys, after a column `probe`: the place of a tuple's key in the question."""
        return await self._gather(calls.probe(summary, keys, window, columns))

    async def describe(self, summary: str, *, cells: bool = False) -> Description:
        """Granularities, zones with the reason for each, counts and bytes; with `cells` the tuples of every cell."""
        return await self._ask(calls.describe(summary, cells))

    async def story(self, summary: str, granularity: int, zone: int) -> Story:
        """Why a zone exists, and what it has absorbed."""
        return await self._ask(calls.story(summary, granularity, zone))

    # --- the end -------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the connection, and every answer that is still read over it. What the service has, it keeps."""
        self._watching.close()
        await self._connection.close()

    async def __aenter__(self) -> "AsyncSession":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
