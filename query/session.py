"""A session: statements in, answers out, in one process."""

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from promising.errors import BadPackage, BadQuestion, Unsupported
from promising.index import Appended, Description, Regions, Story, Stream
from promising.index.arrivals import fetch
from promising.index.load_plan import LoadPlan
from promising.index.prepared_load import Attached
from promising.index.scan_plan import ScanPlan
from promising.index.schema import Batch
from promising.index.storage.package import attach, read_manifest
from promising.index.stream import wall_clock
from promising.index.table import Changed, Mode, Table
from promising.query.answers import Answer, Done, Explanation, Frame, Part
from promising.query.binder import bind
from promising.query.budgets import Budget, nanoseconds
from promising.query.bulk_selections import shared
from promising.query.catalog import Catalog, SummaryEntry
from promising.query.cursor import Cursor
from promising.query.definitions import Definitions
from promising.query.explain import explaining
from promising.query.result_sinks import schema
from promising.query.resume_tokens import Shelf
from promising.query.scan_planner import Written, plan_scan
from promising.query.sql import nodes, parse, parse_known, parse_many
from promising.query.standing.engine import Engine
from promising.query.standing.explain_standing import explain_standing
from promising.query.standing.local_subscriptions import Watched, poll
from promising.query.standing.standing_binder import bind_standing
from promising.query.standing.subscription import Delta, Subscription
from promising.summaries.adt import Estimates
from promising.summaries.kernels.clock import work_ns

if TYPE_CHECKING:  # files are no matter of those who keep nothing
    from promising.index.storage.store import Store

LONGEST_TOKEN = 250
CLIPPED = "the budget is the most that this service gives a query at once; resume it to go on"


