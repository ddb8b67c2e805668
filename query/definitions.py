"""Statements that define and describe: CREATE, ALTER, DROP, SHOW, DESCRIBE."""

import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from promising.errors import (
    BadClause,
    BadOptions,
    InUse,
    NoSuchName,
    PromisingError,
    StorageUnavailable,
)
from promising.index import Stream
from promising.index.admission import check_keep
from promising.index.memory import Memory
from promising.index.time_text import instant, readable
from promising.query.answers import Done
from promising.query.catalog import Catalog, ContinuousQuery
from promising.query.error_places import placed
from promising.query.scalar.casts import read_literal
from promising.query.scalar.positions import offset_of
from promising.query.scalar.scope import suggest
from promising.query.scalar.types import kind_of_type
from promising.query.sql import generate, nodes, parse
from promising.query.standing.engine import Engine, Stored
from promising.query.standing.plan import Standing
from promising.query.standing.standing_binder import bind_standing, budgeted, standing_budget
from promising.query.statement_options import read_options
from promising.query.summary_statements import Summaries
from promising.query.table_statements import Tables

if TYPE_CHECKING:
    from promising.index.storage.store import Store

STREAM_OPTIONS = {"max_tuples": int, "max_string_bytes": int, "max_future_seconds": float}


class Definitions:
    """Executes statements on a catalog; one that fails changes nothing. A store is changed before the catalog."""

    def __init__(
        self,
        catalog: Catalog,
        standing: Engine,
        clock: Callable[[], int],
        seed: int,
        store: "Store | None" = None,
        memory: Memory | None = None,
    ) -> None:
        self.catalog = catalog
        self.tables = Tables(catalog, standing, store)
        self.summaries = Summaries(catalog)
        self.standing = standing
        self.store = store
        self.memory = memory
        self.clock = clock
        self.seed = seed

    def run(self, node: exp.Expression, sql: str) -> Done | pa.Table:
        if isinstance(node, nodes.AlterSummary):
            return self.summaries.alter(node, sql)
        with self.catalog.lock:
            if isinstance(node, nodes.CreateStream):
                return self._create_stream(node, sql)
            if isinstance(node, nodes.CreateSummary):
                return self._there(node, "summary") or self.summaries.create(node, sql)
            if isinstance(node, nodes.CreateContinuousQuery):
                return self._create_query(node, sql)
            if isinstance(node, nodes.CreateTable):
                return self._there(node, "table") or self.tables.create(node, sql)
            if isinstance(node, nodes.TableChange):
                is_stream = self.catalog.what(node.this.name) == "stream"
                return self.tables.insert(node, sql) if is_stream else self.tables.change(node, sql)
            if isinstance(node, nodes.AlterQuery):
                return self._alter_query(node, sql)
            if isinstance(node, nodes.AlterStream):
                return self._alter_stream(node, sql)
            if isinstance(node, nodes.Drop):
                return self._drop(node, sql)
            if isinstance(node, nodes.Explain):
                return self._removal(node.this, sql)
            if isinstance(node, nodes.Show):
                return self._show(node)
            assert isinstance(node, nodes.Describe)
            return self._describe(node, sql)

    # --- CREATE --------------------------------------------------------------------------------------------------

    def _there(self, node: exp.Expression, kind: str) -> Done | None:
        """The result of IF NOT EXISTS if the object exists."""
        if node.args.get("exists") and self.catalog.what(node.this.name) == kind:
            return Done(f"{kind} {node.this.name} was there already", False)
        return None

    def _create_stream(self, node: nodes.CreateStream, sql: str) -> Done:
        if (done := self._there(node, "stream")) is not None:
            return done
        name = node.this.name
        with placed(sql, node.this):
            key = self.catalog.claim(name, "stream")
        types: dict[str, str] = {}
        for column in node.args["columns"]:
            if column.this.name.lower() in map(str.lower, types):
                raise BadClause(f"column {column.this.name} is given twice", sql, offset_of(column.this))
            types[column.this.name] = kind_of_type(column.args["kind"], sql)
        time = node.args["time"]
        found = [c for c in types if c.lower() == time.name.lower()]
        if not found:
            raise NoSuchName(
                f"TIMESTAMP BY {time.name}: no such column{suggest(time.name, types)}", sql, offset_of(time)
            )
        lateness = node.args.get("lateness")
        options = read_options(node, STREAM_OPTIONS, sql)
        if "max_future_seconds" in options:
            options["max_future"] = round(options.pop("max_future_seconds") * 1_000_000)
        given = (node.args.get("options") or [node.args.get("keep") or lateness or time])[0]
        with placed(sql, lateness or time, {BadOptions: given}):
            options["lateness"] = 0 if lateness is None else lateness.micros
            options["max_jump"] = _jump(node)
            options["keep"] = _kept(node)
            if self.store is not None:
                made = self.store.create_stream(name, types, found[0], **options)
            else:
                made = Stream(name, types, found[0], clock=self.clock, seed=self.seed, **options)
                made.memory = self.memory
        self.catalog.streams[key] = made
        return Done(f"stream {name} created", True)

    def _create_query(self, node: nodes.CreateContinuousQuery, sql: str) -> Done:
        if (done := self._there(node, "query")) is not None:
            return done
        name = node.this.name
        with placed(sql, node.this):
            key = self.catalog.claim(name, "query")
        made = bind_standing(node.args["query"], sql, self.catalog)
        number = secrets.token_hex(8)
        self.standing.create(name, made, number)
        try:
            if self.store is not None:
                self.store.put_query(name, made.statement, sorted(made.reads), number)
        except BaseException:
            self.standing.drop(name)
            raise
        self.catalog.queries[key] = ContinuousQuery(name, made.statement, made.reads, number)
        return Done("; ".join([f"query {name} created", *made.warnings]), True)

    def stand_again(self) -> None:
        """Restart the queries of a store: those with a WINDOW when they are needed, the others begin now.

        One that fails to start raises its error when used.
        """
        later = [query for query in self.catalog.queries.values() if " WINDOW " in query.statement]
        streams = self.catalog.streams
        read = {name for query in later for name in query.reads if name in streams}
        stored = [
            Stored(query.name, query.statement, query.number, query.reads, partial(self._start, query))
            for query in later
        ]
        self.standing.stored(stored, (streams[name] for name in sorted(read)), self.catalog.lock)
        for query in self.catalog.queries.values():
            if " WINDOW " not in query.statement:
                self._start(query)

    def _start(self, query: ContinuousQuery) -> None:
        try:
            made = bind_standing(parse(query.statement), query.statement, self.catalog, stored=True)
            self.standing.create(query.name, made, query.number)
        except PromisingError as problem:
            self.standing.broken(query.name, query.statement, problem)
        except (OSError, MemoryError) as problem:
            told = StorageUnavailable(f"its window cannot be read: {problem}")
            self.standing.broken(query.name, query.statement, told)

    def _alter_query(self, node: nodes.AlterQuery, sql: str) -> Done:
        name, span = node.this.name, node.args.get("budget")
        query = self.catalog.queries.get(name.lower())
        if query is None:
            raise self.catalog.missing("query", node.this, sql, (q.name for q in self.catalog.queries.values()))
        if span is not None:
            standing_budget(span, sql)
        stood = parse(query.statement)
        statement = generate(budgeted(stood, span))
        before = bind_standing(stood, query.statement, self.catalog, stored=True)
        made = bind_standing(parse(statement), statement, self.catalog, stored=True)
        number = secrets.token_hex(8)
        try:
            self._stand(query.name, made, number)
            if self.store is not None:
                self.store.put_query(query.name, statement, sorted(made.reads), number)
        except BaseException:
            self._stand(query.name, before, secrets.token_hex(8))  # a new view, which no token can resume
            raise
        self.catalog.queries[name.lower()] = ContinuousQuery(query.name, statement, made.reads, number)
        return Done(f"query {query.name} has {'no budget' if span is None else 'another budget'}", True)

    def _alter_stream(self, node: nodes.AlterStream, sql: str) -> Done:
        if node.args.get("watermark") is not None:
            return self._set_watermark(node, sql)
        if node.args.get("max_jump") is not None:
            return self._set_max_jump(node, sql)
        stream, keep = self._keep_of(node, sql)
        with placed(sql, node.args["keep"]):
            removed = stream.set_keep(keep)
        kept = "all tuples" if keep is None else f"tuples for {readable(keep)}"
        return Done(f"stream {stream.name} keeps {kept}; {_rows(removed)} removed", True)

    def _set_max_jump(self, node: nodes.AlterStream, sql: str) -> Done:
        stream, jump = self.catalog.stream(node.this, sql), _jump(node)
        with placed(sql, node.args["max_jump"]):
            stream.set_max_jump(jump)
        return Done(f"stream {stream.name} has MAX JUMP {'OFF' if jump is None else readable(jump)}", True)

    def _set_watermark(self, node: nodes.AlterStream, sql: str) -> Done:
        """Set the watermark of a stream. If that is back, its continuous queries start anew at that time."""
        stream, wanted = self._watermark_of(node, sql)
        before, kept = stream.watermark, stream.kept
        with placed(sql, node.args["watermark"]):
            stream.set_watermark(wanted)
        change = stream.kept - kept
        changed = f"{_rows(change)} there again" if change > 0 else f"{_rows(-change)} removed"
        if before is not None and wanted < before:
            self._restart(self.catalog.readers(stream.name))
        was = "" if before is None else f", was {instant(before)}"
        return Done(f"stream {stream.name} has its watermark at {instant(wanted)}{was}; {changed}", True)

    def _watermark_of(self, node: nodes.AlterStream, sql: str) -> tuple[Stream, int]:
        literal = node.args["watermark"]
        wanted = read_literal(literal.this, "timestamp")
        if wanted is None:
            raise BadClause(
                f"WATERMARK {literal.this!r} is no instant; write one such as '2024-05-01 12:00:00', in UTC",
                sql,
                offset_of(literal),
            )
        return self.catalog.stream(node.this, sql), wanted.value

    def _restart(self, names: list[str]) -> None:
        """Start queries anew, together: none of them may keep a stream at a later time."""
        with self.standing.lock:
            for name in names:
                self.standing.drop(name)
            for name in names:
                self._start(self.catalog.queries[name.lower()])

    def _keep_of(self, node: nodes.AlterStream, sql: str) -> tuple[Stream, int | None]:
        """The stream, and how long it is to keep tuples: at least as long as the windows of continuous queries."""
        stream, keep = self.catalog.stream(node.this, sql), _kept(node)
        with placed(sql, node.args["keep"]):
            check_keep(keep, stream.lateness)
        for query in self.catalog.queries.values():
            if keep is None or stream.name.lower() not in query.reads:
                continue
            windows = [one.args["window"] for one in parse(query.statement).walk() if one.args.get("window")]
            longest = max((span.micros for span in windows), default=0)
            if longest > keep:
                raise BadClause(
                    f"KEEP {readable(keep)} is shorter than the WINDOW of query {query.name}, {readable(longest)};"
                    f" keep at least that, or drop the query first",
                    sql,
                    offset_of(node.args["keep"]),
                )
        return stream, keep

    def _removal(self, node: exp.Expression, sql: str) -> pa.Table:
        """How many stored rows a DROP or an ALTER STREAM would remove."""
        rows = 0
        if isinstance(node, nodes.AlterStream) and node.args.get("watermark") is not None:
            stream, wanted = self._watermark_of(node, sql)
            with placed(sql, node.args["watermark"]):
                rows = stream.would_age(wanted)
        elif isinstance(node, nodes.AlterStream) and node.args.get("keep") is not None:
            stream, keep = self._keep_of(node, sql)
            with placed(sql, node.args["keep"]):
                rows = stream.would_remove(keep)
        elif isinstance(node, nodes.Drop) and self._found(node, sql):
            rows = self._rows_of(node.args["kind"].lower(), node.this.name)
        return pa.table({"rows_removed": pa.array([rows], pa.int64())})

    def _rows_of(self, kind: str, name: str) -> int:
        """The stored rows that go with an object: those of a stream or table."""
        if kind == "stream" and (stream := self.catalog.streams.get(name.lower())) is not None:
            return stream.kept
        if kind == "table" and (table := self.catalog.tables.get(name.lower())) is not None:
            return len(table)
        return 0

    def _stand(self, name: str, made: Standing, number: str) -> None:
        """Replace the running query of this name."""
        with self.standing.lock:
            self.standing.drop(name)
            self.standing.create(name, made, number)

    # --- DROP ----------------------------------------------------------------------------------------------------

    def _found(self, node: nodes.Drop, sql: str) -> bool:
        """Whether there is what a DROP names; without IF EXISTS, raises if there is not."""
        kind = node.args["kind"].lower()
        known: dict[str, Any] = {
            "stream": self.catalog.streams,
            "summary": self.catalog.summaries,
            "table": self.catalog.tables,
            "query": self.catalog.queries,
        }[kind]  # type: ignore[assignment]  # by name
        if node.this.name.lower() in known:
            return True
        if node.args.get("exists"):
            return False
        names: dict[str, Callable[[Any], str]] = {"summary": lambda s: str(s.index.name)}
        shown = [names.get(kind, lambda s: str(s.name))(v) for v in known.values()]
        raise self.catalog.missing(kind, node.this, sql, shown)

    def _drop(self, node: nodes.Drop, sql: str) -> Done:
        kind, name = node.args["kind"].lower(), node.this.name
        key = name.lower()
        if not self._found(node, sql):
            return Done(f"there is no {kind} {name}", False)
        users = self.catalog.readers(name)
        below: list[str] = []
        if kind == "stream":
            stream = self.catalog.streams[key]
            below = sorted(s.index.name for s in self.catalog.summaries.values() if s.stream == stream.name)
        if (users or below) and not node.args.get("cascade"):
            needed = [f"summary {b}" for b in below] + [f"query {u}" for u in users]
            raise InUse(
                f"{kind} {name} is needed by {', '.join(needed)}; drop those first, or add CASCADE",
                sql,
                offset_of(node.this),
            )
        rows = self._rows_of(kind, name)
        if kind == "query":
            users = [self.catalog.queries[key].name]
        if kind == "summary":
            self._drop_summary(key)
        if self.store is not None:
            self.store.drop(
                self.catalog.streams[key].name if kind == "stream" else None,
                users,
                table=self.catalog.tables[key].name if kind == "table" else None,
            )
        for user in users:
            del self.catalog.queries[user.lower()]
            self.standing.drop(user)
        for summary in below:
            self.catalog.summaries.pop(summary.lower()).index.dropped = True
        if kind == "table":
            del self.catalog.tables[key]
        if kind == "stream":
            for table in self.catalog.tables.values():
                table.cap(self.catalog.streams[key].name, 0)  # the next stream of that name counts from 0
            self.catalog.streams.pop(key).leave()
        return Done(f"{kind} {name} dropped" + (f", {_rows(rows)}" if kind in ("stream", "table") else ""), True)

    def _drop_summary(self, key: str) -> None:
        entry = self.catalog.summaries[key]
        try:
            self.catalog.streams[entry.stream.lower()].drop_summary(entry.index.name)
        finally:
            if entry.index.dropped:  # even if not yet known to be durable
                del self.catalog.summaries[key]

    # --- SHOW, DESCRIBE ------------------------------------------------------------------------------------------

    def _show(self, node: nodes.Show) -> pa.Table:
        if node.args["kind"] == "STREAMS":
            streams = [s for _, s in sorted(self.catalog.streams.items())]
            return pa.table(
                {
                    "name": pa.array([s.name for s in streams], pa.string()),
                    "time": pa.array([s.schema.time for s in streams], pa.string()),
                    "tuples": pa.array([s.kept for s in streams], pa.int64()),
                    "refused": pa.array([sum(s.refused.values()) for s in streams], pa.int64()),
                    "watermark": pa.array([s.watermark for s in streams], pa.timestamp("us")),
                    "keep": pa.array([s.keep for s in streams], pa.duration("us")),
                    "bytes": pa.array([s.nbytes for s in streams], pa.int64()),
                    "summaries": pa.array([len(s.summaries) for s in streams], pa.int64()),
                }
            )
        if node.args["kind"] == "SUMMARIES":
            return self.summaries.show()
        if node.args["kind"] == "TABLES":
            tables = [t for _, t in sorted(self.catalog.tables.items())]
            return pa.table(
                {
                    "name": pa.array([t.name for t in tables], pa.string()),
                    "key": pa.array([t.key for t in tables], pa.string()),
                    "retroactive": pa.array([t.retroactive for t in tables], pa.bool_()),
                    "rows": pa.array([len(t) for t in tables], pa.int64()),
                    "changes": pa.array([t.changes for t in tables], pa.int64()),
                    "bytes": pa.array([t.nbytes for t in tables], pa.int64()),
                }
            )
        queries = [q for _, q in sorted(self.catalog.queries.items())]
        return pa.table(
            {
                "name": pa.array([q.name for q in queries], pa.string()),
                "statement": pa.array([q.statement for q in queries], pa.string()),
            }
        )

    def _describe(self, node: nodes.Describe, sql: str) -> pa.Table:
        kind, key = self.catalog.what(node.this.name), node.this.name.lower()
        if kind == "stream":
            stream = self.catalog.streams[key]
            known = {s.key: s.name for s in stream.summaries.values()}
            return pa.table(
                {
                    "column": pa.array(list(stream.schema.types), pa.string()),
                    "type": pa.array(list(stream.schema.types.values()), pa.string()),
                    "time": pa.array([c == stream.schema.time for c in stream.schema.types], pa.bool_()),
                    "summary": pa.array([known.get(c) for c in stream.schema.types], pa.string()),
                }
            )
        if kind == "summary":
            return self.summaries.describe(key)
        if kind == "table":
            table = self.catalog.tables[key]
            return pa.table(
                {
                    "column": pa.array(list(table.schema.types), pa.string()),
                    "type": pa.array(list(table.schema.types.values()), pa.string()),
                    "key": pa.array([c == table.key for c in table.schema.types], pa.bool_()),
                }
            )
        if kind == "query":
            query = self.catalog.queries[key]
            return pa.table(
                {
                    "name": pa.array([query.name], pa.string()),
                    "statement": pa.array([query.statement], pa.string()),
                    "reads": pa.array([", ".join(sorted(query.reads))], pa.string()),
                }
            )
        every = [s.name for s in self.catalog.streams.values()]
        every += [s.index.name for s in self.catalog.summaries.values()]
        every += [t.name for t in self.catalog.tables.values()]
        every += [q.name for q in self.catalog.queries.values()]
        raise self.catalog.missing("stream, summary, table or query", node.this, sql, every)


def _jump(node: exp.Expression) -> int | None:
    """The microseconds after MAX JUMP; None: off."""
    jump = node.args.get("max_jump")
    return jump.micros if isinstance(jump, nodes.Span) else None


def _kept(node: exp.Expression) -> int | None:
    """The microseconds after KEEP; None: all."""
    keep = node.args.get("keep")
    return keep.micros if isinstance(keep, nodes.Span) else None


def _rows(count: int) -> str:
    return f"{count:,} row" + ("" if count == 1 else "s")
