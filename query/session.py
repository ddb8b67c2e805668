"""A session: executes statements in one process."""

import math
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from sqlglot import exp

from promising.errors import BadPackage, BadQuestion, Unsupported
from promising.index import Appended, Description, Regions, Story, Stream
from promising.index.arrivals import fetch
from promising.index.frames import batches_of, is_reader, total
from promising.index.load_plan import LoadPlan
from promising.index.memory import Memory
from promising.index.prepared_load import Attached
from promising.index.probing import probing
from promising.index.scan_plan import ScanPlan
from promising.index.schema import Batch
from promising.index.storage.package import attach, read_manifest
from promising.index.stream import wall_clock
from promising.index.table import Changed, Mode, Table
from promising.query.answers import Answer, Done, Explanation, Frame, Part
from promising.query.binder import bind, binding
from promising.query.budgets import Budget, nanoseconds
from promising.query.bulk_selections import shared
from promising.query.catalog import Catalog, SummaryEntry
from promising.query.cursor import BOUND, Cursor
from promising.query.definitions import Definitions
from promising.query.explain import explaining
from promising.query.query_memory import Account, QueryLimits, QueryMemory
from promising.query.result_sinks import schema
from promising.query.resume_tokens import Shelf
from promising.query.running import Running
from promising.query.scan_planner import Written, plan_scan
from promising.query.spill import Spill
from promising.query.sql import MOST_TOKENS, nodes, parse, parse_known, parse_many
from promising.query.standing.engine import Engine
from promising.query.standing.explain_standing import explain_standing
from promising.query.standing.local_subscriptions import Watched, poll
from promising.query.standing.standing_binder import bind_standing
from promising.query.standing.subscription import Delta, Subscription
from promising.query.standing.view_rows import view_stream
from promising.summaries.adt import Estimates
from promising.summaries.kernels.clock import work_ns

if TYPE_CHECKING:  # sessions in memory need no files
    from promising.index.storage.store import Store

T = TypeVar("T")

LONGEST_TOKEN = 250
CLIPPED = "the budget is the most that this service gives a query at once; resume it to go on"


