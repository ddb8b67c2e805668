"""A session: statements in, answers out, in one process."""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
from sqlglot import exp

from index import Appended, Regions, Stream, SummaryIndex
from index.schema import Batch
from index.stream import wall_clock
from query.answers import Answer
from query.binder import LONGEST_BUDGET, bind
from query.catalog import Catalog
from query.cursor import Cursor
from query.explain import Explanation, explain
from query.many import shared
from query.results import schema
from query.sql import nodes, parse, parse_many
from query.statements import Definitions, Done
from query.tokens import Shelf
from summaries.adt import Estimates
from summaries.errors import BadClause, Unsupported

Budget = float | timedelta | None
"""CPU time: seconds, or a timedelta."""


class Session:
    """Streams, summaries and queries of one process, all in memory.

    clock: tells the time, in microseconds since the epoch; it dates nothing but judges tuples from the future.
    cpu: CPU time of the calling thread, in nanoseconds; budgets are measured by it.
    seed: of the key hash, a secret of the installation; None picks one.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], int] = wall_clock,
        cpu: Callable[[], int] = time.thread_time_ns,
        seed: int | None = None,
    ) -> None:
        self._cpu = cpu
        self._catalog = Catalog()
        seed = secrets.randbits(63) if seed is None else seed
        self._definitions = Definitions(self._catalog, clock, seed)
        self._shelf = Shelf(clock, secrets.token_bytes(32))

    # --- statements ----------------------------------------------------------------------------------------------

    def execute(self, sql: str) -> "Done | pa.Table | Explanation | Answer":
        """Carry out one statement.

        CREATE and DROP give a `Done`, SHOW and DESCRIBE a table, EXPLAIN an `Explanation`, a SELECT its `Answer`, run
        to the end.
        """
        began = self._cpu()
        return self._execute(parse(sql), sql, began)

    def execute_many(self, sql: str) -> "list[Done | pa.Table | Explanation | Answer]":
        """Carry out the statements between semicolons, one after the other, up to the first that fails."""
        return [self._execute(node, sql, self._cpu()) for node in parse_many(sql)]

    def _execute(self, node: exp.Expression, sql: str, began: int) -> "Done | pa.Table | Explanation | Answer":
        if isinstance(node, exp.Select):
            return self._answer(node, sql, None, None, began).run()
        if isinstance(node, nodes.Explain):
            return self._explain(node, sql, None, None, began)
        return self._definitions.run(node, sql)

    def ingest(self, stream: str, table: Batch, *, strict: bool = False) -> Appended:
        """Add tuples: a mapping of columns, a pyarrow Table or a RecordBatch.

        A malformed batch raises and changes nothing. Tuples too old, or too far ahead of the clock, are left out and
        counted; with `strict` they raise instead.
        """
        return self._stream(stream).append(table, strict=strict)

    def advance(self, stream: str, watermark: int) -> None:
        """Say that nothing before `watermark` is expected any more, in microseconds of event time."""
        self._stream(stream).advance(watermark)

    # --- queries -------------------------------------------------------------------------------------------------

    def query(self, sql: str, budget: Budget = None, seed: int | None = None) -> Answer:
        """Ask a SELECT. Iterating over the answer does the work; `to_arrow` and `to_pandas` do all of it.

        budget: CPU time, as `BUDGET` in the statement would say; of the two the smaller counts.
        seed: of what is drawn at random. The same state, statement and seed give the same rows in the same order.
        """
        began = self._cpu()
        node = parse(sql)
        if not isinstance(node, exp.Select):
            raise Unsupported("query() takes a SELECT; execute() takes every statement", sql, 0)
        return self._answer(node, sql, budget, seed, began)

    def query_many(self, statements: Sequence[str]) -> list[pa.Table]:
        """The answers to many SELECTs, each exact.

        Plain selections over one stream and window that ask for ranges of the same number column share one reading of
        it, so each further one costs little more than its own rows; these come in the order of that column.
        """
        bounds = []
        for sql in statements:
            node = parse(sql)
            if not isinstance(node, exp.Select):
                raise Unsupported("query_many() takes SELECTs; execute() takes every statement", sql, 0)
            bounds.append(bind(node, sql, self._catalog))
        found = shared(bounds)
        return [
            found[number] if number in found else self.query(sql).to_arrow() for number, sql in enumerate(statements)
        ]

    def resume(self, token: str, budget: Budget = None) -> Answer:
        """Go on with an answer that was cut: the rows that had not come yet, or aggregates from where they were.

        Without a budget the rest is done.
        """
        limit = _nanoseconds(budget)
        cursor = self._shelf.take(token)
        return self._answering(cursor, limit)

    def explain(
        self, sql: str, *, analyze: bool = False, budget: Budget = None, seed: int | None = None
    ) -> Explanation:
        """EXPLAIN [ANALYZE] of a SELECT."""
        began = self._cpu()
        node = parse(sql)
        if isinstance(node, nodes.Explain):
            return self._explain(node, sql, budget, seed, began)
        return self._explain(nodes.Explain(this=node, analyze=analyze), sql, budget, seed, began)

    def _explain(self, node: nodes.Explain, sql: str, budget: Budget, seed: int | None, began: int) -> Explanation:
        cursor, limit = self._cursor(node.this, sql, budget, seed, began)
        left = None if limit is None else max(limit - cursor.spent, 0)
        return explain(cursor, bool(node.args.get("analyze")), left)

    def _cursor(
        self, node: exp.Expression, sql: str, budget: Budget, seed: int | None, began: int
    ) -> tuple[Cursor, int | None]:
        limit = _nanoseconds(budget)
        bound = bind(node, sql, self._catalog)
        if bound.budget is not None:
            limit = bound.budget * 1000 if limit is None else min(limit, bound.budget * 1000)
        return Cursor(bound, self._cpu, limit, 0 if seed is None else seed, self._cpu() - began), limit

    def _answer(self, node: exp.Expression, sql: str, budget: Budget, seed: int | None, began: int) -> Answer:
        cursor, limit = self._cursor(node, sql, budget, seed, began)
        left = None if limit is None else max(limit - cursor.spent, 0)
        return self._answering(cursor, left)

    def _answering(self, cursor: Cursor, limit: int | None) -> Answer:
        stop = threading.Event()
        frames = cursor.run(limit, stop, self._shelf.put)
        return Answer(frames, cursor.progress, schema(cursor.bound), stop)

    # --- summaries -----------------------------------------------------------------------------------------------

    def estimate(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Estimates:
        """How many tuples of each key the window holds, with bounds, from the summary."""
        return self._summary(summary).estimate(keys, window)

    def regions(self, summary: str, keys: Any, window: tuple[int, int] | None = None) -> Regions:
        """The cells that may hold tuples of each key, with an estimate and bounds."""
        return self._summary(summary).regions(keys, window)

    def _stream(self, name: str) -> Stream:
        return self._catalog.stream(exp.to_identifier(name, quoted=True), name)

    def _summary(self, name: str) -> SummaryIndex:
        return self._catalog.summary(exp.to_identifier(name, quoted=True), name).index


def _nanoseconds(budget: Budget) -> int | None:
    if budget is None:
        return None
    seconds = budget.total_seconds() if isinstance(budget, timedelta) else budget
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_BUDGET / 1e6:
        raise BadClause(f"a budget is CPU time in seconds, from 0 to {LONGEST_BUDGET // 1_000_000:,}, not {budget!r}")
    return round(seconds * 1e9)
