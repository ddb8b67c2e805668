"""SummaryService: summaries and their estimates."""

import contextlib
from typing import Any

from promising import wire
from promising.errors import LimitReached, UnknownName
from promising.query.catalog import SummaryEntry
from promising.query.summary_statements import statement_of
from promising.server import field_statements
from promising.server.context import ServerContext
from promising.v1 import summaries_pb2, summaries_pb2_grpc

Context = Any  # grpc.aio.ServicerContext, whose stubs are not generic
MOST_CELLS = 1 << 23  # of one description: a message of up to 40 MB
MOST_PAIRS = 1 << 24  # of key and zone that one Regions call may examine
LEAST_REGION = 30  # minimum bytes of a region in a message: three numbers of eight bytes, and small ones


class SummaryService(summaries_pb2_grpc.SummaryServiceServicer):
    """Defines, lists and queries summaries."""

    def __init__(self, parts: ServerContext) -> None:
        self._parts = parts
        self._session = parts.session
        self._work = parts.work

    async def CreateSummary(
        self, request: summaries_pb2.CreateSummaryRequest, context: Context
    ) -> summaries_pb2.CreateSummaryResponse:
        sql = field_statements.create_summary(request)
        return summaries_pb2.CreateSummaryResponse(done=await self._work.call(self._parts.done, sql))

    async def DropSummary(
        self, request: summaries_pb2.DropSummaryRequest, context: Context
    ) -> summaries_pb2.DropSummaryResponse:
        sql = field_statements.drop("SUMMARY", request.name, request.if_exists, request.cascade)
        return summaries_pb2.DropSummaryResponse(done=await self._work.call(self._parts.done, sql))

    async def ListSummaries(
        self, request: summaries_pb2.ListSummariesRequest, context: Context
    ) -> summaries_pb2.ListSummariesResponse:
        return await self._work.call(self._list)

    def _list(self) -> summaries_pb2.ListSummariesResponse:
        catalog = self._session.catalog
        with catalog.lock:
            entries = [entry for _, entry in sorted(catalog.summaries.items())]
        response = summaries_pb2.ListSummariesResponse()
        for entry in entries:
            with contextlib.suppress(UnknownName):  # dropped concurrently
                response.summaries.append(_described(entry, zones=False, cells=False, show=""))
        return response

    async def DescribeSummary(
        self, request: summaries_pb2.DescribeSummaryRequest, context: Context
    ) -> summaries_pb2.DescribeSummaryResponse:
        made = await self._work.call(self._describe, request.name, request.cells, request.show)
        return summaries_pb2.DescribeSummaryResponse(summary=made)

    def _describe(self, name: str, cells: bool, show: str) -> summaries_pb2.Summary:
        return _described(self._session.summary(name), zones=True, cells=cells, show=show)

    # --- questions -----------------------------------------------------------------------------------------------

    async def Estimate(
        self, request: summaries_pb2.EstimateRequest, context: Context
    ) -> summaries_pb2.EstimateResponse:
        return await self._work.call(self._estimate, request)

    def _estimate(self, request: summaries_pb2.EstimateRequest) -> summaries_pb2.EstimateResponse:
        keys = self._parts.keys(request.keys)
        return wire.estimates_to(self._session.estimate(request.summary, keys, _window(request)))

    async def Regions(self, request: summaries_pb2.RegionsRequest, context: Context) -> summaries_pb2.RegionsResponse:
        return await self._work.call(self._regions, request)

    def _regions(self, request: summaries_pb2.RegionsRequest) -> summaries_pb2.RegionsResponse:
        keys = self._parts.keys(request.keys)
        pairs = len(keys) * len(self._session.describe(request.summary).zones)
        if pairs > MOST_PAIRS:
            raise LimitReached(
                f"{len(keys):,} keys make {pairs:,} pairs of key and zone; {MOST_PAIRS:,} is the most, so ask for fewer"
            )
        found = self._session.regions(
            request.summary, keys, _window(request), search=request.search if request.HasField("search") else "flat"
        )
        most = self._parts.settings.limits.max_message_bytes
        size = len(found.key) * LEAST_REGION
        if size <= most:
            made = wire.regions_to(found)
            size = made.ByteSize()
        if size > most:
            raise LimitReached(
                f"the regions take {size:,} bytes; {most:,} is the most, so ask for fewer keys or a shorter window"
            )
        return made

    async def Story(self, request: summaries_pb2.StoryRequest, context: Context) -> summaries_pb2.StoryResponse:
        story = await self._work.call(self._session.story, request.summary, request.granularity, request.zone)
        return wire.story_to(story)


def _described(entry: SummaryEntry, *, zones: bool, cells: bool, show: str) -> summaries_pb2.Summary:
    told, buckets = entry.index.describe(cells=cells, show=show), entry.index.buckets
    if (cells or show) and len(told.zones) * buckets > MOST_CELLS:
        raise LimitReached(
            f"{len(told.zones):,} zones of {buckets:,} cells; {MOST_CELLS:,} cells is the most, so leave them out"
        )
    return wire.summary_to(told, entry.stream, buckets, statement_of(entry), zones)


def _window(request: summaries_pb2.EstimateRequest | summaries_pb2.RegionsRequest) -> tuple[int, int] | None:
    return wire.window_from(request.window) if request.HasField("window") else None
