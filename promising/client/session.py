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
    wait: float = 0.0,
    progress: bool = False,
    max_message_bytes: int = SENT,
) -> "RemoteSession":
    """A session on the service at `target`, host:port. The first call connects.

    token: access token, sent with every call. Default: the environment variable PROMISING_TOKEN.
    ca, certificate, key: PEM files. TLS is used if `ca` (trusted CA) or `certificate` with `key` (client certificate)
        is given, and for a target that begins with grpcs://. Default of `ca`: PROMISING_CA.
    timeout: seconds for one try of a call; ingest has no timeout.
    retries: how often an idempotent call is retried when the service is unavailable or at a limit.
    wait: seconds to wait here for a service that is starting; 0 does not connect yet.
    progress: show a bar of coverage on stderr while an answer is read, if that is a terminal.
    max_message_bytes: the service's `limits.max_message_bytes`.
    """
    connection = dial(
        target,
        token=token,
        ca=ca,
        certificate=certificate,
        key=key,
        timeout=timeout,
        retries=retries,
        wait=wait,
        max_message_bytes=max_message_bytes,
    )
    return RemoteSession(connection, progress)


class RemoteSession:
    """A session on a service: methods, arguments, results and errors are those of `query.Session`.

    Thread-safe. An `Answer` is read by one thread at a time; any thread may call `cancel`.
    """

    def __init__(self, connection: Connection, progress: bool) -> None:
        self._connection = connection
        self._ask, self._gather = connection.ask, connection.gather
        self._progress = progress
        self._ingest = Ingest(connection)
        self._watching = Watching(connection)

    # --- statements ----------------------------------------------------------------------------------------------

    def execute(self, sql: str) -> Result:
        """Run one statement.

        CREATE and DROP return a `Done`, SHOW and DESCRIBE a table, EXPLAIN an `Explanation`, a SELECT its `Answer`, run
        to the end. CREATE and DROP are never retried.
        """
        return self._execute(statements.one(sql))

    def execute_many(self, sql: str) -> list[Result]:
        """Run the statements between semicolons in order, up to the first that fails."""
        return [self._execute(statement) for statement in statements.many(sql)]

    def _execute(self, statement: statements.Statement) -> Result:
        try:
            if statement.kind == "select":
                return self.query(statement.sql).run()
            return self._ask(calls.execute(statement.sql, again=statement.kind == "read"))
        except PromisingError as problem:
            raise statement.placed(problem) from None

    def advance(self, stream: str, watermark: int) -> None:
        """Declare that no tuple before `watermark` is expected, in microseconds of event time."""
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
        epoch: int = 0,
    ) -> Appended:
        """Add tuples: a mapping of columns, a list of dicts, a pandas or Polars frame, or Arrow data.

        A malformed table raises and changes nothing. Tuples too old, or too far ahead of the clock, are dropped and
        counted; with `strict` they raise instead. After a lost connection the table is sent again, and added exactly
        once.

        A table of up to 2^20 tuples that fits into one message is added atomically. A larger one is checked as a whole,
        then sent in batches: if one is refused, for lack of space or because of `strict`, those before it are added,
        and some after it may be.

        A RecordBatchReader is read and sent batch by batch, without being held in memory.

        With a producer and a sequence number the call is idempotent, also across sessions. The table must then fit into
        one message. A producer's higher `epoch` ends lower ones: their batches raise `ProducerFenced`.
        """
        return self._ingest.one(stream, table, strict, producer, sequence, epoch)

    def ingest_many(
        self,
        stream: str,
        tables: Iterable[Batch],
        *,
        strict: bool = False,
        on_ack: Callable[[Appended], None] | None = None,
    ) -> Appended:
        """Add many tables over one call, several in flight at a time; returns the totals.

        `on_ack` is called with the result of each batch, in order. After the first refused batch none is sent, those in
        flight are awaited, and the error is raised.
        """
        return self._ingest.many(stream, tables, strict, on_ack)

    # --- packages in ---------------------------------------------------------------------------------------------

    def load_plan(self, stream: str) -> "LoadPlan":
        """What a loader needs to build a package for a stream."""
        return self._ask(calls.load_plan(stream))

    def attach(self, stream: str, path: str, token: str) -> "Attached":
        """Add a package atomically, exactly once per token. The service reads it from `path`.

        After a lost connection the call is retried; a package that had been added is then reported as a `duplicate`.
        """
        return self._ask(calls.attach(stream, path, token))

    # --- tables in -----------------------------------------------------------------------------------------------

    def load_table(self, name: str, rows: Batch, mode: "Mode" = "upsert") -> "Changed":
        """Write rows to a reference table atomically: a mapping of columns, a pyarrow Table or a RecordBatch.

        mode: `upsert` replaces rows of the same primary key, `insert` refuses them, `update` refuses others; columns
        that an update leaves out are unchanged. Never retried.
        """
        return self._ingest.load_table(name, rows, mode)

    def table(self, name: str) -> pa.Table:
        """The current rows of a reference table."""
        return self._gather(calls.read_table(name))

    # --- queries -------------------------------------------------------------------------------------------------

    def query(
        self, sql: str, budget: Budget = None, seed: int | None = None, *, progress: bool | None = None
    ) -> Answer:
        """Run a SELECT. Errors in the statement are raised here; the service works while the answer is read.

        budget: CPU time; the smaller of it, `BUDGET` in the statement and the service's limit applies.
        seed: random seed. The same state, statement and seed give the same rows in the same order.
        progress: whether to show a bar on stderr; None is the default of `connect`.
        """
        return self._answer(calls.query(sql, budget, seed), progress)

    def resume(self, token: str, budget: Budget = None, *, progress: bool | None = None) -> Answer:
        """Resume an answer that was cut: the remaining rows, or aggregates from their last state."""
        return self._answer(calls.resume(token, budget), progress)

    def query_many(self, statements: Sequence[str]) -> list[pa.Table]:
        """The exact answers to many SELECTs, which share scans where possible."""
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
        """Watch a continuous query: iterate over the changes of its view, or `poll` and read the `snapshot`.

        All subscriptions of a session share one call. A lost connection is restored and resumes where it was, without
        gaps or duplicates. token: resume after the change with this token.
        """
        return self._watching.subscribe(name, token)

    def poll(self, subscriptions: Iterable[Subscription], timeout: float | None = 0.0) -> dict[Subscription, Delta]:
        """The next change of each subscription that has one, applied to its view.

        Waits up to `timeout` seconds (None: no limit) for the first change. The error of a failed subscription is
        raised before any other view changes; without it the others continue.
        """
        return self._watching.poll(subscriptions, timeout)

    # --- external readers ----------------------------------------------------------------------------------------

    def plan_scan(self, sql: str, *, share: float = 1.0) -> ScanPlan:
        """The locations of a SELECT's tuples, the most promising first.

        share: of the expected output that is wanted, over 0 and up to 1.
        """
        return self._gather(calls.plan_scan(sql, share))

    def fetch(self, stream: str, first: int, last: int, columns: list[str]) -> Iterator[pa.Table]:
        """The tuples with arrival numbers from `first` up to but excluding `last`, in parts.

        After a lost connection it resumes with those that have not arrived. Raises TokenExpired once one of the tuples
        has been evicted.
        """
        return fetched(self._connection, calls.fetch(stream, first, last, columns))

    # --- summaries -----------------------------------------------------------------------------------------------

    def estimate(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Estimates:
        """Estimated number of tuples of each key in the window, with bounds."""
        return self._ask(calls.estimate(summary, keys, window))

    def regions(
        self, summary: str, keys: Any, window: tuple[int, int] | None = None, *, search: str = "flat"
    ) -> Regions:
        """The cells that may hold tuples of each key, with an estimate and bounds."""
        return self._ask(calls.regions(summary, keys, window, search))

    def probe(
        self, summary: str, keys: Any, window: tuple[int, int] | None = None, columns: list[str] | None = None
    ) -> pa.Table:
        """The tuples with one of the keys, after a column `probe`: the index of the tuple's key in `keys`."""
        return self._gather(calls.probe(summary, keys, window, columns))

    def describe(self, summary: str, *, cells: bool = False, show: str | None = None) -> Description:
        """Granularities, zones with their reasons, counts and bytes; with `cells` the tuples per cell; with `show` a
        figure of what is measured, such as "avg(price)"."""
        return self._ask(calls.describe(summary, cells, show))

    def story(self, summary: str, granularity: int, zone: int) -> Story:
        """Why a zone exists, and what it has absorbed."""
        return self._ask(calls.story(summary, granularity, zone))

    @property
    def admin(self) -> Admin:
        """Status of the service."""
        return Admin(self._ask)

    # --- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection and all open answers. The service's data is unaffected."""
        self._connection.close()

    def __enter__(self) -> "RemoteSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