class Session:
    """Streams, summaries and queries of one process, in memory, or in a store that outlives it.

    store: what is there is there again, and every change is in it before it is answered for; closed with the session.
    clock: tells the time, in microseconds since the epoch; it dates nothing but judges tuples from the future.
    cpu: CPU time of the calling thread, in nanoseconds; budgets are measured by it.
    seed: of the key hash, a secret of the installation; None picks one.
    written: how the statement of a scan is written for who reads it; None leaves it as it is.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], int] = wall_clock,
        cpu: Callable[[], int] = work_ns,
        seed: int | None = None,
        store: "Store | None" = None,
        written: Written | None = None,
    ) -> None:
        pa.array(np.empty(0))  # Arrow imports pandas when it is first given an array: not on the budget of a query
        self._cpu = cpu
        self._written = written
        self.store = store
        self.catalog = Catalog()
        if store is not None:
            self.catalog.fill(store.streams, store.queries, store.tables)
            seed = store.seed
        seed = secrets.randbits(63) if seed is None else seed
        self.standing = Engine()
        """The continuous queries at work."""
        self._definitions = Definitions(self.catalog, self.standing, clock, seed, store)
        self._definitions.stand_again()
        self._shelf = Shelf(clock, secrets.token_bytes(32))

    # --- statements ----------------------------------------------------------------------------------------------

    def execute(self, sql: str) -> "Done | pa.Table | Explanation | Answer":
        """Carry out one statement.

        CREATE and DROP give a `Done`, SHOW and DESCRIBE a table, EXPLAIN an `Explanation`, a SELECT its `Answer`, run
        to the end.
        """
        began = self._cpu()
        return self.execute_parsed(parse(sql), sql, began)

    def execute_many(self, sql: str) -> "list[Done | pa.Table | Explanation | Answer]":
        """Carry out the statements between semicolons, one after the other, up to the first that fails."""
        return [self.execute_parsed(node, sql, self._cpu()) for node in parse_many(sql)]

    def execute_parsed(
        self, node: exp.Expression, sql: str, began: int | None = None
    ) -> "Done | pa.Table | Explanation | Answer":
        """`execute` of a statement that was parsed from `sql`; its CPU time is measured from `began`, else from now."""
        began = self._cpu() if began is None else began
        if isinstance(node, exp.Query):
            return self._answer(node, sql, None, None, began).run()
        if isinstance(node, nodes.Explain):
            return _last(self._explain(node, sql, None, None, began))
        return self._definitions.run(node, sql)

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

        A malformed batch raises and changes nothing. Tuples too old, or too far ahead of the clock, are left out and
        counted; with `strict` they raise instead. With a producer's name and the number of the batch, one that is given
        a second time is not added a second time.
        """
        return self.stream(stream).append(table, strict=strict, producer=producer, sequence=sequence)

    def load_plan(self, stream: str) -> LoadPlan:
        """What whoever prepares a load for a stream must know; see `attach`."""
        return self.stream(stream).load_plan()

    def attach(self, stream: str, path: str, token: str) -> Attached:
        """Take in a package of tuples that was prepared elsewhere, all of it at once.

        path: a folder, or any URL that fsspec knows. token: stands for this load; one that was taken in under it before
        is not taken in again.
        """
        if not token or len(token) > LONGEST_TOKEN:
            raise BadPackage(f"a token has 1 to {LONGEST_TOKEN} characters")
        taking, package = self.stream(stream), read_manifest(path)
        if self.store is not None:
            return self.store.attach(taking.name, package, token)
        return attach(taking, package, token)

    def advance(self, stream: str, watermark: int) -> None:
        """Say that nothing before `watermark` is expected any more, in microseconds of event time."""
        self.stream(stream).advance(watermark)

    # --- tables --------------------------------------------------------------------------------------------------

    def load_table(self, name: str, rows: Batch, mode: Mode = "upsert") -> Changed:
        """Put rows into a reference table, all of them or none: a mapping of columns, a pyarrow Table or a RecordBatch.

        mode: `upsert` replaces rows of the same primary key, `insert` refuses them, `update` refuses others; an update
        may leave out columns, which stay as they are.
        """
        with self.catalog.lock:
            return self._definitions.tables.load(self._table(name), rows, mode=mode)

    def table(self, name: str) -> pa.Table:
        """What a reference table has now."""
        return self._table(name).rows()

    def _table(self, name: str) -> Table:
        return self.catalog.table(exp.to_identifier(name, quoted=True), name)

    # --- queries -------------------------------------------------------------------------------------------------

    def query(self, sql: str, budget: Budget = None, seed: int | None = None, *, most: Budget = None) -> Answer:
        """Ask a SELECT. Iterating over the answer does the work; `to_arrow` and `to_pandas` do all of it.

        budget: CPU time, as `BUDGET` in the statement would say; of the two the smaller counts.
        seed: of what is drawn at random. The same state, statement and seed give the same rows in the same order.
        most: CPU time after which it is cut, whatever its budget; unlike a budget it does not change the plan.
        """
        began = self._cpu()
        node = parse_known(sql)
        if not isinstance(node, exp.Query):
            raise Unsupported("query() takes a SELECT; execute() takes every statement", sql, 0)
        return self._answer(node, sql, budget, seed, began, most)

    def query_many(self, statements: Sequence[str]) -> list[pa.Table]:
        """The answers to many SELECTs, each exact.

        Plain selections over one stream and window that ask for ranges of the same number column share one reading of
        it, so each further one costs little more than its own rows; these come in the order of that column.
        """
        parts: list[list[pa.Table]] = [[] for _ in statements]
        for part in self.query_each(statements):
            if part is not None:
                parts[part.statement].append(part.rows)
        return [pa.concat_tables(tables) for tables in parts]

    def query_each(self, statements: Sequence[str]) -> Iterator[Part | None]:
        """`query_many` piece by piece: parts of the answers, and None after work that brought none.

        The parts of one statement come together, and there is at least one.
        """
        parsed, bounds = [], []
        for sql in statements:
            node = parse_known(sql)
            if not isinstance(node, exp.Query):
                raise Unsupported("query_many() takes SELECTs; execute() takes every statement", sql, 0)
            parsed.append(node)
            bounds.append(bind(node, sql, self.catalog))
            yield None
        answered = set()
        for number, table in shared(bounds):
            answered.add(number)
            yield Part(number, table)
        for number, sql in enumerate(statements):
            if number in answered:
                continue
            answer = self._answer(parsed[number], sql, None, None, self._cpu())
            last = answer.schema.empty_table()
            for frame in answer.stream():
                if frame.mode == "replace":
                    last = frame.rows
                    yield None
                elif frame.rows.num_rows:
                    yield Part(number, frame.rows, more=True)
                else:
                    yield None
            answer.close()  # one that was cut by its BUDGET cannot be resumed, as nobody is told its token
            yield Part(number, last)

    def resume(self, token: str, budget: Budget = None, *, most: Budget = None) -> Answer:
        """Go on with an answer that was cut: the rows that had not come yet, or aggregates from where they were.

        Without a budget the rest is done.
        """
        limit, longest = nanoseconds(budget), nanoseconds(most)
        return self._answering(self._shelf.take(token), limit, longest)

    def explain(
        self, sql: str, *, analyze: bool = False, budget: Budget = None, seed: int | None = None
    ) -> Explanation:
        """EXPLAIN [ANALYZE] of a SELECT."""
        return _last(self.explaining(sql, analyze=analyze, budget=budget, seed=seed))

    def explaining(
        self,
        sql: str,
        *,
        analyze: bool = False,
        budget: Budget = None,
        seed: int | None = None,
        most: Budget = None,
        node: exp.Expression | None = None,
    ) -> Iterator[Explanation | None]:
        """`explain` piece by piece: None after each slice of work, the explanation at the end.

        node: the statement, if it was parsed already.
        """
        began = self._cpu()
        node = parse(sql) if node is None else node
        if not isinstance(node, nodes.Explain):
            node = nodes.Explain(this=node, analyze=analyze)
        return self._explain(node, sql, budget, seed, began, most)

    def _explain(
        self, node: nodes.Explain, sql: str, budget: Budget, seed: int | None, began: int, most: Budget = None
    ) -> Iterator[Explanation | None]:
        if isinstance(node.this, nodes.CreateContinuousQuery):
            made = bind_standing(node.this.args["query"], sql, self.catalog)
            return iter([explain_standing(made, self.standing.mode)])
        longest = nanoseconds(most)
        cursor, limit = self._cursor(node.this, sql, budget, seed, began)
        left, _ = _smaller(limit, longest)
        left = None if left is None else max(left - cursor.spent, 0)
        return explaining(cursor, bool(node.args.get("analyze")), left)

    def _cursor(
        self, node: exp.Expression, sql: str, budget: Budget, seed: int | None, began: int
    ) -> tuple[Cursor, int | None]:
        limit = nanoseconds(budget)
        bound = bind(node, sql, self.catalog)
        if bound.budget is not None:
            limit = bound.budget * 1000 if limit is None else min(limit, bound.budget * 1000)
        return Cursor(bound, self._cpu, limit, 0 if seed is None else seed, self._cpu() - began), limit

    def _answer(
        self, node: exp.Expression, sql: str, budget: Budget, seed: int | None, began: int, most: Budget = None
    ) -> Answer:
        longest = nanoseconds(most)
        cursor, limit = self._cursor(node, sql, budget, seed, began)
        left = None if limit is None else max(limit - cursor.spent, 0)
        return self._answering(cursor, left, None if longest is None else max(longest - cursor.spent, 0))

    def _answering(self, cursor: Cursor, limit: int | None, longest: int | None = None) -> Answer:
        stop, gone = threading.Event(), threading.Event()
        tokens: list[str] = []

        def put(cursor: Cursor) -> str | None:
            tokens.append(self._shelf.put(cursor))
            return None if drop() else tokens[-1]

        def drop() -> bool:
            if gone.is_set():
                for token in tokens:
                    self._shelf.drop(token)
            return gone.is_set()

        def halt(keep: bool) -> None:
            if not keep:
                gone.set()
                drop()
            stop.set()

        reads = tuple(dict.fromkeys(source.stream.name for source in cursor.bound.sources))
        left, clipped = _smaller(limit, longest)
        frames = cursor.run(left, stop, put)
        return Answer(_warned(frames) if clipped else frames, cursor.progress, schema(cursor.bound), halt, reads)

    # --- scans ---------------------------------------------------------------------------------------------------

    def plan_scan(self, sql: str, *, share: float = 1.0) -> ScanPlan:
        """What has to be read to answer a SELECT elsewhere: row groups of cold files, and arrivals in memory.

        share: below 1, the most promising keys only, as many as make that share of the expected output.
        """
        return plan_scan(self.catalog, sql, share, self._written)

    def fetch(self, stream: str, first: int, last: int, columns: list[str]) -> Iterator[pa.Table]:
        """The tuples that arrived as number `first` up to `last`, in order of arrival, in slices."""
        return fetch(self.stream(stream), first, last, columns)

    # --- continuous queries --------------------------------------------------------------------------------------

    def subscribe(self, name: str, token: str | None = None) -> Subscription:
        """Watch a continuous query: iterate over the changes of its view, or `poll` and look at the `snapshot`.

        Looking brings all continuous queries of the session up to date. token: goes on from the change that it came
        with.
        """
        return Watched(self.standing, self.standing.subscribe(name, token))

    def poll(self, subscriptions: Iterable[Subscription], timeout: float | None = 0.0) -> dict[Subscription, Delta]:
        """The next change of each of these subscriptions, taken into its view; those without one are left out.

        All are looked at in one go, which costs much less than one by one. Waits up to `timeout` seconds (None: for as
        long as it takes) until there is a change of any. What one of them fails with is raised, before any other has
        changed; without it the others go on.
        """
        return poll(self.standing, subscriptions, timeout)

    # --- summaries -----------------------------------------------------------------------------------------------

    def estimate(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Estimates:
        """How many tuples of each key the window holds, with bounds, from the summary."""
        return self.summary(summary).index.estimate(keys, window)

    def regions(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Regions:
        """The cells that may hold tuples of each key, with an estimate and bounds."""
        return self.summary(summary).index.regions(keys, window)

    def probe(
        self, summary: str, keys: Any, window: tuple[int, int] | None = None, columns: list[str] | None = None
    ) -> pa.Table:
        """The tuples that have one of the keys, after a column `probe`: the place of a tuple's key in the question."""
        if columns is not None and not columns:
            raise BadQuestion("no columns are asked for; leave them out to have all of them")
        place, found = self.summary(summary).index.fetch(keys, window, columns)
        return found.add_column(0, pa.field("probe", pa.int32()), pa.array(place))

    def describe(self, summary: str, *, cells: bool = False) -> Description:
        """Granularities, zones with the reason for each, counts and bytes; with `cells` the tuples of every cell."""
        return self.summary(summary).index.describe(cells=cells)

    def story(self, summary: str, granularity: int, zone: int) -> Story:
        """Why a zone exists, and what it has absorbed."""
        return self.summary(summary).index.story(granularity, zone)

    # --- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of every stream, summary and answer. A session that is closed has nothing left; its store has."""
        with self.catalog.lock:
            self.catalog.queries.clear()
            self.catalog.tables.clear()
            self.catalog.summaries.clear()
            self.catalog.streams.clear()
        self._shelf.clear()
        self.standing.close()
        if self.store is not None:
            self.store.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stream(self, name: str) -> Stream:
        """A stream by its name."""
        return self.catalog.stream(exp.to_identifier(name, quoted=True), name)

    def summary(self, name: str) -> SummaryEntry:
        """A summary by its name, and the stream it is of."""
        return self.catalog.summary(exp.to_identifier(name, quoted=True), name)


def _last(steps: Iterator[Explanation | None]) -> Explanation:
    """What the last step gives."""
    *_, made = steps
    assert made is not None
    return made


def _smaller(limit: int | None, longest: int | None) -> tuple[int | None, bool]:
    """The CPU time that holds, and whether it is less than was asked for."""
    if longest is None or (limit is not None and limit <= longest):
        return limit, False
    return longest, True


def _warned(frames: Iterator[Frame]) -> Iterator[Frame]:
    """Frames of an answer that may be cut before its budget is spent, with a word on that where it was."""
    for frame in frames:
        if frame.progress.cut == "budget":
            told = replace(frame.progress, warnings=(*frame.progress.warnings, CLIPPED))
            yield replace(frame, progress=told)
        else:
            yield frame
