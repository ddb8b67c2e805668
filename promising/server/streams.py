"""StreamService: streams and ingest."""

import asyncio
import time
from itertools import takewhile
from typing import Any, NamedTuple

from promising import wire, wire_errors, wire_times
from promising.errors import BadRequest, PromisingError, StorageError
from promising.index import Appended, Stream
from promising.index.schema import tuples_of
from promising.server import access, field_statements, logs
from promising.server.batch_reader import BatchReader
from promising.server.context import ServerContext
from promising.server.package_locations import check_place
from promising.server.read_ahead import Ahead, Batch
from promising.v1 import common_pb2, streams_pb2, streams_pb2_grpc

Context = Any  # grpc.aio.ServicerContext, whose stubs are not generic

TYPES = {
    "int": streams_pb2.COLUMN_TYPE_INT,
    "float": streams_pb2.COLUMN_TYPE_FLOAT,
    "string": streams_pb2.COLUMN_TYPE_STRING,
    "bool": streams_pb2.COLUMN_TYPE_BOOL,
    "timestamp": streams_pb2.COLUMN_TYPE_TIMESTAMP,
}


class Taken(NamedTuple):
    """Processed batches, in order: the stream of each, and its response.

    problem: why the batches after them were not added.
    """

    batches: list[tuple[Stream | None, streams_pb2.IngestResponse]]
    problem: StorageError | None = None

    def settled(self) -> "Taken":
        """Wait until they are on disk: returns those that may be acknowledged, up to the first that failed.

        One wait per stream, hence one sync for all its batches.
        """
        problem, lost = self.problem, set()
        for stream in dict.fromkeys(stream for stream, _ in self.batches if stream is not None):
            try:
                stream.wait()
            except StorageError as found:
                problem = found
                lost.add(stream)
        return Taken(list(takewhile(lambda batch: batch[0] not in lost, self.batches)), problem)


