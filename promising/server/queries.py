"""QueryService: statements, and answers frame by frame."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from promising import wire, wire_times
from promising.errors import BadRequest, DeadlineExceeded, LimitReached, Unavailable, Unsupported
from promising.query.answers import Answer, Done, Explanation, Frame, Part, Progress
from promising.query.budgets import LONGEST_BUDGET
from promising.query.sql import nodes, parse
from promising.server import access, logs
from promising.server.context import ServerContext
from promising.server.open_calls import Call
from promising.server.sliced_work import Step, Steps, Turns
from promising.server.subscriptions import Subscriptions
from promising.v1 import queries_pb2

Context = Any  # grpc.aio.ServicerContext, whose stubs are not generic
READS = (exp.Query, nodes.Show, nodes.Describe, nodes.Explain)


class QueryService(Subscriptions):
    """Runs statements and queries."""

    def __init__(self, parts: ServerContext) -> None:
        super().__init__(parts)
        self._parts = parts
        self._session = parts.session
        self._work = parts.work
        self._limits = parts.settings.limits

    # --- statements ----------------------------------------------------------------------------------------------

    async def Execute(self, request: queries_pb2.ExecuteRequest, context: Context) -> queries_pb2.ExecuteResponse:
        self._parts.check_sql(request.sql)
        node = await self._work.call(parse, request.sql, self._session.max_sql_tokens)
        access.require(_role(node))
        if isinstance(node, exp.Query):
            raise Unsupported("Execute takes every statement but SELECT, which Query takes", request.sql, 0)
        if isinstance(node, nodes.Explain) and not node.removal:
            made = await self._explained(request.sql, node=node)
            return queries_pb2.ExecuteResponse(explanation=wire.explanation_to(made))
        work = self._work.package if isinstance(node, nodes.AlterSummary) else self._work.call
        found = await work(self._session.execute_parsed, node, request.sql)
        if isinstance(found, Done):
            logs.event("definition", client=access.caller().name, kind=type(node).__name__, changed=found.changed)
            return queries_pb2.ExecuteResponse(done=wire.done_to(found))
        assert isinstance(found, pa.Table)
        return queries_pb2.ExecuteResponse(table=wire.ipc(found))

    async def Explain(self, request: queries_pb2.ExplainRequest, context: Context) -> queries_pb2.ExplainResponse:
        self._parts.check_sql(request.sql)
        seed = request.seed if request.HasField("seed") else None
        made = await self._explained(request.sql, analyze=request.analyze, budget=_budget(request), seed=seed)
        return queries_pb2.ExplainResponse(explanation=wire.explanation_to(made))

    async def _explained(self, sql: str, **how: Any) -> Explanation:
        """A plan, computed in steps, so that it takes turns with queries."""
        caller = access.caller()
        with self._parts.queries.admitted(caller):
            most, turns = self._limits.max_budget_seconds, Turns(self._work)
            steps = await turns.take(partial(self._session.explaining, sql, most=most, client=caller.client, **how))
            while (made := await turns.take(next, steps)) is None:
                pass
            explanation: Explanation = made
            return explanation

    # --- one query -----------------------------------------------------------------------------------------------

    async def Query(self, request: queries_pb2.QueryRequest, context: Context) -> None:  # type: ignore[override]  # it writes its responses instead of yielding them
        if request.WhichOneof("ask") is None:
            raise BadRequest("sql or resume_token is missing", "sql")
        if self._parts.draining:
            raise Unavailable("the service is shutting down")
        self._parts.check_sql(request.sql)
        with self._parts.queries.admitted(access.caller()) as call:
            allowed = self._allowed(context)
            call.due = time.monotonic() + allowed
            ending = asyncio.get_running_loop().call_later(allowed, _near, call)
            ended = "failed"
            try:
                await self._answer(call, request, context)
                ended = "complete" if call.progress is None else call.progress.cut or "complete"
            except LimitReached:
                ended = "failed" if call.progress is None else call.progress.cut or "failed"
                raise
            except asyncio.CancelledError:
                ended = "slow" if call.slow else "abandoned"
            finally:
                ending.cancel()
                self._close(call, ended)
            if ended in ("slow", "abandoned"):  # outside the handler, which would retain the query's state
                await self._parts.queries.give_up(call, context)

    async def _answer(self, call: Call, request: queries_pb2.QueryRequest, context: Context) -> None:
        turns = Turns(self._work)
        steps = self._opening(call, request, _budget(request))
        while (opened := await turns.take(next, steps)) is None:
            if call.closed:
                return
        answer, first = opened
        call.answer, call.progress = answer, first
        call.before = 0.0 if request.WhichOneof("ask") == "sql" else first.cpu_seconds
        if call.ending:
            answer.cancel()
        message = queries_pb2.QueryOpened(
            query_id=call.id,
            schema=wire.ipc(answer.schema.empty_table()),
            progress=wire.progress_to(first),
        )
        await self._write(call, context, queries_pb2.QueryResponse(opened=message))
        work = answer.turns()
        while (turn := await turns.take(_turn, work)) is not None:
            frame, *_ = turn
            del turn
            if frame is None:
                continue
            frame = _told(frame, call)
            call.progress = frame.progress
            call.rows = frame.rows.num_rows + (call.rows if frame.mode == "append" else 0)
            await self._send(call, frame, context)
            last = frame.progress
            del frame  # its rows are not counted with those of the next frame
            if last.complete or last.cut not in (None, "memory"):
                # Nothing follows, and a turn more would be a wait. With a token the call must end before its client
                # disconnects, which would lose it.
                return

    async def _send(self, call: Call, frame: Frame, context: Context) -> None:
        """Send a frame in parts; its progress, in the last, says what sending has cost."""
        parts = wire.frame_parts(frame)
        while True:
            began = time.thread_time()
            part = next(parts, None)
            call.sending += time.thread_time() - began
            if part is None:
                return
            if not part.continued:
                part.progress.send_seconds = call.sending
            await self._write(call, context, queries_pb2.QueryResponse(frame=part))

    def _opening(
        self, call: Call, request: queries_pb2.QueryRequest, budget: float | None
    ) -> Iterator[tuple[Answer, Progress] | None]:
        """Plan a query in steps, and get its estimates from the summaries. Release it if nobody waits by then."""
        most, client = self._limits.max_budget_seconds, call.caller.client
        if request.WhichOneof("ask") == "sql":
            seed = request.seed if request.HasField("seed") else None
            steps = self._session.asking(
                request.sql, budget=budget, seed=seed, most=most, client=client, left=call.left
            )
        else:
            token = request.resume_token
            steps = iter([self._session.resume(token, budget=budget, most=most, client=client, left=call.left)])
        for answer in steps:
            if answer is None:
                yield None
                continue
            progress = answer.progress
            if call.closed:
                answer.close()
            yield answer, progress

    async def _write(self, call: Call, context: Context, message: object) -> None:
        """Send a message; waits for the consumer, and no work is done meanwhile."""
        with call.writing():
            await context.write(message)

    def _close(self, call: Call, ended: str) -> None:
        """Release a query and count its outcome."""
        call.closed = True
        progress = call.progress
        if call.answer is not None and (progress is None or progress.token is None or ended != progress.cut):
            call.answer.close()
        call.answer = None
        spent = 0.0 if progress is None else progress.cpu_seconds - call.before
        self._parts.tally.ended(ended, call.rows, spent)
        logs.event(
            "query",
            query_id=call.id,
            client=call.caller.name,
            ended=ended,
            rows=call.rows,
            cpu_seconds=spent,
            seconds=time.time() - call.started,
        )

    def _allowed(self, context: Context) -> float:
        """Seconds until the last frame must be sent."""
        left = context.time_remaining()
        left = self._limits.max_deadline_seconds if left is None else min(left, self._limits.max_deadline_seconds)
        return max(left - min(0.5, left / 4), 0.0)

    async def CancelQuery(
        self, request: queries_pb2.CancelQueryRequest, context: Context
    ) -> queries_pb2.CancelQueryResponse:
        call = self._parts.queries.find(request.query_id, access.caller())
        call.end()
        return queries_pb2.CancelQueryResponse()

    # --- many ----------------------------------------------------------------------------------------------------

    async def QueryBatch(self, request: queries_pb2.QueryBatchRequest, context: Context) -> None:  # type: ignore[override]  # it writes its responses instead of yielding them
        if len(request.sql) > self._limits.max_statements:
            most = self._limits.max_statements
            raise LimitReached(f"{len(request.sql):,} statements in one batch; {most:,} is the most, so split it")
        for sql in request.sql:
            self._parts.check_sql(sql)
        with self._parts.queries.admitted(access.caller()) as call:
            await self._gone_through(call, context, self._batch(call, request, context))

    async def _batch(self, call: Call, request: queries_pb2.QueryBatchRequest, context: Context) -> None:
        rows = 0
        asked = self._session.query_each(list(request.sql), client=call.caller.client)
        with self._steps(Turns(self._work), asked) as steps:
            async for part in steps:
                if part is None:
                    continue
                rows = self._count(rows, part.rows)
                for message in _batch_parts(part):
                    await self._write(call, context, message)

    def _steps(self, turns: Turns, steps: Iterator[Step]) -> Steps[Step]:
        return Steps(turns, steps, self._limits.max_budget_seconds)

    async def Probe(self, request: queries_pb2.ProbeRequest, context: Context) -> None:  # type: ignore[override]  # it writes its responses instead of yielding them
        with self._parts.queries.admitted(access.caller()) as call:
            await self._gone_through(call, context, self._probe(call, request, context))

    async def _probe(self, call: Call, request: queries_pb2.ProbeRequest, context: Context) -> None:
        window = wire.window_from(request.window) if request.HasField("window") else None
        columns = list(request.columns) or None

        def begun() -> Iterator[pa.Table | None]:
            return self._session.probing(request.summary, self._parts.keys(request.keys), window, columns)

        rows, turns = 0, Turns(self._work)
        with self._steps(turns, await turns.take(begun)) as steps:
            async for found in steps:
                if found is None:
                    continue
                rows = self._count(rows, found)
                for start, count in wire.slices(found):
                    message = queries_pb2.ProbeResponse(rows=wire.ipc(found.slice(start, count)))
                    await self._write(call, context, message)

    # --- external readers ----------------------------------------------------------------------------------------

    async def PlanScan(self, request: queries_pb2.PlanScanRequest, context: Context) -> None:  # type: ignore[override]  # it writes its responses instead of yielding them
        self._parts.check_sql(request.sql)
        with self._parts.queries.admitted(access.caller()) as call:
            await self._gone_through(call, context, self._plan_scan(call, request, context))

    async def _plan_scan(self, call: Call, request: queries_pb2.PlanScanRequest, context: Context) -> None:
        share = request.share if request.HasField("share") else 1.0
        plan = await Turns(self._work).take(lambda: self._session.plan_scan(request.sql, share=share).to_json())
        for part in wire.text_parts(plan):
            await self._write(call, context, queries_pb2.PlanScanResponse(plan=part))

    async def Fetch(self, request: queries_pb2.FetchRequest, context: Context) -> None:  # type: ignore[override]  # it writes its responses instead of yielding them
        with self._parts.queries.admitted(access.caller()) as call:
            await self._gone_through(call, context, self._fetch(call, request, context))

    async def _fetch(self, call: Call, request: queries_pb2.FetchRequest, context: Context) -> None:
        asked = (request.stream, request.first, request.last, list(request.columns))
        turns = Turns(self._work)
        with self._steps(turns, await turns.take(self._session.fetch, *asked)) as steps:
            async for found in steps:
                for start, count in wire.slices(found):
                    message = queries_pb2.FetchResponse(rows=wire.ipc(found.slice(start, count)))
                    await self._write(call, context, message)

    async def ReadTable(self, request: queries_pb2.ReadTableRequest, context: Context) -> None:  # type: ignore[override]  # it writes its responses instead of yielding them
        with self._parts.queries.admitted(access.caller()) as call:
            await self._gone_through(call, context, self._read_table(call, request, context))

    async def _read_table(self, call: Call, request: queries_pb2.ReadTableRequest, context: Context) -> None:
        found = await Turns(self._work).take(self._session.table, request.table)
        for start, count in wire.slices(found):
            message = queries_pb2.ReadTableResponse(rows=wire.ipc(found.slice(start, count)))
            await self._write(call, context, message)

    # --- helpers -------------------------------------------------------------------------------------------------

    async def _gone_through(self, call: Call, context: Context, doing: Coroutine[Any, Any, None]) -> None:
        """Run a call within the time limit. If cancelled, release its state first: its consumer may be slow."""
        try:
            async with asyncio.timeout(self._limits.max_deadline_seconds):
                return await doing
        except TimeoutError:
            limit = self._limits.max_deadline_seconds
            raise DeadlineExceeded(f"more than {limit:g} seconds, which is all a call may take") from None
        except asyncio.CancelledError:
            pass
        await self._parts.queries.give_up(call, context)

    def _count(self, rows: int, more: pa.Table) -> int:
        rows += more.num_rows
        if rows > self._limits.max_rows:
            raise LimitReached(f"more than {self._limits.max_rows:,} rows; ask for less at once, or use Query")
        return rows


def _role(node: exp.Expression) -> str:
    """The role that a statement needs."""
    if isinstance(node, READS):
        return "query"
    return "ingest" if isinstance(node, nodes.TableChange) else "admin"


def _near(call: Call) -> None:
    """The deadline is near: send the last frame."""
    call.deadline = True
    call.end()


def _budget(request: queries_pb2.QueryRequest | queries_pb2.ExplainRequest) -> float | None:
    """The requested CPU time in seconds, at most `LONGEST_BUDGET`."""
    if not request.HasField("budget"):
        return None
    asked = wire_times.seconds(request.budget)
    if asked < 0:
        raise BadRequest(f"budget is CPU time, not negative, got {asked:g} seconds", "budget")
    return min(asked, LONGEST_BUDGET / 1e6)


def _told(frame: Frame, call: Call) -> Frame:
    """The frame, marked as cut by the deadline if it was: the last frame waits if it would take too long."""
    if frame.progress.cut == "cancelled" and (call.deadline or not call.ending):
        return replace(frame, progress=replace(frame.progress, cut="deadline"))
    return frame


def _turn(work: Iterator[Frame | None]) -> tuple[Frame | None] | None:
    """The frame of the next turn, if it has one; None after the last turn."""
    for frame in work:
        return (frame,)
    return None


def _batch_parts(part: Part) -> Iterator[queries_pb2.QueryBatchResponse]:
    for first, count in wire.slices(part.rows):
        more = part.more or first + count < part.rows.num_rows
        rows = wire.ipc(part.rows.slice(first, count))
        yield queries_pb2.QueryBatchResponse(statement=part.statement, rows=rows, continued=more)
