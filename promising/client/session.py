"""A session on a service."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from promising.client import calls
from promising.client import scripts as statements
from promising.client.admin import Admin
from promising.client.channels import DEFAULT_TARGET, SENT, FilePath
from promising.client.connection import Connection, dial
from promising.client.ingest import Ingest
from promising.client.remote_answer import answered, fetched
from promising.client.retries import RETRIES
from promising.client.subscriptions import RemoteSubscription, Watching
from promising.errors import PromisingError
from promising.index.regions import Appended, Description, Regions, Story
from promising.index.scan_plan import ScanPlan
from promising.index.schema import Batch
from promising.query.answers import Answer, Done, Explanation
from promising.query.budgets import Budget
from promising.query.standing.subscription import Delta, Subscription
from promising.summaries.adt import Estimates
from promising.v1 import queries_pb2

if TYPE_CHECKING:
    from promising.index.load_plan import LoadPlan
    from promising.index.prepared_load import Attached
    from promising.index.table import Changed, Mode

Result: TypeAlias = Done | pa.Table | Explanation | Answer


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
) -> "RemoteSession":
    """A session on the service at `target`, host:port. The first call connects.

    token: says who asks; it goes with every call.
    ca, certificate, key: PEM files. TLS is used if `ca` (whom to trust) or `certificate` (with its `key`: who asks) is
        given, and for a target that begins with grpcs://.
    timeout: seconds that a call may take, one try of it; ingest has none.
    retries: how often a call is tried again that found no service, or a service at its limit, and does no harm twice.
    progress: show a bar of coverage on stderr while an answer is read, if that is a terminal.
    max_message_bytes: what the service takes in one message; its `limits.max_message_bytes`.
    """
    connection = dial(
        target,
        token=token,
        ca=ca,
        certificate=certificate,
        key=key,
        timeout=timeout,
        retries=retries,
        max_message_bytes=max_message_bytes,
    )
    return RemoteSession(connection, progress)


class RemoteSession:
    """The session of a service: methods, arguments, results and errors are those of `query.Session`.

    It may be used from several threads. One `Answer` is read by one thread at a time; `cancel` may come from any.
    """

    def __init__(self, connection: Connection, progress: bool) -> None:
        self._connection = connection
        self._ask, self._gather = connection.ask, connection.gather
        self._progress = progress
        self._ingest = Ingest(connection)
        self._watching = Watching(connection)

    # --- statements ----------------------------------------------------------------------------------------------

    def execute(self, sql: str) -> Result:
        """Carry out one statement.

        CREATE and DROP give a `Done`, SHOW and DESCRIBE a table, EXPLAIN an `Explanation`, a SELECT its `Answer`, run
        to the end. CREATE and DROP are sent once, whatever `retries` says.
        """
        return self._execute(statements.one(sql))

    def execute_many(self, sql: str) -> list[Result]:
        """Carry out the statements between semicolons, one after the other, up to the first that fails."""
        return [self._execute(statement) for statement in statements.many(sql)]

    def _execute(self, statement: statements.Statement) -> Result:
        try:
            if statement.kind == "select":
                return self.query(statement.sql).run()
            return self._ask(calls.execute(statement.sql, again=statement.kind == "read"))
        except PromisingError as problem:
            raise statement.placed(problem) from None

    def advance(self, stream: str, watermark: int) -> None:
        """Say that nothing before `watermark` is expected any more, in microseconds of event time."""
        self._ask(calls.advance(stream, watermark))

    # --- tuples in -----------------------------------------------------------------------------------------------

    def ingest(
        self,
        stream: str,
        table: Batch,
        *,
        strict: bool = False,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Appended:
        """Add tuples: a mapping of columns, a pyarrow Table or a RecordBatch.

        A malformed table raises and changes nothing. Tuples too old, or too far ahead of the clock, are left out and
        counted; with `strict` they raise instead. When the connection is lost the table is sent again, and added once.

        A table of up to 2^20 tuples that fits into one message is added as a whole or not at all. A larger one is
        checked as a whole, and then sent in batches: if one of these is refused, for want of room or because of
        `strict`, those before it are in, and some after it may be.

        With a producer's name and the number of the batch, a table that is given a second time is not added a second
        time, not even by another session. It has to fit into one message.
        """
        return self._ingest.one(stream, table, strict, producer, sequence)

    def ingest_many(
        self,
        stream: str,
        tables: Iterable[Batch],
        *,
        strict: bool = False,
        on_ack: Callable[[Appended], None] | None = None,
    ) -> Appended:
        """Add many tables over one call, several of them under way at a time; the sums of all.

        `on_ack` is called with what became of each batch, in order. The first batch that is refused ends it: no
        further ones are sent, those under way are waited for, and the error is raised.
        """
        return self._ingest.many(stream, tables, strict, on_ack)

    # --- packages in ---------------------------------------------------------------------------------------------

    def load_plan(self, stream: str) -> "LoadPlan":
        """What a loader must know of a stream to build a package for it."""
        return self._ask(calls.load_plan(stream))

    def attach(self, stream: str, path: str, token: str) -> "Attached":
        """Add a package: all of it or nothing, and once for each token. The service reads it from `path`.

        When the connection is lost it is asked again, and then told as a `duplicate` if it is in.
        """
        return self._ask(calls.attach(stream, path, token))

    # --- tables in -----------------------------------------------------------------------------------------------

    def load_table(self, name: str, rows: Batch, mode: "Mode" = "upsert") -> "Changed":
        """Put rows into a reference table, all of them or none: a mapping of columns, a pyarrow Table or a RecordBatch.

        mode: `upsert` replaces rows of the same primary key, `insert` refuses them, `update` refuses others; an update
        may leave out columns, which stay as they are. It is sent once, whatever `retries` says.
        """
        return self._ingest.load_table(name, rows, mode)

    def table(self, name: str) -> pa.Table:
        """What a reference table has now."""
        return self._gather(calls.read_table(name))

    # --- queries -------------------------------------------------------------------------------------------------

    def query(
        self, sql: str, budget: Budget = None, seed: int | None = None, *, progress: bool | None = None
    ) -> Answer:
        """Ask a SELECT. Errors in the statement are raised here; the service works while the answer is read.

        budget: CPU time, as `BUDGET` in the statement would say; of the two the smaller counts, and the service has a
            limit of its own.
        seed: of what is drawn at random. The same state, statement and seed give the same rows in the same order.
        progress: whether to show a bar on stderr; None does as `connect` was told.
        """
        return self._answer(calls.query(sql, budget, seed), progress)

    def resume(self, token: str, budget: Budget = None, *, progress: bool | None = None) -> Answer:
        """Go on with an answer that was cut: the rows that had not come yet, or aggregates from where they were."""
        return self._answer(calls.resume(token, budget), progress)

    def query_many(self, statements: Sequence[str]) -> list[pa.Table]:
        """The answers to many SELECTs, each exact, which share their reading where they can."""
        return self._gather(calls.query_many(statements))

    def explain(
        self, sql: str, *, analyze: bool = False, budget: Budget = None, seed: int | None = None
    ) -> Explanation:
        """EXPLAIN [ANALYZE] of a SELECT."""
        return self._ask(calls.explain(sql, analyze, budget, seed))

    def _answer(self, request: queries_pb2.QueryRequest, progress: bool | None) -> Answer:
        return answered(self._connection, request, self._progress if progress is None else progress)

    # --- continuous queries --------------------------------------------------------------------------------------

    def subscribe(self, name: str, token: str | None = None) -> RemoteSubscription:
        """Watch a continuous query: iterate over the changes of its view, or `poll` and look at the `snapshot`.

        All subscriptions of a session share one call. When the connection is lost it is made again, and goes on from
        where it was: nothing is missed, and nothing comes twice. token: goes on from the change that it came with.
        """
        return self._watching.subscribe(name, token)

    def poll(self, subscriptions: Iterable[Subscription], timeout: float | None = 0.0) -> dict[Subscription, Delta]:
        """The next change of each of these subscriptions, taken into its view; those without one are left out.

        Waits up to `timeout` seconds (None: for as long as it takes) until there is a change of any. What one of them
        fails with is raised, before any other has changed; without it the others go on.
        """
        return self._watching.poll(subscriptions, timeout)

    # --- for those who read elsewhere ----------------------------------------------------------------------------

    def plan_scan(self, sql: str, *, share: float = 1.0) -> ScanPlan:
        """Where the tuples lie that a SELECT is about, the most promising first.

        share: of the expected output that is wanted, over 0 and up to 1.
        """
        return self._gather(calls.plan_scan(sql, share))

    def fetch(self, stream: str, first: int, last: int, columns: list[str]) -> Iterator[pa.Table]:
        """The tuples that arrived as number `first` up to `last`, not included, a part at a time.

        When the connection is lost it goes on with what has not come yet. Once one of them has been let go of,
        TokenExpired is raised.
        """
        return fetched(self._connection, calls.fetch(stream, first, last, columns))

    # --- summaries -----------------------------------------------------------------------------------------------

    def estimate(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Estimates:
        """How many tuples of each key the window holds, with bounds, from the summary."""
        return self._ask(calls.estimate(summary, keys, window))

    def regions(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Regions:
        """The cells that may hold tuples of each key, with an estimate and bounds."""
        return self._ask(calls.regions(summary, keys, window))

    def probe(
        self, summary: str, keys: Any, window: tuple[int, int] | None = None, columns: list[str] | None = None
    ) -> pa.Table:
        """The tuples that have one of the keys, after a column `probe`: the place of a tuple's key in the question."""
        return self._gather(calls.probe(summary, keys, window, columns))

    def describe(self, summary: str, *, cells: bool = False) -> Description:
        """Granularities, zones with the reason for each, counts and bytes; with `cells` the tuples of every cell."""
        return self._ask(calls.describe(summary, cells))

    def story(self, summary: str, granularity: int, zone: int) -> Story:
        """Why a zone exists, and what it has absorbed."""
        return self._ask(calls.story(summary, granularity, zone))

    @property
    def admin(self) -> Admin:
        """What the service tells about itself."""
        return Admin(self._ask)

    # --- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the connection, and every answer that is still read over it. What the service has, it keeps."""
        self._connection.close()

    def __enter__(self) -> "RemoteSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