class StreamService(streams_pb2_grpc.StreamServiceServicer):
    """Defines, lists and feeds streams."""

    def __init__(self, parts: ServerContext) -> None:
        self._parts = parts
        self._session = parts.session
        self._work = parts.work

    async def CreateStream(
        self, request: streams_pb2.CreateStreamRequest, context: Context
    ) -> streams_pb2.CreateStreamResponse:
        sql = field_statements.create_stream(request)
        return streams_pb2.CreateStreamResponse(done=await self._work.call(self._parts.done, sql))

    async def DropStream(
        self, request: streams_pb2.DropStreamRequest, context: Context
    ) -> streams_pb2.DropStreamResponse:
        sql = field_statements.drop("STREAM", request.name, request.if_exists, request.cascade)
        return streams_pb2.DropStreamResponse(done=await self._work.call(self._parts.done, sql))

    async def ListStreams(
        self, request: streams_pb2.ListStreamsRequest, context: Context
    ) -> streams_pb2.ListStreamsResponse:
        return await self._work.call(self._list)

    def _list(self) -> streams_pb2.ListStreamsResponse:
        catalog = self._session.catalog
        with catalog.lock:
            found = [stream for _, stream in sorted(catalog.streams.items())]
        return streams_pb2.ListStreamsResponse(streams=[_described(stream) for stream in found])

    async def DescribeStream(
        self, request: streams_pb2.DescribeStreamRequest, context: Context
    ) -> streams_pb2.DescribeStreamResponse:
        return streams_pb2.DescribeStreamResponse(stream=await self._work.call(self._describe, request.name))

    def _describe(self, name: str) -> streams_pb2.Stream:
        return _described(self._session.stream(name))

    async def Advance(self, request: streams_pb2.AdvanceRequest, context: Context) -> streams_pb2.AdvanceResponse:
        if not request.HasField("watermark"):
            raise BadRequest("watermark is missing: the time before which nothing is expected any more", "watermark")
        await self._work.batch(self._session.advance, request.stream, wire_times.micros(request.watermark))
        return streams_pb2.AdvanceResponse()

    # --- tuples in -----------------------------------------------------------------------------------------------

    async def Ingest(self, requests: object, context: Context) -> None:  # type: ignore[override]  # it writes its responses instead of yielding them
        """Read-ahead batches wait until all before them are added, synced if durable, and acknowledged."""
        calls, limits = self._parts.ingests, self._parts.settings.limits
        reader = BatchReader(limits.max_batch_rows, limits.max_message_bytes)
        with calls.admitted(access.caller()) as call:
            ahead = Ahead(context)
            draining = asyncio.ensure_future(self._parts.drain.wait())
            draining.add_done_callback(lambda _: ahead.stop())
            try:
                while batches := await ahead.take():
                    taken = await self._work.batch(self._add_all, batches, reader)
                    if self._session.store is not None:
                        taken = await self._work.wait(taken.settled)
                    for _, response in taken.batches:
                        with call.writing():
                            await context.write(response)
                    if taken.problem is not None:
                        raise taken.problem
            except asyncio.CancelledError:
                await calls.give_up(call, context)
            finally:
                draining.cancel()  # and with it the reading

    def _add_all(self, batches: list[Batch], reader: BatchReader) -> Taken:
        """Add batches up to the first that fails for the disk, which is not the batch's fault."""
        taken: list[tuple[Stream | None, streams_pb2.IngestResponse]] = []
        added: list[Appended] = []
        try:
            for batch in batches:
                taken.append(self._add(batch, reader, added))
        except StorageError as problem:
            return Taken(taken, problem)
        finally:
            self._parts.tally.added(added)
        return Taken(taken)

    def _add(
        self, batch: Batch, reader: BatchReader, added: list[Appended]
    ) -> tuple[Stream | None, streams_pb2.IngestResponse]:
        """The response to a batch, which need not be on disk yet. Its errors affect no other batch.

        added: collects the accepted batches.
        """
        request = batch.request
        named = bool(request.producer_id or request.sequence or request.epoch)
        epoch, resent = request.epoch, request.resent
        producer, sequence = (request.producer_id, request.sequence) if named else (None, None)
        tuples = 0
        try:
            stream = self._session.stream(request.stream)
            found = stream.added(producer, sequence, epoch, resent=resent)
            if found is None:
                columns = reader.read(batch.arrow, stream.schema.types)
                tuples = tuples_of(columns)
                found = stream.append(
                    columns,
                    strict=request.strict,
                    producer=producer,
                    sequence=sequence,
                    epoch=epoch,
                    resent=resent,
                    wait=False,
                )
        except StorageError:
            raise
        except PromisingError as problem:
            self._parts.tally.turned_away(problem, tuples)
            refusal = common_pb2.Refusal(reason=wire_errors.reason_of(type(problem)), message=str(problem)[:2000])
            return None, streams_pb2.IngestResponse(sequence=request.sequence, refusal=refusal)
        added.append(found)
        return stream, streams_pb2.IngestResponse(sequence=request.sequence, appended=wire.appended_to(found))

    # --- packages in ---------------------------------------------------------------------------------------------

    async def PlanLoad(self, request: streams_pb2.PlanLoadRequest, context: Context) -> streams_pb2.PlanLoadResponse:
        plan = await self._work.call(self._session.load_plan, request.stream)
        return streams_pb2.PlanLoadResponse(plan=plan.to_json())

    async def Attach(self, request: streams_pb2.AttachRequest, context: Context) -> streams_pb2.AttachResponse:
        """Once begun it runs to the end, even if the client disconnects: a retry gets its result."""
        check_place(request.path, self._parts.settings.load_paths)
        with self._parts.ingests.admitted(access.caller()) as call:
            added = await self._work.package(self._session.attach, request.stream, request.path, request.token)
            self._parts.tally.attached(added)
            logs.event(
                "package",
                client=call.caller.name,
                accepted=added.accepted,
                duplicate=added.duplicate,
                seconds=time.time() - call.started,
            )
        return wire.attached_to(added)


def _described(stream: Stream) -> streams_pb2.Stream:
    made = streams_pb2.Stream(
        name=stream.name,
        columns=[streams_pb2.Column(name=c, type=TYPES[kind]) for c, kind in stream.schema.types.items()],
        time_column=stream.schema.time,
        lateness=wire_times.duration_of(stream.lateness),
        tuples=stream.kept,
        refused=stream.refused,
        bytes=stream.nbytes,
        summaries=sorted(stream.summaries),
        damages=stream.damages,
    )
    if stream.max_jump is not None:
        made.max_jump.CopyFrom(wire_times.duration_of(stream.max_jump))
    if stream.watermark is not None:
        made.watermark.CopyFrom(wire_times.shown(stream.watermark))
    if stream.keep is not None:
        made.keep.CopyFrom(wire_times.duration_of(stream.keep))
    return made
