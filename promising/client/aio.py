"""A session on a service for asyncio: the methods of `RemoteSession` as coroutines."""

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
from promising.client.connection import check_wait
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
    wait: float = 0.0,
    progress: bool = False,
    max_message_bytes: int = SENT,
) -> "AsyncSession":
    """As `promising.connect`, for the running event loop. The first call connects; `async with` does the wait."""
    where = place(target, token=token, ca=ca, certificate=certificate, key=key, max_message_bytes=max_message_bytes)
    return AsyncSession(AsyncConnection(where, timeout, Retries(retries)), progress, check_wait(wait))


Result: TypeAlias = Done | pa.Table | Explanation | AsyncAnswer


class AsyncSession:
    """A session of one event loop. Each method is that of `RemoteSession`, as a coroutine."""

    def __init__(self, connection: AsyncConnection, progress: bool, wait: float = 0.0) -> None:
        self._wait = wait
        self._connection = connection
        self._ask, self._gather = connection.ask, connection.gather
        self._progress = progress
        self._ingest = AsyncIngest(connection)
        self._watching = AsyncWatching(connection)

    # --- statements ----------------------------------------------------------------------------------------------

    async def execute(self, sql: str) -> Result:
        """Run one statement."""
        return await self._execute(statements.one(sql))

    async def execute_many(self, sql: str) -> list[Result]:
        """Run the statements between semicolons in order, up to the first that fails."""
        return [await self._execute(statement) for statement in statements.many(sql)]

    async def _execute(self, statement: statements.Statement) -> Result:
        try:
            if statement.kind == "select":
                return await (await self.query(statement.sql)).run()
            return await self._ask(calls.execute(statement.sql, again=statement.kind == "read"))
        except PromisingError as problem:
            raise statement.placed(problem) from None

    async def advance(self, stream: str, watermark: int) -> None:
        """Declare that no tuple before `watermark` is expected, in microseconds of event time."""
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
        epoch: int = 0,
    ) -> Appended:
        """Add tuples; guarantees as for `RemoteSession.ingest`."""
        return await self._ingest.one(stream, table, strict, producer, sequence, epoch)

    async def ingest_many(
        self,
        stream: str,
        tables: Iterable[Batch] | AsyncIterable[Batch],
        *,
        strict: bool = False,
        on_ack: Callable[[Appended], None] | None = None,
    ) -> Appended:
        """Add many tables over one call, several in flight at a time; returns the totals."""
        return await self._ingest.many(stream, tables, strict, on_ack)

    # --- packages in ---------------------------------------------------------------------------------------------

    async def load_plan(self, stream: str) -> "LoadPlan":
        """What a loader needs to build a package for a stream."""
        return await self._ask(calls.load_plan(stream))

    async def attach(self, stream: str, path: str, token: str) -> "Attached":
        """Add a package; guarantees as for `RemoteSession.attach`."""
        return await self._ask(calls.attach(stream, path, token))

    # --- tables in -----------------------------------------------------------------------------------------------

    async def load_table(self, name: str, rows: Batch, mode: "Mode" = "upsert") -> "Changed":
        """Write rows to a reference table; guarantees as for `RemoteSession.load_table`."""
        return await self._ingest.load_table(name, rows, mode)

    async def table(self, name: str) -> pa.Table:
        """The current rows of a reference table."""
        return await self._gather(calls.read_table(name))

    # --- queries -------------------------------------------------------------------------------------------------

    async def query(
        self, sql: str, budget: Budget = None, seed: int | None = None, *, progress: bool | None = None
    ) -> AsyncAnswer:
        """Run a SELECT. Errors in the statement are raised here; the service works while the answer is read."""
        return await self._answer(calls.query(sql, budget, seed), progress)

    async def resume(self, token: str, budget: Budget = None, *, progress: bool | None = None) -> AsyncAnswer:
        """Resume an answer that was cut."""
        return await self._answer(calls.resume(token, budget), progress)

    async def query_many(self, statements: Sequence[str]) -> list[pa.Table]:
        """The exact answers to many SELECTs, which share scans where possible."""
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
        """Watch a continuous query; guarantees as for `RemoteSession.subscribe`."""
        return await self._watching.subscribe(name, token)

    async def poll(
        self, subscriptions: Iterable[AsyncSubscription], timeout: float | None = 0.0
    ) -> dict[AsyncSubscription, Delta]:
        """The next change of each subscription; guarantees as for `RemoteSession.poll`."""
        return await self._watching.poll(subscriptions, timeout)

    # --- external readers ----------------------------------------------------------------------------------------

    async def plan_scan(self, sql: str, *, share: float = 1.0) -> ScanPlan:
        """The locations of a SELECT's tuples, the most promising first."""
        return await self._gather(calls.plan_scan(sql, share))

    def fetch(self, stream: str, first: int, last: int, columns: list[str]) -> AsyncIterator[pa.Table]:
        """Tuples by arrival, in parts, for `async for`; guarantees as for `RemoteSession.fetch`."""
        return fetched(self._connection, calls.fetch(stream, first, last, columns))

    # --- summaries -----------------------------------------------------------------------------------------------

    async def estimate(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Estimates:
        """Estimated number of tuples of each key in the window, with bounds."""
        return await self._ask(calls.estimate(summary, keys, window))

    async def regions(
        self, summary: str, keys: Any, window: tuple[int, int] | None = None, *, search: str = "flat"
    ) -> Regions:
        """The cells that may hold tuples of each key, with an estimate and bounds."""
        return await self._ask(calls.regions(summary, keys, window, search))

    async def probe(
        self, summary: str, keys: Any, window: tuple[int, int] | None = None, columns: list[str] | None = None
    ) -> pa.Table:
        """The tuples with one of the keys, after a column `probe`: the index of the tuple's key in `keys`."""
        return await self._gather(calls.probe(summary, keys, window, columns))

    async def describe(self, summary: str, *, cells: bool = False, show: str | None = None) -> Description:
        """Granularities, zones with their reasons, counts and bytes; with `cells` the tuples per cell; with `show` a
        figure of what is measured, such as "avg(price)"."""
        return await self._ask(calls.describe(summary, cells, show))

    async def story(self, summary: str, granularity: int, zone: int) -> Story:
        """Why a zone exists, and what it has absorbed."""
        return await self._ask(calls.story(summary, granularity, zone))

    # --- the end -------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the connection and all open answers. The service's data is unaffected."""
        self._watching.close()
        await self._connection.close()

    async def __aenter__(self) -> "AsyncSession":
        if self._wait:
            await self._connection.await_service(self._wait)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