class Session:
    """Streams, summaries and queries of one process, in memory or in a durable store.

    store: its contents are loaded, every change is in it before it is acknowledged, and it is closed with the session.
    clock: microseconds since the epoch; used only to detect tuples from the future.
    cpu: CPU time of the calling thread in nanoseconds; measures budgets.
    seed: of the key hash, a secret of the installation; None picks one.
    max_sql_tokens: of a query; a longer one is refused before it is parsed, which no budget could cut.
    memory_bytes: of tuples and postings of all streams, without a store (which has its own); None for no limit.
    written: rewrites the statement of a scan for its reader; None leaves it unchanged.
    query_limits: bytes of queries in memory; None for no limit. In a store, sorts and groups spill before it.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], int] = wall_clock,
        cpu: Callable[[], int] = work_ns,
        seed: int | None = None,
        store: "Store | None" = None,
        written: Written | None = None,
        memory_bytes: int | None = None,
        query_limits: QueryLimits | None = None,
        max_sql_tokens: int = MOST_TOKENS,
    ) -> None:
        pa.array(np.empty(0))  # Arrow imports pandas for its first array: not on the budget of a query
        self._cpu = cpu
        self._written = written
        self.max_sql_tokens = max_sql_tokens
        self.store = store
        self.catalog = Catalog()
        if store is not None:
            self.catalog.fill(store.streams, store.queries, store.tables)
            seed = store.seed
        seed = secrets.randbits(63) if seed is None else seed
        memory = None if memory_bytes is None else Memory(memory_bytes)
        self.standing = Engine()  # the running continuous queries
        self.catalog.view = partial(view_stream, self.standing)
        self._definitions = Definitions(self.catalog, self.standing, clock, seed, store, memory)
        self._definitions.stand_again()
        self._shelf = Shelf(clock, secrets.token_bytes(32))
        self._spill: Spill | None = None if store is None else store.spill
        self._memory = None if query_limits is None else QueryMemory(query_limits)
        if self._memory is not None:
            self._memory.evict = self._shelf.evict

    # --- statements ----------------------------------------------------------------------------------------------

    def execute(self, sql: str) -> "Done | pa.Table | Explanation | Answer":
        """Execute one statement.

        Returns a `Done` (CREATE, DROP), a table (SHOW, DESCRIBE), an `Explanation`, or an `Answer` run to completion.
        """
        began = self._cpu()
        return self.execute_parsed(parse(sql, self.max_sql_tokens), sql, began)

    def execute_many(self, sql: str) -> "list[Done | pa.Table | Explanation | Answer]":
        """Execute statements separated by semicolons, in order, up to the first that fails."""
        return [self.execute_parsed(node, sql, self._cpu()) for node in parse_many(sql, self.max_sql_tokens)]

    def execute_parsed(
        self, node: exp.Expression, sql: str, began: int | None = None
    ) -> "Done | pa.Table | Explanation | Answer":
        """`execute` for a statement parsed from `sql`; its CPU time is measured from `began`, else from now."""
        began = self._cpu() if began is None else began
        if isinstance(node, exp.Query):
            return _last(self._answer(node, sql, None, None, began)).run()
        if isinstance(node, nodes.Explain) and not node.removal:
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
        epoch: int = 0,
    ) -> Appended:
        """Append tuples: a mapping of columns, a list of dicts, a pandas or Polars frame, or Arrow data.

        A frame's time zones are converted to UTC. A RecordBatchReader is added batch by batch: if one is refused, those
        before it remain, and the error says how many.
        A malformed batch raises and changes nothing. Tuples that are too old or too far ahead of the clock are dropped
        and counted; with `strict` they raise. With `producer` and `sequence` it is idempotent.
        A producer's higher `epoch` ends lower ones: their batches raise `ProducerFenced`.
        """
        found = self.stream(stream)
        if is_reader(table):
            if producer is not None or sequence is not None or epoch:
                raise BadQuestion("a reader has several batches and takes no sequence number; read it into a table")
            return total(found.append(batch, strict=strict) for batch in batches_of(table))
        return found.append(table, strict=strict, producer=producer, sequence=sequence, epoch=epoch)

    def load_plan(self, stream: str) -> LoadPlan:
        """Parameters for preparing a load; see `attach`."""
        return self.stream(stream).load_plan()

    def attach(self, stream: str, path: str, token: str) -> Attached:
        """Load a package, a folder or fsspec URL, prepared elsewhere; atomic, and idempotent per `token`."""
        if not token or len(token) > LONGEST_TOKEN:
            raise BadPackage(f"a token has 1 to {LONGEST_TOKEN} characters")
        taking, package = self.stream(stream), read_manifest(path)
        if self.store is not None:
            return self.store.attach(taking.name, package, token)
        return attach(taking, package, token)

    def advance(self, stream: str, watermark: int) -> None:
        """Declare that no tuple before `watermark`, in microseconds of event time, is expected any more."""
        self.stream(stream).advance(watermark)

    # --- tables --------------------------------------------------------------------------------------------------

    def load_table(self, name: str, rows: Batch, mode: Mode = "upsert") -> Changed:
        """Write rows to a reference table, all or none: a mapping of columns, a pyarrow Table or a RecordBatch.

        mode: `upsert`; `insert` rejects existing keys; `update` rejects new ones and leaves omitted columns unchanged.
        """
        with self.catalog.lock:
            return self._definitions.tables.load(self._table(name), rows, mode=mode)

    def table(self, name: str) -> pa.Table:
        """The current rows of a reference table."""
        return self._table(name).rows()

    def _table(self, name: str) -> Table:
        return self.catalog.table(exp.to_identifier(name, quoted=True), name)

    # --- queries -------------------------------------------------------------------------------------------------

    def query(
        self, sql: str, budget: Budget = None, seed: int | None = None, *, most: Budget = None, client: str = ""
    ) -> Answer:
        """Run a SELECT. Iterating over the answer does the work; `to_arrow` and `to_pandas` do all of it.

        budget: CPU time; the smaller of this and the statement's `BUDGET` applies.
        seed: of random draws. The same state, statement and seed give the same rows in the same order.
        most: CPU time limit whatever the budget; unlike a budget, it does not change the plan.
        client: who asks; only the same client can resume the answer, and its limit of memory applies.
        """
        return _last(self.asking(sql, budget, seed, most=most, client=client))

    def asking(
        self,
        sql: str,
        budget: Budget = None,
        seed: int | None = None,
        *,
        most: Budget = None,
        client: str = "",
        left: Callable[[], float] = lambda: math.inf,
    ) -> Iterator[Answer | None]:
        """`query` incrementally: None per slice of binding, the answer last.

        left: seconds until the last frame is due; see `Cursor.run`.
        """
        began = self._cpu()
        node = parse_known(sql, self.max_sql_tokens)
        if not isinstance(node, exp.Query):
            raise Unsupported("query() takes a SELECT; execute() takes every statement", sql, 0)
        yield from self._answer(node, sql, budget, seed, began, most, client, left)

    def query_many(self, statements: Sequence[str]) -> list[pa.Table]:
        """The exact answers to many SELECTs.

        Plain selections that ask for ranges of one numeric column, over one stream and window, share a single scan:
        each further one costs little more than its own rows. Their rows are ordered by that column.
        """
        parts: list[list[pa.Table]] = [[] for _ in statements]
        for part in self.query_each(statements):
            if part is not None:
                parts[part.statement].append(part.rows)
        return [pa.concat_tables(tables) for tables in parts]

    def query_each(self, statements: Sequence[str], *, client: str = "") -> Iterator[Part | None]:
        """`query_many` incrementally: consecutive parts per statement, at least one; None after work without rows."""
        parsed, bounds = [], []
        for sql in statements:
            node = parse_known(sql, self.max_sql_tokens)
            if not isinstance(node, exp.Query):
                raise Unsupported("query_many() takes SELECTs; execute() takes every statement", sql, 0)
            parsed.append(node)
            bounds.append(bind(node, sql, self.catalog))
            yield None
        answered = set()
        account = self._account(client)
        try:
            for number, table in shared(bounds, account):
                answered.add(number)
                yield Part(number, table)
        finally:
            if account is not None:
                account.close()
        for number, sql in enumerate(statements):
            if number in answered:
                continue
            answer = _last(self._answer(parsed[number], sql, None, None, self._cpu(), client=client))
            last = answer.schema.empty_table()
            for frame in answer.turns():
                if frame is not None and frame.mode == "append" and frame.rows.num_rows:
                    yield Part(number, frame.rows, more=True)
                    continue
                if frame is not None and frame.mode == "replace":
                    last = frame.rows
                yield None
            answer.close()  # cut by its BUDGET it cannot be resumed: its token is not returned
            yield Part(number, last)

    def resume(
        self,
        token: str,
        budget: Budget = None,
        *,
        most: Budget = None,
        client: str = "",
        left: Callable[[], float] = lambda: math.inf,
    ) -> Answer:
        """Continue an answer that was cut: the remaining rows, or refined aggregates. No budget: to completion."""
        limit, longest = nanoseconds(budget), nanoseconds(most)
        return self._answering(self._shelf.take(token, client), limit, longest, client, left)

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
        client: str = "",
    ) -> Iterator[Explanation | None]:
        """`explain` incrementally: None per slice of work, the explanation last. node: the statement, if parsed."""
        began = self._cpu()
        node = parse(sql, self.max_sql_tokens) if node is None else node
        if not isinstance(node, nodes.Explain):
            node = nodes.Explain(this=node, analyze=analyze)
        yield from self._explain(node, sql, budget, seed, began, most, client)

    def _explain(
        self,
        node: nodes.Explain,
        sql: str,
        budget: Budget,
        seed: int | None,
        began: int,
        most: Budget = None,
        client: str = "",
    ) -> Iterator[Explanation | None]:
        if node.removal:
            raise Unsupported("what a statement would remove is a table, which execute returns", sql, 0)
        if isinstance(node.this, nodes.CreateContinuousQuery):
            made = bind_standing(node.this.args["query"], sql, self.catalog)
            return iter([explain_standing(made, self.standing.mode)])
        return self._explained(node, sql, budget, seed, began, nanoseconds(most), client)

    def _explained(
        self,
        node: nodes.Explain,
        sql: str,
        budget: Budget,
        seed: int | None,
        began: int,
        longest: int | None,
        client: str,
    ) -> Iterator[Explanation | None]:
        for found in self._cursor(node.this, sql, budget, seed, began, client):
            if found is None:
                yield None
                continue
            cursor, limit = found
            left, _ = _smaller(limit, longest)
            left = None if left is None else max(left - cursor.spent, 0)
            yield from explaining(cursor, bool(node.args.get("analyze")), left)

    def _cursor(
        self,
        node: exp.Expression,
        sql: str,
        budget: Budget,
        seed: int | None,
        began: int,
        client: str,
        left: Callable[[], float] = lambda: math.inf,
    ) -> Iterator[tuple[Cursor, int | None] | None]:
        """The cursor of a query and its budget, after None per slice of binding.

        Once the columns of the answer are known, the rest of the binding is left to the cursor if the budget is spent,
        or no time is left.
        """
        limit = nanoseconds(budget)
        binder = binding(node, sql, self.catalog)
        steps = binder.steps()
        unbound = BOUND
        spent = 0
        resumed = began
        for _ in steps:
            spent += self._cpu() - resumed
            limit = _least(limit, binder.bound.budget)
            if binder.bound.described and ((limit is not None and spent >= limit) or left() <= 0):
                unbound = steps
                break
            yield None
            resumed = self._cpu()
        else:
            spent += self._cpu() - resumed
        limit = _least(limit, binder.bound.budget)
        seed = 0 if seed is None else seed
        account = self._account(client)
        yield (
            Cursor(binder.bound, self._cpu, limit, seed, spent, unbound, account=account, spill=self._spill),
            limit,
        )

    def _account(self, client: str) -> Account | None:
        return None if self._memory is None else self._memory.open(client)

    def _answer(
        self,
        node: exp.Expression,
        sql: str,
        budget: Budget,
        seed: int | None,
        began: int,
        most: Budget = None,
        client: str = "",
        left: Callable[[], float] = lambda: math.inf,
    ) -> Iterator[Answer | None]:
        longest = nanoseconds(most)
        for found in self._cursor(node, sql, budget, seed, began, client, left):
            if found is None:
                yield None
                continue
            cursor, limit = found
            rest = None if limit is None else max(limit - cursor.spent, 0)
            yield self._answering(
                cursor, rest, None if longest is None else max(longest - cursor.spent, 0), client, left
            )

    def _answering(
        self,
        cursor: Cursor,
        limit: int | None,
        longest: int | None = None,
        client: str = "",
        left: Callable[[], float] = lambda: math.inf,
    ) -> Answer:
        stop, gone = threading.Event(), threading.Event()
        tokens: list[str] = []

        def put(cursor: Cursor) -> str | None:
            tokens.append(self._shelf.put(cursor, client))
            return None if drop() else tokens[-1]

        def drop() -> bool:
            if gone.is_set():
                for token in tokens:
                    self._shelf.drop(token, client)
            return gone.is_set()

        def halt(keep: bool) -> None:
            stop.set()
            if not keep:
                gone.set()
                drop()
                running.close()

        reads = tuple(dict.fromkeys(source.stream.name for source in cursor.bound.sources))
        budget, clipped = _smaller(limit, longest)
        running = Running(cursor, cursor.run(budget, stop, put, left))
        return Answer(_warned(running) if clipped else running, cursor.progress, schema(cursor.bound), halt, reads)

    @property
    def query_bytes(self) -> int:
        """Memory of running queries and suspended answers; counted only under limits."""
        return 0 if self._memory is None else self._memory.used

    def tidy(self) -> None:
        """Release suspended answers that have expired."""
        self._shelf.tidy()

    # --- scans ---------------------------------------------------------------------------------------------------

    def plan_scan(self, sql: str, *, share: float = 1.0) -> ScanPlan:
        """What must be read to answer a SELECT elsewhere: row groups of cold files, and tuples in memory.

        share: below 1, only the most promising keys, as many as make up that share of the expected output.
        """
        return plan_scan(self.catalog, sql, share, self._written)

    def fetch(self, stream: str, first: int, last: int, columns: list[str]) -> Iterator[pa.Table]:
        """Tuples with arrival numbers from `first` to `last`, in order of arrival, in slices."""
        return fetch(self.stream(stream), first, last, columns)

    # --- continuous queries --------------------------------------------------------------------------------------

    def subscribe(self, name: str, token: str | None = None) -> Subscription:
        """Subscribe to a continuous query: iterate over the changes of its view, or `poll` and read the `snapshot`.

        Reading updates all continuous queries of the session. token: resumes after the change that carried it.
        """
        return Watched(self.standing, self.standing.subscribe(name, token))

    def poll(self, subscriptions: Iterable[Subscription], timeout: float | None = 0.0) -> dict[Subscription, Delta]:
        """The next change of each subscription that has one, applied to its view.

        One call for many is much cheaper than one for each. Waits up to `timeout` seconds (None: without limit) for a
        change. An error of one is raised before any other has changed; the others continue without it.
        """
        return poll(self.standing, subscriptions, timeout)

    # --- summaries -----------------------------------------------------------------------------------------------

    def estimate(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Estimates:
        """Estimated tuples per key in the window, with bounds."""
        return self.summary(summary).index.estimate(keys, window)

    def regions(
        self, summary: str, keys: Any, window: tuple[int, int] | None = None, *, search: str = "flat"
    ) -> Regions:
        """Cells that may hold tuples of each key, with an estimate and bounds. search: "flat" or "pyramid"."""
        return self.summary(summary).index.regions(keys, window, search)

    def probe(
        self, summary: str, keys: Any, window: tuple[int, int] | None = None, columns: list[str] | None = None
    ) -> pa.Table:
        """Tuples that have one of the keys; the first column, `probe`, is the index of a tuple's key in `keys`."""
        if columns is not None and not columns:
            raise BadQuestion("no columns are asked for; leave them out to have all of them")
        place, found = self.summary(summary).index.fetch(keys, window, columns)
        return found.add_column(0, pa.field("probe", pa.int32()), pa.array(place))

    def probing(
        self, summary: str, keys: Any, window: tuple[int, int] | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.Table | None]:
        """`probe` incrementally: slices, at least one; None after work without tuples. See `index.probing`."""
        if columns is not None and not columns:
            raise BadQuestion("no columns are asked for; leave them out to have all of them")
        return probing(self.summary(summary).index, keys, window, columns)

    def describe(self, summary: str, *, cells: bool = False, show: str | None = None) -> Description:
        """Granularities, zones with the reason for each, counts and bytes; with `cells`, the tuples of every cell; with
        `show`, a figure of what is measured, such as "avg(price)"."""
        return self.summary(summary).index.describe(cells=cells, show=show)

    def story(self, summary: str, granularity: int, zone: int) -> Story:
        """Why a zone exists, and what it has absorbed."""
        return self.summary(summary).index.story(granularity, zone)

    # --- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release every stream, summary and answer, and close the store."""
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
        return self.catalog.stream(exp.to_identifier(name, quoted=True), name)

    def summary(self, name: str) -> SummaryEntry:
        return self.catalog.summary(exp.to_identifier(name, quoted=True), name)


def _least(limit: int | None, micros: int | None) -> int | None:
    """The smaller of a budget in nanoseconds and one in microseconds."""
    if micros is None:
        return limit
    return micros * 1000 if limit is None else min(limit, micros * 1000)


def _last(steps: Iterator[T | None]) -> T:
    *_, made = steps
    assert made is not None
    return made


def _smaller(limit: int | None, longest: int | None) -> tuple[int | None, bool]:
    """The CPU time limit that applies, and whether it is below the budget."""
    if longest is None or (limit is not None and limit <= longest):
        return limit, False
    return longest, True


def _warned(frames: Iterator[Frame | None]) -> Iterator[Frame | None]:
    """Adds a warning to frames that were cut before the budget was spent."""
    for frame in frames:
        if frame is not None and frame.progress.cut == "budget":
            told = replace(frame.progress, warnings=(*frame.progress.warnings, CLIPPED))
            yield replace(frame, progress=told)
        else:
            yield frame
